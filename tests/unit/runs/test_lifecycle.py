"""Runs with fake workers: commands, exits, timeouts, deletion, branches, changes and polls."""

import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest

from playground.checkpoints import manifest as manifest_module
from playground.checkpoints.manifest import read_manifest
from playground.errors import UserError
from playground.models.config_fields import ConfigError
from playground.runs import registry as registry_module
from playground.runs import supervisor
from playground.runs.limits import Limits
from playground.runs.record import RunRecord, owner_id
from playground.runs.snapshots import VIEWER_TTL_S
from playground.runs.state import Run
from playground.runs.supervisor import UNDO_TTL_S, UNVIEWED_POINTS_TTL_S
from playground.runs.weight_history import state_steps
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange


def checkpoint_names(run):
    return [path.name for path, _ in run.checkpoints()]


# Commands


def test_an_unknown_action_is_rejected(registry, start):
    with pytest.raises(ValueError, match="use one of pause, resume, step, stop, save"):
        registry.control(start(registry), "explode")


@pytest.mark.parametrize("action", ["stop", "resume"])
def test_a_command_during_the_end_of_a_run_has_no_effect(registry, workers, start, action):
    run = start(registry)
    worker, worker.lingers = run.worker, True
    workers.finish(run)
    workers.control(registry, run, action)  # its process has not ended yet
    worker.exit(0)
    assert (run.status, run.message, run.has_worker) == ("done", "", False)


def test_resume_right_after_stop_is_not_lost(registry, workers, start):
    run = start(registry)
    worker, worker.lingers = run.worker, True
    workers.control(registry, run, "stop")
    assert run.status == "stopped"
    workers.control(registry, run, "resume")
    worker.exit(0)
    workers.train(run, 2)
    assert (run.status, run.step) == ("training", 2)


def test_a_second_stop_ends_a_worker_that_does_not_listen_at_once(registry, workers, start):
    run = start(registry)
    workers.train(run, 5)
    workers.control(registry, run, "pause", "resume")
    run.worker.is_hung = True
    workers.control(registry, run, "stop")
    assert run.status == "stopping"
    workers.control(registry, run, "stop")
    message = "ended immediately by a second Stop; Resume continues at step 5"
    assert (run.status, run.message) == ("stopped", message)
    workers.control(registry, run, "resume")
    assert (run.status, run.step) == ("training", 5)


def test_saved_checkpoints_stay_and_of_the_others_only_the_latest(registry, workers, start):
    run = start(registry)
    workers.train(run)
    workers.control(registry, run, "save")
    for _ in range(4):
        workers.control(registry, run, "pause", "resume")
        workers.train(run)
    assert checkpoint_names(run) == ["0000004", "0000003", "0000001-kept"]
    assert run.live.checkpoint_version == 5


# Exits


def test_a_killed_worker_is_reported_with_the_last_checkpoint(registry, workers, start):
    run = start(registry)
    workers.train(run, 5)
    run.worker.exit(-9)
    assert (run.status, run.has_worker) == ("failed", False)
    assert run.message == (
        "the training process was ended from outside (SIGKILL); Resume continues at step 0"
    )
    registry.control(run, "resume")
    workers.train(run, 7)
    workers.control(registry, run, "pause")
    run.worker.exit(1)
    assert run.status == Run.read(run.folder).status == "failed"
    assert run.message == ("the training process ended (exit code 1); Resume continues at step 7")


@pytest.mark.parametrize("ends_by", ["the worker", "the server"])
def test_the_list_shows_the_step_at_which_resume_continues(
    registry, create_registry, workers, start, ends_by
):
    run = workers.train(start(registry), 40)  # it has states of its history, but no checkpoint
    (*_, state_step) = state_steps(run.folder)
    assert 0 < state_step < run.step == 40
    if ends_by == "the worker":
        run.worker.exit(-9)
        assert run.message.endswith(f"; Resume continues at step {state_step}")
    else:
        registry = create_registry()
        run = registry.find(run.id, "ada")
    assert [row["step"] for row in registry.summaries("ada")] == [state_step]
    assert registry.poll(run, 0, -1, 0)["step"] == state_step
    registry.control(run, "resume")
    workers[-1].deliver()
    assert workers[-1].step == state_step


