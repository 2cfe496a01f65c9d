"""Several sequences in one row, so that little of the computation is for padding.

Half of a padded batch of lengths 1 to 10 is padding. Here sequences share rows of a fixed width,
masks keep them apart, and held-out sequences are left out. Loss and gradients equal those of the
padded batch up to rounding; only dropout has other random numbers.

Letters of shapes: R rows of S source positions and T target positions; M stands for either. N
counts the tokens of all sequences.
"""

from typing import NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.models.attention import causal_mask
from playground.models.position_encoding import (
    ALiBi,
    RelativePositionEncoding,
    RotaryEmbedding,
    T5RelativePositionBias,
)
from playground.tasks import PAD
from playground.tasks.task import Batch

from .encoder_decoder import TransformerModel
from .seq2seq_model import Seq2SeqModel, eval_mode

MIN_WIDTH = 32  # positions of a row
WIDTH_STEP = 16  # a vector register of the CPU holds 16 numbers
N_WIDTHS = 4  # widths to choose from
SUFFICIENT_FILL = 0.85  # with this fraction of used positions, no wider rows are tried
GROUP_SIZE = 256  # sequences that are packed together, to limit the time of the search

# Position encodings that depend on distances within a sequence only, which stay the same in a row.
# The position vectors of the input come from the padded batch. An encoding that is not listed here,
# for example a new one, is computed on padded batches.
DISTANCE_ENCODINGS = {RelativePositionEncoding, RotaryEmbedding, ALiBi, T5RelativePositionBias}


def can_pack(model: Seq2SeqModel) -> TypeGuard[TransformerModel]:
    """Return whether packed rows compute what this model computes, and are faster.

    The model must be the transformer from scratch without changes. On a GPU, the number of rows
    would have to be read from the device at every step.
    """
    return (
        type(model) is TransformerModel
        and next(model.parameters()).device.type == "cpu"
        and all(
            type(module) in DISTANCE_ENCODINGS
            for module in model.modules()
            if isinstance(module, RelativePositionEncoding)
        )
    )


