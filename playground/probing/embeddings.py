"""Word vectors of a pretrained model: one word in two contexts, layer by layer, and analogies.

Shapes: L layers (the embedding first), Q tokens, D hidden size, V vocabulary.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.model_files import CAUSAL
from playground.pretrained.requests import JobRequest, ModelName, Text, Word

from .attention import (
    AttentionOutputs,
    InspectedModel,
    ends_with_norm,
    forward,
    load_for_inspection,
    word_token_indices,
)

DEFAULT_SENTENCES = "The bank by the river was steep, but the bank refused my loan"
REFERENCE_WORDS = ("river", "shore", "money", "loan")
MAX_TOKENS = 256
MAX_REFERENCES = 8


class WordInContextRequest(JobRequest):
    """A request to compare two occurrences of a word.

    Each reference word is encoded without context.
    """

    model: ModelName = ""
    text: Text = DEFAULT_SENTENCES
    word: Word = "bank"
    references: list[Word] = Field(
        list(REFERENCE_WORDS),
        max_length=MAX_REFERENCES,
        json_schema_extra={"accepts": f"at most {MAX_REFERENCES} words"},
    )


def word_in_context(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Compare two occurrences of one word, layer by layer.

    `request`: see WordInContextRequest. A word of several tokens is represented by their mean.
    Layer 0 is the input of the first layer: token embedding, position and all else that the model
    adds. `layers`: see `_compare_layers`.
    """
    parsed = WordInContextRequest.parse(request)
    word = parsed.word
    model = load_for_inspection(parsed.model, progress)
    spans, outputs = _read(model, parsed.text)
    occurrences = word_token_indices(word, parsed.text, spans)
    if len(occurrences) < 2:
        times = "once" if occurrences else "not at all"
        raise UserError(f"{word!r} occurs {times} in the text; write it twice, with two meanings")
    first, second = occurrences[:2]
    references = []
    for done, reference in enumerate(parsed.references):
        progress.progress(done, len(parsed.references), "words")
        references.append(_static_embedding(model, reference))
    baseline_L = _control_pairs(outputs, spans, [*first, *second])
    layers = _compare_layers(outputs, first, second, references, baseline_L)
    table_VD = model.model.get_input_embeddings().weight.detach()
    ids = torch.tensor(outputs.ids, device=table_VD.device)
    words = [table_VD[ids[each]].mean(0).float().cpu() for each in (first, second)]
    normed = ends_with_norm(model.model)
    return {
        "model": model.resolved.name,
        "text": parsed.text,
        "word": word,
        "tokens": model.tokenizer.convert_ids_to_tokens(outputs.ids),
        "spans": [list(span) for span in spans],
        "occurrences": [first, second],
        "word_vectors": _cosine(*words),
        "layers": layers,
        "references": parsed.references,
        "finding": _argmax_distance(layers, word, normed),
        "notes": _occurrence_notes(model, outputs, occurrences),
    }


def _compare_layers(
    outputs: AttentionOutputs,
    first: list[int],
    second: list[int],
    references: list[Tensor | None],
    baseline_L: list[float | None],
) -> list[dict[str, Any]]:
    """Return the cosines after each layer.

    `similarity` is the cosine of the two occurrences; `baseline` the mean cosine of all pairs of
    two different words of the text, because in most models all vectors have a high cosine
    (Ethayarajh 2019, section 4.1); `references`, for every reference word the cosine with the
    first and with the second.
    """
    one_LD, two_LD = outputs.hidden_LQD[:, first].mean(1), outputs.hidden_LQD[:, second].mean(1)
    return [
        {
            "layer": layer,
            "similarity": _cosine(one_LD[layer], two_LD[layer]),
            "baseline": baseline_L[layer],
            "references": [
                each_LD
                if each_LD is None
                else [
                    _cosine(occurrence_LD[layer], each_LD[layer])
                    for occurrence_LD in (one_LD, two_LD)
                ]
                for each_LD in references
            ],
        }
        for layer in range(len(outputs.hidden_LQD))
    ]


