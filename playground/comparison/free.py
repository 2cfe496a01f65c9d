"""Inference with pretrained models: fill-mask, text generation and text classification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .asked import choice_of, number_of, text_of, whole_of
from .pretrained import find, fresh_weights, open_pipeline
from .work import Refused, Tell

GAP = "[MASK]"  # the mask in user input, whatever the model's own mask token is
MOST_NEW_TOKENS = 200
MOST_CANDIDATES = 50
HOTTEST = 5.0  # maximum temperature
UNTRAINED = "untrained: randomly initialized"


def free(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run a model for one of three tasks.

    `what`: task ("fill-mask", "text-generation", "text-classification"), model, text, top_k
    (5), and for text-generation: new_tokens (40), way ("greedy" or "drawn"), temperature (1),
    top_p (1), seed (0).

    Every result has the model's name and size, the text as `tokens` (the model's own names and
    ids), and `notes`, sentences.
    """
    task = choice_of(
        what, "task", ("fill-mask", "text-generation", "text-classification"), "fill-mask"
    )
    text, top_k = text_of(what), whole_of(what, "top_k", 5, 1, MOST_CANDIDATES)
    drawing = _drawing(what) if task == "text-generation" else None
    found = find(what.get("model", ""), tell)
    pipe = open_pipeline(task, found, tell)
    said = {"task": task, "model": found.name, "parameters": found.parameters, "text": text}
    top_k = min(top_k, pipe.model.get_input_embeddings().num_embeddings)
    tell.check()
    if drawing is not None:
        return said | generated(pipe, text, drawing, top_k, tell)
    if task == "fill-mask":
        return said | filled(pipe, text, top_k)
    return said | classified(pipe, text, fresh_weights(task, found))


# Fill-mask


def filled(pipe: Any, text: str, top_k: int) -> dict[str, Any]:
    """Predict the tokens at the masks of a text.

    `gaps` has for each mask its `place` among the tokens, and `candidates` with token, id,
    probability and the whole text. Several masks are predicted independently, while the others
    stay masked.
    """
    sign = pipe.tokenizer.mask_token
    if sign is None:
        raise Refused(
            "this model has no mask token; choose a masked language model, such as "
            "bert-base-uncased"
        )
    given = text if sign in text else text.replace(GAP, sign)
    ids = read(pipe, given)
    gaps = [place for place, token in enumerate(ids) if token == pipe.tokenizer.mask_token_id]
    if not gaps:
        raise Refused(f"the text has no mask; write {GAP} where a word is to be predicted")
    answered = pipe(given, top_k=top_k)
    answers = [answered] if len(gaps) == 1 else answered
    notes = [
        (
            f"{len(gaps)} masks: each is predicted independently while the others stay masked, "
            "so the words may not fit together"
        )
    ]
    return {
        "tokens": tokens(pipe, ids),
        "gaps": [
            {
                "place": place,
                "candidates": [
                    {
                        "token": pipe.tokenizer.convert_ids_to_tokens(each["token"]),
                        "word": each["token_str"],
                        "id": each["token"],
                        "probability": each["score"],
                        "text": each["sequence"],
                    }
                    for each in answer
                ],
            }
            for place, answer in zip(gaps, answers, strict=True)
        ],
        "notes": notes if len(gaps) > 1 else [],
    }


# Text generation


@dataclass(frozen=True)
class Drawing:
    """Sampling parameters: greedy decoding, or sampling.

    temperature    divides the logits: below 1 the distribution gets sharper
    top_p          sample from the smallest set of tokens with this total probability (Holtzman
                   et al. 2020, section 3.1)
    """

    greedy: bool
    temperature: float
    top_p: float
    seed: int
    new_tokens: int


@dataclass(frozen=True)
class Written:
    """A generated token, its probability before temperature and top-p, and the alternatives."""

    id: int
    probability: float
    candidates: list[tuple[int, float]]


def _drawing(what: dict[str, Any]) -> Drawing:
    return Drawing(
        greedy=choice_of(what, "way", ("greedy", "drawn"), "greedy") == "greedy",
        temperature=number_of(what, "temperature", 1.0, 0.01, HOTTEST),
        top_p=number_of(what, "top_p", 1.0, 0.01, 1.0),
        seed=whole_of(what, "seed", 0, 0, 2**31 - 1),
        new_tokens=whole_of(what, "new_tokens", 40, 1, MOST_NEW_TOKENS),
    )


