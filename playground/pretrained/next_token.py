"""The next token of a causal language model: tokens, logits, probabilities, and attention sinks.

Shapes: V vocabulary, L layers, H heads, Q queries, M memory.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from playground.errors import UserError
from playground.jobs.progress import ProgressReporter

from .attention.prompt import first_token_shares, uniform_share
from .inference import nucleus
from .loading.pipelines import check_kind, open_pipeline
from .loading.resolver import resolve
from .requests import JobRequest, ModelName, Text
from .tokens import generated_token_info, limit_tokens, tokenize, tokens

MAX_TOKENS = 256
N_CANDIDATES = 8
TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
TOP_P = 0.9


class NextTokenRequest(JobRequest):
    """A request for the next token of a prompt."""

    model: ModelName = ""
    text: Text


def next_token(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Predict the next token of a prompt, as plain text and as a chat.

    `request`: see NextTokenRequest. `plain` and `chat` are results of `predict`; `chat` is None for
    a model without a chat template.
    """
    parsed = NextTokenRequest.parse(request)
    task = "text-generation"
    resolved = resolve(parsed.model, progress, partial(check_kind, task))
    pipe = open_pipeline(task, resolved, progress)
    progress.message("Predicting the next token")
    predictions = {
        name: predict(pipe, tokenize(pipe, parsed.text, as_chat))
        if not as_chat or pipe.tokenizer.chat_template
        else None
        for name, as_chat in (("plain", False), ("chat", True))
    }
    return {"model": resolved.name, "parameters": resolved.parameters, **predictions}


@torch.no_grad()
def predict(pipe: Any, ids: list[int]) -> dict[str, Any]:
    """Return the most probable next tokens with their logits, and the attention on the first token.

    `temperatures` has for each temperature the probabilities of these candidates, and `nucleus`:
    how many tokens `top_p` leaves. `sinks` has the mean attention of the later tokens on the first
    one by layer and head, and `uniform` that of equal weights; None if there is one token only.
    """
    limit_tokens(ids, MAX_TOKENS)
    has_others = len(ids) > 1
    output = pipe.model(
        torch.tensor([ids], device=pipe.model.device), output_attentions=True, use_cache=False
    )
    if not output.attentions:
        raise UserError(
            f"{type(pipe.model).__name__} does not return its attention; choose a model such as "
            "gpt2"
        )
    logits_V = output.logits[0, -1].float().cpu()
    probabilities_V = logits_V.softmax(-1)
    info = generated_token_info(pipe, int(logits_V.argmax()), probabilities_V, N_CANDIDATES)
    weights_LHQM = torch.cat([each.float() for each in output.attentions]).cpu()
    return {
        "tokens": tokens(pipe, ids),
        "vocabulary": len(logits_V),
        "top_p": TOP_P,
        "candidates": [
            each | {"logit": float(logits_V[each["id"]])} for each in info["candidates"]
        ],
        "temperatures": [
            _at_temperature(logits_V, temperature, [each["id"] for each in info["candidates"]])
            for temperature in TEMPERATURES
        ],
        "sinks": first_token_shares(weights_LHQM).tolist() if has_others else None,
        "uniform": uniform_share(torch.ones(weights_LHQM.shape[2:]).tril()) if has_others else None,
    }


def _at_temperature(logits_V: Tensor, temperature: float, ids: list[int]) -> dict[str, Any]:
    probabilities_V = (logits_V / temperature).softmax(-1)
    return {
        "temperature": temperature,
        "probabilities": probabilities_V[ids].tolist(),
        "nucleus": int(nucleus(probabilities_V.sort(descending=True).values, TOP_P).sum()),
    }
