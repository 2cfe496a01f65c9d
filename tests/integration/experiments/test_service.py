import gc
import json
import time
from concurrent.futures import Future

import pytest

from playground.errors import UserError
from playground.experiments.length_generalization import SCORES_FILE
from playground.experiments.scheduler import MAX_QUEUED_RUNS
from playground.experiments.service import ExperimentService
from playground.experiments.store import MAX_EXPERIMENTS_PER_OWNER
from playground.jobs.process import warm_up
from playground.models.config_fields import ConfigError
from playground.runs.record import WEIGHTS_EVICTED
from playground.runs.registry import Registry
from playground.runs.storage_quota import all_weights
from playground.training.config import RunConfig
from playground.training.presets import architecture_preset
from tests.support.app_server import wait_for

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 4,
    "eval_size": 32,
    "eval_every": 10,
}
QUICK = SMALL | {"max_steps": 20}
ENDLESS = SMALL | {"max_steps": 100_000}


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up().join()


@pytest.fixture
def create_server(tmp_path):
    """Create servers on the test's folder, one after the other: a registry with the Lab."""
    servers = []

    def create(slots=2):
        registry = Registry(tmp_path, slots=slots)
        servers.append((registry, ExperimentService(registry)))
        return servers[-1]

    yield create
    for registry, experiments in servers:
        experiments.close()
        registry.shutdown()


def experiment_spec(base=QUICK, grid=None, seeds=(0, 1), **options):
    return {
        "name": "norms",
        "base": base,
        "grid": grid or {"norm_placement": ["pre", "post"]},
        "seeds": list(seeds),
    } | options


def wait_for_results(experiments, experiment, owner="ada"):
    wait_for(
        lambda: experiments.state(experiment, owner) == "done",
        90,
        f"the end of {experiments.details(experiment, owner)}",
    )
    return experiments.details(experiment, owner)


def list_statuses(experiments, experiment, owner="ada"):
    return [line["status"] for line in experiments.details(experiment, owner)["planned_runs"]]


@pytest.mark.smoke
def test_experiment_trains_every_run_and_reports_results(create_server):
    registry, experiments = create_server()
    experiment = experiments.submit(experiment_spec(), "ada")
    report = wait_for_results(experiments, experiment)
    json.dumps(report, allow_nan=False)
    # the results are cached
    assert (
        experiments.results(experiment, "ada")["variants"][0]
        is experiments.results(experiment, "ada")["variants"][0]
    )
    assert report["estimate"]["message"] == "every run has ended"
    assert (report["state"], report["runs"], report["statuses"]) == (
        "done",
        4,
        {"done": 4, "planned": 0},
    )
    runs = registry.list_for_owner("ada")
    assert sorted((run.config.model.norm_placement, run.config.training.seed) for run in runs) == [
        ("post", 0),
        ("post", 1),
        ("pre", 0),
        ("pre", 1),
    ]
    assert {run.record.started_by for run in runs} == {"experiment"}
    assert all(run.hidden and run.name.startswith("norms: norm_placement p") for run in runs)
    for variant in report["results"]["variants"]:
        exacts = sorted(
            run.scores["exact_match"]
            for run in runs
            if run.config.model.norm_placement == variant["values"]["norm_placement"]
        )
        assert [variant["exact_match"]["low"], variant["exact_match"]["high"]] == exacts
        assert variant["curve"]["steps"] == [10, 20]
        assert variant["steps_to"]["reached"] == 0
    assert "nothing reached 99 % exact match in 20 steps" in report["results"]["summary"]
    assert experiments.to_csv(experiment, "ada").count("\n") == 3
    assert experiments.summaries("ada")[0]["id"] == experiment.id
    assert (
        experiments.summaries("bob"),
        experiments.find(experiment.id, "bob"),
        experiments.find(experiment.id, ""),
    ) == (
        [],
        None,
        None,
    )


