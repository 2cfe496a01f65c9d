"""Source and target in one sequence, for models with a single stack.

New letter of shapes: W the tokens of a sequence that holds source and target.
"""

from __future__ import annotations

import torch
from torch import Tensor

from playground.tasks import PAD


def left_pad(source_BS: Tensor) -> Tensor:
    """Move the padding of the sources to the front (BS), so that all end in the last column."""
    column_S = torch.arange(source_BS.shape[1], device=source_BS.device)
    from_BS = column_S - (source_BS == PAD).sum(1, keepdim=True)
    return source_BS.gather(1, from_BS.clamp(min=0)).masked_fill(from_BS < 0, PAD)


def concat_source_and_target(source_BS: Tensor, target_BT: Tensor) -> Tensor:
    """Concatenate source, EOS and target (BW), with left padding.

    Every target begins in column S, so the token after column S - 1 + t is token t of the target.
    """
    return torch.cat([left_pad(source_BS), target_BT], dim=1)
