"""Activation patching (Meng et al. 2022, Wang et al. 2023).

One token of the clean source is replaced, which gives the corrupted source. The model then runs on
the corrupted source with one head's output at a time restored from the clean run. The logit
difference that returns shows which heads carry the token.

Shapes: B batch, T target, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .hooks import Component, all_heads, component_outputs, replace_outputs, run_with_cache
from .inspected_model import Example, InspectedModel, InspectionError

MIN_LOGIT_DIFF = 0.01  # logits; fractions of a smaller change are not meaningful


@dataclass(frozen=True)
class PatchingResult:
    """The effect of one replaced token, and the fraction of it that each head restores.

    clean_source          the clean source
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

    clean_source: list[int]
    corrupted_source: list[int]
    position: int
    clean_token: int
    corrupted_token: int
    clean_logit_diff: float
    corrupted_logit_diff: float
    recovered_fraction: dict[Component, float]


def _encode_pair(
    subject: InspectedModel, text: str, position: int, replacement: str
) -> tuple[list[int], Example, Example]:
    """Return the tokens of the clean source, and the clean and the corrupted example."""
    batch = subject.encode_text(text)
    tokens = batch.source_BS[0, :-1].tolist()
    new = subject.task.vocabulary.encode(replacement)
    if not 0 <= position < len(tokens):
        raise InspectionError(
            f"position is {position}; this sequence has the positions 0 to {len(tokens) - 1}"
        )
    if len(new) != 1 or new[0] == tokens[position]:
        current = subject.task.vocabulary.token_name(tokens[position])
        raise InspectionError(
            f"the replacement is {replacement[:20]!r}; enter one of "
            f"{subject.task.vocabulary.describe()} other than {current}"
        )
    corrupted = subject.encode_text(
        " ".join(subject.token_names([*tokens[:position], *new, *tokens[position + 1 :]]))
    )
    for each in (batch, corrupted):
        if not each.has_target:
            source = " ".join(subject.token_names(each.source_BS[0, :-1].tolist()))
            raise InspectionError(
                f"the target of {source[:60]} is unknown: the dataset has no pair with this "
                "source; choose a sequence, position and replacement so that the dataset has both"
            )
    return tokens, batch, corrupted


@torch.no_grad()
def patch_heads(
    subject: InspectedModel, text: str, position: int, replacement: str
) -> PatchingResult:
    """Replace the token at `position` (from 0) by `replacement`, and patch each head.

    Both runs are teacher-forced with the target of the clean source, so only the source differs.

    Raises:
        UnknownSymbolError: for a symbol that is not in the task's vocabulary.
        InspectionError: for a position outside of the sequence, a replacement that does not change
            the source, its target or the model's logits, or a sequence without a known target.
    """
    tokens, batch, corrupted = _encode_pair(subject, text, position, replacement)
    width = min(batch.labels_BT.shape[1], corrupted.labels_BT.shape[1])
    differ = (batch.labels_BT[0, :width] != corrupted.labels_BT[0, :width]).nonzero()[:, 0].tolist()
    if not differ:
        raise InspectionError(
            f"the target does not depend on position {position}; choose another position "
            "or replacement"
        )
    t = differ[0]
    clean_token, corrupted_token = int(batch.labels_BT[0, t]), int(corrupted.labels_BT[0, t])

    model = subject.transformer

    def logit_diff(logits_BTV: Tensor) -> float:
        return float(logits_BTV[0, t, clean_token] - logits_BTV[0, t, corrupted_token])

    logits_BTV, calls = run_with_cache(model, batch)
    clean_logit_diff, clean_outputs = logit_diff(logits_BTV), component_outputs(model, calls)
    corrupted_logit_diff = logit_diff(model(corrupted.source_BS, batch.decoder_input_BT))
    if abs(clean_logit_diff - corrupted_logit_diff) < MIN_LOGIT_DIFF:
        raise InspectionError(
            f"{replacement} at position {position} hardly changes the logits; choose another "
            "position or replacement, or train the model further"
        )
    recovered = {}
    for head in all_heads(model.config):
        with replace_outputs(model, {head: clean_outputs[head]}):
            patched = logit_diff(model(corrupted.source_BS, batch.decoder_input_BT))
        change = clean_logit_diff - corrupted_logit_diff
        recovered[head] = (patched - corrupted_logit_diff) / change
    return PatchingResult(
        tokens,
        corrupted.source_BS[0, :-1].tolist(),
        t,
        clean_token,
        corrupted_token,
        clean_logit_diff,
        corrupted_logit_diff,
        recovered,
    )
