"""Experiments of a server on training processes and evaluations that the test controls."""

import gc
import json
import weakref
from concurrent.futures import Future
from functools import partial

import pytest

from playground.errors import UserError
from playground.experiments.runner import MAX_QUEUED_RUNS, ExperimentRunner
from playground.experiments.service import ExperimentService
from playground.experiments.state import ResultCache
from playground.models.config_fields import ConfigError
from playground.runs.record import WEIGHTS_EVICTED, owner_id
from playground.runs.registry import Registry
from playground.runs.storage_quota import all_weights
from playground.training.presets import architecture_preset
from playground.training.run_config import RunConfig
from tests.support.fake_workers import SECONDS_PER_STEP

SMALL = {"d_model": 8, "n_heads": 1, "n_layers": 1, "d_ff": 8, "max_length": 4}
BASE = SMALL | {"max_steps": 20, "eval_every": 10}
ONE = {"grid": {"norm_placement": ["pre"]}, "seeds": [0]}
LENGTHS = {
    "grid": {"position_type": ["learned", "sinusoidal"]},
    "seeds": [0],
    "kind": "lengths",
    "times": 3,
    "n": 20,
}


def evaluate(registry, kind, model, request, **_):
    """Answer that every sequence up to length 4 is right."""
    assert any(map(registry.snapshots.has_pending, registry.all_runs()))  # no eviction meanwhile
    response, request = Future(), json.loads(request)
    response.set_result(
        {
            "scores": [
                {"length": length, "right": 20 if length <= 4 else 0, "n": request["n"]}
                for length in request["lengths"]
            ]
        }
    )
    return response


@pytest.fixture
def create_server(workers, tmp_path, monkeypatch):
    """Create servers on the test's folder, one after the other; the test advances experiments."""
    monkeypatch.setattr(ExperimentRunner, "start", lambda self: None)
    servers = []

    def create(slots=2):
        registry = Registry(tmp_path, slots=slots)
        experiments = ExperimentService(registry)
        experiments.experiment_inspector.request = partial(evaluate, registry)
        servers.append(registry)
        return registry, experiments

    yield create
    for registry in servers:
        registry.shutdown(0)


@pytest.fixture
def server(create_server):
    return create_server()


def submit(experiments, owner="ada", **fields):
    """Submit an experiment of two variants and two seeds, and start its first runs."""
    spec = {
        "name": "norms",
        "base": BASE,
        "grid": {"norm_placement": ["pre", "post"]},
        "seeds": [0, 1],
    }
    experiment = experiments.start(spec | fields, owner)
    advance(experiments)
    return experiment


def advance(experiments, rounds=1):
    for _ in range(rounds):
        experiments.runner._advance_all()


def run_to_end(experiments, workers, experiment, owner="ada"):
    for _ in range(20):
        workers.finish_all()
        advance(experiments)
    assert experiments.state(experiment, owner) == "done"


def statuses(experiments, experiment, owner="ada"):
    return [line["status"] for line in experiments.details(experiment, owner)["planned_runs"]]


def test_a_plan_rejects_a_cosine_without_decay(server):
    _, experiments = server
    spec = {"name": "a", "base": {"lr_decay_steps": 160}, "grid": {"warmup_steps": [9, 160]}}
    with pytest.raises(ConfigError, match="lower warmup_steps or raise lr_decay_steps"):
        experiments.plan(spec, "ada")


def test_results_are_those_of_all_runs(server, workers):
    registry, experiments = server
    experiment = submit(experiments)
    workers[0].finish(0.5)
    workers[1].finish(1.0)
    advance(experiments)
    workers[2].finish(0.25)
    workers[3].finish(0.75)
    advance(experiments)
    report = experiments.details(experiment, "ada")
    json.dumps(report, allow_nan=False)
    assert (report["state"], report["statuses"]) == ("done", {"done": 4, "planned": 0})
    assert report["estimate"]["message"] == "every run has ended"
    runs = registry.list_for_owner("ada")
    planned = [(placement, seed) for seed in (0, 1) for placement in ("pre", "post")]
    assert planned == [(run.config.model.norm_placement, run.config.training.seed) for run in runs]
    assert {run.record.started_by for run in runs} == {"experiment"}
    assert all(run.hidden and run.name.startswith("norms: norm_placement p") for run in runs)
    pre, post = report["results"]["variants"]
    assert (pre["exact_match"]["low"], pre["exact_match"]["high"]) == (0.25, 0.5)
    assert (post["exact_match"]["low"], post["exact_match"]["high"]) == (0.75, 1.0)
    values = {"median": [0.375] * 2, "low": [0.25] * 2, "high": [0.5] * 2}
    assert pre["curve"] == {"steps": [10, 20], **values}
    assert (pre["steps_to"]["reached"], post["steps_to"]["reached"]) == (0, 1)
    assert experiments.to_csv(experiment, "ada").count("\n") == 3
    report = experiments.details(experiment, "ada")
    assert report["results"] is experiments.details(experiment, "ada")["results"]


