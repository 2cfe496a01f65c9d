"""One update of the weights: forward pass, backward pass, clipping, optimizer. Nothing in here asks the device for an answer.

Shapes: B batch, S source, T target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from playground.families.family import Family
from playground.tasks.task import Batch

from .config import TrainConfig
from .distributed import ALONE, Loss, Ranks

JOINED = 2_000_000  # numbers up to which gradients are copied together for their norm


def update(
    family: Family,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    training: TrainConfig,
    rate: float | Tensor,
    spoiled: Tensor | None = None,
    loss_of: Loss | None = None,
    ranks: Ranks = ALONE,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradient norm (before clipping) of the batch, and whether both are finite; where they are not, or where `spoiled` is true,
    weights and optimizer stay as they are. All of it scalars on the device.

    The optimizer is told by a mask, as torch.amp.GradScaler does it, because looking first would make a GPU wait at every step.
    A `rate` on the device is kept there by the optimizer, so that a captured update reads it anew at each replay. Several `ranks` give
    their `Ranks.loss` of the family as `loss_of`, and all get the same loss and norm.
    """
    with torch.autocast(
        batch.source_BS.device.type, torch.bfloat16, enabled=training.precision == "bfloat16"
    ):
        loss = (loss_of or family.loss)(batch, training.label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    loss = ranks.mean(loss.detach())
    norm = gradient_norm([weight.grad for weight in family.parameters() if weight.grad is not None])
    if training.clip:  # torch.nn.utils.clip_grad_norm_, but within the optimizer: fused ones divide by a scale as they go
        optimizer.grad_scale = (norm / training.clip).clamp(min=1)  # type: ignore[attr-defined]
    finite = norm.isfinite() & loss.isfinite()
    skip = ~finite if spoiled is None else ~finite | spoiled
    optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return loss, norm, finite


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """The norm of all gradients together. Those of a small model are joined first: one pass over them is quicker than one for each.
    Those of a large one would take room, and time no shorter."""
    if not 0 < sum(gradient.numel() for gradient in gradients) <= JOINED:
        return torch.nn.utils.get_total_norm(gradients)
    return torch.cat([gradient.flatten() for gradient in gradients]).norm()
