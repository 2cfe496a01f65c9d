import math

import pytest
import torch

from playground.checkpoints.checkpoint import CheckpointError, resume_trainer, save_checkpoint
from playground.training.config import RunConfig
from playground.training.optimizers import build_optimizer
from playground.training.train_config import TrainConfig
from playground.training.trainer import Trainer, TrainingDivergedError
from tests.support.app_server import ROOT
from tests.support.trainer_fingerprint import fingerprint

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "max_length": 6,
    "max_steps": 12,
    "warmup_steps": 0,
    "lr_schedule": "constant",
    "eval_every": 100,
    "eval_size": 16,
    "batch_size": 16,
    "max_grad_norm": 0.0,
}
KINDS = [
    {"optimizer": "adamw", "weight_decay": 0.1},
    {"optimizer": "sgd", "learning_rate": 0.2},
    {"optimizer": "sgd", "learning_rate": 0.2, "momentum": 0.0},
]

AVERAGED_MUON = {"optimizer": "muon", "weight_averaging": True}
STATEFUL_KINDS = [*KINDS, {"optimizer": "muon"}, AVERAGED_MUON]


def trainer(**changes):
    return Trainer(RunConfig.from_flat(SMALL | changes))


@pytest.mark.parametrize("kind", [{"optimizer": "adam", "weight_decay": 0.1}, *KINDS], ids=str)
def test_an_update_is_that_of_the_formula(kind):
    """Three updates of every weight are computed from the gradients in double precision."""
    own = trainer(**kind)
    training, names = own.config.training, dict(own.model.named_parameters())
    weights = {name: weight.detach().double() for name, weight in names.items()}
    m, v = ({name: torch.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    rate, decay = training.learning_rate, training.weight_decay
    for t in (1, 2, 3):
        own.train_step()
        for name, w in weights.items():
            g = names[name].grad.double()
            if training.optimizer != "adamw":
                g = g + decay * w
            if training.optimizer == "sgd":
                m[name] = training.momentum * m[name] + g
                weights[name] = w - rate * m[name]
                continue
            m[name] = training.adam_beta1 * m[name] + (1 - training.adam_beta1) * g
            v[name] = training.adam_beta2 * v[name] + (1 - training.adam_beta2) * g**2
            mean, square = (
                m[name] / (1 - training.adam_beta1**t),
                v[name] / (1 - training.adam_beta2**t),
            )
            shrunk = w * (1 - rate * decay) if training.optimizer == "adamw" else w
            weights[name] = shrunk - rate * mean / (square.sqrt() + training.adam_eps)
        for name, weight in names.items():
            torch.testing.assert_close(
                weight.detach().double(), weights[name], atol=2e-4, rtol=1e-3
            )
            weights[name] = weight.detach().double()


@pytest.mark.parametrize("kind", STATEFUL_KINDS, ids=str)
def test_a_resumed_run_is_the_run_that_went_on_to_the_bit(kind, tmp_path):
    uninterrupted = trainer(**kind, dropout=0.1)
    for _ in range(6):
        uninterrupted.train_step()
    save_checkpoint(tmp_path / "half", uninterrupted, [])
    resumed, _ = resume_trainer(tmp_path / "half")
    assert fingerprint(resumed) == fingerprint(uninterrupted)
    torch.manual_seed(99)  # the two share a process, and torch's generator with it
    state = uninterrupted.state_dict()["generator.torch"]
    for each in (uninterrupted, resumed):
        torch.set_rng_state(state)
        for _ in range(6):
            each.train_step()
    assert fingerprint(resumed) == fingerprint(uninterrupted)


@pytest.mark.parametrize("kind", STATEFUL_KINDS, ids=str)
def test_a_first_update_that_is_not_finite_leaves_nothing_behind(kind):
    """Otherwise the momentum would start with uninitialized memory."""
    own, fresh = trainer(**kind), trainer(**kind)
    weight = own.model.output_proj.weight
    stored = weight.detach().clone()
    with torch.no_grad():
        weight[0, 0] = math.inf
    with pytest.raises(TrainingDivergedError):
        own.train_step()
    with torch.no_grad():
        weight.copy_(stored)
    for key, value in own.optimizer.state[weight].items():
        assert not value.any(), key
    state = fresh.state_dict()
    own.load_state_dict(state)
    first = own.train_step()
    fresh.load_state_dict(state)
    assert fresh.train_step().loss == first.loss
    assert fingerprint(own) == fingerprint(fresh)


def test_optimizer_state_of_another_optimizer_is_rejected(tmp_path):
    own = trainer(optimizer="adam")
    own.train_step()
    save_checkpoint(tmp_path / "adam", own, [])
    with pytest.raises(
        CheckpointError,
        match=r"contains the optimizer state of adam, not that of sgd with momentum 0\.9",
    ):
        resume_trainer(tmp_path / "adam", optimizer="sgd")
    with pytest.raises(CheckpointError, match="not that of muon; keep optimizer"):
        resume_trainer(tmp_path / "adam", optimizer="muon")
    # these two remember the same
    other, _ = resume_trainer(tmp_path / "adam", optimizer="adamw", weight_decay=0.01)
    other.train_step()


def test_a_state_of_sgd_that_does_not_fit_is_rejected(tmp_path):
    own = trainer(optimizer="sgd", learning_rate=0.1)
    own.train_step()
    save_checkpoint(tmp_path / "sgd", own, [])
    assert not [name for name in own.state_dict() if "exp_avg" in name or "optimizer.step" in name]
    with pytest.raises(CheckpointError, match="not that of sgd with momentum 0"):
        resume_trainer(tmp_path / "sgd", momentum=0.0)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_torchs_optimizers_take_a_scale(optimizer):
    """`grad_scale` is not documented, so a new version may drop it."""
    weight = torch.nn.Parameter(torch.zeros(4))
    built = build_optimizer(
        TrainConfig(optimizer=optimizer, learning_rate=0.5, momentum=0.0),
        torch.nn.ParameterList([weight]),
    )
    assert built._step_supports_amp_scaling
    weight.grad = torch.full((4,), 8.0)
    built.grad_scale = torch.tensor(4.0)
    built.step()
    assert torch.allclose(weight.detach(), torch.tensor(-1.0 if optimizer == "sgd" else -0.5))


def test_a_torch_version_without_grad_scale_is_rejected(monkeypatch):
    monkeypatch.setattr(
        torch.optim, "Adam", lambda weights, fused, **settings: torch.optim.Adagrad(weights)
    )
    with pytest.raises(RuntimeError, match=r"install the version in requirements\.txt"):
        build_optimizer(TrainConfig(), torch.nn.Linear(2, 2))


def test_installed_torch_is_the_pinned_version():
    pinned = next(
        line
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line.startswith("torch==")
    )
    assert torch.__version__.split("+")[0] == pinned.removeprefix("torch==").split()[0]


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_weight_decay_can_be_limited_to_linear_weights(optimizer):
    every = trainer(optimizer=optimizer, weight_decay=0.5)
    linear = trainer(optimizer=optimizer, weight_decay=0.5, weight_decay_on="linear")
    without = trainer(optimizer=optimizer)
    for each in (every, linear, without):
        each.train_step()
    decayed = {
        name
        for (name, one), (_, other) in zip(
            linear.model.named_parameters(), without.model.named_parameters(), strict=True
        )
        if not torch.equal(one, other)
    }
    names = {name for name, weight in linear.model.named_parameters() if weight.dim() == 2}
    assert decayed == {name for name in names if "embedding" not in name}
    table = "source_embedding.token_embedding.weight"
    unequal = [dict(each.model.named_parameters())[table] for each in (every, without)]
    assert not torch.equal(*unequal)
