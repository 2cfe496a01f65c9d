"""A model with the tokenizer of another one: the ids it gets, their meaning, and the output."""

import logging
from typing import Any

import torch
from pydantic import Field
from torch.nn.functional import cross_entropy

from playground.common import messages
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.inference import (
    MASK_PLACEHOLDER,
    MAX_NEW_TOKENS,
    SamplingParams,
    generate_tokens,
)
from playground.pretrained.model_files import CAUSAL, MASKED, kind_of, read_config
from playground.pretrained.pipelines import PIPELINE_BY_KIND, open_pipeline
from playground.pretrained.requests import JobRequest, ModelName, Text
from playground.pretrained.resolver import resolve
from playground.pretrained.tokens import ensure_fits, eos_token_ids

log = logging.getLogger(__name__)

DEFAULT_PROMPT = "The Transformer architecture works by"
DEFAULT_MASKED_TEXT = f"Paris is the {MASK_PLACEHOLDER} of France."
MASK_CANDIDATES = 5


class MismatchRequest(JobRequest):
    """A request to run a model with the tokenizer of another one.

    Without a text, the default depends on the kind of the model.
    """

    model: ModelName = ""
    tokenizer: ModelName = ""
    text: Text | None = None
    new_tokens: int = Field(20, ge=1, le=MAX_NEW_TOKENS)


