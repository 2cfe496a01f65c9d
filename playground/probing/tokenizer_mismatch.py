"""A model with the tokenizer of another one: the ids it gets, their meaning, and the output."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.inference import (
    MASK_PLACEHOLDER,
    MAX_NEW_TOKENS,
    SamplingParams,
    generate_tokens,
)
from playground.pretrained.model_files import CAUSAL, MASKED, kind_of, read_config
from playground.pretrained.pipelines import open_pipeline
from playground.pretrained.request_fields import integer_field, text_field
from playground.pretrained.resolver import resolve
from playground.pretrained.tokens import eos_token_ids, max_input_tokens

log = logging.getLogger(__name__)

DEFAULT_FILL_TEXT = "The Transformer architecture works by"
DEFAULT_TEXT = f"Paris is the {MASK_PLACEHOLDER} of France."
INSERTED_TEXT = 5  # candidates for a mask


def compare_tokenizers(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run a model on the same text with its own tokenizer, and with that of another model.

    `request`: model, tokenizer (the name of the other model), text, new_tokens (20). A causal
    model generates greedily; a masked model predicts the first mask.

    `own` and `other` have `tokens`, one each: the text's piece by the tokenizer in use, its id,
    and `to_the_model`, the token of that id in the model's own tokenizer, or None if the id is
    beyond the model's embedding; then `in_range` is false, a lookup would raise an IndexError,
    and the id is left out. `answer` is the output, decoded by the tokenizer in use;
    `answer_by_own` is the same ids decoded by the model's own. `surprise` is, for a causal
    model, the mean negative log-probability of the text after its first token, in nats per
    token.
    """
    resolved, other = (
        resolve(request.get("model", ""), progress),
        resolve(request.get("tokenizer", ""), progress),
    )
    kind = kind_of(read_config(resolved.folder, resolved.name))
    if kind not in (CAUSAL, MASKED):
        raise UserError(
            f"{resolved.name} is neither a causal nor a masked language model; choose one such as "
            "gpt2 or bert-base-uncased"
        )
    text = text_field(request, default=DEFAULT_FILL_TEXT if kind == CAUSAL else DEFAULT_TEXT)
    new_tokens = integer_field(request, "new_tokens", 20, 1, MAX_NEW_TOKENS)
    pipe = open_pipeline("text-generation" if kind == CAUSAL else "fill-mask", resolved, progress)
    theirs = load_other_tokenizer(other.folder, other.name)
    own = _encode_and_run(pipe, pipe.tokenizer, text, kind, new_tokens, progress)
    other_tokenizer_name = _encode_and_run(pipe, theirs, text, kind, new_tokens, progress)
    embeddings = pipe.model.get_input_embeddings().num_embeddings
    beyond = sum(not token["in_range"] for token in other_tokenizer_name["tokens"])
    same = sum(
        token["in_range"] and token["to_the_model"] == token["token"]
        for token in other_tokenizer_name["tokens"]
    )
    notes = [
        f"{same} of {len(other_tokenizer_name['tokens'])} ids stand for the same token in both "
        "tokenizers"
    ]
    if beyond:
        notes.append(
            f"{beyond} ids are {embeddings:,} or more, beyond the model's embedding: the lookup "
            "fails, so they are left out"
        )
    if other_tokenizer_name["gap_note"]:
        notes.append(other_tokenizer_name["gap_note"])
    return {
        "model": resolved.name,
        "tokenizer": other.name,
        "kind": kind,
        "text": text,
        "own": own,
        "other": other_tokenizer_name,
        "notes": notes,
    }


