import dataclasses
import importlib.metadata
import json
import os
import shutil
import tracemalloc

import psutil
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.checkpoints import checkpoint
from playground.checkpoints.checkpoint import (
    load_model,
    metrics_record,
    restore_trainer,
    resume_trainer,
    save_checkpoint,
)
from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.checkpoints.metrics import read_metrics
from playground.common import platform
from playground.evaluation import evaluate
from playground.runs.storage_folder import export_checkpoint
from playground.tasks.held_out import build_held_out_set
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Metrics, Trainer
from tests.support.trainer_fingerprint import fingerprint

STEPS = 3
FILES = ("config.json", "metrics.jsonl", "model.safetensors", "training.safetensors")
# flushes of one save: four files, the folder, its parent; Windows does not flush folders
WRITES = 4 if platform.IS_WINDOWS else 6


@pytest.fixture(scope="module")
def tiny(small_run):
    return small_run.replace(
        d_model=8, d_ff=8, max_steps=10, batch_size=8, eval_every=2, eval_size=32
    )


@pytest.fixture(scope="module")
def trainer(tiny):
    """A trainer after three steps; tests do not train it."""
    trainer = Trainer(tiny)
    trainer.metrics = [trainer.train_step() for _ in range(STEPS)]
    return trainer


@pytest.fixture(scope="module")
def pristine(trainer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint") / "pristine"
    save_checkpoint(folder, trainer, trainer.metrics, trainer.evaluate(50))
    return folder


@pytest.fixture(scope="module")
def damaged(pristine, tmp_path_factory):
    """A copy of the checkpoint; a test that damages a file of it restores the file."""
    return shutil.copytree(pristine, tmp_path_factory.mktemp("checkpoint") / "damaged")


@pytest.fixture
def folder(pristine, tmp_path):
    """A copy of the checkpoint that a test may damage."""
    return shutil.copytree(pristine, tmp_path / "x")


def edit_config(folder, **values):
    """Replace values of config.json; None removes them."""
    path = folder / "config.json"
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def restore(trainer, folder, step=STEPS):
    paths = folder / "model.safetensors", folder / "training.safetensors"
    restore_trainer(trainer, *paths, step, "cpu")


def refusal(folder, name="model.safetensors", load=load_model):
    """Return the error of a rejected checkpoint, which names the file."""
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert f"{folder.name}/{name}" in str(caught.value)
    assert str(folder) not in str(caught.value)
    return str(caught.value)


def assert_equal_weights(one, other):
    others = other.state_dict()
    assert one.state_dict().keys() == others.keys()
    assert all(torch.equal(weight, others[name]) for name, weight in one.state_dict().items())


# What a checkpoint is


def test_a_checkpoint_is_four_files_and_no_pickle(pristine):
    assert sorted(os.listdir(pristine)) == sorted(FILES)
    assert os.listdir(pristine.parent) == ["pristine"]
    for name in FILES:
        assert not (pristine / name).read_bytes().startswith((b"PK", b"\x80"))


def test_a_loaded_model_has_the_same_bits_and_gives_the_same_scores(pristine, trainer):
    manifest, family = load_model(pristine)
    assert manifest.config == trainer.config
    assert manifest.step == STEPS
    assert not family.training
    assert_equal_weights(family, trainer.model)
    requested = build_held_out_set(trainer.task, 50, 1, 5)
    assert evaluate(family, requested) == evaluate(trainer.model, requested)


@pytest.mark.skipif(not hasattr(psutil.Process, "memory_maps"), reason="macOS does not list them")
def test_loaded_weights_leave_their_file_unmapped(folder, tiny):
    """Windows would neither replace nor remove it."""
    path = folder / "model.safetensors"
    tensors = checkpoint.load_checked_tensors(path, checkpoint.expected_tensors(tiny))
    assert tensors
    assert str(path) not in [each.path for each in psutil.Process().memory_maps()]


def test_scores_and_versions_are_stored_in_config_json(pristine, trainer):
    manifest = read_manifest(pristine)
    assert manifest.scores == json.loads(json.dumps(dataclasses.asdict(trainer.evaluate(50))))
    assert manifest.versions["torch"] == importlib.metadata.version("torch")
    assert manifest.device == "cpu"


def test_metrics_have_one_line_per_step_without_unmeasured_values(pristine, trainer):
    lines = list(read_metrics(pristine))
    assert lines == [metrics_record(each) for each in trainer.metrics]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert ["exact_match" in line for line in lines] == [False, True, False]
    assert lines[0]["loss"] == pytest.approx(trainer.metrics[0].loss, rel=1e-5)


def test_metrics_record_rounds_to_six_digits_and_is_idempotent():
    metrics = Metrics(3, 1.23456789, 6e-3, 0.1, 1 / 3, 123456.789, 1e9)
    line = metrics_record(metrics)
    rounded = {"step": 3, "loss": 1.23457, "seconds": 0.333333, "steps_per_second": 123457.0}
    assert line.items() >= rounded.items()
    assert metrics_record(line) == line
    assert "eval_size" not in line


def test_foreign_files_can_be_added_to_the_folder(trainer, tmp_path):
    save_checkpoint(tmp_path / "x", trainer, [], extra={"README.md": b"# A model"})
    assert (tmp_path / "x" / "README.md").read_bytes() == b"# A model"
    load_model(tmp_path / "x")


def test_metrics_exclude_other_modules(trainer, tmp_path):
    save_checkpoint(tmp_path / "x", trainer, None)
    assert {*os.listdir(tmp_path / "x")} == {*FILES} - {"metrics.jsonl"}
    resumed, lines = resume_trainer(tmp_path / "x")
    assert (resumed.step_count, lines, list(read_metrics(tmp_path / "x"))) == (STEPS, [], [])
    save_checkpoint(tmp_path / "x", trainer, [])
    assert (tmp_path / "x" / "metrics.jsonl").read_bytes() == b""


def test_a_new_setting_replaces_its_earlier_changes(tiny, tmp_path):
    changes = [(0, "learning_rate", 0.01), (2, "learning_rate", 0.5), (1, "max_steps", 4)]
    trainer = Trainer(tiny, [SettingChange(*change) for change in changes])
    trainer.train_step()
    save_checkpoint(tmp_path / "x", trainer, None)
    resumed, _ = resume_trainer(tmp_path / "x", learning_rate=1e-3, warmup_steps=0)
    assert resumed.changes == [SettingChange(1, "max_steps", 4)]
    assert [(each.step, each.learning_rate) for each in resumed] == [(n, 1e-3) for n in (2, 3, 4)]
    longer, _ = resume_trainer(tmp_path / "x", max_steps=6)
    assert [each.step for each in longer] == [2, 3, 4, 5, 6]


def test_a_trainer_can_be_put_where_another_one_stood(tiny, trainer, pristine):
    other = Trainer(tiny.replace(seed=5))
    other.train_step()
    restore(other, pristine)
    assert other.step_count == STEPS
    assert fingerprint(other) == fingerprint(resume_trainer(pristine)[0])


def test_a_trainer_may_be_put_before_its_first_step_again(tiny, tmp_path):
    save_checkpoint(tmp_path / "x", Trainer(tiny), None)
    original = Trainer(tiny)
    list(original)
    restore(original, tmp_path / "x", 0)
    repeated = [each.loss for each in original]
    assert repeated == [each.loss for each in Trainer(tiny)]


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors"])
def test_a_failed_restore_leaves_the_trainer_unchanged(tiny, folder, name):
    trainer = Trainer(tiny)
    trainer.train_step()
    before = fingerprint(trainer)
    (folder / name).write_bytes((folder / name).read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=name):
        restore(trainer, folder)
    other_step = "belongs to step 3, not to step 2" if name == "model.safetensors" else name
    with pytest.raises(CheckpointError, match=other_step):
        restore(trainer, folder, 2)
    assert fingerprint(trainer) == before


def test_a_later_save_replaces_an_earlier_one_whole(trainer, folder):
    (folder / "stray").write_text("x")
    save_checkpoint(folder, trainer, trainer.metrics[:1], resumable=False)
    assert {*os.listdir(folder)} == {*FILES} - {"training.safetensors"}
    assert len(list(read_metrics(folder))) == 1
    assert os.listdir(folder.parent) == ["x"]


def test_a_checkpoint_cut_off_between_two_renames_loads_again(folder):
    os.rename(folder, folder.parent / ".x.previous")
    assert load_model(folder)[0].step == STEPS
    os.rename(folder, folder.parent / ".x.previous")
    assert resume_trainer(folder)[0].step_count == STEPS


@pytest.mark.parametrize(("load", "d_model"), [(load_model, 16), (resume_trainer, 8)])
def test_a_checkpoint_replaced_while_it_is_read_is_read_again(
    trainer, folder, monkeypatch, load, d_model
):
    later = Trainer(trainer.config.replace(d_model=d_model, seed=1))
    metrics = [later.train_step() for _ in range(STEPS + 1)]
    read = []

    def read_then_replace(path):
        read.append(read_manifest(path))
        if len(read) == 1:
            save_checkpoint(folder, later, metrics)
        return read[-1]

    monkeypatch.setattr("playground.checkpoints.manifest.read_manifest", read_then_replace)
    loaded = load(folder)
    family = loaded[1] if load is load_model else loaded[0].model
    assert_equal_weights(family, later.model)
    if load is resume_trainer:
        assert fingerprint(loaded[0]) == fingerprint(later)
        assert len(loaded[1]) == STEPS + 1


def test_a_checkpoint_replaced_while_it_is_copied_is_copied_again(trainer, folder, monkeypatch):
    later, real, copied = Trainer(trainer.config.replace(d_model=16, seed=1)), shutil.copyfile, []

    def copy_then_replace(source, target):
        real(source, target)
        copied.append(source.name)
        if copied == ["config.json"]:
            save_checkpoint(folder, later, [], resumable=False)

    monkeypatch.setattr(shutil, "copyfile", copy_then_replace)
    copy = export_checkpoint(folder, None, folder.with_name("copy"))
    assert_equal_weights(load_model(copy)[1], later.model)
    assert {*os.listdir(copy)} == {*FILES} - {"training.safetensors"}


def test_a_checkpoint_that_keeps_changing_is_rejected(folder, monkeypatch):
    step = iter(range(1000))

    def read_another(path):
        return dataclasses.replace(read_manifest(path), step=next(step))

    monkeypatch.setattr("playground.checkpoints.manifest.read_manifest", read_another)
    with pytest.raises(CheckpointError, match="is being replaced while it is read"):
        load_model(folder)


# When writing fails


@pytest.mark.parametrize("failing", range(WRITES))
def test_a_full_disk_is_named_and_the_earlier_checkpoint_still_loads(
    trainer, folder, monkeypatch, failing
):
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == failing + 1:
            raise OSError(28, "No space left on device")
        real(descriptor)

    edit_config(folder, versions=read_manifest(folder).versions | {"generation": "old"})
    monkeypatch.setattr(os, "fsync", full)
    error = None
    try:
        save_checkpoint(folder, trainer, trainer.metrics)
    except CheckpointError as caught:
        error = caught
    assert len(calls) > failing
    # the last one comes when the new checkpoint is in place
    assert error is not None or failing == WRITES - 1
    manifest, _ = load_model(folder)
    resume_trainer(folder)
    assert ("generation" in manifest.versions) == (error is not None)
    assert os.listdir(folder.parent) == ["x"]
    if error is not None:
        assert folder.name in str(error)
        assert "No space left on device; the previous checkpoint is unchanged" in str(error)


def test_a_folder_that_cannot_be_made_is_an_error(trainer, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="could not write the checkpoint"):
        save_checkpoint(tmp_path / "file" / "x", trainer, [])


# When the file is damaged


DAMAGES = {
    "cut": lambda content, at: content[:at],
    "flipped": lambda content, at: content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :],
    "longer": lambda content, at: content + b"\0" * (at % 8 + 1),
}


