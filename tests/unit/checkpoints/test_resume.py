"""A resumed run is the run that went on, to the bit; what cannot be resumed is rejected."""

import json
import shutil

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from playground.checkpoints.checkpoint import load_model, resume_trainer, save_checkpoint
from playground.checkpoints.manifest import CheckpointError
from playground.models.config_fields import ConfigError
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from tests.support.trainer_fingerprint import fingerprint

N = 8
SETTINGS = st.fixed_dictionaries(
    {"optimizer": st.sampled_from(["adam", "adamw", "sgd", "muon"])},
    optional={
        "momentum": st.sampled_from([0.0, 0.9]),
        "weight_decay": st.sampled_from([0.0, 0.1]),
        "weight_averaging": st.booleans(),
        "dropout": st.sampled_from([0.0, 0.1]),
        "position_type": st.sampled_from(["learned", "randomized"]),
        "lr_schedule": st.sampled_from(["constant", "cosine", "noam"]),
        "label_smoothing": st.just(0.1),
        "max_grad_norm": st.just(0.0),
        "tie_output_embeddings": st.booleans(),
        "n_training_sources": st.just(20),
    },
)
CHANGES = st.lists(
    st.builds(SettingChange, st.integers(0, N), st.just("learning_rate"), st.floats(1e-4, 0.02)),
    max_size=2,
).map(lambda changes: sorted(changes, key=lambda change: change.step))


@pytest.fixture(scope="module")
def tiny(small_run):
    """A run with dropout, so that it uses both generators."""
    return small_run.replace(
        max_steps=N, d_model=8, d_ff=8, batch_size=8, dropout=0.1, eval_every=5, eval_size=32
    )


def save_after(run, steps, folder, changes=()):
    """Train a run for some steps, and save its checkpoint; return the trainer."""
    trainer = Trainer(run, changes)
    save_checkpoint(folder, trainer, [trainer.train_step() for _ in range(steps)])
    return trainer


@settings(max_examples=15)
@given(SETTINGS, CHANGES, st.integers(0, N))
@example({"optimizer": "muon", "weight_averaging": True, "dropout": 0.1}, [], 3)
@example({"optimizer": "sgd", "momentum": 0.9, "lr_schedule": "noam"}, [], 1)
def test_a_resumed_run_is_the_run_that_went_on_to_the_bit(
    tiny, tmp_path_factory, values, changes, cut
):
    folder = tmp_path_factory.mktemp("resume") / "cut"
    uninterrupted = save_after(tiny.replace(**values), cut, folder, changes)
    cut_fingerprint = fingerprint(uninterrupted)
    list(uninterrupted)
    expected = fingerprint(uninterrupted)
    resumed, _ = resume_trainer(folder)
    assert (resumed.step_count, resumed.changes) == (cut, uninterrupted.changes)
    assert fingerprint(resumed) == cut_fingerprint
    list(resumed)
    assert fingerprint(resumed) == expected


RESETS = {
    "torch generator": lambda _, initial: torch.set_rng_state(initial["generator.torch"]),
    "data generator": lambda t, initial: t.data_generator.set_state(initial["generator.data"]),
    "optimizer": lambda trainer, _: trainer.optimizer.state.clear(),
    "changes": lambda trainer, _: trainer.changes.clear(),
}


@pytest.mark.parametrize("reset", RESETS.values(), ids=RESETS)
def test_each_part_of_the_state_is_needed_to_resume_bit_identically(tiny, tmp_path, reset):
    changes = [SettingChange(6, "learning_rate", 0.02)]
    uninterrupted = save_after(tiny, 5, tmp_path / "cut", changes)
    list(uninterrupted)
    expected = fingerprint(uninterrupted)
    initial_state = Trainer(tiny).state_dict()
    trainer, _ = resume_trainer(tmp_path / "cut")
    reset(trainer, initial_state)
    list(trainer)
    assert fingerprint(trainer) != expected


def test_a_resumed_run_continues_its_metrics_and_its_clock(tiny, tmp_path):
    trainer = save_after(tiny, 6, tmp_path / "cut")
    resumed, lines = resume_trainer(tmp_path / "cut")
    assert resumed.config == tiny
    assert resumed.seconds == pytest.approx(trainer.seconds, abs=1e-3)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [("exact_match" in line) for line in lines] == [False, False, False, False, True, False]
    assert resumed.train_step().step == 7
    assert resumed.seconds > trainer.seconds - 1e-3


def test_saved_model_is_the_average_and_training_continues_without_it(tiny, tmp_path):
    trainer = save_after(tiny.replace(weight_averaging=True), 5, tmp_path / "cut")
    _, loaded = load_model(tmp_path / "cut")
    resumed, _ = resume_trainer(tmp_path / "cut")
    raw = trainer.model.state_dict()
    for name, weight in trainer.eval_model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
        assert torch.equal(resumed.model.state_dict()[name], raw[name])
    assert not torch.equal(raw["output_proj.weight"], loaded.output_proj.weight)


