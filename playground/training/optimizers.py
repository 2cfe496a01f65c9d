"""What turns gradients into updates, and what each remembers of the gradients before."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from .config import TrainConfig


def build_optimizer(config: TrainConfig, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that a run's settings describe.

    adam    Kingma and Ba 2015, algorithm 1; weight decay is added to the gradient
    adamw   the same with weight decay beside the gradient, not in it (Loshchilov and Hutter 2019, algorithm 2), on all weights alike
    sgd     with momentum (Polyak 1964); weight decay is added to the gradient

    Weight decay acts on norms, biases and embeddings too; minGPT and nanoGPT decay matrices only.

    Raises:
        RuntimeError: where torch's optimizers do not take a scale and a mask, which `update` gives them.
    """
    optimizer = _build(config, list(weights))
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise RuntimeError(
            f"torch {torch.__version__} is not supported; install the version that requirements.txt names"
        )
    return optimizer


def _build(config: TrainConfig, weights: list[nn.Parameter]) -> torch.optim.Optimizer:
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        sgd = torch.optim.SGD(
            weights, lr=rate, momentum=config.momentum, weight_decay=decay, fused=True
        )
        for weight in weights if config.momentum else ():
            # torch would begin with what lies in memory if the very first update is skipped; zeros come to the same otherwise.
            sgd.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        return sgd
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    betas = (config.beta1, config.beta2)
    return kind(weights, lr=rate, betas=betas, eps=config.epsilon, weight_decay=decay, fused=True)


def remembered(config: TrainConfig) -> tuple[str, ...]:
    """What the optimizer keeps for each weight, as large as the weight, by torch's names."""
    if config.optimizer == "sgd":
        return ("momentum_buffer",) if config.momentum else ()
    return ("exp_avg", "exp_avg_sq")


def counts_steps(config: TrainConfig) -> bool:
    """Whether the optimizer also keeps a number of steps for each weight."""
    return config.optimizer != "sgd"