@settings(max_examples=80)
@given(
    st.sampled_from(FILES[2:]),
    st.sampled_from(sorted(DAMAGES)),
    st.integers(0, 200) | st.integers(0, 10**6),
)
def test_a_damaged_file_of_tensors_is_rejected_by_name(pristine, damaged, name, damage, at):
    content = (pristine / name).read_bytes()
    (damaged / name).write_bytes(DAMAGES[damage](content, at % len(content)))
    try:
        refusal(damaged, name, load_model if name == "model.safetensors" else resume_trainer)
    finally:
        (damaged / name).write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_missing_file_or_a_folder_in_its_place_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_model(folder)
    (folder / name).mkdir()
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        load_model(folder)


@pytest.mark.parametrize("name", ["nothing", "nul\0", "config.json", "x" * 300])
def test_no_folder_at_all_is_rejected(tmp_path, name):
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_model(tmp_path / name)


# When the file means harm; faults/test_hostile_weights.py has handmade weights


@pytest.mark.parametrize("name", ["generator.data", "generator.torch"])
@pytest.mark.parametrize("shape", [(16,), (0, 2**62), (5056,)])
def test_a_generator_state_of_another_size_or_of_random_bits_is_refused(folder, name, shape):
    path = folder / "training.safetensors"
    state = safetensors.torch.load(path.read_bytes())
    assert state[name].shape == (5056,)
    state[name] = torch.full(shape, 255, dtype=torch.uint8)
    path.write_bytes(safetensors.torch.save(state))
    refusal(folder, path.name, resume_trainer)


