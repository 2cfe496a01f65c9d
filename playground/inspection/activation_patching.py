"""Activation patching (Vig et al. 2020, Meng et al. 2022), with a replaced token instead of noise
(Zhang and Nanda 2024).

One token of the clean source is replaced, which gives the corrupted source. The model then runs on
one source with a part of its activations taken from the other: the output of one head, or the
residual stream after one layer at one position. The logit difference that returns, or is lost,
measures the causal effect of that activation on this pair, not where the token is represented.

Shapes: N pairs, L layers, P positions, S source, T target, V vocabulary, D d_model.
"""

from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .ablation import NUM_SEQUENCES
from .hooks import (
    Component,
    all_heads,
    component_outputs,
    record_activations,
    replace_outputs,
    replace_vectors,
)
from .inspected_model import Example, InspectionError

MIN_LOGIT_DIFF = 0.01  # logits; fractions of a smaller change are not meaningful
MAX_PAIRS = 32


@dataclass(frozen=True)
class Pair:
    """A clean and a corrupted source, and the first target token that differs.

    position         of this token in the target, from 0
    clean_token      the target token there for the clean source
    corrupted_token  the target token there for the corrupted source
    """

    clean: Example
    corrupted: Example
    position: int
    clean_token: int
    corrupted_token: int

    def logit_diff(self, logits_TV: Tensor) -> float:
        """Return the logit of `clean_token` minus that of `corrupted_token`."""
        logits_V = logits_TV[self.position]
        return float(logits_V[self.clean_token] - logits_V[self.corrupted_token])


def _replace_token(clean: Example, position: int, replacement: str | None) -> Example:
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


def corrupt(clean: Example, position: int, replacement: str | None = None) -> Pair:
    """Replace the source token at `position` (from 0), by default with the next of the vocabulary.

    Raises UnknownSymbolError for an unknown symbol; InspectionError for an invalid position, a
    replacement that does not change the target, or a sequence without a known target.
    """
    corrupted = _replace_token(clean, position, replacement)
    width = min(clean.labels_BT.shape[1], corrupted.labels_BT.shape[1])
    differ = (clean.labels_BT[0, :width] != corrupted.labels_BT[0, :width]).nonzero()[:, 0].tolist()
    if not differ:
        raise InspectionError(
            f"the target does not depend on position {position}; choose another position "
            "or replacement"
        )
    t = differ[0]
    return Pair(clean, corrupted, t, int(clean.labels_BT[0, t]), int(corrupted.labels_BT[0, t]))


@torch.no_grad()
def patch_heads(pair: Pair) -> tuple[float, float, dict[Component, float]]:
    """Patch each head: run on the corrupted source with its output on the clean one.

    Returns the logit differences on the clean and on the corrupted source, and the fraction of this
    change that each head recovers. 0: no effect; 1: full recovery; below 0: the head opposes it.
    The fractions need not sum to 1, because the output of a head is an input of later heads.

    Both runs are teacher-forced with the target of the clean source, so only the source differs.
    Raises InspectionError for a replacement that hardly changes the model's logits.
    """
    clean, model = pair.clean, pair.clean.subject.transformer

    def corrupted_run() -> float:
        return pair.logit_diff(model(pair.corrupted.source_BS, clean.decoder_input_BT)[0])

    clean_logit_diff = pair.logit_diff(clean.activations["output_proj"][-1].output[0])
    clean_outputs = component_outputs(model, clean.activations)
    corrupted_logit_diff = corrupted_run()
    change = clean_logit_diff - corrupted_logit_diff
    if abs(change) < MIN_LOGIT_DIFF:
        raise InspectionError(
            "the new token hardly changes the logits; choose another position or replacement, "
            "or train the model further"
        )
    recovered = {}
    for head in all_heads(model.config):
        with replace_outputs(model, {head: clean_outputs[head]}):
            recovered[head] = (corrupted_run() - corrupted_logit_diff) / change
    return clean_logit_diff, corrupted_logit_diff, recovered