def test_time_is_estimated_from_comparable_runs_or_the_size_of_the_models(create_server):
    registry, experiments = create_server()
    declared = experiments.plan(experiment_spec(), "ada")["estimate"]
    assert (declared["unknown"], declared["is_measured"]) == (4, False)
    assert 0 < declared["seconds"] < 5
    assert "for 4 of them: no comparable run" in declared["message"]
    run = registry.start(
        architecture_preset("transformer", **SMALL | {"max_steps": 40, "norm_placement": "pre"}),
        "ada",
    )
    wait_for(lambda: run.status == "done", description="a run")
    for owner in ("ada", "bob"):  # the speed is measured on the machine, not per owner
        result = experiments.plan(experiment_spec(grid={"norm_placement": ["pre"]}), owner)
        assert result["estimate"]["is_measured"]
        assert result["estimate"]["seconds"] == pytest.approx(2 * 20 / (40 / run.seconds) / 2)
    assert (
        experiments.plan(experiment_spec(), "ada")["estimate"]["unknown"] == 2
    )  # no run had post-norm
    assert [variant["label"] for variant in result["variants"]] == ["norm_placement pre"]
    assert experiments.summaries("ada") == []


def test_large_experiment_does_not_block_single_runs_in_the_queue(create_server):
    registry, experiments = create_server(slots=1)
    experiment = experiments.submit(
        experiment_spec(SMALL | {"max_steps": 3}, seeds=range(15)), "ada"
    )
    wait_for(
        lambda: list_statuses(experiments, experiment).count("waiting") == MAX_QUEUED_RUNS,
        description="queued runs",
    )
    bob = registry.start(RunConfig.from_flat(SMALL | {"max_steps": 3}), "bob")
    own = registry.start(RunConfig.from_flat(SMALL | {"max_steps": 3}), "ada")
    assert registry.scheduler.position(bob) in (1, None)
    assert registry.scheduler.position(own) <= MAX_QUEUED_RUNS + 2
    wait_for(lambda: bob.status == "done", description="the single run")
    assert list_statuses(experiments, experiment).count("done") <= 3
    wait_for(lambda: own.status == "done", description="the owner's own run")
    assert list_statuses(experiments, experiment).count("done") <= MAX_QUEUED_RUNS + 5
    assert list_statuses(experiments, experiment).count("planned") >= 15
    experiments.cancel(experiment, "ada")


def test_pause_saves_the_training_run_and_resume_continues_it(create_server):
    registry, experiments = create_server(slots=1)
    experiment = experiments.submit(experiment_spec(ENDLESS), "ada")
    wait_for(
        lambda: any(run.step > 3 for run in registry.list_for_owner("ada")),
        description="some steps",
    )
    experiments.pause(experiment, "ada")
    wait_for(
        lambda: list_statuses(experiments, experiment).count("stopped") == 1,
        description="the run that trained to stop",
    )
    assert sorted(list_statuses(experiments, experiment)) == [
        "planned",
        "planned",
        "planned",
        "stopped",
    ]
    assert experiments.state(experiment, "ada") == "paused"
    run = next(run for run in registry.list_for_owner("ada") if run.deleted_at is None)
    wait_for(lambda: not run.has_worker, description="its worker to leave")
    step = run.step
    assert run.checkpoints()[0][1].step == step
    time.sleep(0.6)
    assert not run.has_worker  # no run resumes automatically
    experiments.resume(experiment, "ada")
    wait_for(lambda: run.has_worker and run.step > step, description="the run to go on")
    assert experiments.state(experiment, "ada") == "running"
    experiments.delete(experiment, "ada")
    assert experiments.summaries("ada") == []
    assert all(run.deleted_at for run in registry.list_for_owner("ada"))
    assert list(experiments.store.folder.iterdir()) == []


def test_resume_continues_a_run_that_is_still_saving(create_server):
    registry, experiments = create_server(slots=1)
    experiment = experiments.submit(
        experiment_spec(ENDLESS, {"norm_placement": ["pre"]}, [0]), "ada"
    )
    wait_for(
        lambda: any(run.step > 3 for run in registry.list_for_owner("ada")),
        description="some steps",
    )
    (run,) = registry.list_for_owner("ada")
    # the locks keep the process from reporting that it has saved
    with experiments.store.lock, registry._lock, run.lock:
        experiments.pause(experiment, "ada")
        experiments.resume(experiment, "ada")
        assert (run.status, experiments.state(experiment, "ada")) == ("stopping", "running")
        step = run.step
    wait_for(
        lambda: run.status == "training" and run.step > step and run.checkpoints(),
        description="the run to go on",
    )
    assert experiments.state(experiment, "ada") == "running"
    assert list(experiments.store.states[experiment.id].runs.values()) == [run.id]
    experiments.pause(experiment, "ada")


