"""Activation patching (Meng et al. 2022, Wang et al. 2023).

One token of the clean source is replaced, which gives the corrupted source. The model then runs on
the corrupted source with one head's output at a time restored from the clean run. The logit
difference that returns shows which heads carry the token.

Shapes: B batch, T target, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .components import Component, heads, outputs, replaced, watched
from .subject import NotInspectable, Subject

SMALLEST = 0.01  # logits; fractions of a smaller change are not meaningful


@dataclass(frozen=True)
class Patching:
    """The effect of one replaced token, and the fraction of it that each head restores.

    source      the clean source
    changed     the corrupted source
    position    the first position at which the two targets differ (0: the first target token)
    token       the target token there for the clean source
    other       the target token there for the corrupted source
    before      logit of `token` minus logit of `other` on the clean source; positive if the model
                prefers the target
    after       the same logit difference on the corrupted source
    recovered   for each head, run on the corrupted source with this head's clean output: the
                fraction of the change from `after` to `before`. 0: no effect; 1: full recovery;
                below 0: the head opposes it. The fractions need not sum to 1, because the output
                of a head is an input of later heads
    """

    source: list[int]
    changed: list[int]
    position: int
    token: int
    other: int
    before: float
    after: float
    recovered: dict[Component, float]


@torch.no_grad()
def patch_heads(subject: Subject, text: str, place: int, symbol: str) -> Patching:
    """Replace the token at `place` (from 0) of a sequence by `symbol`, and patch each head.

    Both runs are teacher-forced with the target of the clean source, so only the source differs.

    Raises:
        UnknownSymbol: for a symbol that is not in the task's vocabulary.
        NotInspectable: for a position outside of the sequence, a replacement that does not change
            the source, its target or the model's logits, or a sequence without a known target.
    """
    tokens = subject.task.vocabulary.encode(text)
    batch = subject.read(text)
    new = subject.task.vocabulary.encode(symbol)
    if not 0 <= place < len(tokens):
        raise NotInspectable(
            f"position is {place}; this sequence has the positions 0 to {len(tokens) - 1}"
        )
    if len(new) != 1 or new[0] == tokens[place]:
        is_there = subject.task.vocabulary.name(tokens[place])
        raise NotInspectable(
            f"symbol is {symbol[:20]!r}; give one symbol of "
            f"{subject.task.vocabulary.describe()} other than {is_there}"
        )
    changed = subject.read(" ".join(subject.names([*tokens[:place], *new, *tokens[place + 1 :]])))
    for each in (batch, changed):
        if not each.known:
            asked = " ".join(subject.names(each.source_BS[0, :-1].tolist()))
            raise NotInspectable(
                f"the target of {asked[:60]} is unknown: the dataset has no pair with this source; "
                "choose a sequence, position and symbol so that the dataset has both sources"
            )
    width = min(batch.labels_BT.shape[1], changed.labels_BT.shape[1])
    differ = (batch.labels_BT[0, :width] != changed.labels_BT[0, :width]).nonzero()[:, 0].tolist()
    if not differ:
        raise NotInspectable(
            f"the target does not depend on position {place}; replace another symbol"
        )
    t = differ[0]
    token, other = int(batch.labels_BT[0, t]), int(changed.labels_BT[0, t])

    def difference(source_BS: Tensor) -> float:
        logits_V = subject.family(source_BS, batch.decoder_input_BT)[0, t]
        return float(logits_V[token] - logits_V[other])

    with watched(subject.family) as calls:
        before = difference(batch.source_BS)
    own = outputs(subject.family, calls)
    after = difference(changed.source_BS)
    if abs(before - after) < SMALLEST:
        raise NotInspectable(
            f"{symbol} at position {place} hardly changes the logits; replace another symbol, "
            "or train the model further"
        )
    recovered = {}
    for head in heads(subject.family.config):
        with replaced(subject.family, {head: own[head]}):
            recovered[head] = (difference(changed.source_BS) - after) / (before - after)
    return Patching(
        tokens, changed.source_BS[0, :-1].tolist(), t, token, other, before, after, recovered
    )