def generated(pipe: Any, text: str, drawing: Drawing, top_k: int, tell: Tell) -> dict[str, Any]:
    """Generate a continuation of a text.

    Each token reports a row: `n`, `token`, `id`, `text` (the added text, as soon as its
    characters are complete), `probability` and `candidates` (token, word, id, probability),
    both before temperature and top-p.
    """
    ids = read(pipe, text)
    rows: list[dict[str, Any]] = []
    told, ended = "", ""
    tell.say(f"Generating up to {drawing.new_tokens} tokens")
    for written in write(pipe.model, ids, drawing, top_k, ends(pipe)):
        so_far = pipe.tokenizer.decode(
            [*(row["id"] for row in rows), written.id], skip_special_tokens=True
        )
        whole = so_far.rstrip("\ufffd")  # incomplete bytes of a character
        row = named(pipe, written.id) | {
            "n": len(rows) + 1,
            "text": whole[len(told) :] if whole.startswith(told) else "",
            "probability": written.probability,
            "candidates": [
                named(pipe, token) | {"probability": probability}
                for token, probability in written.candidates
            ],
        }
        told += row["text"]
        rows.append(row)
        tell.row(row)
        tell.share(len(rows), drawing.new_tokens, "tokens")
    if rows and rows[-1]["id"] in ends(pipe):
        ended = "the model ended the text"
    elif len(rows) < drawing.new_tokens:
        ended = f"the text has reached this model's maximum of {longest(pipe):,} tokens"
    else:
        ended = f"stopped at the limit of {drawing.new_tokens} new tokens"
    return {
        "tokens": tokens(pipe, ids),
        "written": rows,
        "continuation": told,
        "ended": ended,
        "notes": [],
    }


@torch.no_grad()
def write(
    model: Any, ids: list[int], drawing: Drawing, top_k: int, ends: set[int]
) -> Iterator[Written]:
    """Generate token by token with a KV cache, until an end token or the maximum length."""
    most = getattr(model.config, "max_position_embeddings", None) or len(ids) + drawing.new_tokens
    chance = torch.Generator().manual_seed(drawing.seed)
    given_BQ, past = torch.tensor([ids], device=model.device), None
    for _ in range(min(drawing.new_tokens, most - len(ids))):
        output = model(input_ids=given_BQ, past_key_values=past, use_cache=True)
        past = output.past_key_values
        logits_V = output.logits[0, -1].float().cpu()
        probabilities_V = logits_V.softmax(-1)
        chosen = int(logits_V.argmax()) if drawing.greedy else draw(logits_V, drawing, chance)
        best = probabilities_V.topk(top_k)
        yield Written(
            chosen,
            float(probabilities_V[chosen]),
            list(zip(best.indices.tolist(), best.values.tolist(), strict=True)),
        )
        if chosen in ends:
            return
        given_BQ = torch.tensor([[chosen]], device=model.device)


def draw(logits_V: Tensor, drawing: Drawing, chance: torch.Generator) -> int:
    """Sample one token. The most probable one always stays eligible."""
    ordered_V, which_V = (logits_V / drawing.temperature).softmax(-1).sort(descending=True)
    kept_V = ordered_V * (ordered_V.cumsum(-1) - ordered_V < drawing.top_p)
    return int(which_V[torch.multinomial(kept_V, 1, generator=chance)])


# Text classification


def classified(pipe: Any, text: str, fresh: list[str]) -> dict[str, Any]:
    """Return a text's labels with their probabilities, the most probable first.

    `trained` is false if the head is newly initialized.
    """
    ids = read(pipe, text)
    labels = [
        {"label": each["label"], "probability": each["score"]} for each in pipe(text, top_k=None)
    ]
    notes = [
        (
            f"{UNTRAINED}. This model has no classification head, so these weights were "
            f"randomly initialized when it was loaded: {', '.join(fresh[:4])}. Train a head "
            "below; until then the label means nothing"
        )
    ]
    return {
        "tokens": tokens(pipe, ids),
        "labels": labels,
        "trained": not fresh,
        "notes": notes if fresh else [],
    }


# Tokens


def read(pipe: Any, text: str) -> list[int]:
    """Tokenize a text.

    Raises:
        Refused: if it has no tokens, or more than the model accepts.
    """
    ids: list[int] = pipe.tokenizer(text, verbose=False)["input_ids"]
    if not ids:
        raise Refused("the text has no tokens for this model; type some words")
    if len(ids) > longest(pipe):
        raise Refused(
            f"the text has {len(ids):,} tokens and this model accepts at most "
            f"{longest(pipe):,}; shorten it"
        )
    return ids


def longest(pipe: Any) -> int:
    """Return the maximum number of tokens of a model's input."""
    positions = getattr(pipe.model.config, "max_position_embeddings", None)
    return min(int(positions or 10**9), int(pipe.tokenizer.model_max_length))


def ends(pipe: Any) -> set[int]:
    """Return the ids of the tokens that end a text."""
    settings = getattr(pipe.model, "generation_config", None)
    given = getattr(settings, "eos_token_id", None)
    given = pipe.tokenizer.eos_token_id if given is None else given
    return {
        int(each) for each in (given if isinstance(given, list) else [given]) if each is not None
    }


def named(pipe: Any, token: int) -> dict[str, Any]:
    """Return a token's name in the vocabulary, its text and its id."""
    name = pipe.tokenizer.convert_ids_to_tokens(token)
    return {
        "token": name if name is not None else f"(id {token})",
        "word": pipe.tokenizer.decode([token]),
        "id": token,
    }


def tokens(pipe: Any, ids: list[int]) -> list[dict[str, Any]]:
    return [named(pipe, token) for token in ids]
