import math
from collections import Counter

import pytest
import torch
from torch import nn

from playground.architectures import ARCHITECTURES, load_architecture
from playground.checkpoints.checkpoint import build_model
from playground.training.muon import Muon, orthogonalize
from playground.training.optimizers import build_optimizer, hidden_matrices
from playground.training.presets import architecture_preset
from playground.training.run_config import RunConfig, optimizer_groups
from playground.training.step import TrainingDivergedError
from playground.training.train_config import TrainConfig
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


# Muon


SHAPES = [(8, 8), (8, 8), (16, 8), (8, 16), (3, 5), (1, 6)]


def matrices(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def set_gradients(weights, seed):
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.grad = torch.randn(weight.shape, generator=generator)


def muon(weights, blocks=(1, 0), momentum=0.9, weight_decay=0.0):
    groups = [{"params": [nn.Parameter(torch.zeros(2))]}]
    return Muon(dict.fromkeys(weights, blocks), groups, 0.02, 1.0, momentum, weight_decay)


def test_orthogonalized_matrix_keeps_singular_vectors_with_values_near_one():
    matrix_NRC = torch.randn(5, 12, 20, generator=torch.Generator().manual_seed(0))
    left, values, right = torch.linalg.svd(matrix_NRC, full_matrices=False)
    assert values.min() < 0.4 * values.max()
    core = left.mT @ orthogonalize(matrix_NRC) @ right.mT
    diagonal = core.diagonal(dim1=1, dim2=2)
    assert 0.6 < diagonal.min() < diagonal.max() < 1.3
    torch.testing.assert_close(core, torch.diag_embed(diagonal), atol=1e-3, rtol=0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_updates_are_those_of_torchs_muon(monkeypatch, momentum, weight_decay):
    own_weights, torch_weights = matrices(), matrices()
    own_optimizer = muon(own_weights, momentum=momentum, weight_decay=weight_decay)
    settings = {"lr": 0.02, "momentum": momentum, "weight_decay": weight_decay}
    reference = torch.optim.Muon(torch_weights, adjust_lr_fn="match_rms_adamw", **settings)
    # torch computes the iterations in bfloat16
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    for step in range(4):
        for weights in (own_weights, torch_weights):
            set_gradients(weights, step)
        own_optimizer.step()
        reference.step()
    for one, other, start in zip(own_weights, torch_weights, matrices(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        assert (one - start).abs().max() > 1e-3


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_are_updated_as_separate_matrices(axis):
    shape = (12, 4) if axis == 0 else (4, 12)
    joined = nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    parts = [nn.Parameter(part.detach().clone()) for part in joined.chunk(3, axis)]
    one, separate = muon([joined], blocks=(3, axis)), muon(parts)
    for step in range(3):
        set_gradients([joined], step)
        for part, gradient in zip(parts, joined.grad.chunk(3, axis), strict=True):
            part.grad = gradient.clone()
        one.step()
        separate.step()
    torch.testing.assert_close(joined, torch.cat(parts, axis))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_hidden_matrices_are_neither_embeddings_nor_output_layer(name):
    config = architecture_preset(name, max_length=4, d_model=16)
    model = build_model(config)
    matrices, vocabulary = hidden_matrices(model), config.model.target_vocab_size
    names = [name for name, weight in model.named_parameters() if weight in matrices]
    assert all(weight.dim() == 2 for weight in matrices)
    assert not [weight.shape for weight in matrices if vocabulary in weight.shape]
    assert not [name for name in names if "embed" in name or "position" in name]
    optimizer = build_optimizer(TrainConfig(optimizer="muon"), model)
    updated = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert len({id(weight) for weight in updated}) == len(updated)
    assert {id(weight) for weight in updated} == {id(weight) for weight in model.parameters()}


def test_all_projections_of_the_transformer_are_hidden_matrices():
    model = build_model(architecture_preset("transformer", n_layers=1))
    matrices = hidden_matrices(model)
    others = {name for name, weight in model.named_parameters() if weight not in matrices}
    assert len(matrices) == 6 + 10
    assert {name for name in others if model.get_parameter(name).dim() > 1} == {
        "source_embedding.token_embedding.weight",
        "source_embedding.position_embedding",
        "target_embedding.token_embedding.weight",
        "target_embedding.position_embedding",
        "output_proj.weight",
    }


def test_scaled_token_embeddings_have_a_smaller_learning_rate():
    model = build_model(architecture_preset("transformer", d_model=16, max_length=4))
    optimizer = build_optimizer(TrainConfig(optimizer="muon", muon_lr_ratio=5.0), model)
    scale_of = {
        weight: group["lr_scale"] for group in optimizer.param_groups for weight in group["params"]
    }
    for side in (model.source_embedding, model.target_embedding):
        assert scale_of[side.token_embedding.weight] == pytest.approx(1 / 4)
        assert scale_of[side.position_embedding] == 1
    assert scale_of[model.output_proj.weight] == scale_of[model.output_proj.bias] == 1
    assert scale_of[model.encoder_layers[0].self_attn.q_proj.weight] == 5