def test_cancel_deletes_unfinished_runs_and_survives_a_restart(create_server):
    registry, experiments = create_server(slots=1)
    experiment = experiments.submit(experiment_spec(ENDLESS), "ada")
    wait_for(
        lambda: any(run.step > 20 for run in registry.list_for_owner("ada")),
        description="some steps",
    )
    assert experiments.details(experiment, "ada")["results"]["variants"][0]["live"][0]["curve"]
    assert experiments.find_equivalent(experiment, "ada") is experiment
    experiments.cancel(experiment, "ada")
    assert experiments.state(experiment, "ada") == "cancelled"
    assert experiments.details(experiment, "ada")["statuses"] == {"planned": 4}
    assert all(run.deleted_at for run in registry.list_for_owner("ada"))
    assert experiments.find_equivalent(experiment, "ada") is None
    experiments.close()
    registry.shutdown()
    _, experiments = create_server()
    assert experiments.state(experiments.find(experiment.id, "ada"), "ada") == "cancelled"


def test_restarted_experiment_is_paused_and_resumes_unfinished_runs(create_server):
    registry, experiments = create_server(slots=1)
    experiment = experiments.submit(experiment_spec(), "ada")
    wait_for(lambda: "done" in list_statuses(experiments, experiment), description="a first run")
    experiments.close()
    registry.shutdown()
    stored = {run.id: run.created for run in registry.list_for_owner("ada") if run.status == "done"}
    registry, experiments = create_server()
    experiment = experiments.find(experiment.id, "ada")
    assert experiments.state(experiment, "ada") == "paused"
    assert experiment.seeds == (0, 1)
    experiments.resume(experiment, "ada")
    assert wait_for_results(experiments, experiment)["statuses"]["done"] == 4
    runs = {run.id: run.created for run in registry.list_for_owner("ada") if run.deleted_at is None}
    assert len(runs) == 4
    assert stored.items() <= runs.items()


def test_length_scores_are_stored_with_runs_and_not_recomputed(create_server):
    registry, experiments = create_server()
    registry.snapshots.slow_inspector.request = lambda *_: pytest.fail(
        "this process is for inspection"
    )
    more = {
        "grid": {"position_type": ["learned", "sinusoidal"]},
        "seeds": [0],
        "kind": "lengths",
        "times": 3,
        "n": 20,
    }
    experiment = experiments.submit(experiment_spec(**more), "ada")
    report = wait_for_results(experiments, experiment)
    actual = report["lengths"]
    assert (actual["trained"], actual["max_length"], actual["n_requested"]) == ([1, 4], 12, 20)
    assert [row["label"] for row in actual["rows"]] == ["learned", "sinusoidal"]
    assert [row["untrained"] for row in actual["rows"]] == [
        {"source": [5, 12], "target": [5, 12]},
        None,
    ]
    scores = actual["rows"][0]["runs"][0]["scores"]
    assert [line["length"] for line in scores] == list(range(1, 13))
    assert {line["n"] for line in scores[2:]} == {20}
    assert "evaluated up to 12" in actual["summary"]
    assert experiments.progress(experiment, "ada") == (
        64,
        64,
    )  # 2 runs of 20 steps and 12 lengths
    runs = registry.list_for_owner("ada")
    assert all(json.loads((run.folder / SCORES_FILE).read_text())["step"] == 20 for run in runs)
    experiments.close()
    registry.shutdown()
    registry, experiments = create_server()
    experiments.experiment_inspector.request = lambda *_: pytest.fail("it was evaluated already")
    second_report = experiments.find(experiment.id, "ada")
    assert experiments.state(second_report, "ada") == "done"
    assert experiments.lengths(second_report, "ada") == actual
    runs = registry.list_for_owner("ada")
    (
        runs[0].folder / SCORES_FILE
    ).unlink()  # the evicted run is counted again when the owner resumes
    registry, experiments = create_server()
    assert experiments.state(experiments.find(experiment.id, "ada"), "ada") == "paused"
    experiments.resume(experiments.find(experiment.id, "ada"), "ada")
    assert (
        wait_for_results(experiments, experiments.find(experiment.id, "ada"))["lengths"] == actual
    )