@pytest.mark.parametrize(
    ("values", "changed", "message"),
    [
        ({}, {"n_layers": 2}, "contains another model"),
        ({}, {"optimizer": "sgd"}, r"optimizer state of adam, not that of sgd with momentum 0\.9"),
        ({}, {"optimizer": "muon"}, "not that of muon; keep optimizer"),
        ({"optimizer": "sgd"}, {"momentum": 0.0}, "not that of sgd with momentum 0"),
        ({}, {"weight_averaging": True}, "weight_averaging False, not True"),
        ({"weight_averaging": True}, {"weight_averaging": False}, "weight_averaging True, not F"),
    ],
    ids=str,
)
def test_a_state_that_does_not_fit_new_settings_is_rejected(
    tiny, tmp_path, values, changed, message
):
    save_after(tiny.replace(**values), 1, tmp_path / "cut")
    with pytest.raises(CheckpointError, match=message):
        resume_trainer(tmp_path / "cut", **changed)


def test_adam_and_adamw_have_the_same_state(tiny, tmp_path):
    save_after(tiny, 1, tmp_path / "adam")
    trainer, _ = resume_trainer(tmp_path / "adam", optimizer="adamw", weight_decay=0.01)
    assert trainer.train_step().step == 2


def test_checkpoint_with_weights_only_cannot_be_resumed(tiny, tmp_path):
    save_checkpoint(tmp_path / "weights", Trainer(tiny), [], resumable=False)
    assert not (tmp_path / "weights" / "training.safetensors").exists()
    message = "contains only weights and cannot be resumed; train a new run instead"
    with pytest.raises(CheckpointError, match=message):
        resume_trainer(tmp_path / "weights")


def test_run_diverged_at_first_step_can_resume_once_repaired(tiny, tmp_path):
    trainer = Trainer(tiny)
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
    settings = {"stop_at_exact_match": 0.3, "eval_every": 5, "eval_size": 20, "max_steps": 300}
    trainer = Trainer(small_run.replace(**settings, learning_rate=1e-2))
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
    "values",
    [{"max_steps": 310}, {"stop_at_exact_match": 0.0}, {"stop_at_exact_match": 1.0}],
    ids=str,
)
def test_early_stopped_run_continues_if_its_goal_or_steps_change(ended_early, values):
    trainer, metrics = resume_trainer(ended_early, **values)
    assert trainer.train_step().step == len(metrics) + 1
    assert not trainer.stopped_early
    changed, _ = resume_trainer(ended_early)
    for name, value in values.items():
        changed.schedule_change(name, value)
    assert changed.should_continue()
    changed.schedule_change("learning_rate", 1e-4)
    assert next(iter(changed)).step == len(metrics) + 1


def test_checkpoints_of_earlier_versions_are_read(ended_early, tmp_path):
    """They lack the end flag, the checksums and the settings of averaging and Muon."""
    folder = shutil.copytree(ended_early, tmp_path / "old")
    state = load_file(folder / "training.safetensors")
    del state["finished"]
    save_file(state, folder / "training.safetensors")
    config = json.loads((folder / "config.json").read_text())
    del config["sha256"]
    for name in ("weight_averaging", "muon_lr_ratio"):
        del config["training"][name]
    (folder / "config.json").write_text(json.dumps(config))
    trainer, _ = resume_trainer(folder)
    assert trainer.should_continue()
    assert (trainer.config.training.optimizer, trainer.average) == ("adam", None)


def test_a_run_on_an_earlier_fixed_training_set_is_not_resumed(tiny, tmp_path, monkeypatch):
    run = tiny.replace(n_training_sources=20)
    save_after(run, 3, tmp_path / "new")
    message = "another fixed training set.*can still be inspected and evaluated$"
    with pytest.raises(CheckpointError, match=message):
        resume_trainer(tmp_path / "new", seed=1)
    complete = Trainer.state_dict  # an earlier version had no fingerprint
    monkeypatch.setattr(
        Trainer,
        "state_dict",
        lambda each: {k: v for k, v in complete(each).items() if k != "training_set"},
    )
    save_after(run, 3, tmp_path / "old")
    with pytest.raises(CheckpointError, match="another fixed training set"):
        resume_trainer(tmp_path / "old")
    assert load_model(tmp_path / "old")[0].step == 3


def test_a_stored_run_without_a_step_of_decay_resumes(tiny, tmp_path):
    run = tiny.replace(lr_schedule="cosine", lr_decay_steps=2, warmup_steps=4)
    with pytest.raises(ConfigError, match="lower warmup_steps or raise lr_decay_steps") as error:
        run.training.check_effects()
    assert error.value.field == "warmup_steps"
    save_after(run, 3, tmp_path)
    assert resume_trainer(tmp_path)[0].config == run
    for harmless in ({"lr_schedule": "constant"}, {"warmup_steps": 9999}, {"lr_decay_steps": 5}):
        run.replace(**harmless).training.check_effects()


def test_weight_decay_on_some_weights_needs_a_weight_decay(tiny):
    run = tiny.replace(weight_decay_on="linear")
    with pytest.raises(ConfigError, match="raise weight_decay or make") as error:
        run.training.check_effects()
    assert error.value.field == "weight_decay_on"
    run.replace(weight_decay=0.1).training.check_effects()
