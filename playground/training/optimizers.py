"""Optimizers, and the state that each stores for every weight."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from playground.models.embeddings import InputEmbedding
from playground.models.position_encoding import RelativePositionEncoding

from .muon import Muon
from .train_config import TrainConfig

# Modules whose own weights are vectors of tokens and positions, or numbers of distances.
TABLE_TYPES = (nn.Embedding, InputEmbedding, RelativePositionEncoding)
# Weights of queries, keys and values together, by the end of their name, and the axis of the three:
# rows in nn.MultiheadAttention, columns in GPT-2.
FUSED_PROJECTIONS = {"in_proj_weight": 0, "c_attn.weight": 1}


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of a run's settings.

    adam    Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient
    adamw   Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2)
    sgd     with momentum (Polyak 1964); weight decay is added to the gradient
    muon    Muon on the hidden matrices (Jordan et al. 2024), AdamW on all other weights
    """
    lr, momentum = config.learning_rate, config.momentum
    adam: dict[str, Any] = {"betas": (config.adam_beta1, config.adam_beta2), "eps": config.adam_eps}
    if config.optimizer == "muon":
        hidden = hidden_matrices(model)  # a dict with weights as keys
        others = [weight for weight in model.parameters() if weight not in hidden]
        groups = weight_groups(config, model, others, embedding_lr_scales(model))
        return Muon(hidden, groups, lr, config.muon_lr_ratio, momentum, config.weight_decay, **adam)
    groups = weight_groups(config, model, model.parameters())
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, fused=True)
    optimizer_class = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return optimizer_class(groups, lr=lr, fused=True, **adam)


def weight_groups(
    config: TrainConfig,
    model: nn.Module,
    weights: Iterable[nn.Parameter],
    lr_scales: Mapping[Tensor, float] | None = None,
) -> list[dict[str, Any]]:
    """Group weights with the same weight decay and the same scale of the learning rate.

    By default all weights decay. With `weight_decay_on` "linear" only those of linear layers do:
    no norms, biases and embeddings. `training_step` multiplies the learning rate of a group by its
    `lr_scale`, which is 1 for weights that are not in `lr_scales`.
    """
    linear = set(matrices(model).values())
    groups = defaultdict[tuple[float, float], list[nn.Parameter]](list)
    for weight in weights:
        is_decayed = config.weight_decay_on == "all" or weight in linear
        weight_decay = config.weight_decay if is_decayed else 0.0
        lr_scale = lr_scales.get(weight, 1.0) if lr_scales else 1.0
        groups[weight_decay, lr_scale].append(weight)
    return [
        {"params": params, "weight_decay": weight_decay, "lr_scale": lr_scale}
        for (weight_decay, lr_scale), params in groups.items()
    ]


def matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of linear layers, by name: all with two dimensions except tables."""
    tables = {
        weight
        for module in model.modules()
        if isinstance(module, TABLE_TYPES)
        for weight in module.parameters(recurse=False)
    }
    return {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() == 2 and weight not in tables
    }


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, tuple[int, int]]:
    """Return the matrices before the output layer, each with its number of blocks and their axis.

    Muon updates each block separately: some libraries store the projections of queries, keys and
    values as three blocks of one weight.
    """
    linear_layers = [each for each in model.modules() if isinstance(each, nn.Linear)]
    output_layer = linear_layers[-1]  # in the models of this project and of transformers
    blocks = {}
    for name, weight in matrices(model).items():
        if weight is not output_layer.weight:
            axes = [axis for end, axis in FUSED_PROJECTIONS.items() if name.endswith(end)]
            blocks[weight] = (3, axes[0]) if axes else (1, 0)
    return blocks


def embedding_lr_scales(model: nn.Module) -> dict[Tensor, float]:
    """Return the scale of the learning rate of each table of token embeddings.

    The model multiplies a table by a factor. Its weights are smaller than others by that factor,
    and so is their learning rate.
    """
    return {
        each.token_embedding.weight: 1 / each.scale
        for each in model.modules()
        if isinstance(each, InputEmbedding)
    }


def optimizer_state_keys(config: TrainConfig, model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the keys of the optimizer state, by the name of the weight.

    "step" is a scalar; all other tensors have the shape of the weight.
    """
    momentum = ("momentum_buffer",)
    if config.optimizer == "sgd":
        return {name: momentum if config.momentum else () for name, _ in model.named_parameters()}
    hidden = hidden_matrices(model) if config.optimizer == "muon" else {}
    return {
        name: momentum if weight in hidden else ("step", "exp_avg", "exp_avg_sq")
        for name, weight in model.named_parameters()
    }
