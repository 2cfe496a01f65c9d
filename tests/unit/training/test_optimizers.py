import math
import re

import pytest
import torch

from playground.training.run_config import RunConfig
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
    pinned = re.search(r"^torch==(\S+)", (ROOT / "requirements.txt").read_text(), re.M)[1]
    assert torch.__version__.split("+")[0] == pinned


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "muon"])
def test_weight_decay_can_be_limited_to_linear_weights(optimizer):
    every = trainer(optimizer=optimizer, weight_decay=0.5)
    linear = trainer(optimizer=optimizer, weight_decay=0.5, weight_decay_on="linear")
    without = trainer(optimizer=optimizer)
    for each in (every, linear, without):
        each.train_step()
    weights = dict(linear.model.named_parameters())
    others = dict(without.model.named_parameters())
    decayed = {name for name, weight in weights.items() if not torch.equal(weight, others[name])}
    matrices = {name for name, weight in weights.items() if weight.dim() == 2}
    assert decayed == {name for name in matrices if "embedding" not in name}
    table = "source_embedding.token_embedding.weight"
    assert not torch.equal(every.model.get_parameter(table), others[table])