def test_evicted_run_is_reported_and_retrained_on_resume(create_server):
    registry, experiments = create_server()
    original_request, first = experiments.experiment_inspector.request, Future()
    experiments.experiment_inspector.request = lambda *_: first
    more = {
        "grid": {"position_type": ["learned", "sinusoidal"]},
        "seeds": [0],
        "kind": "lengths",
        "times": 2,
        "n": 20,
    }
    experiment = experiments.submit(experiment_spec(**more), "ada")
    wait_for(
        lambda: list_statuses(experiments, experiment) == ["done", "done"],
        description="two runs without an evaluation",
    )
    evicted = registry.find(experiments.store.states[experiment.id].runs["0/0"], "ada")
    assert wait_for(
        lambda: registry.storage_quota._truncate(evicted, all_weights, WEIGHTS_EVICTED),
        description="a free slot",
    )
    experiments.experiment_inspector.request = original_request
    first.set_result({"scores": []})
    wait_for(
        lambda: experiments.state(experiment, "ada") == "paused",
        60,
        "the end of the possible evaluations",
    )
    assert experiments.summary(experiment, "ada")["message"] == (
        f"{evicted.name}: its weights were deleted to free space before the evaluation; "
        "Resume trains it again"
    )
    assert [row["n"] for row in experiments.lengths(experiment, "ada")["rows"]] == [0, 1]
    experiments.resume(experiment, "ada")
    report = wait_for_results(experiments, experiment)
    assert [row["n"] for row in report["lengths"]["rows"]] == [1, 1]
    assert report["message"] == ""
    # the record of the evicted run, the evaluated run, and a new one
    assert len(registry.list_for_owner("ada")) == 3
    assert f"run:{evicted.id}" not in [line["run"] for line in report["planned_runs"]]


def test_failed_run_is_reported_and_retried_on_resume(create_server):
    registry, experiments = create_server()
    experiment = experiments.submit(experiment_spec(SMALL | {"max_steps": 300}, seeds=[0]), "ada")
    failing = wait_for(
        lambda: next((run for run in registry.list_for_owner("ada") if run.step), None),
        description="a run that trains",
    )
    failing.worker.kill()
    report = wait_for_results(experiments, experiment)
    assert sorted(line["status"] for line in report["planned_runs"]) == ["done", "failed"]
    assert "was killed" in next(
        line["message"] for line in report["planned_runs"] if line["status"] == "failed"
    )
    assert report["results"]["summary"].startswith(
        "Changing norm_placement, so far with 1 of 2 runs"
    )
    experiments.resume(experiment, "ada")
    wait_for(lambda: list_statuses(experiments, experiment) == ["done", "done"], 90, "both runs")


def test_unwatched_experiment_pauses_and_can_be_resumed(create_server):
    registry, experiments = create_server(slots=1)
    experiment = experiments.submit(experiment_spec(ENDLESS), "ada")
    wait_for(
        lambda: any(run.step for run in registry.list_for_owner("ada")),
        description="a run that trains",
    )
    registry.summaries("ada")
    experiments.store.states[experiment.id].last_viewed_at -= 2000  # longer ago than the lease
    time.sleep(0.5)
    assert experiments.store.states[experiment.id].owner  # the owner polls the list of runs
    registry.owner_last_seen.clear()
    wait_for(lambda: experiments.store.states[experiment.id].message, 60, "the end")
    assert (
        experiments.summary(experiment, "ada")["message"]
        == "stopped after 30 min without activity; resume it to continue"
    )
    assert experiments.state(experiment, "ada") == "paused"
    experiments.resume(experiment, "ada")
    wait_for(
        lambda: experiments.state(experiment, "ada") == "running", 60, "the experiment to go on"
    )
    experiments.cancel(experiment, "ada")


