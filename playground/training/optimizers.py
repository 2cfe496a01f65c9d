"""Optimizers, and the state that each stores for every weight."""

from typing import Any, cast

import torch
from torch import nn

from playground.models.embeddings import InputEmbedding

from .muon import Muon
from .train_config import TrainConfig


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of a run's settings.

    adam    Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient
    adamw   Adam with decoupled weight decay on all weights (Loshchilov and Hutter 2019,
            algorithm 2)
    sgd     with momentum (Polyak 1964); weight decay is added to the gradient
    muon    Muon on the hidden matrices (Jordan et al. 2024), AdamW on all other weights

    Weight decay applies to all weights, including norms, biases and embeddings. For adam and adamw,
    `weight_decay_on` "linear" restricts it to the weights of linear layers, as in minGPT.

    Raises:
        RuntimeError: if torch's optimizers do not support `grad_scale`.
    """
    optimizer = _build(config, model)
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise RuntimeError(
            f"torch {torch.__version__} is not supported; install the version in requirements.txt"
        )
    return optimizer


def _build(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    lr, decay, weights = config.learning_rate, config.weight_decay, list(model.parameters())
    adam: dict[str, Any] = {"betas": (config.adam_beta1, config.adam_beta2), "eps": config.adam_eps}
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            weights, lr=lr, momentum=config.momentum, weight_decay=decay, fused=True
        )
    if config.optimizer == "muon":
        return Muon(
            hidden_matrices(model),
            _adam_groups(model),
            lr,
            config.muon_lr_ratio,
            config.momentum,
            decay,
            **adam,
        )
    optimizer_class = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    if config.weight_decay_on == "all":
        return optimizer_class(weights, lr=lr, weight_decay=decay, fused=True, **adam)
    linear = {each.weight for each in model.modules() if isinstance(each, nn.Linear)}
    groups = [
        {"params": [each for each in weights if each in linear], "weight_decay": decay},
        {"params": [each for each in weights if each not in linear], "weight_decay": 0.0},
    ]
    return optimizer_class(groups, lr=lr, fused=True, **adam)


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """Return the matrices between the embeddings and the output layer, with their block counts.

    They are the weights of all linear layers, except the last one (the output layer) and those that
    are tied to embeddings. Muon updates each block separately: `nn.MultiheadAttention` stores the
    query, key and value projections as three blocks of one weight.
    """
    modules = list(model.modules())
    embeddings = {each.weight for each in modules if isinstance(each, nn.Embedding)}
    hidden_layers = [each for each in modules if isinstance(each, nn.Linear)][:-1]
    matrices: dict[nn.Parameter, int] = {
        cast(nn.Parameter, each.weight): 1
        for each in hidden_layers
        if each.weight not in embeddings
    }
    for each in modules:
        if isinstance(each, nn.MultiheadAttention):
            matrices[each.in_proj_weight] = 3
    return matrices


def _adam_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Return the parameter groups of the weights that Muon does not update.

    A model may multiply its token embeddings by a scale. The embeddings are smaller by that factor
    than other weights, so their learning rate is, too.
    """
    scales = {
        each.token_embedding.weight: each.scale
        for each in model.modules()
        if isinstance(each, InputEmbedding)
    }
    matrices = hidden_matrices(model)
    groups: dict[float, list[nn.Parameter]] = {}
    for weight in model.parameters():
        if weight not in matrices:
            groups.setdefault(1 / scales.get(weight, 1.0), []).append(weight)
    return [{"params": weights, "lr_scale": scale} for scale, weights in groups.items()]


def optimizer_state_keys(config: TrainConfig, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the keys of the optimizer state, by the name of the weight.

    "step" is a scalar; all other tensors have the shape of the weight.
    """
    momentum = ("momentum_buffer",)
    if config.optimizer == "sgd":
        return {name: momentum if config.momentum else () for name, _ in model.named_parameters()}
    matrices = hidden_matrices(model) if config.optimizer == "muon" else {}
    return {
        name: momentum if weight in matrices else ("step", "exp_avg", "exp_avg_sq")
        for name, weight in model.named_parameters()
    }