def test_a_worker_that_cannot_save_names_the_step_of_resume(registry, workers, start):
    run = workers.train(start(registry), 5)
    workers.control(registry, run, "pause", "resume")
    workers.train(run, 2)
    registry.supervisor.on_message(run, "ended", "paused", "no space left", None)
    run.worker.exit(0)
    assert (run.status, run.step) == ("paused", 5)
    assert run.message == "no space left; Resume continues at step 5"


def test_a_worker_that_cannot_be_launched_fails_the_run(registry, start, monkeypatch):
    def refuse(*arguments, **options):
        raise ValueError("no such start method")

    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "WorkerProcess", refuse)
        run = start(registry)
    message = "the training process could not be started: no such start method"
    assert (run.status, run.message, run.has_worker) == ("failed", message, False)
    assert start(registry).status == "training"


def test_a_message_of_a_worker_names_no_folder_of_the_server(registry, start, tmp_path):
    run = start(registry)
    registry.supervisor.on_message(run, "trouble", f"could not write {run.folder}/x")
    assert run.message == f"could not write runs/{run.folder.name}/x"


def test_the_reason_of_a_pause_outlives_the_worker(registry, workers, start):
    run = start(registry)
    workers.control(registry, run, "pause")
    run.update(message="paused for a reason")
    registry.shutdown()
    assert (run.status, run.message, run.has_worker) == ("paused", "paused for a reason", False)


# Without viewers


def test_unwatched_run_pauses_with_reason_and_releases_its_worker(
    create_registry, workers, start, clock
):
    registry = create_registry(idle_timeout_s=30, release_after_s=10)
    run, watched, listed = start(registry), start(registry, "bob"), start(registry, "eve")
    workers.train(run, 3)
    clock.advance(31)
    registry.poll(watched, 0, -1, 0)
    registry.summaries("eve")
    workers.housekeep(registry)
    assert [each.status for each in (run, watched, listed)] == ["paused", "training", "training"]
    assert run.message == "paused automatically after 30 s without viewers"
    assert run.has_worker
    clock.advance(11)
    workers.housekeep(registry)
    assert (run.has_worker, checkpoint_names(run)) == (False, ["0000003"])
    assert Run.read(run.folder).message == run.message
    response = registry.poll(run, 0, -1, 0)
    assert (response["status"], response["has_worker"], response["points"]["count"]) == (
        "paused",
        False,
        3,
    )
    workers.control(registry, run, "resume")
    assert (run.status, run.message) == ("training", "")


def test_a_worker_knows_whether_a_page_is_open(registry, workers, start, clock):
    run = start(registry)
    clock.advance(VIEWER_TTL_S + 1)
    workers.housekeep(registry)
    assert run.worker.viewer_active is False
    registry.poll(run, 0, -1, 0)
    workers.deliver()
    assert run.worker.viewer_active is True


def test_points_without_viewers_are_read_from_disk_again(registry, workers, start, clock):
    run = start(registry)
    workers.finish(run)
    assert registry.poll(run, 0, -1, 0)["points"]["count"] == 60
    clock.advance(UNVIEWED_POINTS_TTL_S + 1)
    workers.housekeep(registry)
    assert (run.live.points, run.live.snapshot) == (None, None)
    assert registry.poll(run, 0, -1, 0)["points"]["count"] == 60


# A worker that hangs


