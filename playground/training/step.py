"""One training step: the weights after a batch, from the weights before it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.tasks.task import Batch

from .train_config import TrainConfig

ETA = 4  # of the weight average; larger values forget early weights sooner


class TrainingDivergedError(RuntimeError):
    """The loss or the gradient is not finite. The weights are those before the step."""


def training_step(
    model: Seq2SeqModel,
    loss_fn: Callable[[Batch, float], Tensor],
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    settings: TrainConfig,
    step: int,
) -> tuple[float, float, float]:
    """Update the weights; return the loss, the gradient norm before clipping and the learning rate.

    `step` counts from 1. `loss_fn` computes what `model.loss` does. Raises TrainingDivergedError if
    loss or gradient is not finite; weights and optimizer are those before the step.
    """
    optimizer.zero_grad()
    device, is_bfloat16 = batch.source_BS.device.type, settings.precision == "bfloat16"
    with torch.autocast(device, torch.bfloat16, enabled=is_bfloat16):
        loss = loss_fn(batch, settings.label_smoothing)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm or math.inf)

    loss_value, norm_value = loss.item(), norm.item()
    if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
        raise TrainingDivergedError(
            f"step {step}: loss {loss_value:g}, gradient norm {norm_value:g}. The weights of step "
            f"{step - 1} are kept; lower learning_rate (now {settings.learning_rate:g}) or "
            f"lengthen warmup_steps (now {settings.warmup_steps})"
        )
    learning_rate = learning_rate_at(settings, model.config.d_model, step)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]
    optimizer.step()
    return loss_value, norm_value, learning_rate


def learning_rate_at(config: TrainConfig, d_model: int, step: int) -> float:
    """Return the learning rate of update `step` (1 is the first).

    constant   increases linearly during the warm-up, then stays constant
    cosine     the same warm-up; from its end, as in nanoGPT and torchtitan, decays along half a
               cosine to `min_lr_ratio` of itself at `lr_decay_steps` (Loshchilov and Hutter 2017,
               without restarts)
    noam       learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), equation 3
               of Vaswani et al. 2017
    """
    if config.lr_schedule == "noam":
        warmup_steps = max(config.warmup_steps, 1)
        return config.learning_rate * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)
    warmup_factor = min(1.0, step / config.warmup_steps) if config.warmup_steps else 1.0
    if config.lr_schedule == "constant":
        return config.learning_rate * warmup_factor
    decay_steps = max(1, config.lr_decay_steps - config.warmup_steps)
    progress = min(max(0, step - config.warmup_steps) / decay_steps, 1.0)
    low = config.min_lr_ratio
    decay_factor = low + (1 - low) * (1 + math.cos(math.pi * progress)) / 2
    return config.learning_rate * warmup_factor * decay_factor


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, step: int) -> None:
    """Move the averaged weights towards those after update `step`.

    It is polynomial-decay averaging (Shamir and Zhang 2013, section 4). The first rate is 1, so the
    initial weights do not count.
    """
    # torch.optim.swa_utils.AveragedModel copies the first weights instead, which has other last
    # bits, copies all buffers at every step, and counts the steps a second time.
    rate = (1 + ETA) / (step + ETA)
    averaged: list[Tensor] = list(average.parameters())
    distances = torch._foreach_sub(list(model.parameters()), averaged)
    torch._foreach_mul_(distances, rate)
    torch._foreach_add_(averaged, distances)
