"""A damaged checkpoint raises an error that names the file, and the run falls back to the previous
checkpoint. tests/unit/checkpoints has every byte.
"""

import shutil

import pytest

from playground.checkpoints.checkpoint import resume_trainer
from playground.runs.registry import Registry
from tests.support.small_runs import (
    assert_complete_series,
    newest_checkpoint_step,
    pause_and_wait,
    start_run,
    wait_for,
    wait_for_end,
    wait_for_status,
)

STEPS = 100_000


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 0x01
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.fixture(scope="module")
def stored_root(tmp_path_factory):
    """Return the folder of a stopped server with a run that has two checkpoints."""
    root = tmp_path_factory.mktemp("stored")
    registry = Registry(root, idle_timeout_s=0, release_after_s=0)
    run = start_run(registry, max_steps=STEPS)
    wait_for(lambda: run.step > 20, 60, "some steps")
    pause_and_wait(registry, run)
    registry.control(run, "resume")
    wait_for_status(run, "training")
    pause_and_wait(registry, run)
    registry.shutdown(120)
    return root


@pytest.fixture
def restarted_run(registries, stored_root, tmp_path):
    """Restart on that folder; return the registry, the run, and its checkpoints, newest first."""
    registry = registries(shutil.copytree(stored_root, tmp_path / "root"))
    (run,) = registry.list_for_owner("ada")
    return registry, run, [path for path, _ in run.checkpoints()]


def test_damaged_newest_checkpoint_falls_back_to_the_previous_one(restarted_run):
    registry, run, (newest, before) = restarted_run
    step = resume_trainer(before)[0].step_count
    assert step < resume_trainer(newest)[0].step_count
    flip_bit(newest / "model.safetensors")
    registry.control(run, "step")
    wait_for_status(run, "paused", "failed")
    wait_for(lambda: run.step == step + 1, 60, f"a step from {step} on, {run.message}")
    assert run.status == "paused"
    assert "An earlier checkpoint was used" in run.message
    assert f"{newest.name}/model.safetensors" in run.message
    registry.change_setting(run, "max_steps", step + 20)
    registry.control(run, "resume")
    wait_for_status(run, "done")
    assert_complete_series(registry, run, step + 20)
    assert newest_checkpoint_step(run) == step + 20


def test_run_with_all_checkpoints_damaged_resumes_from_history(restarted_run):
    registry, run, folders = restarted_run
    for folder in folders:
        truncate(folder / "model.safetensors")
    registry.control(run, "step")
    wait_for(lambda: run.has_worker and run.status == "paused" and run.step, 60, "a step")
    assert "An earlier checkpoint was used" in run.message
    step = run.step
    registry.change_setting(run, "max_steps", step + 20)
    registry.control(run, "resume")
    wait_for_status(run, "done")
    assert_complete_series(registry, run, step + 20)


def test_a_run_without_usable_files_has_a_message_and_changes_no_file(restarted_run):
    registry, run, folders = restarted_run
    for folder in folders:
        truncate(folder / "model.safetensors")
    shutil.rmtree(run.folder / "history")
    before = (
        [sorted(path.name for path in folder.iterdir()) for folder in folders],
        (run.folder / "metrics.jsonl").read_bytes(),
    )
    registry.control(run, "resume")
    wait_for_status(run, "failed")
    assert "no checkpoint of this run can be used" in run.message
    assert f"{folders[0].name}/model.safetensors" in run.message
    assert "Resume continues from there" not in run.message
    wait_for_end(run)
    assert (
        [sorted(path.name for path in folder.iterdir()) for folder in folders],
        (run.folder / "metrics.jsonl").read_bytes(),
    ) == before