def test_only_a_silent_worker_without_cpu_time_is_hung(
    create_registry, workers, start, clock, monkeypatch
):
    registry = create_registry(hang_timeout_s=60)
    used_s = [5.0]
    monkeypatch.setattr(supervisor, "cpu_seconds", lambda pid: used_s[0])
    run = start(registry)
    workers.train(run)
    clock.advance(61)
    workers.housekeep(registry)  # busy with a long step
    assert run.status == "training"
    used_s[0] += 30  # it has waited for a CPU since
    clock.advance(61)
    workers.housekeep(registry)
    assert run.status == "training"
    clock.advance(31)  # it was active half the timeout ago
    workers.housekeep(registry)
    assert run.status == "failed"
    assert run.message == (
        "the training process hung for 60 s and was ended; Resume continues at step 0"
    )


def test_a_paused_worker_is_hung_only_if_a_command_waits(
    create_registry, workers, start, clock, monkeypatch
):
    registry = create_registry(hang_timeout_s=60)
    monkeypatch.setattr(supervisor, "cpu_seconds", lambda pid: 0.0)
    run = start(registry)
    workers.control(registry, run, "pause")
    clock.advance(1000)
    workers.housekeep(registry)
    assert (run.status, run.has_worker) == ("paused", True)
    run.worker.is_hung = True
    workers.control(registry, run, "resume")
    clock.advance(61)
    workers.housekeep(registry)
    assert (run.status, run.has_worker) == ("failed", False)


# Training time


def test_a_run_at_its_time_limit_pauses_and_stays_paused(create_registry, workers, start):
    registry = create_registry(limits=Limits(max_minutes=0.05))
    run = start(registry)
    workers.train(run, 29)  # a tenth of a second each
    workers.housekeep(registry)
    assert (run.status, registry.poll(run, 0, -1, 0)["time_left"][0]) == (
        "training",
        pytest.approx(0.1),
    )
    workers.train(run)
    workers.housekeep(registry)
    message = "this server allows 0.05 minutes of training per run"
    assert (run.status, run.message.startswith(message)) == ("paused", True)
    for action in ("resume", "step"):
        with pytest.raises(UserError, match=message):
            registry.control(run, action)
    registry.shutdown()
    registry = create_registry(limits=Limits(max_minutes=0.05))  # the limit survives a restart
    run = registry.find(run.id, "ada")
    with pytest.raises(UserError, match=message):
        registry.control(run, "resume")
    registry.settings.limits = Limits(max_minutes=15)
    workers.control(registry, run, "resume")
    assert (run.status, run.step) == ("training", 30)
    assert registry.poll(run, 0, -1, 0)["time_left"] is None


# Restarts and deletion


def test_restarted_server_has_its_runs_paused(create_registry, workers, start):
    registry = create_registry(slots=2)
    training, paused, waiting = (start(registry) for _ in range(3))
    workers.train(training, 5)
    workers.control(registry, paused, "pause")
    registry.update_metadata(paused, name="My run")
    assert registry.shutdown() == (2, 0)
    restarted = create_registry(slots=3)
    for old in (training, paused, waiting):
        run = restarted.find(old.id, "ada")
        assert run is not old
        assert (run.has_worker, run.share_id, run.name) == (False, old.share_id, old.name)
        assert run.status == "paused"
    run = restarted.find(training.id, "ada")
    assert (run.step, checkpoint_names(run)) == (5, ["0000005"])
    workers.control(restarted, run, "resume")
    assert (run.status, run.step) == ("training", 5)


def test_a_worker_that_hangs_is_killed_by_a_shutdown(registry, create_registry, workers, start):
    run = workers.train(start(registry), 5)
    run.worker.is_hung = True
    assert registry.shutdown() == (0, 1)
    workers.deliver()
    assert not run.has_worker
    restored = create_registry().find(run.id, "ada")
    assert (restored.status, restored.step) == ("paused", run.resume_step())
    assert restored.message.startswith("the server ended before it could save; Resume continues at")


