"""What words mean to a pretrained model: one word in two places, layer by layer, and sums of word vectors.

Shapes: L layers (the embedding first), Q tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .asked import text_of, whole_of, words_of
from .attention import Inside, Look, ends_with_norm, look_inside, open_inside, tokens_of
from .work import Refused, Tell

TWO_BANKS = "The bank by the river was steep, but the bank refused my loan"
BANKS_BESIDE = ("river", "shore", "money", "loan")
MOST_TOKENS = 256
MOST_BESIDE = 8


def banks(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """How alike two occurrences of one word are, layer by layer.

    `what`: model, text (`TWO_BANKS`), word ("bank"), beside (reference words, each given to the model by itself). A word of several tokens
    is their mean. Layer 0 is what goes into the first layer: word vector, position and whatever else the model adds.

    `layers`, one each: `alike`, the cosine of the two; `others`, the mean cosine of all pairs of two different words of the text, without
    which no cosine means anything, for in most models all vectors point much the same way (Ethayarajh 2019, section 4.1); `beside`, for
    every reference word the cosine with the first and with the second.
    """
    text, word = text_of(what, usual=TWO_BANKS), text_of(what, "word", 40, "bank")
    references = words_of(what, "beside", BANKS_BESIDE, MOST_BESIDE)
    inside = open_inside(what.get("model"), tell)
    spans, look = _read(inside, text)
    places = tokens_of(word, text, spans)
    if len(places) < 2:
        times = "once" if places else "not at all"
        raise Refused(
            f"{word.strip()!r} stands {times} in this text; write it twice, with two meanings"
        )
    first, second = places[0], places[1]
    tokens = inside.tokenizer.convert_ids_to_tokens(look.ids)
    one_LD, two_LD = look.hidden_LQD[:, first].mean(1), look.hidden_LQD[:, second].mean(1)
    alone = []
    for done, reference in enumerate(references):
        tell.share(done, len(references), "words")
        alone.append(_by_itself(inside, reference))
    others_L = _others(look, spans, [*first, *second])
    layers = [
        {
            "layer": layer,
            "alike": _cosine(one_LD[layer], two_LD[layer]),
            "others": others_L[layer],
            "beside": [
                [_cosine(one_LD[layer], each[layer]), _cosine(two_LD[layer], each[layer])]
                if each is not None
                else None
                for each in alone
            ],
        }
        for layer in range(len(look.hidden_LQD))
    ]
    table_VD = inside.model.get_input_embeddings().weight.detach()
    ids = torch.tensor(look.ids, device=table_VD.device)
    words = [table_VD[ids[place]].mean(0).float().cpu() for place in (first, second)]
    notes, normed = [], ends_with_norm(inside.model)
    if [look.ids[i] for i in first] != [look.ids[i] for i in second]:
        notes.append(
            "the two are written with different tokens, so they differ before the first layer, too"
        )
    if len(places) > 2:
        notes.append(f"the word stands there {len(places)} times; the first two are compared")
    if inside.kind == "causal":
        notes.append(
            "this model reads left to right: the first of the two knows nothing of what follows it"
        )
    if normed:
        notes.append("the last layer is shown behind the final norm, the others are not")
    if 0 in first:
        notes.append(
            "the first of the two is the very first token, which is unlike all others in many models; put a word before it"
        )
    return {
        "model": inside.found.name,
        "text": text,
        "word": word.strip(),
        "tokens": tokens,
        "spans": [list(span) for span in spans],
        "places": [first, second],
        "word_vectors": _cosine(*words),
        "layers": layers,
        "beside": references,
        "finding": _most_apart(layers, word.strip(), normed),
        "notes": notes,
    }


def _most_apart(layers: list[dict[str, Any]], word: str, normed: bool) -> str:
    """Where the two occurrences are least alike, beside where they begin and end. What is `normed` at its end is compared up to there."""
    first, last = layers[0]["alike"], layers[-1]["alike"]
    least = min(layers[:-1] if normed else layers, key=lambda each: each["alike"])
    said = f"The two {word!r} begin with a cosine of {first:.2f} (one word, two positions), "
    if normed:
        apart = f"are least alike after layer {least['layer']} of {len(layers) - 1}, at {least['alike']:.2f}, "
        said += (
            apart if least["layer"] else "and no layer before the last draws them further apart, "
        )
        return (
            said
            + f"and end at {last:.2f} behind the last layer and the final norm, which weighs the numbers of a vector anew."
        )
    if least["layer"] == 0:
        return said + f"and no layer draws them further apart; after the last one it is {last:.2f}."
    said += f"are least alike after layer {least['layer']} of {len(layers) - 1}, at {least['alike']:.2f}"
    if least["layer"] == len(layers) - 1:
        return (
            said + ", the last one: every layer had its chance to look at what stands around them."
        )
    return (
        said
        + f", and end at {last:.2f}: the last layers serve what the model was trained for, which need not keep two meanings apart."
    )


def _read(
    inside: Inside, text: str, behind_another: bool = False
) -> tuple[list[tuple[int, int]], Look]:
    """A text's tokens, where they stand in it, and a pass over them. With `behind_another` a token that begins or ends texts comes first
    if the tokenizer puts none there itself."""
    coded = inside.tokenizer(text, return_offsets_mapping=True, verbose=False)
    ids, spans = coded["input_ids"], [tuple(span) for span in coded["offset_mapping"]]
    if len(ids) > MOST_TOKENS or not ids:
        raise Refused(f"this text has {len(ids):,} tokens; give 1 to {MOST_TOKENS}")
    neutral = next(
        (
            each
            for each in (inside.tokenizer.bos_token_id, inside.tokenizer.eos_token_id)
            if each is not None
        ),
        None,
    )
    if behind_another and neutral is not None and spans[0][1] > spans[0][0]:
        ids, spans = [neutral, *ids], [(0, 0), *spans]
    return spans, look_inside(inside.model, ids)


def _by_itself(inside: Inside, word: str) -> Tensor | None:
    """A word's vectors (LD) where nothing else is said, written as it stands inside a text, with a blank before it. It is never the very
    first token: GPT-2 and LLaMA kinds keep a few huge numbers there, whatever the word (Sun et al. 2024, "Massive Activations")."""
    spans, look = _read(inside, f" {word}", behind_another=True)
    its = [i for i, (begin, end) in enumerate(spans) if end > max(begin, 1)]
    return look.hidden_LQD[:, its].mean(1) if its else None


def _others(look: Look, spans: list[tuple[int, int]], without: list[int]) -> list[float | None]:
    """The mean cosine, layer by layer, of all pairs of different tokens that are part of the text. The very first token is not among
    them, as in `_by_itself`."""
    keep = [i for i, (begin, end) in enumerate(spans) if i > 0 and end > begin and i not in without]
    ids_Q = torch.tensor([look.ids[i] for i in keep])
    pairs_QQ = (ids_Q[:, None] != ids_Q[None, :]).triu(1)
    if not pairs_QQ.any():
        return [None] * len(look.hidden_LQD)
    unit_LQD = normalize(look.hidden_LQD[:, keep], dim=-1)
    return [round(float((each @ each.T)[pairs_QQ].mean()), 6) for each in unit_LQD]


def _cosine(one_D: Tensor, two_D: Tensor) -> float:
    return round(float(normalize(one_D, dim=0) @ normalize(two_D, dim=0)), 6)


def analogy(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """king - man + woman, on the vectors of a model's input embedding: which tokens lie nearest, and where "queen" comes.

    `what`: model, plus ("king"), minus ("man"), also ("woman"), expected ("queen"), n (10).

    Mikolov et al. 2013 leave the three given words out before they look for the nearest. `ranks` tells what that does (1 is the nearest;
    distances are cosines): `with_given`, among all tokens; `without_given`, as they do; `of_the_first_alone`, where the expected word
    comes beside the first word with nothing taken away and nothing added, the three left out as well (Rogers et al. 2017 and Linzen 2016
    found most of the success there).
    """
    words = {name: text_of(what, name, 40, usual).strip() for name, usual in
             (("plus", "king"), ("minus", "man"), ("also", "woman"), ("expected", "queen"))}  # fmt: skip
    n = whole_of(what, "n", 10, 1, 50)
    inside = open_inside(what.get("model"), tell)
    raw_VD = inside.model.get_input_embeddings().weight.detach().float().cpu()
    table_VD = normalize(raw_VD, dim=-1)
    ids = {name: _token_of(inside.tokenizer, word, len(raw_VD)) for name, word in words.items()}
    target_D = raw_VD[ids["plus"]] - raw_VD[ids["minus"]] + raw_VD[ids["also"]]
    given = [ids["plus"], ids["minus"], ids["also"]]
    near_V, near_first_V = table_VD @ normalize(target_D, dim=0), table_VD @ table_VD[ids["plus"]]
    expected = ids["expected"]
    if expected in given:
        raise Refused(f"{words['expected']!r} is one of the three given words; expect another one")
    ranks = {
        "with_given": _rank(near_V, expected, []),
        "without_given": _rank(near_V, expected, given),
        "of_the_first_alone": _rank(near_first_V, expected, given),
    }
    nearest = [
        {"token": inside.tokenizer.convert_ids_to_tokens(int(token)), "id": int(token), "cosine": round(float(near_V[token]), 6),
         "given": int(token) in given}
        for token in near_V.topk(min(n + len(set(given)), len(near_V))).indices
    ]  # fmt: skip
    return {
        "model": inside.found.name,
        "words": words,
        "tokens": {
            name: inside.tokenizer.convert_ids_to_tokens(token) for name, token in ids.items()
        },
        "vocabulary": len(raw_VD),
        "nearest": nearest,
        "expected": {"cosine": round(float(near_V[expected]), 6), **ranks},
        "finding": _finding(words, nearest, ranks),
    }


def _token_of(tokenizer: Any, word: str, size: int) -> int:
    """The one token that a word is inside a sentence.

    Raises:
        Refused: for a word of several tokens, which has no vector of its own.
    """
    unknown = tokenizer.unk_token_id
    for written in (f" {word}", word):
        ids = tokenizer(written, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] < size and (ids[0] != unknown or word == tokenizer.unk_token):
            return int(ids[0])
    pieces = tokenizer.convert_ids_to_tokens(
        tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
    )
    raise Refused(
        f"{word!r} is no single token to this model, but {' '.join(pieces[:8])}; choose a more usual word"
    )


def _rank(near_V: Tensor, token: int, without: list[int]) -> int:
    """How manieth a token is by nearness, some left out; 1 is the nearest, and a tie counts against it."""
    before_V = near_V >= near_V[token]
    before_V[[*without, token]] = False
    return 1 + int(before_V.sum())


def _finding(words: dict[str, str], nearest: list[dict[str, Any]], ranks: dict[str, int]) -> str:
    sum_of, expected = f"{words['plus']} - {words['minus']} + {words['also']}", words["expected"]
    said = f"Nearest to {sum_of} is {nearest[0]['token']!r}"
    said += ", one of the given words itself. " if nearest[0]["given"] else ". "
    said += f"{expected!r} is number {ranks['with_given']:,}"
    said += f", and number {ranks['without_given']:,} once the three given words are left out. "
    by_itself = ranks["of_the_first_alone"]
    better = (
        "so the arithmetic brought it nearer"
        if ranks["without_given"] < by_itself
        else "so the arithmetic did not bring it nearer"
    )
    return (
        said
        + f"Beside {words['plus']!r} alone, without any arithmetic, it is number {by_itself:,}: {better}."
    )
