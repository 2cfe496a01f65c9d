"""One training step: forward pass, backward pass, clipping, optimizer.

It never synchronizes with the device.
"""

import torch
from torch import Tensor

from playground.architectures.base import Seq2SeqModel
from playground.tasks.task import Batch

from .distributed import SINGLE_PROCESS, DistributedContext, LossFn
from .train_config import TrainConfig

MAX_CONCAT_NUMEL = 2_000_000  # up to this many numbers, gradients are concatenated for their norm


def train_step(
    model: Seq2SeqModel,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    training: TrainConfig,
    lr: float | Tensor,
    diverged: Tensor | None = None,
    loss_fn: LossFn | None = None,
    dist: DistributedContext = SINGLE_PROCESS,
) -> tuple[Tensor, Tensor, Tensor]:
    """Update the weights; return the loss, the gradient norm and whether both are finite.

    The norm is that before clipping. If one of the two is not finite, or if `diverged` is True,
    weights and optimizer stay unchanged. All results are scalars on the device.

    The optimizer gets a mask for this, as in torch.amp.GradScaler, because a check on the CPU would
    synchronize with the GPU at every step. If `lr` is a tensor on the device, the optimizer
    stores it there, and a captured update reads it at each replay. Several `dist` pass their
    `DistributedContext.loss` of the model as `loss_fn`, and all get the same loss and norm.

    """
    with torch.autocast(
        batch.source_BS.device.type, torch.bfloat16, enabled=training.precision == "bfloat16"
    ):
        loss = (loss_fn or model.loss)(batch, training.label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    loss = dist.all_reduce_mean(loss.detach())
    grad_norm = global_grad_norm(
        [weight.grad for weight in model.parameters() if weight.grad is not None]
    )
    # Clipping as in torch.nn.utils.clip_grad_norm_, but inside the optimizer: the fused optimizers
    # divide the gradient by a scale in the same pass.
    if training.max_grad_norm:
        scale = (grad_norm / training.max_grad_norm).clamp(min=1)
        optimizer.grad_scale = scale  # type: ignore[attr-defined]
    is_finite = grad_norm.isfinite() & loss.isfinite()
    skip = ~is_finite if diverged is None else ~is_finite | diverged
    optimizer.found_inf = skip.float()  # type: ignore[attr-defined]
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    optimizer.step()
    return loss, grad_norm, is_finite


def global_grad_norm(gradients: list[Tensor]) -> Tensor:
    """Return the norm of all gradients together.

    Those of a small model are concatenated first: one kernel is faster than one for each tensor.
    Those of a large model would take memory, and save no time.
    """
    if not 0 < sum(gradient.numel() for gradient in gradients) <= MAX_CONCAT_NUMEL:
        return torch.nn.utils.get_total_norm(gradients)
    return torch.cat([gradient.flatten() for gradient in gradients]).norm()
