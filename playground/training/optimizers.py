"""Optimizers, and the state that each stores for every weight."""

from typing import Any

import torch
from torch import Tensor, nn

from playground.models.embeddings import InputEmbedding

from .muon import Muon
from .train_config import TrainConfig

# The ends of the names of tables that are no nn.Embedding.
POSITION_TABLES = ("position_embedding", "relative_attention_bias")
# Weights of queries, keys and values together, by the end of their name, and the axis of the three:
# rows in nn.MultiheadAttention, columns in GPT-2.
FUSED_PROJECTIONS = {"in_proj_weight": 0, "c_attn.weight": 1}


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of a run's settings.

    adam    Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient
    adamw   Adam with decoupled weight decay on all weights (Loshchilov and Hutter 2019,
            algorithm 2)
    sgd     with momentum (Polyak 1964); weight decay is added to the gradient
    muon    Muon on the hidden matrices (Jordan et al. 2024), AdamW on all other weights

    Weight decay applies to all weights, including norms, biases and embeddings. With
    `weight_decay_on` "linear" it applies to matrices only, as in minGPT and nanoGPT.

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
    lr, decay = config.learning_rate, config.weight_decay
    adam: dict[str, Any] = {"betas": (config.adam_beta1, config.adam_beta2), "eps": config.adam_eps}
    if config.optimizer == "muon":
        ratio, momentum = config.muon_lr_ratio, config.momentum
        hidden, others = hidden_matrices(model), _groups(config, model, with_hidden=False)
        return Muon(hidden, others, lr, ratio, momentum, decay, **adam)
    groups = _groups(config, model)
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            groups, lr=lr, momentum=config.momentum, weight_decay=decay, fused=True
        )
    optimizer_class = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return optimizer_class(groups, lr=lr, weight_decay=decay, fused=True, **adam)


def matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights of two dimensions that are no table of vectors, by name.

    The rule is about tensors, so that it holds for layers of any library. A table of vectors or of
    numbers for each position is no matrix, nor is an output layer that is tied to one.
    """
    tables = {each.weight for each in model.modules() if isinstance(each, nn.Embedding)}
    return {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() >= 2 and weight not in tables and not name.endswith(POSITION_TABLES)
    }


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, tuple[int, int]]:
    """Return the matrices before the output layer, each with its number of blocks and their axis.

    Muon updates each block separately: some libraries store the projections of queries, keys and
    values as three blocks of one weight.
    """
    *_, output = (each for each in model.modules() if isinstance(each, nn.Linear))
    return {
        weight: next(
            ((3, axis) for end, axis in FUSED_PROJECTIONS.items() if name.endswith(end)), (1, 0)
        )
        for name, weight in matrices(model).items()
        if weight not in {output.weight}
    }


def _groups(
    config: TrainConfig, model: nn.Module, with_hidden: bool = True
) -> list[dict[str, Any]]:
    """Return the parameter groups of all weights, or of those that Muon does not update.

    A model may multiply its token embeddings by a scale. The embeddings are smaller by that factor
    than other weights, so beside Muon their learning rate is, too.
    """
    decayed = set(matrices(model).values())
    hidden = {} if with_hidden else hidden_matrices(model)
    scales = {} if with_hidden else _embedding_scales(model)
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for weight in model.parameters():
        if weight not in hidden:
            decays = config.weight_decay_on == "all" or weight in decayed
            groups.setdefault((1 / scales.get(weight, 1.0), decays), []).append(weight)
    return [
        {"params": weights, "lr_scale": scale} | ({} if decays else {"weight_decay": 0.0})
        for (scale, decays), weights in groups.items()
    ]


def _embedding_scales(model: nn.Module) -> dict[Tensor, float]:
    return {
        each.token_embedding.weight: each.scale
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