def test_time_is_estimated_from_comparable_runs_or_sizes(server, workers):
    registry, experiments = server
    both = {"name": "norms", "base": BASE, "grid": {"norm_placement": ["pre", "post"]}}
    declared = experiments.plan(both | {"seeds": [0, 1]}, "ada")["estimate"]
    assert not declared["is_measured"]
    assert 0 < declared["seconds"] < 5
    assert "for 4 of them: no comparable run" in declared["message"]
    registry.start(architecture_preset("transformer", **BASE | {"norm_placement": "pre"}), "ada")
    workers[0].finish()
    for owner in ("ada", "bob"):  # the speed is measured on the machine, not per owner
        plan = experiments.plan(both | ONE | {"seeds": [0, 1]}, owner)
        assert plan["estimate"]["is_measured"]
        assert plan["estimate"]["seconds"] == 2 * 20 * SECONDS_PER_STEP / 2
    assert [variant["label"] for variant in plan["variants"]] == ["norm_placement pre"]
    estimate = experiments.plan(both | {"seeds": [0]}, "ada")["estimate"]
    assert "for 1 of them: no comparable run" in estimate["message"]  # of the two, post-norm
    assert experiments.store.list_for_owner("ada") == []


def test_a_large_experiment_does_not_delay_other_runs(create_server, workers):
    registry, experiments = create_server(slots=1)
    experiment = submit(experiments, seeds=range(15))
    advance(experiments, rounds=3)
    assert statuses(experiments, experiment).count("waiting") == MAX_QUEUED_RUNS
    bob = registry.start(RunConfig.from_flat(BASE), "bob")
    own = registry.start(RunConfig.from_flat(BASE), "ada")
    assert registry.scheduler.position(bob) == 1
    assert registry.scheduler.position(own) <= MAX_QUEUED_RUNS + 2
    workers[0].finish()
    assert bob.status == "starting"
    while own.status != "done":
        advance(experiments)
        workers.active[0].finish()
    assert statuses(experiments, experiment).count("done") <= MAX_QUEUED_RUNS + 1


def test_pause_saves_the_run_that_trains_and_resume_continues_it(create_server, workers):
    _, experiments = create_server(slots=1)
    experiment = submit(experiments)
    workers[0].train_to(7)
    experiments.pause(experiment, "ada")
    workers.deliver()
    assert statuses(experiments, experiment) == ["stopped", "planned", "planned", "planned"]
    assert experiments.state(experiment, "ada") == "paused"
    advance(experiments, rounds=2)
    assert workers.active == []  # no run resumes automatically
    experiments.resume(experiment, "ada")
    advance(experiments)
    (resumed,) = workers.active
    resumed.train_to(8)
    assert resumed.folder == workers[0].folder
    assert statuses(experiments, experiment)[0] == "training"
    assert experiments.state(experiment, "ada") == "running"