def _occurrence_notes(
    model: InspectedModel, outputs: AttentionOutputs, occurrences: list[list[int]]
) -> list[str]:
    """Describe what limits the comparison of the first two occurrences."""
    first, second = occurrences[:2]
    notes = {
        "the two occurrences have different tokens, so they differ before the first layer, too": (
            [outputs.ids[i] for i in first] != [outputs.ids[i] for i in second]
        ),
        f"the word occurs {len(occurrences)} times; the first two are compared": (
            len(occurrences) > 2
        ),
        "this model reads left to right: the first occurrence does not depend on the text after "
        "it": model.kind == CAUSAL,
        "the last layer is shown after the final norm, the others before it": ends_with_norm(
            model.model
        ),
        "the first occurrence is the first token, which differs from all others in many models; "
        "put a word before it": 0 in first,
    }
    return [note for note, applies in notes.items() if applies]


def _argmax_distance(layers: list[dict[str, Any]], word: str, normed: bool) -> str:
    """Describe in which layer the two occurrences are least similar.

    If the last layer is `normed`, it is left out of the comparison.
    """
    first, last = layers[0]["similarity"], layers[-1]["similarity"]
    least = min(layers[:-1] if normed else layers, key=lambda each: each["similarity"])
    summary = f"The cosine of the two occurrences of {word!r} begins at {first:.2f} "
    summary += "(one word, two positions), "
    if normed:
        distance = (
            f"is lowest after layer {least['layer']} of {len(layers) - 1}, at "
            f"{least['similarity']:.2f}, "
        )
        summary += distance if least["layer"] else "no layer before the last reduces it, "
        return summary + (
            f"and it is {last:.2f} after the last layer and the final norm, which rescales the "
            "vectors."
        )
    if least["layer"] == 0:
        return summary + f"and no layer reduces it; after the last one it is {last:.2f}."
    summary += (
        f"is lowest after layer {least['layer']} of {len(layers) - 1}, at {least['similarity']:.2f}"
    )
    if least["layer"] == len(layers) - 1:
        return summary + ", the last one."
    return summary + f", and ends at {last:.2f}."


def _read(
    model: InspectedModel, text: str, behind_another: bool = False
) -> tuple[list[tuple[int, int]], AttentionOutputs]:
    """Tokenize a text and run the model on it; return the offsets and the hidden states.

    With `behind_another`, the model's begin or end token comes first if the tokenizer adds none.
    """
    coded = model.tokenizer(text, return_offsets_mapping=True, verbose=False)
    ids, spans = coded["input_ids"], [tuple(span) for span in coded["offset_mapping"]]
    if len(ids) > MAX_TOKENS or not ids:
        raise UserError(f"this text has {len(ids):,} tokens; give 1 to {MAX_TOKENS}")
    neutral = next(
        (
            each
            for each in (model.tokenizer.bos_token_id, model.tokenizer.eos_token_id)
            if each is not None
        ),
        None,
    )
    if behind_another and neutral is not None and spans[0][1] > spans[0][0]:
        ids, spans = [neutral, *ids], [(0, 0), *spans]
    return spans, forward(model.model, ids)


def _static_embedding(model: InspectedModel, word: str) -> Tensor | None:
    """Return a word's vectors (LD) without context, written with a leading space.

    It is never the first token: GPT-2 and LLaMA models have a few huge activations there
    for every word (Sun et al. 2024, "Massive Activations").
    """
    spans, outputs = _read(model, f" {word}", behind_another=True)
    its = [i for i, (begin, end) in enumerate(spans) if end > max(begin, 1)]
    return outputs.hidden_LQD[:, its].mean(1) if its else None


def _control_pairs(
    outputs: AttentionOutputs, spans: list[tuple[int, int]], without: list[int]
) -> list[float | None]:
    """Return for each layer the mean cosine of all pairs of different tokens of the text.

    The first token is left out, as in `_static_embedding`.
    """
    keep = [i for i, (begin, end) in enumerate(spans) if i > 0 and end > begin and i not in without]
    ids_Q = torch.tensor([outputs.ids[i] for i in keep])
    pairs_QQ = (ids_Q[:, None] != ids_Q[None, :]).triu(1)
    if not pairs_QQ.any():
        return [None] * len(outputs.hidden_LQD)
    unit_LQD = normalize(outputs.hidden_LQD[:, keep], dim=-1)
    return [round(float((each @ each.T)[pairs_QQ].mean()), 6) for each in unit_LQD]


def _cosine(one_D: Tensor, two_D: Tensor) -> float:
    return round(float(normalize(one_D, dim=0) @ normalize(two_D, dim=0)), 6)