def test_deleted_run_stops_and_can_be_restored_until_undo_expires(
    create_registry, workers, start, clock
):
    registry = create_registry(slots=1)
    run, waiting = start(registry), start(registry)
    for deleted in (waiting, run):
        registry.delete(deleted)
    workers.deliver()
    assert [row["deleted"] for row in registry.summaries("ada")] == [True, True]
    for deleted in (run, waiting):
        workers.control(registry, deleted, "resume")
        assert (deleted.status, deleted.has_worker) == ("paused", False)
    registry.restore(run)
    workers.control(registry, run, "resume")
    assert run.status == "training"
    registry.delete(run)
    workers.deliver()
    clock.jump += 10 * UNDO_TTL_S  # the wall clock may jump
    clock.advance(UNDO_TTL_S - 10)
    workers.housekeep(registry)
    assert run.folder.exists()
    assert create_registry().find(run.id, "ada").is_deleted
    registry.restore(waiting)
    clock.advance(11)
    workers.housekeep(registry)
    assert not run.folder.exists()
    assert [each.id for each in registry.list_for_owner("ada")] == [waiting.id]


# Branches


def test_a_branch_has_the_settings_and_points_up_to_its_step(registry, workers, start):
    changes = [SettingChange(step, "learning_rate", 0.1 / step) for step in (10, 20, 30)]
    parent = start(registry, changes=changes, name="parent")
    workers.finish(parent)
    branch = registry.branch(parent, 20, "bob")
    workers.deliver()
    assert (branch.status, branch.step, branch.name) == ("paused", 20, "branch at 20, parent")
    assert list(branch.changes) == changes[:2]
    assert branch.load_points().columns["loss"] == parent.load_points().columns["loss"][:20]
    assert registry.list_for_owner("bob") == [branch]
    assert (branch.id, branch.share_id) != (parent.id, parent.share_id)


def test_a_branch_from_the_last_step_trains_as_long_again(registry, workers, start):
    parent = start(registry, stop_at_exact_match=0.2, eval_every=60)
    workers.finish(parent)
    last, earlier = (registry.branch(parent, step, "ada") for step in (60, 59))
    assert list(last.changes) == [
        SettingChange(60, "max_steps", 120),
        SettingChange(60, "stop_at_exact_match", 0.0),  # else it would end at its next evaluation
    ]
    assert earlier.changes == ()


def test_a_step_that_was_not_reached_has_no_branch(registry, workers, start):
    parent = workers.train(start(registry), 30)
    for step in (-1, 31):
        message = f"step {step} is not in this run; choose a step from 0 to 30"
        with pytest.raises(UserError, match=message):
            registry.branch(parent, step, "ada")


def test_a_change_on_a_queued_branch_applies_at_its_step(create_registry, workers, start):
    registry = create_registry(slots=1)
    parent = workers.train(start(registry), 30)
    branch = registry.branch(parent, 10, "ada")
    registry.change_setting(branch, "learning_rate", 5e-4)
    assert branch.status == "waiting"
    assert list(branch.changes) == [SettingChange(10, "learning_rate", 5e-4)]
    workers.control(registry, parent, "stop")
    assert (branch.status, branch.step) == ("paused", 10)
    workers.control(registry, branch, "resume")
    workers.finish(branch)
    rates = list(branch.load_points().columns["learning_rate"])
    assert rates == [parent.learning_rate] * 10 + [5e-4] * 50


# Changes of settings


def test_a_change_after_a_failure_applies_where_resume_continues(registry, workers, start):
    run = workers.train(start(registry), 3)
    workers.control(registry, run, "pause", "resume")
    workers.train(run, 4)
    run.worker.exit(-9)
    registry.change_setting(run, "learning_rate", 5e-4)
    workers.control(registry, run, "resume")  # from its checkpoint of step 3
    workers.finish(run)
    assert list(run.load_points().columns["learning_rate"]) == [1e-3] * 3 + [5e-4] * 57