def test_rejected_start_is_not_retried_at_once(create_server, monkeypatch):
    registry, experiments = create_server()
    attempts = []

    def reject_start(*_, **__):
        attempts.append(1)
        raise UserError("all slots are in use")

    monkeypatch.setattr(registry, "start", reject_start)
    started = experiments.submit(experiment_spec(), "ada")
    wait_for(
        lambda: experiments.summary(started, "ada")["message"] == "all slots are in use",
        60,
        "the rejection",
    )
    time.sleep(1)
    assert len(attempts) == 1


def test_limits_reject_an_experiment_before_it_starts(create_server, monkeypatch):
    registry, experiments = create_server()
    with pytest.raises(ConfigError, match="wings"):
        experiments.submit(experiment_spec(wings=2), "ada")
    with pytest.raises(ConfigError, match="name is missing"):
        experiments.submit({"grid": {"norm_placement": ["pre"]}}, "ada")
    monkeypatch.setattr("playground.experiments.store.MAX_RUNS_PER_OWNER", 3)
    with pytest.raises(
        UserError, match="you have 0 runs and this experiment would add 4; the maximum is 3"
    ):
        experiments.submit(experiment_spec(), "ada")
    monkeypatch.setattr("playground.experiments.store.MAX_EXPERIMENTS_PER_OWNER", 0)
    with pytest.raises(UserError, match="you have 0 experiments"):
        experiments.submit(experiment_spec(), "ada")
    assert (
        experiments.summaries("ada"),
        registry.list_for_owner("ada"),
        MAX_EXPERIMENTS_PER_OWNER,
    ) == (
        [],
        [],
        50,
    )


def test_oldest_experiment_of_an_inactive_owner_is_evicted(create_server, monkeypatch):
    registry, experiments = create_server()
    monkeypatch.setattr("playground.experiments.store.MAX_EXPERIMENTS_TOTAL", 3)
    with experiments.store.lock:  # none of them has started a run
        known = {
            owner: experiments.submit(experiment_spec(), owner) for owner in ("ada", "bob", "cy")
        }
        for owner, experiment in known.items():
            experiments.cancel(experiment, owner)
        registry.summaries("ada")
        known["dan"] = experiments.submit(experiment_spec(), "dan")
        assert [
            owner for owner, experiment in known.items() if experiments.find(experiment.id, owner)
        ] == [
            "ada",
            "cy",
            "dan",
        ]
        assert {path.stem for path in experiments.store.folder.iterdir()} == {
            known[owner].id for owner in ("ada", "cy", "dan")
        }
        registry.summaries("cy")
        with pytest.raises(UserError, match="this server has reached its limit of experiments"):
            experiments.submit(experiment_spec(), "eve")  # dan's experiment has a training run
        experiments.cancel(known["dan"], "dan")
        experiments.submit(experiment_spec(), "eve")
        assert [experiments.summaries(owner) != [] for owner in ("ada", "cy", "dan", "eve")] == [
            True,
            True,
            False,
            True,
        ]
        experiments.cancel(experiments.list_for_owner("eve")[0], "eve")


def test_experiments_of_one_address_evict_only_its_own(create_server, monkeypatch, client_address):
    _, experiments = create_server()
    monkeypatch.setattr("playground.experiments.store.MAX_EXPERIMENTS_TOTAL", 4)
    with experiments.store.lock:  # none of them has started a run
        client_address.set("192.0.2.1")
        first = experiments.submit(experiment_spec(), "ada")
        experiments.cancel(first, "ada")
        client_address.set("192.0.2.9")
        known = {}
        for owner in ("eve", "eva", "evi"):
            known[owner] = experiments.submit(experiment_spec(), owner)
            experiments.cancel(known[owner], owner)
        assert [
            owner for owner, experiment in known.items() if experiments.find(experiment.id, owner)
        ] == [
            "eva",
            "evi",
        ]
        for owner in ("eva", "evi"):
            experiments.resume(known[owner], owner)
        with pytest.raises(
            UserError, match="your address has 2 experiments, the maximum; delete one first"
        ):
            experiments.submit(experiment_spec(), "ede")
        assert experiments.find(first.id, "ada") is first
        client_address.set("192.0.2.2")
        experiments.cancel(experiments.submit(experiment_spec(), "bob"), "bob")
        for owner in ("eva", "evi"):
            experiments.cancel(known[owner], owner)


