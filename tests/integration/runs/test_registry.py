"""Real workers and real inspection processes: one path for each mechanism.

tests/unit/runs has the rules of queue, commands, limits and timeouts, on fake workers.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import Future

import psutil
import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.checkpoints.manifest import read_manifest
from playground.checkpoints.metrics import read_metrics
from playground.common.storage import BUNDLED_CHECKPOINTS
from playground.jobs.process import warm_up
from playground.runs.inspector_process import validate_checkpoint
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.weight_history import weight_steps, weights_path
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for
from tests.support.small_runs import SMALL_SETTINGS, pause_and_wait, wait_for_end, wait_for_status

SETTINGS = SMALL_SETTINGS | {"eval_every": 10, "max_steps": 60, "dropout": 0.1}
AVERAGED_MUON = {"optimizer": "muon", "weight_averaging": True}
SLOW_MOTION = [SettingChange(0, "speed", 5)]  # a busy machine may start a process meanwhile


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Start the fork server, which imports torch, as the app does."""
    warm_up().join()


@pytest.fixture
def create_registry():
    registries = []

    def create(root, **settings) -> Registry:
        registries.append(Registry(root, **({"slots": 3} | settings)))
        return registries[-1]

    yield create
    for registry in registries:
        registry.shutdown()


@pytest.fixture
def registry(create_registry, tmp_path):
    return create_registry(tmp_path)


@pytest.fixture(scope="module")
def trained_root(tmp_path_factory):
    """The folder of a server with a finished run of ada."""
    root = tmp_path_factory.mktemp("trained")
    registry = Registry(root)
    run = start(registry)
    worker = run.worker
    wait_for_status(run, "done")
    assert worker.exited.wait(60)
    assert has_exited(worker.process.pid)
    registry.shutdown()
    return root


@pytest.fixture
def finished(registry, trained_root, tmp_path):
    """A finished run in the registry of the test."""
    (folder,) = (trained_root / "runs").glob("*-*")
    run = Run.read(shutil.copytree(folder, tmp_path / "runs" / folder.name))
    registry._add(run)
    return run


def start(registry: Registry, changes=(), **fields) -> Run:
    return registry.start(RunConfig.from_flat(SETTINGS | fields), "ada", changes=changes)


def wait_for_steps(run: Run, step: int = 1) -> Run:
    wait_for(lambda: run.step >= step, 120, f"step {step}")
    return run


def wait_for_pause_at(run: Run, step: int) -> None:
    wait_for(lambda: (run.status, run.step) == ("paused", step), 120, f"a pause at step {step}")


def run_to_end(registry: Registry, run: Run) -> Run:
    """Resume the run at full speed."""
    registry.control(run, "resume")
    if run.changes:
        registry.change_setting(run, "speed", 0)
    wait_for_status(run, "done")
    wait_for_end(run)
    return run


def losses(run: Run) -> list[float]:
    points = run.load_points()
    assert points.first == 1
    return list(points.columns["loss"])


def result_of(future: Future) -> dict:
    return future.result(60)


def inspect(registry: Registry, *arguments, **options) -> dict:
    return result_of(registry.snapshots.request(*arguments, **options))