def test_a_training_state_of_another_step_is_rejected_with_both(folder):
    edit_config(folder, step=2)
    message = refusal(folder, "training.safetensors", resume_trainer)
    assert "belongs to step 3, not to step 2" in message


def test_metadata_of_other_tools_is_accepted(folder):
    path = folder / "model.safetensors"
    path.write_bytes(safetensors.torch.save(safetensors.torch.load(path.read_bytes()), {"a": "b"}))
    with pytest.raises(CheckpointError, match="its checksum differs"):
        load_model(folder)
    edit_config(folder, sha256=None)  # without it no hash is checked
    load_model(folder)


def test_weights_of_another_model_are_rejected(folder, tiny, tmp_path):
    for change, problem in {"d_model": "torch.float32", "n_layers": "unexpected tensor"}.items():
        other = Trainer(tiny.replace(**{change: 2 * getattr(tiny.model, change)}))
        save_checkpoint(tmp_path / "other", other, [])
        shutil.copy(tmp_path / "other" / "model.safetensors", folder)
        assert problem in refusal(folder)


@pytest.mark.parametrize("load", [load_model, resume_trainer])
def test_a_giant_model_is_rejected_before_it_is_built(folder, load):
    resource = pytest.importorskip("resource")
    sizes = {"d_model": 4096, "n_layers": 48, "d_ff": 16384, "max_positions": 4096}
    edit_config(folder, model=dataclasses.asdict(read_manifest(folder).config.model) | sizes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = psutil.Process().memory_info().vms + 1_000_000_000  # its weights take 80 GB
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        refusal(folder, load=load)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_unusably_many_positions_are_rejected(folder):
    sizes = {"position_type": "sinusoidal", "max_positions": 1_000_000}
    edit_config(folder, model=dataclasses.asdict(read_manifest(folder).config.model) | sizes)
    with pytest.raises(CheckpointError, match="1,000,000; a run accepts at most 4,096"):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("optimizer.exp_avg_sq.output_proj.bias", -1.0), ("optimizer.step.output_proj.bias", -3.0)],
)
def test_an_optimizer_state_with_invalid_values_is_rejected(folder, name, value):
    state = safetensors.torch.load((folder / "training.safetensors").read_bytes())
    state[name] = torch.full_like(state[name], value)
    (folder / "training.safetensors").write_bytes(safetensors.torch.save(state))
    with pytest.raises(CheckpointError, match="values that are impossible for Adam"):
        resume_trainer(folder)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\xff", b"[" * 100_000, b'{"loss": 1}', b'{"step": 3, "step": 3, "loss": 1}'),
        *(b'{"step": true, "loss": 1.0}', b'{"step": 3, "loss": NaN}'),
    ],
)
def test_a_bad_line_of_metrics_is_named_by_its_number(folder, line):
    lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    lines.insert(2, line)
    (folder / "metrics.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    for read in (lambda folder: list(read_metrics(folder)), resume_trainer):
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl, line 3: "):
            read(folder)


def test_metrics_have_no_more_lines_than_a_run_has_steps(folder, monkeypatch):
    monkeypatch.setattr("playground.checkpoints.metrics.MAX_STEPS", 10)
    lines = [b'{"step": %d, "loss": 1.0}\n' % step for step in range(1, 12)]
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:10]))
    assert len(list(read_metrics(folder))) == 10
    (folder / "metrics.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(CheckpointError, match="line 11: at most 10 lines are read, one for each "):
        list(read_metrics(folder))


@pytest.mark.parametrize("line", [b"3\n", b" " * 20_000_000], ids=["bad line", "endless line"])
def test_metrics_are_read_only_as_far_as_they_are_sound(folder, line):
    sound = b"".join(b'{"step": %d, "loss": 1.0}\n' % step for step in range(1, 11))
    (folder / "metrics.jsonl").write_bytes(sound + line + b'{"step": 20, "loss": 1.0}\n' * 100_000)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="line 11: "):
            list(read_metrics(folder))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_nothing_in_a_checkpoint_is_executed(folder, tmp_path):
    import pickle

    class Boom:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    bomb = pickle.dumps(Boom())
    for name in FILES[2:]:
        shutil.copy(folder / name, tmp_path / name)
        (folder / name).write_bytes(bomb)
        refusal(folder, name, resume_trainer)
        shutil.copy(tmp_path / name, folder / name)
    (folder / "pytorch_model.bin").write_bytes(bomb)
    load_model(folder)
    assert not (tmp_path / "executed").exists()
