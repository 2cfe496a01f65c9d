"""Where every head looks while a model reads a sequence and writes its answer.

Two ways to ask. Teacher-forced: the decoder is given the right answer, shifted right. Free-running: it is given what it
wrote itself, and each position's row is taken from the very step that wrote it.

Shapes: L layers, B batch, S source, T target, H heads, Q queries, M memory, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.decoding import decode
from playground.families.encoder_decoder import EncoderDecoder
from playground.models.attention import causal_mask, padding_mask
from playground.tasks import EOS, SOS
from playground.tasks.task import Batch

from .components import ATTENTION, Component, watched


@dataclass(frozen=True)
class Recording:
    """One pass over a batch, with all there is to see of its attention.

    source_BS   what was read, EOS behind it
    given_BT    what the decoder was given: SOS, then the answer so far
    logits_BTV  what it made of that
    attention   for each of "encoder", "decoder" and "cross" the weights LBHQM; rows sum to one
    possible    for each of them BQM, true where the query may look at all; elsewhere, in the future and on the source's
                padding, the weight is zero by construction and says nothing about the head
    """

    source_BS: Tensor
    given_BT: Tensor
    logits_BTV: Tensor
    attention: dict[str, Tensor]
    possible: dict[str, Tensor]


@torch.no_grad()
def record_forced(family: EncoderDecoder, batch: Batch) -> Recording:
    """Attention with the right answer given."""
    source_BS, given_BT = batch.source_BS, batch.decoder_input_BT
    logits_BTV, record = family.forward_with_attention(source_BS, given_BT)
    attention = {kind: torch.stack(getattr(record, f"{kind}_attention")) for kind in ATTENTION}
    return Recording(source_BS, given_BT, logits_BTV, attention, possible(source_BS, given_BT))


def record_free(
    family: EncoderDecoder,
    source_BS: Tensor,
    max_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
) -> tuple[Recording, Tensor]:
    """Attention while the model goes by what it wrote itself, and what it wrote (BT, EOS included, PAD behind it), cut to the
    longest answer. A temperature above 0 draws the symbols; the same seed draws the same.

    Raises:
        ValueError: for a negative temperature, or more tokens than there are positions.
    """
    generator = torch.Generator(source_BS.device).manual_seed(seed)
    modules = {
        kind: [Component(kind, layer).module for layer in range(family.config.n_layers)]
        for kind in ATTENTION
    }
    with watched(
        family, "output", *(module for each in modules.values() for module in each)
    ) as calls:
        written_BT = decode(
            family, source_BS, max_tokens, temperature=temperature, generator=generator
        )
    ended_BT = (written_BT == EOS).cumsum(1) > 0
    n = min(int((~ended_BT).sum(1).max()) + 1, max_tokens)
    given_BT = F.pad(written_BT[:, : n - 1], (1, 0), value=SOS)

    def rows(module: str, width: int) -> Tensor:
        """What an attention did at each step, put together: BHQM, zero where there was nothing yet to look at."""
        weights = [call.result[1] for call in calls[module][:n]]
        return torch.cat(
            [F.pad(step_BHQM, (0, width - step_BHQM.shape[-1])) for step_BHQM in weights], dim=2
        )

    width = {"encoder": source_BS.shape[1], "decoder": n, "cross": source_BS.shape[1]}
    attention = {
        kind: torch.stack([rows(module, width[kind]) for module in modules[kind]])
        for kind in ATTENTION
    }
    logits_BTV = torch.cat([call.result for call in calls["output"][:n]], dim=1)
    return Recording(
        source_BS, given_BT, logits_BTV, attention, possible(source_BS, given_BT)
    ), written_BT[:, :n]


def possible(source_BS: Tensor, given_BT: Tensor) -> dict[str, Tensor]:
    """For each kind of attention BQM, true where a query may look."""
    (n, s), t = source_BS.shape, given_BT.shape[1]
    real_B1S = padding_mask(source_BS)[:, 0]
    return {
        "encoder": real_B1S.expand(n, s, s),
        "decoder": causal_mask(t, given_BT.device).expand(n, t, t),
        "cross": real_B1S.expand(n, t, s),
    }
