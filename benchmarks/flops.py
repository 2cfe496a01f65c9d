"""How much a training step computes."""

from __future__ import annotations

from torch.utils.flop_counter import FlopCounterMode

from playground.models.attention import MultiHeadAttention
from playground.training.trainer import Trainer


def counted_flops(trainer: Trainer) -> int:
    """Multiplications and additions of matrix products in one step, forward and backward, counted
    as they run: with attention weights
    written down, since torch does not count what its fused kernel computes on a processor."""
    attentions = [
        module for module in trainer.model.modules() if isinstance(module, MultiHeadAttention)
    ]
    for module in attentions:
        module.watched = True
    try:
        with FlopCounterMode(display=False) as counter:
            trainer.model.loss(trainer._next_batch()).backward()
    finally:
        for module in attentions:
            module.watched = False
        trainer.optimizer.zero_grad()
    return counter.get_total_flops()