class AnalogyRequest(JobRequest):
    """A request for the nearest tokens to `plus` - `minus` + `also`."""

    model: ModelName = ""
    plus: Word = "king"
    minus: Word = "man"
    also: Word = "woman"
    expected: Word = "queen"
    n: int = Field(10, ge=1, le=50)


def analogy(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Solve king - man + woman with the vectors of a model's input embedding.

    `request`: see AnalogyRequest.

    Mikolov et al. 2013 exclude the three given words from the nearest ones. `expected` shows the
    effect as ranks (1 is the nearest; distances are cosines): `with_input_words`, among all tokens;
    `without_input_words`, as they do; `of_the_first_alone`, the rank of the expected word by
    distance to the first word alone, without the three words (Rogers et al. 2017 and Linzen 2016
    found most of the success there).
    """
    parsed = AnalogyRequest.parse(request)
    words = parsed.model_dump(include={"plus", "minus", "also", "expected"})
    model = load_for_inspection(parsed.model, progress)
    raw_VD = model.model.get_input_embeddings().weight.detach().float().cpu()
    table_VD = normalize(raw_VD, dim=-1)
    ids = {name: _single_token(model.tokenizer, word, len(raw_VD)) for name, word in words.items()}
    expected, input_ids = ids["expected"], [ids["plus"], ids["minus"], ids["also"]]
    if expected in input_ids:
        raise UserError(
            f"{words['expected']!r} is one of the three given words; expect another one"
        )
    target_D = raw_VD[ids["plus"]] - raw_VD[ids["minus"]] + raw_VD[ids["also"]]
    near_V, near_first_V = table_VD @ normalize(target_D, dim=0), table_VD @ table_VD[ids["plus"]]
    ranks = {
        "with_input_words": _rank_of(near_V, expected, []),
        "without_input_words": _rank_of(near_V, expected, input_ids),
        "of_the_first_alone": _rank_of(near_first_V, expected, input_ids),
    }
    to_text = model.tokenizer.convert_ids_to_tokens
    nearest = [
        {
            "token": to_text(token),
            "id": token,
            "cosine": round(float(near_V[token]), 6),
            "is_input": token in input_ids,
        }
        for token in near_V.topk(min(parsed.n + len(set(input_ids)), len(near_V))).indices.tolist()
    ]
    return {
        "model": model.resolved.name,
        "words": words,
        "tokens": {name: to_text(token) for name, token in ids.items()},
        "vocabulary": len(raw_VD),
        "nearest": nearest,
        "expected": {"cosine": round(float(near_V[expected]), 6), **ranks},
        "finding": _summary(words, nearest, ranks),
    }


def _single_token(tokenizer: Any, word: str, size: int) -> int:
    """Return the single token of a word inside a sentence.

    Raises:
        UserError: for a word of several tokens, which has no vector.
    """
    unknown = tokenizer.unk_token_id
    for written in (f" {word}", word):
        ids = tokenizer(written, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] < size and (ids[0] != unknown or word == tokenizer.unk_token):
            return int(ids[0])
    pieces = tokenizer.convert_ids_to_tokens(
        tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    )
    raise UserError(
        f"{word!r} is not a single token of this model, but {' '.join(pieces[:8])}; choose a "
        "more common word"
    )


def _rank_of(near_V: Tensor, token: int, without: list[int]) -> int:
    """Return the rank of a token by nearness without some tokens, from 1; it loses ties."""
    before_V = near_V >= near_V[token]
    before_V[[*without, token]] = False
    return 1 + int(before_V.sum())


def _summary(words: dict[str, str], nearest: list[dict[str, Any]], ranks: dict[str, int]) -> str:
    sum_of, expected = f"{words['plus']} − {words['minus']} + {words['also']}", words["expected"]
    summary = f"The nearest token to {sum_of} is {nearest[0]['token']!r}"
    summary += ", one of the given words. " if nearest[0]["is_input"] else ". "
    summary += f"{expected!r} has rank {ranks['with_input_words']:,}"
    summary += f", and rank {ranks['without_input_words']:,} without the three given words. "
    by_itself = ranks["of_the_first_alone"]
    better = (
        "so the arithmetic improves its rank"
        if ranks["without_input_words"] < by_itself
        else "so the arithmetic does not improve its rank"
    )
    return summary + f"By distance to {words['plus']!r} alone it has rank {by_itself:,}: {better}."
