import math
from collections import Counter

import pytest
import torch

from playground.architectures import ARCHITECTURES, load_architecture
from playground.training.optimizers import build_optimizer
from playground.training.presets import architecture_preset
from playground.training.run_config import RunConfig, optimizer_groups
from playground.training.step import TrainingDivergedError
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.small_runs import SMALL_SETTINGS
from tests.support.trainer_fingerprint import fingerprint

SMALL = SMALL_SETTINGS | {"max_steps": 12, "max_grad_norm": 0.0}


def trainer(**changes):
    return Trainer(RunConfig.from_flat(SMALL | changes))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_a_first_update_that_is_not_finite_leaves_nothing_behind(optimizer):
    """Otherwise the momentum would start with uninitialized memory."""
    own, fresh = (trainer(optimizer=optimizer) for _ in range(2))
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


def test_installed_torch_is_the_pinned_version():
    pinned = next(
        line
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line.startswith("torch==")
    )
    assert torch.__version__.split("+")[0] == pinned.removeprefix("torch==").split()[0]


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "muon"])
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


@pytest.mark.parametrize("weight_decay_on", ["all", "linear"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        *((name, {}) for name in ARCHITECTURES),
        ("transformer", {"position_type": "t5", "tie_output_embeddings": True}),
        ("recurrent", {"attention": "additive", "n_layers": 2}),
    ],
)
def test_counts_of_the_groups_are_those_of_the_optimizer(
    architecture, settings, optimizer, weight_decay_on
):
    settings = settings | {"weight_decay": 0.1, "weight_decay_on": weight_decay_on}
    config = architecture_preset(architecture, max_length=4, optimizer=optimizer, **settings)
    model = load_architecture(architecture)(config.model)
    built = build_optimizer(config.training, model)
    expected = Counter()
    for i, group in enumerate(built.param_groups):
        name = "muon" if optimizer == "muon" and i == 0 else "adamw"
        expected[name, group["weight_decay"]] += sum(each.numel() for each in group["params"])
    assert {
        (group["optimizer"], group["weight_decay"]): group["parameters"]
        for group in optimizer_groups(config)
    } == expected
    assert optimizer == "adamw" or expected["muon", 0.1] > 0