@pytest.mark.parametrize("fields", [{}, LENGTHS], ids=["grid", "lengths"])
def test_results_outlive_the_runs(create_server, workers, fields):
    def results(experiments):
        details = experiments.details(experiments.store.find(experiment.id, "ada"), "ada")
        for row in details["results"]["variants"]:
            for seed in row["seeds"]:
                del seed["run"]
        return details["results"], details.get("lengths"), details["statuses"], details["state"]

    registry, experiments = create_server()
    experiment = submit(experiments, **fields)
    run_to_end(experiments, workers, experiment)
    expected, progress = results(experiments), experiments.progress(experiment, "ada")
    for run in registry.list_for_owner("ada"):
        registry.delete(run)
    assert results(experiments) == expected
    n_workers = len(workers)
    registry.shutdown(0)
    _, experiments = create_server()
    experiment = experiments.store.find(experiment.id, "ada")
    assert results(experiments) == expected
    assert experiments.progress(experiment, "ada") == progress
    assert experiments.estimate(experiment, "ada")["seconds"] == 0
    assert set(statuses(experiments, experiment)) == {"done"}
    experiments.resume(experiment, "ada")
    advance(experiments)
    assert len(workers) == n_workers


def test_a_damaged_line_of_stored_results_is_ignored(create_server, workers):
    _, experiments = create_server()
    experiment = submit(experiments, **ONE)
    run_to_end(experiments, workers, experiment)
    expected = experiments.details(experiment, "ada")["results"]
    path = experiments.store.states[experiment.id].summaries_path
    content = path.read_bytes()
    changed = content.replace(b'"steps":', b'"step":')
    for damaged in (b'{"run": "x"}\n', content[:40], b"", changed):
        path.write_bytes(damaged)
        _, experiments = create_server()
        experiment = experiments.store.find(experiment.id, "ada")
        assert experiments.details(experiment, "ada")["results"] == expected
    path.with_suffix(".json").unlink()
    create_server()
    assert not path.exists()


def test_damaged_results_of_a_deleted_run_are_trained_again(server, workers):
    registry, experiments = server
    experiment = submit(experiments, **ONE)
    run_to_end(experiments, workers, experiment)
    (run,) = experiments.runs(experiment, "ada")
    registry.delete(run)
    assert statuses(experiments, experiment) == ["done"]
    state = experiments.store.states[experiment.id]
    state.summaries_path.write_bytes(
        state.summaries_path.read_bytes().replace(b'"steps":', b'"step":')
    )
    state.cache = ResultCache()
    experiments.details(experiment, "ada")
    assert statuses(experiments, experiment) == ["planned"]
    experiments.resume(experiment, "ada")
    advance(experiments)
    assert len(workers) == 2