def test_a_change_of_a_stopped_run_applies_on_resume(registry, workers, start):
    run = workers.train(start(registry), 5)
    workers.control(registry, run, "stop")
    for rate in (0.01, 0.05):
        registry.change_setting(run, "learning_rate", rate)
    registry.change_setting(run, "max_steps", 10)
    registry.change_setting(run, "speed", 20)
    assert list(run.changes) == [
        SettingChange(5, "learning_rate", 0.05),
        SettingChange(5, "max_steps", 10),
        SettingChange(5, "speed", 20),
    ]
    response = registry.poll(run, 0, -1, 0)
    assert (response["learning_rate"], response["max_steps"], response["speed"]) == (0.05, 10, 20)
    assert run.changes == Run.read(run.folder).changes
    workers.control(registry, run, "resume")
    workers.finish(run)
    assert (run.step, list(run.load_points().columns["learning_rate"])[4:6]) == (10, [1e-3, 0.05])


def test_run_extended_after_its_end_has_no_scores_until_next_end(registry, workers, start):
    run = start(registry)
    workers.finish(run)
    assert registry.poll(run, 0, -1, 0)["scores"] == run.scores
    registry.change_setting(run, "max_steps", 70)
    assert (run.status, run.steps) == ("paused", 70)
    workers.control(registry, run, "resume")
    workers.train(run)
    assert registry.poll(run, 0, -1, 0)["scores"] is None
    workers.control(registry, run, "pause")
    assert run.scores is Run.read(run.folder).scores is None
    assert registry.summaries("ada")[0]["best"] == run.best == 0.5
    curve = registry.summaries("ada")[0]["curve"]
    assert curve == list(Run.read(run.folder).record.curve) == list(run.load_points().scores)
    assert len(curve) > 1
    workers.control(registry, run, "resume")
    workers.finish(run)
    assert run.scores["n"] == Run.read(run.folder).scores["n"] == 2000


@pytest.mark.parametrize("action", ["pause", "stop"])
def test_an_invalid_change_is_rejected_in_every_status(registry, workers, start, action):
    run = workers.train(start(registry), 5)
    workers.control(registry, run, action)
    for setting, value in (("learning_rate", -1), ("learning_rate", None), ("speed", "fast")):
        with pytest.raises(ConfigError, match=setting):
            registry.change_setting(run, setting, value)
    with pytest.raises(ConfigError, match="cannot change during a run"):
        registry.change_setting(run, "seed", 3)
    with pytest.raises(UserError, match="the run has taken 5 steps already; give a larger number"):
        registry.change_setting(run, "max_steps", 5)
    assert run.changes == ()


# Polls


def test_a_page_receives_only_what_is_new(registry, workers, start):
    run = workers.train(start(registry, changes=[SettingChange(0, "learning_rate", 1e-3)]), 5)
    first = registry.poll(run, 0, -1, 0)
    assert [setting for _, setting, _ in first["changes"]] == ["learning_rate"]
    assert (first["points"]["steps"], first["snapshot"]["step"]) == ([1, 2, 3, 4, 5], 5)
    cursor = (5, first["series_id"], first["snapshot_version"])
    workers.train(run, 2)
    second = registry.poll(run, *cursor, changes=first["changes_version"])
    assert (second["points"]["steps"], second["points"]["whole"]) == ([6, 7], False)
    assert (second["changes"], second["snapshot"]["step"]) == (None, 7)
    third = registry.poll(run, 7, first["series_id"], second["snapshot_version"])
    assert (third["points"]["steps"], third["snapshot"]) == ([], None)
    registry.change_setting(run, "learning_rate", 2e-3)
    workers.deliver()
    response = registry.poll(run, *cursor, changes=first["changes_version"])
    assert len(response["changes"]) == 2