def test_runs_count_for_the_address_that_started_the_experiment(create_server, client_address):
    registry, experiments = create_server()
    client_address.set("192.0.2.9")
    with experiments.store.lock:
        experiment = experiments.submit(experiment_spec(ENDLESS), "eve")
    wait_for(lambda: registry.list_for_owner("eve"), description="the first run")
    assert registry.list_for_owner("eve")[0].address == "192.0.2.9"
    experiments.cancel(experiment, "eve")


def test_invalid_files_are_ignored_and_stay(create_server, tmp_path):
    folder = tmp_path / "experiments"
    folder.mkdir()
    invalid = {
        "a.json": "{",
        "b.json": "[]",
        "c.json": '{"id": "c"}',
        "d.json": '{"id": "x", "owner": "o", "name": "n", "base": {}, "grid": {"n_heads": [1]}, '
        '"seeds": [0], "runs": {}}',
        "e.json": '{"id": "e", "owner": 5, "name": "n", "base": {}, "grid": {"n_heads": [1]}, '
        '"seeds": [0], "runs": {}}',
        "f.json": '{"id": "f", "owner": "o", "name": "n", "base": {}, "grid": {"norm_placement": '
        '["up"]}, "se'
        'eds": [0], "runs": {}}',
    }
    for name, text in invalid.items():
        (folder / name).write_text(text)
    _, experiments = create_server()
    assert experiments.store.states == {}
    assert sorted(path.name for path in folder.iterdir()) == sorted(invalid)


def cached_curves(run):
    """Return the results of a run that are in memory."""
    gc.collect()
    actual = [
        each
        for each in gc.get_objects()
        if type(each) is dict and each.get("run") == f"run:{run.id}"
    ]
    return [each for each in actual if "curve" in each]


def test_deleted_experiment_leaves_nothing_in_memory(create_server):
    registry, experiments = create_server()
    experiment = experiments.submit(
        experiment_spec(grid={"norm_placement": ["pre"]}, seeds=[0]), "ada"
    )
    wait_for_results(experiments, experiment)
    (run,) = registry.list_for_owner("ada")
    assert cached_curves(run)
    experiments.delete(experiment, "ada")
    wait_for(lambda: not cached_curves(run), 10, "the end of its cached results")


def test_cached_results_are_limited(create_server):
    _, experiments = create_server()
    experiments.close()  # no run has started
    n_cached = 64
    for number in range(2 * n_cached + 20):
        owner = f"owner {number // MAX_EXPERIMENTS_PER_OWNER}"
        experiment = experiments.submit(
            experiment_spec({**ENDLESS, "max_steps": 200_000 + number}), owner
        )
        experiments.cancel(experiment, owner)
        assert experiments.results(experiment, owner)["fields"] == ["norm_placement"]
    gc.collect()
    variants = [
        value
        for value in gc.get_objects()
        if type(value) is dict and {"label", "planned", "curve"} <= set(value)
    ]
    assert len(variants) <= 2 * n_cached + 4  # two of each experiment


def test_error_of_one_experiment_is_logged_once_and_others_continue(
    create_server, caplog, monkeypatch
):
    _, experiments = create_server()
    invalid = experiments.submit(experiment_spec(seeds=[0]), "ada")
    feed = experiments.scheduler.submit_runs

    def fail(experiment):
        if experiment.experiment.id == invalid.id:
            rounds.append(1)
            raise KeyError("an odd experiment")
        feed(experiment)

    rounds = []
    monkeypatch.setattr(experiments.scheduler, "submit_runs", fail)
    wait_for(lambda: len(rounds) > 3, description="some rounds")
    experiment = experiments.submit(
        experiment_spec(grid={"norm_placement": ["pre"]}, seeds=[0]), "ben"
    )
    wait_for_results(experiments, experiment, "ben")
    assert "KeyError" in experiments.summaries("ada")[0]["message"]
    assert [
        record.exc_info[0]
        for record in caplog.records
        if record.name.startswith("playground.experiments")
    ] == [KeyError]