def load_other_tokenizer(folder: str, name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        log.warning("The tokenizer of %r cannot be loaded", name, exc_info=True)
        first_line = str(error).strip().split("\n")[0][:160]
        raise UserError(
            f"the tokenizer of {name} cannot be loaded ({type(error).__name__}: {first_line}); "
            "choose another one"
        ) from error


def _encode_and_run(
    pipe: Any, tokenizer: Any, text: str, kind: str, new_tokens: int, progress: ProgressReporter
) -> dict[str, Any]:
    """Run a model on a text with one of the two tokenizers."""
    gap_note = ""
    if kind == MASKED:
        if MASK_PLACEHOLDER not in text:
            raise UserError(
                f"the text has no mask; write {MASK_PLACEHOLDER} where a word is to be predicted"
            )
        if tokenizer.mask_token:
            text = text.replace(MASK_PLACEHOLDER, tokenizer.mask_token, 1)
        else:
            gap_note = (
                f"the other tokenizer has no mask token and splits {MASK_PLACEHOLDER}; the "
                "prediction is at the first token of it"
            )
    ids: list[int] = tokenizer(text, verbose=False)["input_ids"]
    embeddings = pipe.model.get_input_embeddings().num_embeddings
    valid_ids = [token for token in ids if token < embeddings]
    if len(valid_ids) > max_input_tokens(pipe):
        raise UserError(
            f"the text has {len(valid_ids):,} tokens and the model accepts at most "
            f"{max_input_tokens(pipe):,}; shorten it"
        )
    result: dict[str, Any] = {
        "tokens": [
            {
                "token": tokenizer.convert_ids_to_tokens(token),
                "id": token,
                "in_range": token < embeddings,
                "to_the_model": pipe.tokenizer.convert_ids_to_tokens(token)
                if token < min(embeddings, len(pipe.tokenizer))
                else None,
            }
            for token in ids
        ],
        "answer": "",
        "answer_by_own": "",
        "candidates": [],
        "surprise": None,
        "gap_note": gap_note,
    }
    if not valid_ids:
        return result
    if kind == CAUSAL:
        greedy = SamplingParams(
            greedy=True, temperature=1.0, top_p=1.0, seed=0, max_new_tokens=new_tokens
        )
        answer = []
        for written in generate_tokens(pipe.model, valid_ids, greedy, 1, eos_token_ids(pipe)):
            progress.raise_if_cancelled()
            answer.append(written.id)
        return result | {
            "surprise": mean_nll(pipe.model, valid_ids),
            "answer": _decode_ids(tokenizer, answer),
            "answer_by_own": pipe.tokenizer.decode(answer),
        }
    place = min(
        sum(token < embeddings for token in ids[: _mask_position(tokenizer, text, ids)]),
        len(valid_ids) - 1,
    )
    return result | _predict_mask(pipe, tokenizer, valid_ids, place)


def _mask_position(tokenizer: Any, text: str, ids: list[int]) -> int:
    """Return the position of the mask, or of the first token of its spelling."""
    if tokenizer.mask_token_id in ids:
        return ids.index(tokenizer.mask_token_id)
    return len(
        tokenizer(text[: text.index(MASK_PLACEHOLDER)], add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
    )


@torch.no_grad()
def _predict_mask(pipe: Any, tokenizer: Any, ids: list[int], place: int) -> dict[str, Any]:
    logits_V = (
        pipe.model(input_ids=torch.tensor([ids], device=pipe.model.device))
        .logits[0, place]
        .float()
        .cpu()
    )
    best = logits_V.softmax(-1).topk(min(INSERTED_TEXT, len(logits_V)))
    candidates = [
        {
            "id": token,
            "word": _decode_ids(tokenizer, [token]),
            "by_own": pipe.tokenizer.decode([token]),
            "probability": probability,
        }
        for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return {
        "candidates": candidates,
        "answer": candidates[0]["word"],
        "answer_by_own": candidates[0]["by_own"],
    }


@torch.no_grad()
def mean_nll(model: Any, ids: list[int]) -> float | None:
    """Return the mean negative log-probability per token in nats; None for a single token."""
    if len(ids) < 2:
        return None
    ids_BQ = torch.tensor([ids], device=model.device)
    logits_QV = model(input_ids=ids_BQ).logits[0, :-1].float()
    return float(cross_entropy(logits_QV, ids_BQ[0, 1:]))


def _decode_ids(tokenizer: Any, ids: list[int]) -> str:
    """Decode ids; an id that the tokenizer does not have is written as its number."""
    return "".join(
        tokenizer.decode([token]) if token < len(tokenizer) else f"(id {token})" for token in ids
    )