def test_results_that_cannot_be_stored_are_those_of_the_runs(server, workers, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("playground.experiments.store.append_lines", fail)
    _, experiments = server
    experiment = submit(experiments, **ONE)
    run_to_end(experiments, workers, experiment)
    assert experiments.details(experiment, "ada")["results"]["variants"][0]["n"] == 1
    assert not experiments.store.states[experiment.id].summarized


def test_deletion_leaves_no_run_no_file_and_no_result(server, workers):
    registry, experiments = server
    experiment = submit(experiments)
    workers[0].finish()
    assert experiments.details(experiment, "ada")["results"]["variants"][0]["n"] == 1
    state = weakref.ref(experiments.store.states[experiment.id])
    experiments.delete(experiment, "ada")
    assert experiments.store.list_for_owner("ada") == []
    runs = registry.list_for_owner("ada")
    assert len(runs) == 4
    assert all(run.deleted_at for run in runs)
    assert list(experiments.store.folder.iterdir()) == []
    gc.collect()
    assert state() is None


def test_resume_continues_a_run_that_is_still_saving(server, workers):
    _, experiments = server
    experiment = submit(experiments, **ONE)
    workers[0].train_to(5)
    experiments.pause(experiment, "ada")
    experiments.resume(experiment, "ada")
    advance(experiments)
    assert statuses(experiments, experiment) == ["stopping"]
    assert experiments.state(experiment, "ada") == "running"
    workers.deliver()
    advance(experiments)
    (resumed,) = workers.active
    assert resumed.folder == workers[0].folder


def test_cancel_deletes_unfinished_runs_and_survives_a_restart(create_server, workers):
    registry, experiments = create_server(slots=1)
    experiment = submit(experiments)
    workers[0].finish()
    workers[1].train_to(15)
    details = experiments.details(experiment, "ada")
    assert details["results"]["variants"][1]["live"][0]["curve"]
    undrawn = experiments.details(experiment, "ada", 0)["results"]["variants"]
    runs = {each["run"] for each in details["planned_runs"]} - {None}
    seeds = [seed for each in undrawn for seed in each["seeds"]]
    assert {seed["run"] for seed in seeds} == runs
    assert all(seed.keys() == {"run"} for seed in seeds)
    assert experiments.find_equivalent(experiment, "ada") is experiment
    experiments.cancel(experiment, "ada")
    assert experiments.state(experiment, "ada") == "cancelled"
    assert experiments.details(experiment, "ada")["statuses"] == {"done": 1, "planned": 3}
    remaining = [run.status for run in registry.list_for_owner("ada") if not run.deleted_at]
    assert remaining == ["done"]
    assert experiments.find_equivalent(experiment, "ada") is None
    registry.shutdown(0)
    _, experiments = create_server()
    assert experiments.state(experiments.store.find(experiment.id, "ada"), "ada") == "cancelled"


def test_an_experiment_resumed_after_a_cancel_stays_so_after_a_restart(create_server, workers):
    registry, experiments = create_server()
    experiment = submit(experiments, **ONE)
    workers[0].finish()
    experiments.cancel(experiment, "ada")
    experiments.resume(experiment, "ada")
    registry.shutdown(0)
    _, experiments = create_server()
    assert experiments.state(experiments.store.find(experiment.id, "ada"), "ada") == "done"


def test_after_a_restart_resume_repeats_no_finished_run(create_server, workers):
    registry, experiments = create_server(slots=1)
    experiment = submit(experiments)
    workers[0].finish()
    registry.shutdown(0)
    started = {run.id for run in registry.list_for_owner("ada")}
    registry, experiments = create_server()
    experiment = experiments.store.find(experiment.id, "ada")
    assert experiments.state(experiment, "ada") == "paused"
    experiments.resume(experiment, "ada")
    advance(experiments)
    assert workers[0].folder not in [each.folder for each in workers[1:]]
    run_to_end(experiments, workers, experiment)
    finished = {run.id for run in registry.list_for_owner("ada")}
    assert started < finished
    assert len(finished) == 4


def test_length_scores_are_stored_and_not_recomputed(create_server, workers):
    registry, experiments = create_server()
    registry.snapshots.slow_inspector.request = lambda *_, **__: pytest.fail(
        "this process is for inspection"
    )
    experiment = submit(experiments, **LENGTHS)
    run_to_end(experiments, workers, experiment)
    expected = experiments.details(experiment, "ada")["lengths"]
    assert (expected["trained"], expected["max_length"]) == ([1, 4], 12)
    assert expected["n_requested"] == 20
    scores = expected["rows"][0]["runs"][0]["scores"]
    assert [line["length"] for line in scores] == list(range(1, 13))
    # 2 runs of 20 steps and 12 lengths
    assert experiments.progress(experiment, "ada") == (64, 64)
    registry.shutdown(0)
    registry, experiments = create_server()
    experiments.experiment_inspector.request = lambda *_, **__: pytest.fail(
        "it was evaluated already"
    )
    experiment = experiments.store.find(experiment.id, "ada")
    assert experiments.state(experiment, "ada") == "done"
    assert experiments.details(experiment, "ada")["lengths"] == expected
    experiments.store.states[experiment.id].summaries_path.unlink()
    _, experiments = create_server()
    experiment = experiments.store.find(experiment.id, "ada")
    assert experiments.state(experiment, "ada") == "paused"
    experiments.resume(experiment, "ada")
    run_to_end(experiments, workers, experiment)
    assert experiments.details(experiment, "ada")["lengths"] == expected
    assert len(workers) == 2


def test_an_evicted_run_is_reported_and_trained_again_on_resume(server, workers):
    registry, experiments = server
    experiment = submit(experiments, **LENGTHS)
    workers.finish_all()
    evicted = registry.find(experiments.store.states[experiment.id].runs["0/0"], "ada")
    assert registry.storage_quota._truncate(evicted, all_weights, WEIGHTS_EVICTED)
    advance(experiments, rounds=10)
    assert experiments.state(experiment, "ada") == "paused"
    assert experiments.summary(experiment, "ada")["message"] == (
        f"{evicted.name}: its weights were deleted to free space before the evaluation; "
        "Resume trains it again"
    )
    assert [row["n"] for row in experiments.details(experiment, "ada")["lengths"]["rows"]] == [0, 1]
    experiments.resume(experiment, "ada")
    advance(experiments)
    run_to_end(experiments, workers, experiment)
    report = experiments.details(experiment, "ada")
    assert [row["n"] for row in report["lengths"]["rows"]] == [1, 1]
    assert report["message"] == ""
    assert f"run:{evicted.id}" not in [line["run"] for line in report["planned_runs"]]
    assert len(workers) == 3


def test_a_failed_run_is_reported_and_retried_on_resume(server, workers):
    _, experiments = server
    experiment = submit(experiments, seeds=[0])
    workers[0].kill()
    workers.deliver()
    workers[1].finish()
    advance(experiments)
    report = experiments.details(experiment, "ada")
    assert report["state"] == "done"
    assert [line["status"] for line in report["planned_runs"]] == ["failed", "done"]
    assert "was ended from outside" in report["planned_runs"][0]["message"]
    assert report["results"]["summary"].startswith(
        "Changing norm_placement, so far with 1 of 2 runs"
    )
    experiments.resume(experiment, "ada")
    run_to_end(experiments, workers, experiment)
    assert statuses(experiments, experiment) == ["done", "done"]


def test_a_diverged_run_is_a_result_and_not_resumed(server, workers):
    _, experiments = server
    experiment = submit(experiments, **ONE)
    workers[0].diverge()
    advance(experiments)
    report = experiments.details(experiment, "ada")
    assert (report["state"], report["results"]["variants"][0]["diverged"]) == ("done", 1)
    experiments.resume(experiment, "ada")
    advance(experiments)
    assert len(workers) == 1


def test_an_unwatched_experiment_pauses_and_can_be_resumed(create_server, workers):
    registry, experiments = create_server(slots=1)
    registry.settings.idle_timeout_s = 1800
    experiment = submit(experiments)
    workers[0].train_to(1)
    registry.summaries("ada")
    experiments.store.states[experiment.id].last_viewed_at -= 2000  # longer ago than the lease
    advance(experiments)
    assert experiments.state(experiment, "ada") == "running"  # the owner polls the list of runs
    registry.owner_last_seen.clear()
    advance(experiments)
    workers.deliver()
    assert experiments.state(experiment, "ada") == "paused"
    assert (
        experiments.summary(experiment, "ada")["message"]
        == "stopped after 30 min 0 s without activity; resume it to continue"
    )
    experiments.resume(experiment, "ada")
    advance(experiments)
    assert experiments.state(experiment, "ada") == "running"


def test_a_rejected_start_is_retried_after_a_delay(server, monkeypatch):
    registry, experiments = server
    attempts = []

    def reject_start(*_, **__):
        attempts.append(1)
        raise UserError("all slots are in use")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "start", reject_start)
        experiment = submit(experiments)
        advance(experiments, rounds=3)
    assert len(attempts) == 1
    assert experiments.summary(experiment, "ada")["message"] == "all slots are in use"
    experiments.store.states[experiment.id].next_start_at = 0.0
    advance(experiments)
    assert experiments.summary(experiment, "ada")["message"] == ""
    assert statuses(experiments, experiment).count("planned") == 0


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("runs", "you have 0 runs and this experiment would add 4; the maximum is 0"),
        ("experiments", "you have 0 experiments"),
    ],
)
def test_a_limit_rejects_an_experiment_before_it_starts(server, monkeypatch, limit, message):
    registry, experiments = server
    monkeypatch.setenv("PLAYGROUND_LIMITS", f"{limit}.per-owner=0")
    with pytest.raises(UserError, match=message):
        submit(experiments)
    assert experiments.store.list_for_owner("ada") == registry.list_for_owner("ada") == []