def has_exited(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


# Training


@pytest.mark.smoke
def test_run_trains_in_its_own_process_and_saves_scored_checkpoint(registry, finished):
    assert len(losses(finished)) == finished.step == 60
    assert finished.scores["n"] == 2000
    (path, manifest), *_ = finished.checkpoints()
    assert (manifest.step, manifest.scores) == (60, finished.scores)
    assert path.parent == finished.folder / "checkpoints"
    assert read_manifest(path) == manifest
    assert not (path / "metrics.jsonl").exists()
    assert json.loads((finished.folder / "run.json").read_text())["status"] == "done"
    assert [line["step"] for line in read_metrics(finished.folder)] == list(range(1, 61))


@pytest.mark.smoke
def test_views_and_commands_change_no_bit_of_the_training(registry, finished):
    run = wait_for_steps(start(registry, SLOW_MOTION), 3)
    pause_and_wait(registry, run)
    held_at = run.step
    registry.control(run, "step")
    wait_for_pause_at(run, held_at + 1)
    assert inspect(registry, "predict", run, "3 1 4")["target"] == ["4", "1", "3"]
    assert inspect(registry, "snapshot", run, step=0)["snapshot"]["step"] == 0
    assert run.step == held_at + 1
    registry.control(run, "stop")
    wait_for_status(run, "stopped")
    wait_for_end(run)
    assert run.checkpoints()[0][1].step == run.step < 60
    assert inspect(registry, "predict", run, "1 2")["target"] == ["2", "1"]
    run_to_end(registry, run)
    assert losses(run) == losses(finished)
    assert Run.read(run.folder).scores == finished.scores


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_signalled_saves_first(registry, number):
    run = wait_for_steps(start(registry, SLOW_MOTION))
    if number == signal.SIGHUP:
        pause_and_wait(registry, run)
    os.kill(run.worker.process.pid, number)
    wait_for_end(run)
    assert (run.status, run.checkpoints()[0][1].step) == ("paused", run.step)


@pytest.mark.smoke
def test_page_has_every_point_once_after_a_kill_and_resume(registry, finished):
    run = wait_for_steps(start(registry, SLOW_MOTION), 3)
    pause_and_wait(registry, run)
    stored = run.step
    registry.control(run, "resume")
    wait_for_steps(run, stored + 5)
    os.kill(run.worker.process.pid, signal.SIGKILL)
    wait_for_status(run, "failed")
    wait_for_end(run)
    assert "the training process was ended from outside (SIGKILL)" in run.message
    assert f"Resume continues at step {stored}" in run.message
    before = registry.poll(run, 0, -1, 0)
    run_to_end(registry, run)
    after = registry.poll(run, before["points"]["count"], before["series_id"], 0)
    assert after["series_id"] != before["series_id"]
    assert after["points"]["steps"] == list(range(1, 61))
    assert after["points"]["loss"] == losses(run) == losses(finished)


SERVER = f"""
import sys, time
from pathlib import Path
from playground.runs.registry import Registry
from playground.training.run_config import RunConfig
from playground.training.setting_changes import SettingChange
if __name__ == "__main__":
    registry = Registry(Path(sys.argv[1]), slots=1)
    config = RunConfig.from_flat({SETTINGS!r})
    run = registry.start(config, "ada", changes=[SettingChange(0, "speed", 5)])
    waiting = registry.start(config, "ada")
    while run.step < 5:
        time.sleep(0.01)
    print(run.worker.process.pid, run.id, waiting.id, flush=True)
    sys.stdin.read()
"""


def test_workers_save_after_server_kill_and_next_server_resumes(
    create_registry, trained_root, tmp_path
):
    (tmp_path / "server.py").write_text(SERVER)
    with subprocess.Popen(
        [sys.executable, tmp_path / "server.py", tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as server:
        pid, run_id, waiting_id = server.stdout.readline().split()
        server.kill()
    wait_for(lambda: has_exited(int(pid)), description="the worker's end")
    registry = create_registry(tmp_path)
    run, waiting = registry.find(run_id, "ada"), registry.find(waiting_id, "ada")
    assert (run.status, waiting.status, waiting.step) == ("paused", "paused", 0)
    assert run.checkpoints()[0][1].step == run.load_points().last >= 5
    run_to_end(registry, run)
    (folder,) = (trained_root / "runs").glob("*-*")
    assert losses(run) == losses(Run.read(folder))


# Branches and changes


def test_branch_repeats_its_parent_unless_a_setting_changes(registry, finished):
    expected = losses(finished)
    for step in (0, 16, 23):  # the initial weights, a step with training state, a step without
        branch = registry.branch(finished, step, "ada")
        wait_for_pause_at(branch, step)
        assert losses(branch) == expected[:step]
        assert branch.load_points().evaluations == [
            score for score in finished.load_points().evaluations if score[0] <= step
        ]
        assert set(weight_steps(branch.folder)) >= {
            s for s in weight_steps(finished.folder) if s <= min(step, 16)
        }
        assert losses(run_to_end(registry, branch)) == expected
        assert Run.read(branch.folder).scores == finished.scores
    changed = registry.branch(finished, 23, "ada")
    wait_for_pause_at(changed, 23)
    registry.change_setting(changed, "learning_rate", 0.05)
    registry.storage_quota.delete_run(finished)()
    assert not finished.folder.exists()  # a branch outlives its parent
    assert inspect(registry, "snapshot", changed, step=10)["snapshot"]["step"] == 10
    run_to_end(registry, changed)
    assert losses(changed)[:24] == expected[:24]
    assert losses(changed)[25:] != expected[25:]


def test_a_branch_of_a_training_run_continues_its_optimizer_and_average(registry):
    parent = wait_for_steps(start(registry, SLOW_MOTION, **AVERAGED_MUON), 12)
    branch = registry.branch(parent, 9, "bob")
    wait_for_pause_at(branch, 9)
    assert parent.status == "training"
    branch.send_command("park")
    wait_for_end(branch)
    registry.change_setting(parent, "speed", 0)
    run_to_end(registry, branch)  # it pauses at its step only once
    wait_for_status(parent, "done")
    assert losses(branch) == losses(parent)
    assert branch.scores == parent.scores


def test_change_applies_at_the_next_step_and_rerun_repeats_it(registry, finished):
    run = wait_for_steps(start(registry, SLOW_MOTION), 5)
    registry.change_setting(run, "learning_rate", 0.05)
    wait_for(lambda: len(run.changes) == 2, description="the change")
    registry.change_setting(run, "speed", 0)
    registry.change_setting(run, "max_steps", 70)
    wait_for_status(run, "done")
    (at,) = (change.step for change in run.changes if change.setting == "learning_rate")
    assert (run.step, 5 <= at < 60) == (70, True)
    assert losses(run)[: at + 1] == losses(finished)[: at + 1]
    assert losses(run)[at + 2 : 60] != losses(finished)[at + 2 :]
    rerun = registry.rerun(run, "ada")
    wait_for_status(rerun, "done")
    assert losses(rerun) == losses(run)


def test_an_imported_checkpoint_continues_bit_exactly(registry, finished, tmp_path):
    trainer = Trainer(RunConfig.from_flat(SETTINGS))
    metrics = [trainer.train_step() for _ in range(12)]
    save_checkpoint(tmp_path / "upload", trainer, metrics)
    run = registry.import_checkpoint(tmp_path / "upload", "ada", "Uploaded")
    assert inspect(registry, "predict", run, "1 2")["step"] == 12
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == list(range(1, 13))
    run_to_end(registry, run)
    assert losses(run)[12:] == losses(finished)[12:]


# Inspection


@pytest.mark.smoke
def test_every_stored_step_can_be_inspected_and_evaluated(registry, finished):
    recorded = finished.load_weight_steps()
    assert (recorded[0], recorded[-1]) == (0, 60)
    responses = {}
    for requested, expected in ((0, 0), (37, 37), (60, 60), (10**9, 60), (-5, 0)):
        response = inspect(registry, "snapshot", finished, step=requested)
        assert response["snapshot"]["step"] == expected
        assert responses.setdefault(expected, response) == response
        assert inspect(registry, "predict", finished, "1 2", requested)["step"] == expected
    assert len({json.dumps(each["snapshot"]["attention"]) for each in responses.values()}) == 3
    info, heads = responses[60]["probe_info"], responses[60]["snapshot"]["attention"]["cross"]
    n_source, n_target = len(info["source"]), len(info["axes"]["cross"][0])
    assert [len(heads), len(heads[0]), len(heads[0][0])] == [1, 2, n_source * n_target]
    for row in range(n_target):
        assert abs(sum(heads[0][0][row * n_source : (row + 1) * n_source]) - 1000) <= n_source


def test_broken_weights_and_a_killed_inspector_affect_no_later_view(registry, finished):
    snapshot = inspect(registry, "snapshot", finished, step=10)
    weights_path(finished.folder, 11).write_bytes(b"12345678")
    assert "11.safetensors" in inspect(registry, "snapshot", finished, step=11)["error"]
    weights_path(finished.folder, 11).unlink()
    child = registry.snapshots.inspector.process._process
    child.process.kill()
    assert child.exited.wait(60)
    assert inspect(registry, "snapshot", finished, step=11) == snapshot


def test_shared_checkpoint_can_be_inspected_and_broken_one_fails(registry, finished, tmp_path):
    shared = shutil.copytree(finished.checkpoints()[0][0], tmp_path / "shared")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "config.json").write_text("{}")
    assert registry.storage.list_checkpoints() == {"shared": shared}
    registry.storage.bundled = ROOT / "checkpoints"
    listed = registry.storage.list_checkpoints()
    assert listed == {"shared": shared} | {
        name: ROOT / "checkpoints" / name for name in BUNDLED_CHECKPOINTS
    }
    request = registry.snapshots.inspector.request
    assert result_of(request("snapshot", shared))["snapshot"]["step"] == 60
    assert validate_checkpoint(str(shared)) == {"step": 60, "resumable": True}
    (shared / "model.safetensors").write_bytes(b"12345678")
    os.utime(shared / "config.json")
    assert "model.safetensors" in result_of(request("snapshot", shared))["error"]
    assert "no config.json" in result_of(request("snapshot", tmp_path / "nothing"))["error"]