def packed_loss(model: TransformerModel, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
    """Return the result of `model.loss` from packed rows, if they are shorter than the batch."""
    rows = pack(batch, batch.loss_weight_B > 0)
    if rows is None:
        return model.loss(batch, label_smoothing)
    logits_NV, labels_N = packed_logits(model, batch, rows)
    return F.cross_entropy(logits_NV, labels_N, label_smoothing=label_smoothing)


@torch.no_grad()
def packed_exact_match_and_loss(
    model: TransformerModel, batch: Batch, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor | None]:
    """Return the result of `model.exact_match_and_loss` from packed rows, if they are shorter."""
    rows = pack(batch, torch.ones(len(batch.source_BS), dtype=torch.bool))
    if rows is None:
        return model.exact_match_and_loss(batch, label_smoothing)
    with eval_mode(model):
        logits_NV, labels_N = packed_logits(model, batch, rows)
    is_token_BT = rows[1].is_token_BM  # of the targets
    is_wrong_BT = torch.zeros_like(is_token_BT)
    is_wrong_BT[is_token_BT] = logits_NV.argmax(-1) != labels_N
    loss_BT = torch.zeros(is_token_BT.shape, dtype=logits_NV.dtype)
    loss_BT[is_token_BT] = F.cross_entropy(
        logits_NV, labels_N, reduction="none", label_smoothing=label_smoothing
    )
    return ~is_wrong_BT.any(1), loss_BT.sum(1)


class PackedSide(NamedTuple):
    """The positions of the sources, or of the targets, in rows."""

    is_token_BM: Tensor  # True at the tokens that are in the rows
    token_RM: Tensor  # index of each position's token in the flattened batch; 0 if it is unused
    sequence_RM: Tensor  # index of the sequence; -1 if the position is unused
    position_N: Tensor  # index of each token's position in the flattened rows


PackedRows = tuple[PackedSide, PackedSide]  # source and target of a sequence are in the same row


def packed_logits(model: TransformerModel, batch: Batch, rows: PackedRows) -> tuple[Tensor, Tensor]:
    """Return the logits (NV) and labels (N) of the target tokens, in the order of the batch."""
    source, target = rows
    source_mask = may_attend(source.sequence_RM, source.sequence_RM)
    cross_mask = may_attend(target.sequence_RM, source.sequence_RM)
    target_mask = may_attend(target.sequence_RM, target.sequence_RM)
    target_mask &= causal_mask(target.sequence_RM.shape[1], target_mask.device)

    x_RSD = model.source_embedding(batch.source_BS).flatten(0, 1)[source.token_RM]
    for layer in model.encoder_layers:
        x_RSD = layer(x_RSD, source_mask)
    memory_RSD = model.encoder_norm(x_RSD)
    x_RTD = model.target_embedding(batch.decoder_input_BT).flatten(0, 1)[target.token_RM]
    for layer in model.decoder_layers:
        x_RTD = layer(x_RTD, target_mask, memory_RSD, cross_mask)
    x_ND = model.decoder_norm(x_RTD).flatten(0, 1)[target.position_N]
    return model.output_proj(x_ND), batch.labels_BT[target.is_token_BM]


def may_attend(query_sequence_RQ: Tensor, key_sequence_RM: Tensor) -> Tensor:
    """Return the attention mask (R1QM), True within a sequence.

    An unused position attends to all positions, because a softmax over none is NaN.
    """
    is_same_RQM = query_sequence_RQ[:, :, None] == key_sequence_RM[:, None, :]
    return (is_same_RQM | (query_sequence_RQ < 0)[:, :, None])[:, None]


def pack(batch: Batch, is_included_B: Tensor) -> PackedRows | None:
    """Assign the included sequences of a batch to rows, of the first width with little waste.

    The result is None if no sequence is included, or if the rows would have as many source
    positions as the batch.
    """
    is_source_BS = (batch.source_BS != PAD) & is_included_B[:, None]
    is_target_BT = (batch.labels_BT != PAD) & is_included_B[:, None]
    if not bool(is_included_B.any()):
        return None
    n_positions = batch.source_BS.numel()
    lengths = is_source_BS.sum(1).tolist(), is_target_BT.sum(1).tolist()
    best: list[tuple[int, int, int]] = []
    widths = (0, 0)
    for candidate in row_widths(is_source_BS.shape[1], is_target_BT.shape[1]):
        places = first_fit(*lengths, *candidate)
        n_rows = 1 + max(row for row, _, _ in places)
        if n_rows * candidate[0] < n_positions:
            best, widths, n_positions = places, candidate, n_rows * candidate[0]
        if sum(lengths[0]) >= SUFFICIENT_FILL * n_rows * candidate[0]:
            break
    if not best:
        return None
    row_B, source_start_B, target_start_B = torch.tensor(best).unbind(1)
    n_rows = n_positions // widths[0]
    return (
        _packed_side(is_source_BS, row_B * widths[0] + source_start_B, n_rows, widths[0]),
        _packed_side(is_target_BT, row_B * widths[1] + target_start_B, n_rows, widths[1]),
    )


def row_widths(source_width: int, target_width: int) -> list[tuple[int, int]]:
    """Return the widths of rows to choose from, for sources and for targets."""
    first = max(MIN_WIDTH, _round_up(source_width))
    return [
        (width, _round_up(max(target_width, width * target_width // source_width)))
        for width in range(first, first + N_WIDTHS * WIDTH_STEP, WIDTH_STEP)
    ]


def _round_up(width: int) -> int:
    return -(-width // WIDTH_STEP) * WIDTH_STEP


def first_fit(
    source_lengths: list[int], target_lengths: list[int], source_width: int, target_width: int
) -> list[tuple[int, int, int]]:
    """Return the row of each sequence, and the first positions of its source and of its target.

    The longest sequence comes first, and each goes to the first row with enough space (first-fit
    decreasing; Johnson 1973).
    """
    lengths = list(zip(source_lengths, target_lengths, strict=True))
    places = [(0, 0, 0)] * len(lengths)
    n_rows = 0
    for start in range(0, len(lengths), GROUP_SIZE):
        group = range(start, min(start + GROUP_SIZE, len(lengths)))
        open_rows: list[tuple[int, int, int]] = []  # each with its next free positions
        for i in sorted(group, key=lambda i: sum(lengths[i]), reverse=True):
            source, target = lengths[i]
            for j, (row, next_source, next_target) in enumerate(open_rows):
                if next_source + source <= source_width and next_target + target <= target_width:
                    places[i] = row, next_source, next_target
                    open_rows[j] = row, next_source + source, next_target + target
                    break
            else:
                places[i] = n_rows, 0, 0
                open_rows.append((n_rows, source, target))
                n_rows += 1
    return places


def _packed_side(is_token_BM: Tensor, start_B: Tensor, n_rows: int, width: int) -> PackedSide:
    """Return one side; `start_B` is the position of each sequence's first token."""
    n_sequences, n_columns = is_token_BM.shape
    position_N = (start_B[:, None] + torch.arange(n_columns))[is_token_BM]
    token_P = torch.zeros(n_rows * width, dtype=torch.long)
    token_P[position_N] = is_token_BM.flatten().nonzero()[:, 0]
    sequence_P = torch.full((n_rows * width,), -1)
    sequence_P[position_N] = torch.arange(n_sequences).repeat_interleave(is_token_BM.sum(1))
    shape_RM = n_rows, width
    return PackedSide(is_token_BM, token_P.view(shape_RM), sequence_P.view(shape_RM), position_N)
