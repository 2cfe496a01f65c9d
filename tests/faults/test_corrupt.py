"""A checkpoint that is damaged on the disk: a named error, and the run goes on from the one
before.
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
def saved(tmp_path):
    trainer = Trainer(tiny_config())
    trainer.train_step()
    save_checkpoint(tmp_path / "saved", trainer, None)
    return tmp_path / "saved"


def refused(name, read, *arguments):
    """Whether the checkpoint is refused with an error that names the file."""
    try:
        read(*arguments)
    except CheckpointError as error:
        return name in str(error)
    return False


def loading(name):
    return load_model if name == "model.safetensors" else resume_trainer


def flipped_bytes(path, places):
    """The file with one byte after the other damaged."""
    content = bytearray(path.read_bytes())
    for at in places:
        content[at] ^= 0x01
        path.write_bytes(content)
        content[at] ^= 0x01
        yield at


def length_of_header(path):
    return 8 + int.from_bytes(path.read_bytes()[:8], "little")


EVERY_BYTE = [
    pytest.param(name, 1, marks=[pytest.mark.soak, pytest.mark.timeout(600)]) for name in FILES[1:]
]


@pytest.mark.parametrize(
    ("name", "every"), [("model.safetensors", 5), ("training.safetensors", 17), *EVERY_BYTE]
)
def test_flipped_bytes_of_a_header_are_rejected(saved, name, every):
    path = saved / name
    expected = {
        name: (tensor.dtype, tuple(tensor.shape))
        for name, tensor in safetensors.torch.load_file(path).items()
    }
    load_checked_tensors(path, expected)
    places = range(0, length_of_header(path), every)
    assert [
        at
        for at in flipped_bytes(path, places)
        if not refused(name, load_checked_tensors, path, expected)
    ] == []


@repeat_counts(50, 250)
@pytest.mark.parametrize("name", FILES[1:])
def test_flipped_bytes_of_the_data_are_rejected(saved, name, count):
    path, chance = saved / name, random.Random(0)
    places = chance.sample(range(length_of_header(path), path.stat().st_size), count)
    used = [at for at in flipped_bytes(path, places) if not refused(name, loading(name), saved)]
    assert not used, f"{len(used)} of {len(places)} damaged files were taken for good"


@pytest.mark.smoke
@pytest.mark.parametrize("name", FILES)
def test_truncations_are_rejected(saved, name):
    content, chance = (saved / name).read_bytes(), random.Random(0)
    # config.json ends with a line break
    for end in (0, *chance.sample(range(len(content) - 2), 38), len(content) - 2):
        (saved / name).write_bytes(content[:end])
        assert refused(name, loading(name), saved), end


def flipped(path):
    content = bytearray(path.read_bytes())
    content[20] ^= 0x01
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def lost(path):
    path.unlink()


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """What a server that has ended left of a run with two checkpoints."""
    root = tmp_path_factory.mktemp("left-behind")
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
def two_generations(registries, left_behind, tmp_path):
    """The next server's registry, and that run: the folders of its checkpoints, newest first."""
    registry = registries(shutil.copytree(left_behind, tmp_path / "root"))
    (run,) = registry.list_for_owner("ada")
    return registry, run, [path for path, _ in run.checkpoints()]


HARMS = (flipped, cut, lost)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", FILES)
def test_every_damaged_file_is_rejected(saved, name, harm):
    harm(saved / name)
    assert refused(str(saved), loading(name), saved)


# Each file and each harm once; the other pairs are soak tests.
FALLBACKS = [
    pytest.param(
        name, harm, id=f"{name}-{harm.__name__}", marks=[] if i == j else [pytest.mark.soak]
    )
    for i, name in enumerate(FILES)
    for j, harm in enumerate(HARMS)
]


@pytest.mark.parametrize(("name", "harm"), FALLBACKS)
def test_damaged_newest_checkpoint_falls_back_to_the_previous_one(two_generations, name, harm):
    registry, run, (newest, before) = two_generations
    step = resume_trainer(before)[0].step_count
    assert step < resume_trainer(newest)[0].step_count
    harm(newest / name)
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


def test_run_with_all_checkpoints_damaged_resumes_from_history(two_generations):
    registry, run, folders = two_generations
    for folder in folders:
        cut(folder / "model.safetensors")
    registry.control(run, "step")
    wait_for(lambda: run.has_worker and run.status == "paused" and run.step, 60, "a step")
    assert "An earlier checkpoint was used" in run.message
    step = run.step
    registry.change_setting(run, "max_steps", step + 20)
    registry.control(run, "resume")
    wait_for_status(run, "done")
    assert_complete_series(registry, run, step + 20)


def test_a_run_without_usable_files_has_a_message_and_harms_nothing(two_generations):
    registry, run, folders = two_generations
    for folder in folders:
        cut(folder / "model.safetensors")
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
