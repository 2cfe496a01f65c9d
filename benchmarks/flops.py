"""Count the FLOPs of a training step."""

from __future__ import annotations

from torch.utils.flop_counter import FlopCounterMode

from playground.inspection.hooks import compute_weights
from playground.models.attention import MultiHeadAttention
from playground.training.trainer import Trainer


def counted_flops(trainer: Trainer) -> int:
    """Count the FLOPs of the matrix products in one step, forward and backward.

    The attention weights are computed explicitly, because torch does not count its fused CPU
    kernel.
    """
    handles = [
        compute_weights(module)
        for module in trainer.model.modules()
        if isinstance(module, MultiHeadAttention)
    ]
    try:
        with FlopCounterMode(display=False) as counter:
            trainer.loss_fn(trainer.next_batch(), 0.0).backward()
    finally:
        for handle in handles:
            handle.remove()
        trainer.optimizer.zero_grad()
    return counter.get_total_flops()
