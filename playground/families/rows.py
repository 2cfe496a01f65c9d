"""Question and answer in one row, for models that have one stack.

Shapes: B batch, S source, T target, W places of a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from playground.tasks import PAD


def ending_together(source_BS: Tensor) -> Tensor:
    """The sources with their padding in front (BS): each ends in the last column."""
    column_S = torch.arange(source_BS.shape[1], device=source_BS.device)
    from_BS = column_S - (source_BS == PAD).sum(1, keepdim=True)
    return source_BS.gather(1, from_BS.clamp(min=0)).masked_fill(from_BS < 0, PAD)


def question_and_answer(source_BS: Tensor, answer_BT: Tensor) -> Tensor:
    """Rows (BW) of source, EOS and answer; every answer begins in column S, so what stands in column S - 1 + t is followed by the
    answer's token t."""
    return torch.cat([ending_together(source_BS), answer_BT], dim=1)
