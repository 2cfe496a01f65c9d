import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from playground.checkpoints.checkpoint import resume_trainer, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from tests.support.trainer_fingerprint import fingerprint

ROOT = Path(__file__).resolve().parents[3]
N = 14
RESUME = """
import sys
from pathlib import Path
from playground.checkpoints.checkpoint import resume_trainer
from tests.support.trainer_fingerprint import fingerprint
for folder in sys.argv[1:]:
    trainer, _ = resume_trainer(Path(folder))
    for _ in trainer:
        pass
    print(fingerprint(trainer))
"""
TRAIN = """
import json, os, signal, sys
from pathlib import Path
from playground.checkpoints.checkpoint import save_checkpoint
from playground.training.config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
spec = json.loads(sys.argv[1])
trainer = Trainer(RunConfig.from_flat(spec["fields"]), SettingChange.parse(spec["scheduled"]))
while trainer.should_continue() and trainer.step_count < spec["until"]:
    for step, setting, value in spec["by_hand"]:
        if trainer.step_count == step:
            trainer.schedule_change(setting, value)
    trainer.train_step()
save_checkpoint(Path(spec["folder"]), trainer, None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def dropout_run(small_run):
    return small_run.replace(
        max_steps=N,
        d_model=16,
        d_ff=16,
        dropout=0.1,
        lr_schedule="cosine",
        lr_decay_steps=N,
        eval_every=5,
    )


def save_after(run, steps, folder):
    """Train a run for some steps, and save its checkpoint."""
    trainer = Trainer(run)
    metrics = [trainer.train_step() for _ in range(steps)]
    save_checkpoint(folder, trainer, metrics)
    return folder


def train_to_end(run):
    trainer = Trainer(run)
    list(trainer)
    return trainer


def reset_torch_generator(trainer, initial_state):
    torch.set_rng_state(initial_state["generator.torch"])


def reset_data_generator(trainer, initial_state):
    trainer.data_generator.set_state(initial_state["generator.data"])


def reset_optimizer(trainer, initial_state):
    trainer.optimizer.state.clear()


def reset_nothing(trainer, initial_state):
    pass


def train(run, scheduled=()):
    """Train in this process; return the fingerprint."""
    trainer = Trainer(run, SettingChange.parse(list(scheduled)))
    list(trainer)
    return fingerprint(trainer)


def train_and_kill(run, until, folder, scheduled=(), live_changes=()):
    """Train in a new process, which is killed once it has saved."""
    spec = {
        "fields": run.to_flat(),
        "until": until,
        "scheduled": scheduled,
        "by_hand": live_changes,
        "folder": str(folder),
    }
    command = [sys.executable, "-W", "error", "-c", TRAIN, json.dumps(spec)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert completed.returncode == -9, completed.stderr


@pytest.mark.smoke
def test_killed_and_resumed_live_change_equals_scheduled_change(dropout_run, tmp_path):
    change = [4, "learning_rate", 0.02]
    uninterrupted = train(dropout_run, [change])
    train_and_kill(dropout_run, 7, tmp_path / "changed before the cut", live_changes=[change])
    train_and_kill(dropout_run, 4, tmp_path / "changed at the cut")
    train_and_kill(dropout_run, 2, tmp_path / "changed after the cut", scheduled=[change])
    trainer, _ = resume_trainer(tmp_path / "changed at the cut")
    trainer.schedule_change(*change[1:])
    save_checkpoint(tmp_path / "changed at the cut", trainer, None)
    folders = [tmp_path / f"changed {position} the cut" for position in ("before", "at", "after")]
    command = [sys.executable, "-W", "error", "-c", RESUME, *map(str, folders)]
    resumed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    ).stdout.split()
    assert resumed == [uninterrupted] * 3
    different = [
        train(dropout_run),
        *(train(dropout_run, [[step, *change[1:]]]) for step in (3, 5)),
    ]
    assert len({uninterrupted, *different}) == 4


def test_change_missing_from_a_checkpoint_changes_the_result(dropout_run, tmp_path):
    uninterrupted = Trainer(dropout_run, [SettingChange(4, "learning_rate", 0.02)])
    list(uninterrupted)
    for is_dropped in (False, True):
        trainer = Trainer(dropout_run, [SettingChange(4, "learning_rate", 0.02)])
        for _ in range(6):
            trainer.train_step()
        trainer.changes = [] if is_dropped else trainer.changes
        save_checkpoint(tmp_path / "cut", trainer, None)
        resumed, _ = resume_trainer(tmp_path / "cut")
        list(resumed)
        assert (fingerprint(resumed) == fingerprint(uninterrupted)) != is_dropped


@pytest.mark.parametrize(
    ("reset", "matters"),
    [
        (reset_nothing, False),
        (reset_torch_generator, True),
        (reset_data_generator, True),
        (reset_optimizer, True),
    ],
)
def test_each_part_of_the_state_is_needed_to_resume_bit_identically(
    dropout_run, tmp_path, reset, matters
):
    uninterrupted = train_to_end(dropout_run)
    folder = save_after(dropout_run, 6, tmp_path / "cut")
    initial_state = Trainer(dropout_run).state_dict()
    trainer, _ = resume_trainer(folder)
    reset(trainer, initial_state)
    list(trainer)
    weights = [
        torch.equal(a, b)
        for a, b in zip(trainer.model.parameters(), uninterrupted.model.parameters(), strict=True)
    ]
    assert all(weights) != matters
    assert (fingerprint(trainer) == fingerprint(uninterrupted)) != matters


def test_a_resumed_run_continues_its_metrics_and_its_clock(dropout_run, tmp_path):
    trainer = Trainer(dropout_run)
    metrics = [trainer.train_step() for _ in range(6)]
    save_checkpoint(tmp_path / "cut", trainer, metrics)
    resumed, lines = resume_trainer(tmp_path / "cut")
    assert resumed.step_count == 6
    assert resumed.config == dropout_run
    assert resumed.seconds == pytest.approx(trainer.seconds, abs=1e-3)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] for line in lines] == pytest.approx(
        [step_metrics.loss for step_metrics in metrics], rel=1e-5
    )
    assert [("exact_match" in line) for line in lines] == [False, False, False, False, True, False]
    assert resumed.train_step().step == 7
    assert resumed.seconds > trainer.seconds - 1e-3


@pytest.mark.parametrize("change", [{"n_layers": 2}, {"d_model": 32}])
def test_run_cannot_resume_with_another_model_shape(dropout_run, tmp_path, change):
    folder = save_after(dropout_run, 3, tmp_path / "cut")
    with pytest.raises(CheckpointError):
        resume_trainer(folder, **change)


def test_checkpoint_with_weights_only_cannot_be_resumed(dropout_run, tmp_path):
    trainer = Trainer(dropout_run)
    save_checkpoint(tmp_path / "weights", trainer, [], resumable=False)
    assert not (tmp_path / "weights" / "training.safetensors").exists()
    with pytest.raises(
        CheckpointError,
        match="contains only weights and cannot be resumed; train a new run instead",
    ):
        resume_trainer(tmp_path / "weights")


def test_run_diverged_at_first_step_can_resume_once_repaired(dropout_run, tmp_path):
    trainer = Trainer(dropout_run)
    weight = trainer.model.output_proj.bias
    with torch.no_grad():
        weight[3] = float("nan")
    with pytest.raises(RuntimeError, match="step 1: loss nan"):
        trainer.train_step()
    with torch.no_grad():
        weight[3] = 0.0
    save_checkpoint(tmp_path / "repaired", trainer, [])
    assert resume_trainer(tmp_path / "repaired")[0].train_step().step == 1


@pytest.fixture(scope="module")
def ended_early(small_run, tmp_path_factory):
    """Train a run that reaches its goal early; return its checkpoint."""
    trainer = Trainer(
        small_run.replace(
            stop_at_exact_match=0.3, eval_every=5, eval_size=20, max_steps=300, learning_rate=1e-2
        )
    )
    metrics = list(trainer)
    assert trainer.stopped_early
    assert trainer.step_count < 300
    folder = tmp_path_factory.mktemp("ended") / "early"
    save_checkpoint(folder, trainer, metrics)
    return folder


def test_a_run_that_stopped_early_stays_stopped_after_loading(ended_early):
    trainer, metrics = resume_trainer(ended_early)
    before = fingerprint(trainer)
    assert list(trainer) == []
    assert trainer.stopped_early
    assert (trainer.step_count, fingerprint(trainer)) == (len(metrics), before)


@pytest.mark.parametrize(
    "settings",
    [{"max_steps": 310}, {"stop_at_exact_match": 0.0}, {"stop_at_exact_match": 1.0}],
    ids=str,
)
def test_early_stopped_run_continues_if_its_goal_or_steps_change(ended_early, settings):
    trainer, metrics = resume_trainer(ended_early, **settings)
    assert trainer.train_step().step == len(metrics) + 1
    assert not trainer.stopped_early
    changed, _ = resume_trainer(ended_early)
    for name, value in settings.items():
        changed.schedule_change(name, value)
    assert changed.should_continue()
    changed.schedule_change("learning_rate", 1e-4)
    assert next(iter(changed)).step == len(metrics) + 1


def test_state_of_an_earlier_version_without_end_flag_is_read(ended_early, tmp_path):
    folder = shutil.copytree(ended_early, tmp_path / "old")
    state = load_file(folder / "training.safetensors")
    state.pop("finished", None)
    save_file(state, folder / "training.safetensors")
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    (folder / "config.json").write_text(json.dumps(config))
    assert resume_trainer(folder)[0].should_continue()