def compare_tokenizers(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run a model on the same text with its own tokenizer, and with that of another model.

    `request`: see MismatchRequest. A causal model generates greedily; a masked model predicts the
    first mask.

    `own` and `other` are the results of `_encode_and_run`.
    """
    parsed = MismatchRequest.parse(request)
    resolved, other = resolve(parsed.model, progress), resolve(parsed.tokenizer, progress)
    kind = kind_of(read_config(resolved.folder, resolved.name))
    if kind not in (CAUSAL, MASKED):
        raise UserError(
            f"{resolved.name} is neither a causal nor a masked language model; choose one such as "
            "gpt2 or bert-base-uncased"
        )
    text = parsed.text or (DEFAULT_PROMPT if kind == CAUSAL else DEFAULT_MASKED_TEXT)
    pipe = open_pipeline(PIPELINE_BY_KIND[kind], resolved, progress)
    own, with_other = (
        _encode_and_run(pipe, tokenizer, text, kind, parsed.new_tokens, progress)
        for tokenizer in (pipe.tokenizer, load_other_tokenizer(other.folder, other.name))
    )
    return {
        "model": resolved.name,
        "tokenizer": other.name,
        "kind": kind,
        "text": text,
        "own": own,
        "other": with_other,
        "notes": _mismatch_notes(pipe, with_other),
    }


def _mismatch_notes(pipe: Any, with_other: dict[str, Any]) -> list[str]:
    """Describe how many ids of the other tokenizer mean the same token, or none."""
    tokens, embeddings = with_other["tokens"], pipe.model.get_input_embeddings().num_embeddings
    beyond = sum(not token["in_range"] for token in tokens)
    same = sum(token["in_range"] and token["own_token"] == token["token"] for token in tokens)
    notes = [f"{same} of {len(tokens)} ids stand for the same token in both tokenizers"]
    if beyond:
        notes.append(
            f"{beyond} ids are {embeddings:,} or more, beyond the model's embedding: the lookup "
            "fails, so they are left out"
        )
    return [*notes, with_other["mask_note"]] if with_other["mask_note"] else notes


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
    """Run a model on a text with one of the two tokenizers.

    `tokens` has the text's piece by the tokenizer, its id, and `own_token`, the token of that
    id in the model's own tokenizer; None if the id is beyond the model's embedding. Then
    `in_range` is false, a lookup would raise an IndexError, and the id is left out. `output` is
    the output, decoded by the tokenizer; `output_by_own` is the same ids decoded by the model's
    own. `mean_nll` is, for a causal model, the mean negative log-probability of the text after
    its first token, in nats per token.
    """
    mask_note = ""
    if kind == MASKED:
        text, mask_note = _insert_mask(tokenizer, text)
    ids: list[int] = tokenizer(text, verbose=False)["input_ids"]
    tokens = [_token_by_both(pipe, tokenizer, token) for token in ids]
    valid_ids = [token["id"] for token in tokens if token["in_range"]]
    ensure_fits(pipe, len(valid_ids))
    result: dict[str, Any] = {
        "tokens": tokens,
        "output": "",
        "output_by_own": "",
        "candidates": [],
        "mean_nll": None,
        "mask_note": mask_note,
    }
    if not valid_ids:
        return result
    if kind == CAUSAL:
        return result | _continue_text(pipe, tokenizer, valid_ids, new_tokens, progress)
    before_mask = tokens[: _mask_position(tokenizer, text, ids)]
    position = min(sum(token["in_range"] for token in before_mask), len(valid_ids) - 1)
    return result | _predict_mask(pipe, tokenizer, valid_ids, position)


def _insert_mask(tokenizer: Any, text: str) -> tuple[str, str]:
    """Return the text with the tokenizer's mask, and a note if it has none."""
    if MASK_PLACEHOLDER not in text:
        raise UserError(messages.missing_mask(MASK_PLACEHOLDER))
    if tokenizer.mask_token:
        return text.replace(MASK_PLACEHOLDER, tokenizer.mask_token, 1), ""
    return text, (
        f"the other tokenizer has no mask token and splits {MASK_PLACEHOLDER}; the prediction is "
        "at the first token of it"
    )


def _token_by_both(pipe: Any, tokenizer: Any, token: int) -> dict[str, Any]:
    """Return a token's text by the tokenizer, and by the model's own."""
    embeddings = pipe.model.get_input_embeddings().num_embeddings
    is_known = token < min(embeddings, len(pipe.tokenizer))
    return {
        "token": tokenizer.convert_ids_to_tokens(token),
        "id": token,
        "in_range": token < embeddings,
        "own_token": pipe.tokenizer.convert_ids_to_tokens(token) if is_known else None,
    }


def _continue_text(
    pipe: Any, tokenizer: Any, ids: list[int], new_tokens: int, progress: ProgressReporter
) -> dict[str, Any]:
    greedy = SamplingParams(
        greedy=True, temperature=1.0, top_p=1.0, seed=0, max_new_tokens=new_tokens
    )
    generated_ids = []
    for token in generate_tokens(pipe.model, ids, greedy, 1, eos_token_ids(pipe)):
        progress.raise_if_cancelled()
        generated_ids.append(token.id)
    return {
        "mean_nll": mean_nll(pipe.model, ids),
        "output": _decode_ids(tokenizer, generated_ids),
        "output_by_own": pipe.tokenizer.decode(generated_ids),
    }


def _mask_position(tokenizer: Any, text: str, ids: list[int]) -> int:
    """Return the position of the mask, or of the first token of its spelling."""
    if tokenizer.mask_token_id in ids:
        return ids.index(tokenizer.mask_token_id)
    is_special = tokenizer.get_special_tokens_mask(ids, already_has_special_tokens=True)
    n_special = next((i for i, special in enumerate(is_special) if not special), 0)
    before = text[: text.index(MASK_PLACEHOLDER)]
    return n_special + len(tokenizer(before, add_special_tokens=False, verbose=False)["input_ids"])


@torch.no_grad()
def _predict_mask(pipe: Any, tokenizer: Any, ids: list[int], position: int) -> dict[str, Any]:
    logits_V = (
        pipe.model(input_ids=torch.tensor([ids], device=pipe.model.device))
        .logits[0, position]
        .float()
        .cpu()
    )
    best = logits_V.softmax(-1).topk(min(MASK_CANDIDATES, len(logits_V)))
    candidates = [
        {
            "id": token,
            "word": _decode_ids(tokenizer, [token]),
            "word_by_own": pipe.tokenizer.decode([token]),
            "probability": probability,
        }
        for token, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return {
        "candidates": candidates,
        "output": candidates[0]["word"],
        "output_by_own": candidates[0]["word_by_own"],
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