def test_a_page_starts_over_if_its_run_continues_from_an_earlier_step(registry, workers, start):
    run = workers.train(start(registry), 3)
    workers.control(registry, run, "pause", "resume")
    workers.train(run, 4)
    before = registry.poll(run, 0, -1, 0)["series_id"]
    run.worker.exit(-9)
    assert registry.poll(run, 7, before, 0)["points"]["steps"] == []
    registry.control(run, "resume")
    workers.train(run)
    response = registry.poll(run, 7, before, 0)
    assert response["series_id"] != before
    assert (response["points"]["whole"], response["points"]["steps"]) == (True, [1, 2, 3, 4])


def test_a_manifest_that_has_not_changed_is_read_once(registry, workers, start, monkeypatch):
    run = start(registry)
    workers.finish(run)
    reads = []
    monkeypatch.setattr(
        manifest_module, "read_manifest", lambda path: reads.append(path) or read_manifest(path)
    )
    for _ in range(3):
        assert run.checkpoints()[0][1].step == 60
    config = run.checkpoints()[0][0] / "config.json"
    assert len(reads) <= 1
    config.write_text(config.read_text().replace('"step": 60', '"step": 1'))
    assert run.checkpoints()[0][1].step == 1


# Snapshots


def test_a_run_without_weights_has_a_message(create_registry, start):
    registry = create_registry(slots=1)
    _, waiting = start(registry), start(registry)
    assert (
        "has no weights yet"
        in registry.snapshots.request("predict", waiting, "1 2").result(0)["error"]
    )
    assert registry.poll(waiting, 0, -1, 0)["snapshot"] is None


def test_a_failed_inspection_leaves_the_run_idle(registry, workers, start, monkeypatch):
    run = start(registry)
    workers.finish(run)
    run.update_live(snapshot=None)

    def fail(*_, **__):
        raise RuntimeError("no process")

    with monkeypatch.context() as patch:
        patch.setattr(registry.snapshots.inspector, "request", fail)
        with pytest.raises(RuntimeError):
            registry.snapshots.refresh(run)
    assert registry.is_idle(run)
    registry.snapshots.refresh(run)
    assert run.live.snapshot["step"] == 60


@pytest.mark.parametrize("result", ["snapshot", "error"])
def test_late_snapshot_does_not_replace_the_last_weights_of_a_run(registry, monkeypatch, result):
    """Check a short run, which may end before the snapshot of its first weights."""
    requests = []

    def request(kind, model_ref, **options):
        requests.append((model_ref["step"], Future()))
        return requests[-1][1]

    monkeypatch.setattr(registry.snapshots.inspector, "request", request)
    run = Run(RunRecord.new(RunConfig(), owner_id("ada"), "short"), Path("run"))
    run.worker = SimpleNamespace(exited=threading.Event())
    run.update_live(latest_weights_step=0)
    registry.snapshots.refresh(run)
    run.update_live(latest_weights_step=50)
    run.worker.exited.set()  # the run ends
    answers = {
        "snapshot": {"probe_info": {}, "snapshot": {"step": 0}},
        "error": {"error": "damaged"},
    }
    requests[0][1].set_result(answers[result])
    assert (run.live.latest_weights_step, run.message) == (50, "")
    assert [step for step, _ in requests] == [0, 50][: 1 + (result == "snapshot")]


# Housekeeping


def test_one_run_that_cannot_be_supervised_does_not_stop_the_others(
    create_registry, workers, start, clock, caplog
):
    registry = create_registry(idle_timeout_s=30)
    broken, other = start(registry), start(registry)
    workers.deliver()
    broken.last_viewed_at = None  # makes every round of housekeeping fail
    clock.advance(31)
    for _ in range(2):
        registry.supervisor.housekeep()
        workers.deliver()
    assert other.status == "paused"
    assert caplog.text.count("Supervisor.supervise failed") == 1


def test_unknown_owners_are_forgotten(registry, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_TRACKED_OWNERS", 5)
    for number in range(20):
        registry.summaries(f"invented {number}")
    registry.summaries("ada")
    assert len(registry.owner_last_seen) == 5
    assert owner_id("ada") in registry.owner_last_seen
