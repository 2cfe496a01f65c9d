"""A damaged checkpoint raises an error that names the file, and the run falls back to the previous
checkpoint.
"""

import random
import shutil

import pytest
import safetensors.torch

from playground.checkpoints.checkpoint import load_model, resume_trainer, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.checkpoints.tensors import load_checked_tensors
from playground.runs.registry import Registry
from playground.training.trainer import Trainer
from tests.support.small_runs import (
    assert_complete_series,
    newest_checkpoint_step,
    pause_and_wait,
    repeat_counts,
    start_run,
    tiny_config,
    wait_for,
    wait_for_end,
    wait_for_status,
)

STEPS = 100_000
FILES = ("config.json", "model.safetensors", "training.safetensors")


@pytest.fixture
def checkpoint(tmp_path):
    trainer = Trainer(tiny_config())
    trainer.train_step()
    save_checkpoint(tmp_path / "saved", trainer, None)
    return tmp_path / "saved"


def is_rejected(name, read, *arguments):
    """Return whether reading fails with an error that names the file."""
    try:
        read(*arguments)
    except CheckpointError as error:
        return name in str(error)
    return False


def reader_of(name):
    return load_model if name == "model.safetensors" else resume_trainer


def flip_each_byte(path, offsets):
    """Flip a bit at each offset in turn, and restore it afterwards."""
    content = bytearray(path.read_bytes())
    for offset in offsets:
        content[offset] ^= 0x01
        path.write_bytes(content)
        content[offset] ^= 0x01
        yield offset


def header_length(path):
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


EVERY_BYTE = [
    pytest.param(name, 1, marks=[pytest.mark.soak, pytest.mark.timeout(600)]) for name in FILES[1:]
]


@pytest.mark.parametrize(
    ("name", "interval"), [("model.safetensors", 5), ("training.safetensors", 17), *EVERY_BYTE]
)
def test_flipped_bytes_of_a_header_are_rejected(checkpoint, name, interval):
    path = checkpoint / name
    expected = {
        name: (tensor.dtype, tuple(tensor.shape))
        for name, tensor in safetensors.torch.load_file(path).items()
    }
    load_checked_tensors(path, expected)
    offsets = range(0, header_length(path), interval)
    assert [
        position
        for position in flip_each_byte(path, offsets)
        if not is_rejected(name, load_checked_tensors, path, expected)
    ] == []


@repeat_counts(50, 250)
@pytest.mark.parametrize("name", FILES[1:])
def test_flipped_bytes_of_the_data_are_rejected(checkpoint, name, count):
    path, rng = checkpoint / name, random.Random(0)
    offsets = rng.sample(range(header_length(path), path.stat().st_size), count)
    accepted = [
        position
        for position in flip_each_byte(path, offsets)
        if not is_rejected(name, reader_of(name), checkpoint)
    ]
    assert not accepted, f"{len(accepted)} of {len(offsets)} damaged files were accepted"


@pytest.mark.smoke
@pytest.mark.parametrize("name", FILES)
def test_truncations_are_rejected(checkpoint, name):
    content, rng = (checkpoint / name).read_bytes(), random.Random(0)
    # config.json ends with a line break
    for end in (0, *rng.sample(range(len(content) - 2), 38), len(content) - 2):
        (checkpoint / name).write_bytes(content[:end])
        assert is_rejected(name, reader_of(name), checkpoint), end


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 0x01
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def delete(path):
    path.unlink()


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
    registry.shutdown(20)
    return root


@pytest.fixture
def restarted_run(registries, stored_root, tmp_path):
    """Restart on that folder; return the registry, the run, and its checkpoints, newest first."""
    registry = registries(shutil.copytree(stored_root, tmp_path / "root"))
    (run,) = registry.list_for_owner("ada")
    return registry, run, [path for path, _ in run.checkpoints()]


DAMAGES = (flip_bit, truncate, delete)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_every_damaged_file_is_rejected(checkpoint, name, damage):
    damage(checkpoint / name)
    assert is_rejected(str(checkpoint), reader_of(name), checkpoint)


# Each file and each kind of damage once; the other pairs are soak tests.
FALLBACKS = [
    pytest.param(
        name, damage, id=f"{name}-{damage.__name__}", marks=[] if i == j else [pytest.mark.soak]
    )
    for i, name in enumerate(FILES)
    for j, damage in enumerate(DAMAGES)
]


@pytest.mark.parametrize(("name", "damage"), FALLBACKS)
def test_damaged_newest_checkpoint_falls_back_to_the_previous_one(restarted_run, name, damage):
    registry, run, (newest, before) = restarted_run
    step = resume_trainer(before)[0].step_count
    assert step < resume_trainer(newest)[0].step_count
    damage(newest / name)
    registry.control(run, "step")
    wait_for_status(run, "paused", "failed")
    wait_for(lambda: run.step == step + 1, 60, f"a step from {step} on, {run.message}")
    assert run.status == "paused"
    assert "An earlier checkpoint was used" in run.message
    assert f"{run.folder.name}/checkpoints/{newest.name}" in run.message
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
    assert f"{run.folder.name}/checkpoints/{folders[0].name}" in run.message
    assert "Resume continues from there" not in run.message
    wait_for_end(run)
    assert (
        [sorted(path.name for path in folder.iterdir()) for folder in folders],
        (run.folder / "metrics.jsonl").read_bytes(),
    ) == before
