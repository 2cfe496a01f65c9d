"""Optimizers, and the state that each keeps for every weight."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from .config import TrainConfig


def build_optimizer(config: TrainConfig, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Build the optimizer of a run's settings.

    adam    Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient
    adamw   Adam with decoupled weight decay on all weights (Loshchilov and Hutter 2019,
            algorithm 2)
    sgd     with momentum (Polyak 1964); weight decay is added to the gradient

    Weight decay applies to norms, biases and embeddings, too; minGPT and nanoGPT decay matrices
    only.

    Raises:
        RuntimeError: if torch's optimizers do not accept the gradient scale and mask of `update`.
    """
    optimizer = _build(config, list(weights))
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise RuntimeError(
            f"torch {torch.__version__} is not supported; install the version in requirements.txt"
        )
    return optimizer


def _build(config: TrainConfig, weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    lr, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        sgd = torch.optim.SGD(
            weights, lr=lr, momentum=config.momentum, weight_decay=decay, fused=True
        )
        for weight in weights if config.momentum else ():
            # Without this, torch would use uninitialized memory if the very first update is
            # skipped. Otherwise zeros make no difference.
            sgd.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        return sgd
    optimizer_class = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    betas = (config.adam_beta1, config.adam_beta2)
    return optimizer_class(
        weights, lr=lr, betas=betas, eps=config.adam_eps, weight_decay=decay, fused=True
    )


def optimizer_state_keys(config: TrainConfig) -> tuple[str, ...]:
    """Return the names of the optimizer's tensors that are as large as the weight."""
    if config.optimizer == "sgd":
        return ("momentum_buffer",) if config.momentum else ()
    return ("exp_avg", "exp_avg_sq")


def has_step_count(config: TrainConfig) -> bool:
    """Return whether the optimizer also stores a number of steps for each weight."""
    return config.optimizer != "sgd"