@dataclass(frozen=True)
class LayerPatching:
    """The effect of the residual stream after each layer, at each position.

    Both tables have the shape LP. They are sums over the pairs, divided by the sum of the changes
    of the logit difference, so a pair counts as much as it changes.

    layers       the modules whose output is patched: the embedding of the source and the layers
    restored_LP  the fraction recovered by the clean vector in the run on the corrupted source
    lost_LP      the fraction lost by the corrupted vector in the run on the clean source
    """

    layers: list[str]
    restored_LP: Tensor
    lost_LP: Tensor


def similar_pairs(pair: Pair, n: int = MAX_PAIRS) -> list[Pair]:
    """Return up to `n` pairs of held-out sequences of the same length.

    The token at the same position is replaced by the next of the vocabulary. Sequences whose
    target does not depend on it are left out.
    """
    subject, length = pair.clean.subject, pair.clean.source_BS.shape[1]
    at = int((pair.clean.source_BS != pair.corrupted.source_BS)[0].nonzero()[0])
    pairs: list[Pair] = []
    for source_S in subject.held_out(NUM_SEQUENCES).batch.source_BS:
        tokens = source_S[source_S > 0].tolist()
        if len(tokens) == length and len(pairs) < n:
            example = subject.encode_text(" ".join(subject.token_names(tokens[:-1])))
            with suppress(InspectionError):
                pairs.append(corrupt(example, at))
    return pairs


@torch.no_grad()
def patch_layers(pairs: list[Pair]) -> dict[str, LayerPatching]:
    """Patch the residual stream of the encoder (`source`) and of the decoder (`target`).

    The pairs are of one model, and their sources have the same length. The decoder's input is the
    clean target, so its embedding does not differ and is left out. Raises InspectionError for
    replacements that hardly change the model's logits.
    """
    model = pairs[0].clean.subject.transformer
    encoder = [f"encoder_layers.{i}" for i in range(model.config.n_layers)]
    decoder = [f"decoder_layers.{i}" for i in range(model.config.n_layers)]
    sides = {"source": ["source_embedding", *encoder], "target": decoder}
    names = [name for layers in sides.values() for name in layers]
    decoder_input_NT = pad_sequence(
        [pair.clean.decoder_input_BT[0] for pair in pairs], batch_first=True
    )

    sources_NS = {
        "clean": torch.cat([pair.clean.source_BS for pair in pairs]),
        "corrupted": torch.cat([pair.corrupted.source_BS for pair in pairs]),
    }

    def logit_diffs(logits_NTV: Tensor) -> Tensor:
        return torch.tensor(
            [pair.logit_diff(each) for pair, each in zip(pairs, logits_NTV, strict=True)]
        )

    runs, outputs = {}, {}
    for pick, source_NS in sources_NS.items():
        with record_activations(model, names) as calls:
            runs[pick] = logit_diffs(model(source_NS, decoder_input_NT))
        outputs[pick] = {name: calls[name][-1].output for name in names}
    change = float((runs["clean"] - runs["corrupted"]).sum())
    if abs(change) < MIN_LOGIT_DIFF:
        raise InspectionError("the new tokens hardly change the logits; train the model further")

    def fractions(layers: list[str], into: str, other: str) -> Tensor:
        """Return the fraction of the change that vectors of the run `other` cause in `into`."""
        caused = change if into == "corrupted" else -change
        table_LP = torch.zeros(len(layers), outputs[other][layers[0]].shape[1])
        for i, name in enumerate(layers):
            for position in range(table_LP.shape[1]):
                vectors_ND = outputs[other][name][:, position]
                with replace_vectors(model, name, position, vectors_ND):
                    patched = logit_diffs(model(sources_NS[into], decoder_input_NT))
                table_LP[i, position] = float((patched - runs[into]).sum()) / caused
        return table_LP

    return {
        side: LayerPatching(
            layers, fractions(layers, "corrupted", "clean"), fractions(layers, "clean", "corrupted")
        )
        for side, layers in sides.items()
    }