def visible_owners(experiments, known):
    """Return the owners whose experiment still exists."""
    return [owner for owner, each in known.items() if experiments.store.find(each.id, owner)]


def submit_cancelled(experiments, *owners):
    """Submit and cancel an experiment of each owner."""
    known = {owner: submit(experiments, owner) for owner in owners}
    for owner, experiment in known.items():
        experiments.cancel(experiment, owner)
    return known


def test_the_oldest_experiment_of_an_inactive_owner_is_evicted(server, monkeypatch):
    registry, experiments = server
    monkeypatch.setenv("PLAYGROUND_LIMITS", "experiments.total=3")
    known = submit_cancelled(experiments, "ada", "bob", "cy")
    registry.summaries("ada")
    known["dan"] = submit(experiments, "dan")
    assert visible_owners(experiments, known) == ["ada", "cy", "dan"]
    assert {path.stem for path in experiments.store.folder.iterdir()} == {
        known[owner].id for owner in ("ada", "cy", "dan")
    }
    registry.summaries("cy")
    with pytest.raises(UserError, match="this server has 3 experiments, which is the maximum"):
        submit(experiments, "eve")  # dan's experiment is active
    experiments.cancel(known["dan"], "dan")
    known["eve"] = submit(experiments, "eve")
    assert visible_owners(experiments, known) == ["ada", "cy", "eve"]


