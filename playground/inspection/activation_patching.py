"""Activation patching (Meng et al. 2022, Wang et al. 2023).

One token of the clean source is replaced, which gives the corrupted source. The model then runs on
the corrupted source with one head's output at a time restored from the clean run. The logit
difference that returns shows which heads carry the token.

Shapes: B batch, T target, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .hooks import Component, all_heads, component_outputs, replace_outputs
from .inspected_model import Example, InspectionError

MIN_LOGIT_DIFF = 0.01  # logits; fractions of a smaller change are not meaningful


@dataclass(frozen=True)
class PatchingResult:
    """The effect of one replaced token, and the fraction of it that each head restores.

    corrupted_source      the corrupted source
    position              the first position at which the two targets differ (0: the first target
                          token)
    clean_token           the target token there for the clean source
    corrupted_token       the target token there for the corrupted source
    clean_logit_diff      logit of `clean_token` minus logit of `corrupted_token` on the clean
                          source; positive if the model prefers the target
    corrupted_logit_diff  the same logit difference on the corrupted source
    recovered_fraction    for each head, run on the corrupted source with this head's clean output:
                          the fraction of the change from `corrupted_logit_diff` to
                          `clean_logit_diff`. 0: no effect; 1: full recovery; below 0: the head
                          opposes it. The fractions need not sum to 1, because the output of a head
                          is an input of later heads
    """

    corrupted_source: list[int]
    position: int
    clean_token: int
    corrupted_token: int
    clean_logit_diff: float
    corrupted_logit_diff: float
    recovered_fraction: dict[Component, float]


def _corrupt(clean: Example, position: int, replacement: str | None) -> Example:
    """Return the example with one token replaced; by default with the next of the vocabulary."""
    subject, vocabulary = clean.subject, clean.subject.task.vocabulary
    names = subject.token_names(clean.source_BS[0, :-1].tolist())
    if not 0 <= position < len(names):
        raise InspectionError(
            f"source_position is {position}; this sequence has the positions 0 to {len(names) - 1}"
        )
    if replacement is None:
        next_index = vocabulary.symbols.index(names[position]) + 1
        replacement = vocabulary.symbols[next_index % len(vocabulary.symbols)]
    new = subject.token_names(vocabulary.encode(replacement))
    if len(new) != 1 or new == [names[position]]:
        raise InspectionError(
            f"the replacement is {replacement[:20]!r}; enter one of "
            f"{vocabulary.describe()} other than {names[position]}"
        )
    corrupted = subject.encode_text(" ".join([*names[:position], *new, *names[position + 1 :]]))
    for each in (clean, corrupted):
        if not each.has_target:
            source = " ".join(subject.token_names(each.source_BS[0, :-1].tolist()))
            raise InspectionError(
                f"the target of {source[:60]} is unknown: the dataset has no pair with this "
                "source; choose a sequence, position and replacement so that the dataset has both"
            )
    return corrupted


@torch.no_grad()
def patch_heads(clean: Example, position: int, replacement: str | None = None) -> PatchingResult:
    """Replace the source token at `position` (from 0) by `replacement`, and patch each head.

    Both runs are teacher-forced with the target of the clean source, so only the source differs.

    Raises:
        UnknownSymbolError: for a symbol that is not in the task's vocabulary.
        InspectionError: for a position outside of the sequence, a replacement that does not change
            the source, its target or the model's logits, or a sequence without a known target.
    """
    corrupted = _corrupt(clean, position, replacement)
    width = min(clean.labels_BT.shape[1], corrupted.labels_BT.shape[1])
    differ = (clean.labels_BT[0, :width] != corrupted.labels_BT[0, :width]).nonzero()[:, 0].tolist()
    if not differ:
        raise InspectionError(
            f"the target does not depend on position {position}; choose another position "
            "or replacement"
        )
    t = differ[0]
    clean_token, corrupted_token = int(clean.labels_BT[0, t]), int(corrupted.labels_BT[0, t])

    model = clean.subject.transformer

    def logit_diff(logits_BTV: Tensor) -> float:
        return float(logits_BTV[0, t, clean_token] - logits_BTV[0, t, corrupted_token])

    clean_logit_diff = logit_diff(clean.activations["output_proj"][-1].output)
    clean_outputs = component_outputs(model, clean.activations)
    corrupted_logit_diff = logit_diff(model(corrupted.source_BS, clean.decoder_input_BT))
    change = clean_logit_diff - corrupted_logit_diff
    if abs(change) < MIN_LOGIT_DIFF:
        raise InspectionError(
            f"the new token at position {position} hardly changes the logits; choose another "
            "position or replacement, or train the model further"
        )
    recovered = {}
    for head in all_heads(model.config):
        with replace_outputs(model, {head: clean_outputs[head]}):
            patched = logit_diff(model(corrupted.source_BS, clean.decoder_input_BT))
        recovered[head] = (patched - corrupted_logit_diff) / change
    return PatchingResult(
        corrupted.source_BS[0, :-1].tolist(),
        t,
        clean_token,
        corrupted_token,
        clean_logit_diff,
        corrupted_logit_diff,
        recovered,
    )
