"""Inference with pretrained models: fill-mask and text generation."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from playground.common import messages
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter

from .loading.pipelines import check_kind, open_pipeline
from .loading.resolver import resolve
from .requests import JobRequest, ModelName, Seed, Text
from .tokens import (
    eos_token_ids,
    find_masks,
    generated_token_info,
    max_input_tokens,
    tokenize,
    tokens,
)

MASK_PLACEHOLDER = "[MASK]"  # the mask in user input; the model's own mask token may differ
MAX_NEW_TOKENS = 200
MAX_CANDIDATES = 50
MAX_TEMPERATURE = 5.0  # maximum temperature


class InferenceRequest(JobRequest):
    """A request to run a model on a text; the fields from `decoding` on are for text generation.

    With `chat`, the text is the message of a user in the model's chat template. `temperature`
    divides the logits. Sampling is from the smallest set of tokens with the total probability
    `top_p` (Holtzman et al. 2020, section 3.1).
    """

    model: ModelName = ""
    text: Text
    task: Literal["fill-mask", "text-generation"] = "fill-mask"
    top_k: int = Field(5, ge=1, le=MAX_CANDIDATES)
    decoding: Literal["greedy", "sampling"] = "greedy"
    new_tokens: int = Field(40, ge=1, le=MAX_NEW_TOKENS)
    chat: bool = False
    temperature: float = Field(1.0, ge=0.01, le=MAX_TEMPERATURE)
    top_p: float = Field(1.0, ge=0.01, le=1.0)
    seed: Seed = 0


def run_inference(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run a model for one of two tasks. `request`: see InferenceRequest.

    Every result has the model's name and size, the text as `tokens` (the model's own names and
    ids), and `notes`, sentences.
    """
    parsed = InferenceRequest.parse(request)
    task, text = parsed.task, parsed.text
    resolved = resolve(parsed.model, progress, partial(check_kind, task))
    pipe = open_pipeline(task, resolved, progress)
    result = {"task": task, "model": resolved.name, "parameters": resolved.parameters, "text": text}
    progress.raise_if_cancelled()
    if task == "text-generation":
        return result | generate_text(pipe, parsed, progress)
    return result | fill_mask(pipe, text, parsed.top_k)


def fill_mask(pipe: Any, text: str, top_k: int) -> dict[str, Any]:
    """Predict the tokens at the masks of a text.

    `masks` has for each mask its `position` among the tokens, and `candidates` with token, id,
    probability and the whole text. Several masks are predicted independently, while the others
    stay masked.
    """
    mask_token = pipe.tokenizer.mask_token
    if mask_token is None:
        raise UserError(messages.missing_mask_token("this model"))
    input_text = text if mask_token in text else text.replace(MASK_PLACEHOLDER, mask_token)
    ids = tokenize(pipe, input_text)
    mask_positions = find_masks(pipe.tokenizer, ids)
    if not mask_positions:
        raise UserError(
            f"the text has no mask; write {MASK_PLACEHOLDER} in place of the word to predict"
        )
    fills = pipe(input_text, top_k=min(top_k, pipe.model.get_input_embeddings().num_embeddings))
    answers = [fills] if len(mask_positions) == 1 else fills
    notes = [
        (
            f"{len(mask_positions)} masks: each is predicted independently while the others stay "
            "masked, so the words may not fit together"
        )
    ]
    return {
        "tokens": tokens(pipe, ids),
        "masks": [
            {
                "position": position,
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
            for position, answer in zip(mask_positions, answers, strict=True)
        ],
        "notes": notes if len(mask_positions) > 1 else [],
    }


def generate_text(
    pipe: Any, request: InferenceRequest, progress: ProgressReporter
) -> dict[str, Any]:
    """Generate a continuation of the text of a request.

    Each token reports a row: `n`, `token`, `id`, `text` (the added text, as soon as its
    characters are complete), `probability` and `candidates` (token, word, id, probability),
    both before temperature and top-p.
    """
    ids = tokenize(pipe, request.text, request.chat)
    max_tokens = max_input_tokens(pipe.model.config, pipe.tokenizer)
    n_new = min(request.new_tokens, max_tokens - len(ids))
    rows: list[dict[str, Any]] = []
    steps, ended = "", ""
    progress.message(messages.generation_progress(request.new_tokens))
    for token, probabilities_V in generate_tokens(pipe, ids, n_new, request):
        decoded = pipe.tokenizer.decode(
            [*(row["id"] for row in rows), token], skip_special_tokens=True
        )
        full_text = decoded.rstrip("\ufffd")  # incomplete bytes of a character
        row = generated_token_info(pipe, token, probabilities_V, request.top_k) | {
            "n": len(rows) + 1,
            "text": full_text[len(steps) :] if full_text.startswith(steps) else "",
        }
        steps += row["text"]
        rows.append(row)
        progress.row(row)
        progress.progress(len(rows), request.new_tokens, "tokens")
    if rows and rows[-1]["id"] in eos_token_ids(pipe):
        ended = "the model ended the text"
    elif len(rows) < request.new_tokens:
        ended = f"the text has reached this model's maximum of {max_tokens:,} tokens"
    else:
        ended = f"stopped at the limit of {request.new_tokens} new tokens"
    return {
        "tokens": tokens(pipe, ids),
        "generated": rows,
        "prompt": pipe.tokenizer.decode(ids) if request.chat else request.text,
        "continuation": steps,
        "ended": ended,
        "notes": []
        if request.chat or not pipe.tokenizer.chat_template
        else ["This model was trained on chats; As chat sends the text in their format."],
    }


@torch.no_grad()
def generate_tokens(
    pipe: Any, ids: list[int], n_new: int, request: InferenceRequest
) -> Iterator[tuple[int, Tensor]]:
    """Generate up to `n_new` tokens with a KV cache, until an end token.

    Yields each token with the probabilities there, before temperature and top-p.
    """
    generator = torch.Generator().manual_seed(request.seed)
    input_BQ, past = torch.tensor([ids], device=pipe.model.device), None
    for _ in range(n_new):
        output = pipe.model(input_ids=input_BQ, past_key_values=past, use_cache=True)
        past = output.past_key_values
        logits_V = output.logits[0, -1].float().cpu()
        chosen = (
            int(logits_V.argmax())
            if request.decoding == "greedy"
            else sample(logits_V, request.temperature, request.top_p, generator)
        )
        yield chosen, logits_V.softmax(-1)
        if chosen in eos_token_ids(pipe):
            return
        input_BQ = torch.tensor([[chosen]], device=pipe.model.device)


def sample(logits_V: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> int:
    """Sample one token. The most probable one always stays eligible."""
    ordered_V, indices_V = (logits_V / temperature).softmax(-1).sort(descending=True)
    allowed_V = ordered_V * nucleus(ordered_V, top_p)
    return int(indices_V[torch.multinomial(allowed_V, 1, generator=generator)])


def nucleus(ordered_V: Tensor, top_p: float) -> Tensor:
    """Return which tokens top-p leaves, given their probabilities, the highest first."""
    return ordered_V.cumsum(-1) - ordered_V < top_p
