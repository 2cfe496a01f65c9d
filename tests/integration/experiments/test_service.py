import dataclasses
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
from playground.training.setting_changes import SettingChange
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
def serve(tmp_path):
    """Create servers on the test's folder, one after the other: a registry with the Lab."""
    made = []

    def make(slots=2):
        registry = Registry(tmp_path, slots=slots)
        made.append((registry, ExperimentService(registry)))
        return made[-1]

    yield make
    for registry, lab in made:
        lab.close()
        registry.shutdown()


def spec(base=QUICK, grid=None, seeds=(0, 1), **more):
    return {
        "name": "norms",
        "base": base,
        "grid": grid or {"norm_placement": ["pre", "post"]},
        "seeds": list(seeds),
    } | more


def finished(lab, requested, owner="ada"):
    wait_for(
        lambda: lab.state(requested, owner) == "done",
        90,
        f"the end of {lab.details(requested, owner)}",
    )
    return lab.details(requested, owner)


def statuses(lab, requested, owner="ada"):
    return [line["status"] for line in lab.details(requested, owner)["planned_runs"]]


@pytest.mark.smoke
def test_experiment_trains_every_run_and_reports_results(serve):
    registry, lab = serve()
    requested = lab.submit(spec(), "ada")
    report = finished(lab, requested)
    json.dumps(report, allow_nan=False)
    # made once
    assert (
        lab.results(requested, "ada")["variants"][0] is lab.results(requested, "ada")["variants"][0]
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
    assert lab.to_csv(requested, "ada").count("\n") == 3
    assert lab.summaries("ada")[0]["id"] == requested.id
    assert (lab.summaries("bob"), lab.find(requested.id, "bob"), lab.find(requested.id, "")) == (
        [],
        None,
        None,
    )


def test_time_is_estimated_from_comparable_runs_or_the_size_of_the_models(serve):
    registry, lab = serve()
    declared = lab.plan(spec(), "ada")["estimate"]
    assert (declared["unknown"], declared["is_measured"]) == (4, False)
    assert 0 < declared["seconds"] < 5
    assert "for 4 of them: no comparable run" in declared["message"]
    run = registry.start(
        RunConfig.from_flat(SMALL | {"max_steps": 40, "norm_placement": "pre"}), "ada"
    )
    wait_for(lambda: run.status == "done", description="a run")
    for owner in ("ada", "bob"):  # the speed is that of the machine
        result = lab.plan(spec(grid={"norm_placement": ["pre"]}), owner)
        assert result["estimate"]["is_measured"]
        assert result["estimate"]["seconds"] == pytest.approx(2 * 20 / (40 / run.seconds) / 2)
    assert lab.plan(spec(), "ada")["estimate"]["unknown"] == 2  # nothing with post-norm has run
    assert [variant["label"] for variant in result["variants"]] == ["norm_placement pre"]
    assert lab.summaries("ada") == []


def test_large_experiment_does_not_block_single_runs_in_the_queue(serve):
    registry, lab = serve(slots=1)
    requested = lab.submit(spec(SMALL | {"max_steps": 3}, seeds=range(15)), "ada")
    wait_for(
        lambda: statuses(lab, requested).count("waiting") == MAX_QUEUED_RUNS, description="a line"
    )
    bob = registry.start(RunConfig.from_flat(SMALL | {"max_steps": 3}), "bob")
    own = registry.start(RunConfig.from_flat(SMALL | {"max_steps": 3}), "ada")
    assert registry.scheduler.position(bob) in (1, None)
    assert registry.scheduler.position(own) <= MAX_QUEUED_RUNS + 2
    wait_for(lambda: bob.status == "done", description="the single run")
    assert statuses(lab, requested).count("done") <= 3
    wait_for(lambda: own.status == "done", description="the owner's own run")
    assert statuses(lab, requested).count("done") <= MAX_QUEUED_RUNS + 5
    assert statuses(lab, requested).count("planned") >= 15
    lab.cancel(requested, "ada")


def test_pause_saves_the_training_run_and_resume_continues_it(serve):
    registry, lab = serve(slots=1)
    requested = lab.submit(spec(ENDLESS), "ada")
    wait_for(
        lambda: any(run.step > 3 for run in registry.list_for_owner("ada")),
        description="some steps",
    )
    lab.pause(requested, "ada")
    wait_for(
        lambda: statuses(lab, requested).count("stopped") == 1,
        description="the run that trained to stop",
    )
    assert sorted(statuses(lab, requested)) == ["planned", "planned", "planned", "stopped"]
    assert lab.state(requested, "ada") == "paused"
    run = next(run for run in registry.list_for_owner("ada") if run.deleted_at is None)
    wait_for(lambda: not run.has_worker, description="its worker to leave")
    at = run.step
    assert run.checkpoints()[0][1].step == at
    time.sleep(0.6)
    assert not run.has_worker  # nothing goes on by itself
    lab.resume(requested, "ada")
    wait_for(lambda: run.has_worker and run.step > at, description="the run to go on")
    assert lab.state(requested, "ada") == "running"
    lab.delete(requested, "ada")
    assert lab.summaries("ada") == []
    assert all(run.deleted_at for run in registry.list_for_owner("ada"))
    assert list(lab.store.folder.iterdir()) == []


def test_resume_continues_a_run_that_is_still_saving(serve):
    registry, lab = serve(slots=1)
    requested = lab.submit(spec(ENDLESS, {"norm_placement": ["pre"]}, [0]), "ada")
    wait_for(
        lambda: any(run.step > 3 for run in registry.list_for_owner("ada")),
        description="some steps",
    )
    (run,) = registry.list_for_owner("ada")
    # its process cannot report meanwhile that it has saved
    with lab.store.lock, registry._lock, run.lock:
        lab.pause(requested, "ada")
        lab.resume(requested, "ada")
        assert (run.status, lab.state(requested, "ada")) == ("stopping", "running")
        at = run.step
    wait_for(
        lambda: run.status == "training" and run.step > at and run.checkpoints(),
        description="the run to go on",
    )
    assert lab.state(requested, "ada") == "running"
    assert list(lab.store.states[requested.id].runs.values()) == [run.id]
    lab.pause(requested, "ada")


def test_cancel_deletes_unfinished_runs_and_survives_a_restart(serve):
    registry, lab = serve(slots=1)
    requested = lab.submit(spec(ENDLESS), "ada")
    wait_for(
        lambda: any(run.step > 20 for run in registry.list_for_owner("ada")),
        description="some steps",
    )
    assert lab.details(requested, "ada")["results"]["variants"][0]["live"][0]["curve"]
    assert lab.find_equivalent(requested, "ada") is requested
    lab.cancel(requested, "ada")
    assert lab.state(requested, "ada") == "cancelled"
    assert lab.details(requested, "ada")["statuses"] == {"planned": 4}
    assert all(run.deleted_at for run in registry.list_for_owner("ada"))
    assert lab.find_equivalent(requested, "ada") is None
    lab.close()
    registry.shutdown()
    _, lab = serve()
    assert lab.state(lab.find(requested.id, "ada"), "ada") == "cancelled"


def test_restarted_experiment_is_paused_and_resumes_unfinished_runs(serve):
    registry, lab = serve(slots=1)
    requested = lab.submit(spec(), "ada")
    wait_for(lambda: "done" in statuses(lab, requested), description="a first run")
    lab.close()
    registry.shutdown()
    stored = {run.id: run.created for run in registry.list_for_owner("ada") if run.status == "done"}
    registry, lab = serve()
    requested = lab.find(requested.id, "ada")
    assert lab.state(requested, "ada") == "paused"
    assert requested.seeds == (0, 1)
    lab.resume(requested, "ada")
    assert finished(lab, requested)["statuses"]["done"] == 4
    runs = {run.id: run.created for run in registry.list_for_owner("ada") if run.deleted_at is None}
    assert len(runs) == 4
    assert stored.items() <= runs.items()


def test_length_scores_are_stored_with_runs_and_not_recomputed(serve):
    registry, lab = serve()
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
    requested = lab.submit(spec(**more), "ada")
    report = finished(lab, requested)
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
    assert lab.progress(requested, "ada") == (64, 64)  # 2 runs of 20 steps and 12 lengths
    runs = registry.list_for_owner("ada")
    assert all(json.loads((run.folder / SCORES_FILE).read_text())["step"] == 20 for run in runs)
    lab.close()
    registry.shutdown()
    registry, lab = serve()
    lab.experiment_inspector.request = lambda *_: pytest.fail("it was evaluated already")
    again = lab.find(requested.id, "ada")
    assert lab.state(again, "ada") == "done"
    assert lab.lengths(again, "ada") == actual
    runs = registry.list_for_owner("ada")
    (runs[0].folder / SCORES_FILE).unlink()  # lost: it is counted again when the owner resumes
    registry, lab = serve()
    assert lab.state(lab.find(requested.id, "ada"), "ada") == "paused"
    lab.resume(lab.find(requested.id, "ada"), "ada")
    assert finished(lab, lab.find(requested.id, "ada"))["lengths"] == actual


def test_evicted_run_is_reported_and_retrained_on_resume(serve):
    registry, lab = serve()
    original_request, first = lab.experiment_inspector.request, Future()
    lab.experiment_inspector.request = lambda *_: first
    more = {
        "grid": {"position_type": ["learned", "sinusoidal"]},
        "seeds": [0],
        "kind": "lengths",
        "times": 2,
        "n": 20,
    }
    requested = lab.submit(spec(**more), "ada")
    wait_for(
        lambda: statuses(lab, requested) == ["done", "done"],
        description="two runs without an evaluation",
    )
    lost = registry.find(lab.store.states[requested.id].runs["0/0"], "ada")
    assert wait_for(
        lambda: registry.storage_quota._truncate(lost, all_weights, WEIGHTS_EVICTED),
        description="a free slot",
    )
    lab.experiment_inspector.request = original_request
    first.set_result({"scores": []})
    wait_for(
        lambda: lab.state(requested, "ada") == "paused", 60, "the end of the possible evaluations"
    )
    assert lab.summary(requested, "ada")["message"] == (
        f"{lost.name}: its weights were deleted to free space before the evaluation; Resume trains "
        "it again"
    )
    assert [row["n"] for row in lab.lengths(requested, "ada")["rows"]] == [0, 1]
    lab.resume(requested, "ada")
    report = finished(lab, requested)
    assert [row["n"] for row in report["lengths"]["rows"]] == [1, 1]
    assert report["message"] == ""
    # the record of the lost one, the one with an evaluation, and a new one
    assert len(registry.list_for_owner("ada")) == 3
    assert f"run:{lost.id}" not in [line["run"] for line in report["planned_runs"]]


def test_failed_run_is_reported_and_retried_on_resume(serve):
    registry, lab = serve()
    requested = lab.submit(spec(SMALL | {"max_steps": 300}, seeds=[0]), "ada")
    doomed = wait_for(
        lambda: next((run for run in registry.list_for_owner("ada") if run.step), None),
        description="a run that trains",
    )
    doomed.worker.kill()
    report = finished(lab, requested)
    assert sorted(line["status"] for line in report["planned_runs"]) == ["done", "failed"]
    assert "was killed" in next(
        line["message"] for line in report["planned_runs"] if line["status"] == "failed"
    )
    assert report["results"]["summary"].startswith(
        "Changing norm placement, so far with 1 of 2 runs"
    )
    lab.resume(requested, "ada")
    wait_for(lambda: statuses(lab, requested) == ["done", "done"], 90, "both runs")


def test_diverged_run_is_counted_as_diverged(serve):
    _, lab = serve()
    fatal = SMALL | {
        "max_steps": 300,
        "warmup_steps": 0,
        "lr_schedule": "constant",
        "optimizer": "sgd",
        "max_grad_norm": 0.0,
    }
    requested = lab.submit(spec(fatal, {"learning_rate": [100.0]}, [0]), "ada")
    report = finished(lab, requested)
    assert report["planned_runs"][0]["message"].startswith("training diverged at step ")
    assert report["results"]["variants"][0]["diverged"] == 1
    assert "diverged in 1 of 1 seeds" in lab.results(requested, "ada")["summary"]
    lab.resume(requested, "ada")
    assert lab.state(requested, "ada") == "done"  # it would diverge again


def test_unwatched_experiment_pauses_and_can_be_resumed(serve):
    registry, lab = serve(slots=1)
    requested = lab.submit(spec(ENDLESS), "ada")
    wait_for(
        lambda: any(run.step for run in registry.list_for_owner("ada")),
        description="a run that trains",
    )
    registry.summaries("ada")
    lab.store.states[requested.id].last_viewed_at -= 2000  # longer ago than the lease
    time.sleep(0.5)
    assert lab.store.states[requested.id].owner  # the owner polls the list of runs
    registry.owner_last_seen.clear()
    wait_for(lambda: lab.store.states[requested.id].message, 60, "the end")
    assert (
        lab.summary(requested, "ada")["message"]
        == "stopped after 30 min without activity; resume it to continue"
    )
    assert lab.state(requested, "ada") == "paused"
    lab.resume(requested, "ada")
    wait_for(lambda: lab.state(requested, "ada") == "running", 60, "the experiment to go on")
    lab.cancel(requested, "ada")


def test_rejected_start_is_not_retried_at_once(serve, monkeypatch):
    registry, lab = serve()
    requested = []

    def full(*_, **__):
        requested.append(1)
        raise UserError("all places are taken")

    monkeypatch.setattr(registry, "start", full)
    started = lab.submit(spec(), "ada")
    wait_for(
        lambda: lab.summary(started, "ada")["message"] == "all places are taken", 60, "a refusal"
    )
    time.sleep(1)
    assert len(requested) == 1


def test_deleted_run_is_trained_again_on_resume(serve):
    registry, lab = serve()
    requested = lab.submit(spec(grid={"norm_placement": ["pre"]}, seeds=[0]), "ada")
    finished(lab, requested)
    wait_for(
        lambda: not lab.store.states[requested.id].owner,
        description="the laboratory to see that it is over",
    )
    registry.delete(registry.list_for_owner("ada")[0])
    assert (lab.state(requested, "ada"), statuses(lab, requested)) == ("paused", ["planned"])
    lab.resume(requested, "ada")
    assert finished(lab, requested)["statuses"]["done"] == 1


def test_limits_reject_an_experiment_before_it_starts(serve, monkeypatch):
    registry, lab = serve()
    with pytest.raises(ConfigError, match="wings"):
        lab.submit(spec(wings=2), "ada")
    with pytest.raises(ConfigError, match="name is missing"):
        lab.submit({"grid": {"norm_placement": ["pre"]}}, "ada")
    monkeypatch.setattr("playground.experiments.store.MAX_RUNS_PER_OWNER", 3)
    with pytest.raises(
        UserError, match="you have 0 runs and this experiment would add 4; the maximum is 3"
    ):
        lab.submit(spec(), "ada")
    monkeypatch.setattr("playground.experiments.store.MAX_EXPERIMENTS_PER_OWNER", 0)
    with pytest.raises(UserError, match="you have 0 experiments"):
        lab.submit(spec(), "ada")
    assert (lab.summaries("ada"), registry.list_for_owner("ada"), MAX_EXPERIMENTS_PER_OWNER) == (
        [],
        [],
        50,
    )


def test_oldest_experiment_of_an_inactive_owner_is_evicted(serve, monkeypatch):
    registry, lab = serve()
    monkeypatch.setattr("playground.experiments.store.MAX_EXPERIMENTS_TOTAL", 3)
    with lab.store.lock:  # nothing is begun of any of them
        known = {owner: lab.submit(spec(), owner) for owner in ("ada", "bob", "cy")}
        for owner, each in known.items():
            lab.cancel(each, owner)
        registry.summaries("ada")
        known["dan"] = lab.submit(spec(), "dan")
        assert [owner for owner, each in known.items() if lab.find(each.id, owner)] == [
            "ada",
            "cy",
            "dan",
        ]
        assert {path.stem for path in lab.store.folder.iterdir()} == {
            known[owner].id for owner in ("ada", "cy", "dan")
        }
        registry.summaries("cy")
        with pytest.raises(UserError, match="this server has reached its limit of experiments"):
            lab.submit(spec(), "eve")  # dan's is going
        lab.cancel(known["dan"], "dan")
        lab.submit(spec(), "eve")
        assert [lab.summaries(owner) != [] for owner in ("ada", "cy", "dan", "eve")] == [
            True,
            True,
            False,
            True,
        ]
        lab.cancel(lab.list_for_owner("eve")[0], "eve")


def test_experiments_of_one_address_evict_only_its_own(serve, monkeypatch, client_address):
    _, lab = serve()
    monkeypatch.setattr("playground.experiments.store.MAX_EXPERIMENTS_TOTAL", 4)
    with lab.store.lock:  # nothing is begun of any of them
        client_address.set("192.0.2.1")
        first = lab.submit(spec(), "ada")
        lab.cancel(first, "ada")
        client_address.set("192.0.2.9")
        known = {}
        for owner in ("eve", "eva", "evi"):
            known[owner] = lab.submit(spec(), owner)
            lab.cancel(known[owner], owner)
        assert [owner for owner, each in known.items() if lab.find(each.id, owner)] == [
            "eva",
            "evi",
        ]
        for owner in ("eva", "evi"):
            lab.resume(known[owner], owner)
        with pytest.raises(
            UserError, match="your address has 2 experiments, the maximum; delete one first"
        ):
            lab.submit(spec(), "ede")
        assert lab.find(first.id, "ada") is first
        client_address.set("192.0.2.2")
        lab.cancel(lab.submit(spec(), "bob"), "bob")
        for owner in ("eva", "evi"):
            lab.cancel(known[owner], owner)


def test_runs_count_for_the_address_that_started_the_experiment(serve, client_address):
    registry, lab = serve()
    client_address.set("192.0.2.9")
    with lab.store.lock:
        requested = lab.submit(spec(ENDLESS), "eve")
    wait_for(lambda: registry.list_for_owner("eve"), description="the first run")
    assert registry.list_for_owner("eve")[0].address == "192.0.2.9"
    lab.cancel(requested, "eve")


def test_invalid_files_are_ignored_and_stay(serve, tmp_path):
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
    _, lab = serve()
    assert lab.store.states == {}
    assert sorted(path.name for path in folder.iterdir()) == sorted(invalid)


def test_run_is_compared_with_a_published_loss_in_a_subprocess(serve, monkeypatch):
    from playground.experiments import replications
    from playground.experiments.claims import CLAIMS

    registry, _ = serve()
    small = CLAIMS["annotated-copy"].settings | {
        "d_model": 16,
        "n_heads": 2,
        "n_layers": 1,
        "d_ff": 16,
        "max_steps": 5,
    }
    monkeypatch.setitem(
        CLAIMS,
        "annotated-copy",
        dataclasses.replace(CLAIMS["annotated-copy"], settings=small),
    )
    run = registry.start(
        replications.replication_config("annotated-copy"),
        "ada",
        changes=[SettingChange(0, "speed", 0.0)],
    )
    wait_for(lambda: run.status == "done", description="a run")
    result = replications.evaluate_replication(registry, "annotated-copy", run)
    assert result["passed"] is False
    assert 1.5 < result["measured"] < 10  # five updates: about as good as guessing among thirteen
    assert "reproduced: " in result["summary"]


def curves_of(run):
    """Return the results of a run that are in memory."""
    gc.collect()
    actual = [
        each
        for each in gc.get_objects()
        if type(each) is dict and each.get("run") == f"run:{run.id}"
    ]
    return [each for each in actual if "curve" in each]


def test_deleted_experiment_leaves_nothing_in_memory(serve):
    registry, lab = serve()
    requested = lab.submit(spec(grid={"norm_placement": ["pre"]}, seeds=[0]), "ada")
    finished(lab, requested)
    (run,) = registry.list_for_owner("ada")
    assert curves_of(run)
    lab.delete(requested, "ada")
    wait_for(lambda: not curves_of(run), 10, "the end of what was computed")


def test_results_in_memory_are_limited(serve):
    _, lab = serve()
    lab.close()  # nothing is begun
    stored = 64
    for number in range(2 * stored + 20):
        owner = f"owner {number // MAX_EXPERIMENTS_PER_OWNER}"
        requested = lab.submit(spec({**ENDLESS, "max_steps": 200_000 + number}), owner)
        lab.cancel(requested, owner)
        assert lab.results(requested, owner)["fields"] == ["norm_placement"]
    gc.collect()
    variants = [
        each
        for each in gc.get_objects()
        if type(each) is dict and {"label", "planned", "curve"} <= set(each)
    ]
    assert len(variants) <= 2 * stored + 4  # two of each experiment


def test_error_of_one_experiment_is_logged_once_and_others_continue(serve, caplog, monkeypatch):
    _, lab = serve()
    invalid = lab.submit(spec(seeds=[0]), "ada")
    feed = lab.scheduler.submit_runs

    def fail(going):
        if going.experiment.id == invalid.id:
            rounds.append(1)
            raise KeyError("an odd experiment")
        feed(going)

    rounds = []
    monkeypatch.setattr(lab.scheduler, "submit_runs", fail)
    wait_for(lambda: len(rounds) > 3, description="some rounds")
    requested = lab.submit(spec(grid={"norm_placement": ["pre"]}, seeds=[0]), "ben")
    finished(lab, requested, "ben")
    assert "KeyError" in lab.summaries("ada")[0]["message"]
    assert [
        record.exc_info[0]
        for record in caplog.records
        if record.name.startswith("playground.experiments")
    ] == [KeyError]
