"""Which head carries a symbol: replace one symbol of the source, then give back one head's output at a time as it was before,
and see how much of the right answer comes back (activation patching; Meng et al. 2022, Wang et al. 2023).

Shapes: B batch, T target, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .components import Component, heads, outputs, replaced, watched
from .subject import NotInspectable, Subject

SMALLEST = (
    0.01  # logits; where a replaced symbol makes less difference, a share of it means nothing
)


@dataclass(frozen=True)
class Patching:
    """What one replaced symbol changes, and what each head carries of it.

    position     the first place at which the two right answers differ (0: the first symbol of the answer)
    token        the token that is right there, and `other`, the one that is right after the replacement
    before       logit of `token` less logit of `other` for the sequence as it was, positive where the model is right
    after        the same for the changed sequence
    recovered    for each head, run on the changed sequence with this head's output given back: the share of the way from
                 `after` to `before`. 0: the head carries nothing; 1: it alone carries all; below 0: it works against it.
                 Shares need not sum to 1, because heads feed heads
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
    """Replace the symbol at `place` (from 0) of a sequence by `symbol`, and give back every head in turn.

    Both times the decoder is given the right answer to the sequence as it was, so that only the source differs.

    Raises:
        UnknownSymbol: for what is no symbol of the task.
        NotInspectable: for a place outside of the sequence, a replacement that changes nothing or nothing in the answer, one
            that the model hardly notices, or a sequence whose right answer nobody knows.
    """
    tokens = subject.task.vocabulary.encode(text)
    batch = subject.read(text)
    new = subject.task.vocabulary.encode(symbol)
    if not 0 <= place < len(tokens):
        raise NotInspectable(
            f"place is {place}; this sequence has the places 0 to {len(tokens) - 1}"
        )
    if len(new) != 1 or new[0] == tokens[place]:
        is_there = subject.task.vocabulary.name(tokens[place])
        raise NotInspectable(
            f"symbol is {symbol[:20]!r}; give one symbol of {subject.task.vocabulary.describe()} other than {is_there}"
        )
    changed = subject.read(" ".join(subject.names([*tokens[:place], *new, *tokens[place + 1 :]])))
    for each in (batch, changed):
        if not each.known:
            asked = " ".join(subject.names(each.source_BS[0, :-1].tolist()))
            raise NotInspectable(
                f"nobody knows the right answer to {asked[:60]}: no row that is kept here has this source; take a sequence, a place and a "
                "symbol that have a row before and after"
            )
    width = min(batch.labels_BT.shape[1], changed.labels_BT.shape[1])
    differ = (batch.labels_BT[0, :width] != changed.labels_BT[0, :width]).nonzero()[:, 0].tolist()
    if not differ:
        raise NotInspectable(
            f"the right answer does not depend on place {place}; replace another symbol"
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
            f"the model hardly notices that {symbol} stands at place {place}; replace another symbol, or train it further"
        )
    recovered = {}
    for head in heads(subject.family.config):
        with replaced(subject.family, {head: own[head]}):
            recovered[head] = (difference(changed.source_BS) - after) / (before - after)
    return Patching(
        tokens, changed.source_BS[0, :-1].tolist(), t, token, other, before, after, recovered
    )