def test_experiments_keep_their_address_after_a_restart(create_server, monkeypatch, client_address):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "experiments.total=4")
    _, experiments = create_server()
    client_address.set("192.0.2.1")
    known = submit_cancelled(experiments, "ada")
    client_address.set("192.0.2.9")
    known |= submit_cancelled(experiments, "eve", "eva")
    folder = experiments.store.folder
    assert not any("192.0.2" in path.read_text() for path in folder.iterdir())
    for owner, remaining in [("evi", "eva"), ("evo", "evi")]:
        client_address.set("")
        _, experiments = create_server()
        client_address.set("192.0.2.9")
        known |= submit_cancelled(experiments, owner)
        assert visible_owners(experiments, known) == ["ada", remaining, owner]


def test_runs_count_for_the_address_that_started_the_experiment(server, client_address):
    registry, experiments = server
    client_address.set("192.0.2.9")
    experiments.start({"name": "norms", "base": BASE} | ONE, "eve")
    client_address.set("")
    advance(experiments)
    client_address.set("192.0.2.9")
    assert registry.list_for_owner("eve")[0].address == registry.client_address()


def stored(**changes):
    content = {"id": "f", "name": "n", "base": {}, "runs": {}, "cancelled": False}
    return json.dumps(content | ONE | {"owner": owner_id("ada")} | changes)


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        (stored(), True),
        ("{", False),
        ('{"id": "f"}', False),
        (stored(id="x"), False),
        (stored(owner="x"), False),
        (stored(version=2), False),
        (stored(grid={"norm_placement": ["up"]}), False),
    ],
)
def test_an_invalid_file_is_named_and_stays(create_server, tmp_path, text, is_read):
    path = tmp_path / "experiments" / "f.json"
    path.parent.mkdir()
    path.write_text(text)
    _, experiments = create_server()
    assert list(experiments.store.states) == ["f"] * is_read
    assert list(experiments.store.damaged) == ["f.json"] * (not is_read)
    assert path.read_text() == text


def test_results_of_few_inactive_experiments_stay_in_memory(server, monkeypatch):
    _, experiments = server
    monkeypatch.setattr("playground.experiments.store.MAX_CACHED", 2)
    known = submit_cancelled(experiments, "ada", "bob", "cy")
    known["dan"] = submit(experiments, "dan")
    for owner, experiment in known.items():
        assert experiments.details(experiment, owner)["results"]["fields"] == ["norm_placement"]
    computed = [state.cache.results is not None for state in experiments.store.states.values()]
    assert computed == [False, False, True, True]


def test_an_error_of_one_experiment_is_logged_once_and_others_continue(
    server, workers, caplog, monkeypatch
):
    _, experiments = server
    submit_runs = experiments.runner.submit_runs

    def fail(state):
        if state.experiment.name == "odd":
            raise KeyError("an odd experiment")
        submit_runs(state)

    monkeypatch.setattr(experiments.runner, "submit_runs", fail)
    submit(experiments, name="odd")
    experiment = submit(experiments, "ben")
    run_to_end(experiments, workers, experiment, "ben")
    (odd,) = experiments.store.list_for_owner("ada")
    assert "KeyError" in experiments.summary(odd, "ada")["message"]
    logged = [each for each in caplog.records if each.name.startswith("playground.experiments")]
    assert [record.exc_info[0] for record in logged] == [KeyError]
