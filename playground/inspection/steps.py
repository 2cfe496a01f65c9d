"""Writing an answer step by step: at each output position what was there before, what the model thinks comes next, and
where each head looks to think so.

Shapes: L layers, H heads, S source, T target, V vocabulary; M the target so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from playground.families.encoder_decoder import EncoderDecoder
from playground.tasks import PAD
from playground.tasks.task import Batch

from .recording import Recording, record_forced, record_free

CANDIDATES = 5


@dataclass(frozen=True)
class Step:
    """One output position of one sequence.

    given        the tokens that the decoder is given here: SOS and what is written so far
    candidates   the most likely next tokens with their probabilities, the likeliest first
    chosen       the token that goes here: the model's own, or the right one when the answer is given
    probability  the model's probability of it
    right        the right token here; None where the right answer has ended
    decoder_LHM  where each decoder self-attention head looks in what is given
    cross_LHS    where each cross-attention head looks in the source
    """

    position: int
    given: list[int]
    candidates: list[tuple[int, float]]
    chosen: int
    probability: float
    right: int | None
    decoder_LHM: Tensor
    cross_LHS: Tensor


def forced_steps(family: EncoderDecoder, batch: Batch) -> list[Step]:
    """The steps when the target, shifted right, is given, as in training: each is asked to continue the right answer.

    Raises:
        ValueError: unless the batch has one row.
    """
    _one_row(batch)
    return _steps(record_forced(family, batch), _answer(batch), batch, temperature=0.0)


def free_steps(
    family: EncoderDecoder,
    batch: Batch,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[Step]:
    """The steps when the model goes on from what it wrote itself, until its EOS or `max_tokens`.

    Temperature 0 takes the likeliest token (greedy); above 0 tokens are drawn, by the same seed the same, and the
    probabilities shown are softmax(logits / temperature), those they are drawn from.

    Raises:
        ValueError: unless the batch has one row; for a negative temperature, or more tokens than there are positions.
    """
    _one_row(batch)
    recording, written_BT = record_free(
        family, batch.source_BS, max_tokens, temperature=temperature, seed=seed
    )
    return recorded_steps(recording, written_BT, batch, temperature)


def recorded_steps(
    recording: Recording, written_BT: Tensor, batch: Batch, temperature: float = 0.0
) -> list[Step]:
    """The steps of an answer that `record_free` has recorded."""
    return _steps(recording, written_BT[0].tolist(), batch, temperature)


def _one_row(batch: Batch) -> None:
    if len(batch.source_BS) != 1:
        raise ValueError(
            f"the batch has {len(batch.source_BS)} rows; steps are shown for one sequence at a time"
        )


def _answer(batch: Batch) -> list[int]:
    """The right answer to a batch of one row, EOS included."""
    return [token for token in batch.labels_BT[0].tolist() if token != PAD]


def _steps(recording: Recording, chosen: list[int], batch: Batch, temperature: float) -> list[Step]:
    labels, given = _answer(batch), recording.given_BT[0].tolist()
    logits_TV = recording.logits_BTV[0]
    if temperature:
        logits_TV = (logits_TV - logits_TV.amax(-1, keepdim=True)) / temperature
    probabilities_TV = logits_TV.softmax(-1)
    steps = []
    for t, token in enumerate(chosen):
        best = torch.topk(probabilities_TV[t], min(CANDIDATES, probabilities_TV.shape[1]))
        candidates = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        steps.append(
            Step(
                position=t,
                given=given[: t + 1],
                candidates=candidates,
                chosen=token,
                probability=float(probabilities_TV[t, token]),
                right=labels[t] if t < len(labels) else None,
                decoder_LHM=recording.attention["decoder"][:, 0, :, t, : t + 1],
                cross_LHS=recording.attention["cross"][:, 0, :, t],
            )
        )
    return steps
