"""Tokens of a text by the tokenizer of a pretrained model."""

from collections.abc import Iterable
from typing import Any

from jinja2 import TemplateError
from torch import Tensor

from playground.common import messages
from playground.errors import UserError

MAX_POSITIONS = 1_000_000


def tokenize(pipe: Any, text: str, as_chat: bool = False) -> list[int]:
    """Tokenize a text, or the chat in which it is the user's first message. Raises UserError."""
    ids: list[int] = (
        _tokenize_chat(pipe.tokenizer, text)
        if as_chat
        else pipe.tokenizer(text, verbose=False)["input_ids"]
    )
    if not ids:
        raise UserError(messages.NO_TOKENS)
    if len(ids) > (maximum := max_input_tokens(pipe.model.config, pipe.tokenizer)):
        raise UserError(
            f"the text has {len(ids):,} tokens and this model accepts at most {maximum:,}; "
            "shorten it"
        )
    return ids


def limit_tokens(ids: list[int], maximum: int) -> None:
    if len(ids) > maximum:
        raise UserError(f"the text has {len(ids):,} tokens; the maximum is {maximum}; shorten it")


def _tokenize_chat(tokenizer: Any, text: str) -> list[int]:
    if not tokenizer.chat_template:
        raise UserError("this model has no chat template; turn off As chat, or choose another one")
    try:
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
        )
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"the chat template of this model fails ({str(error)[:160]}); turn off As chat"
        ) from error
    ids: list[int] = chat["input_ids"]
    return ids


def check_symbols(tokenizer: Any, symbols: Iterable[str], name: str) -> None:
    """Raise UserError if the tokenizer of the model `name` sees a special token in a symbol."""
    for symbol in symbols:
        if any(special in symbol for special in tokenizer.all_special_tokens):
            raise UserError(
                f"{name} takes the symbol {symbol} for a special token; choose another model, or a "
                "checkpoint of a task without this symbol"
            )


def max_input_tokens(config: Any, tokenizer: Any) -> int:
    """Return the maximum number of tokens of a model's input; a million if it states none."""
    limits = (
        getattr(config, "max_position_embeddings", None),
        getattr(tokenizer, "model_max_length", None),
    )
    return min([MAX_POSITIONS, *(each for each in limits if isinstance(each, int) and each > 0)])


def eos_token_ids(pipe: Any) -> set[int]:
    """Return the ids of the tokens that end a text."""
    settings = getattr(pipe.model, "generation_config", None)
    configured = getattr(settings, "eos_token_id", None)
    configured = pipe.tokenizer.eos_token_id if configured is None else configured
    return {
        int(each)
        for each in (configured if isinstance(configured, list) else [configured])
        if each is not None
    }


def find_masks(tokenizer: Any, ids: list[int]) -> list[int]:
    """Return the positions of the mask tokens."""
    return [position for position, token in enumerate(ids) if token == tokenizer.mask_token_id]


def token_info(pipe: Any, token: int) -> dict[str, Any]:
    """Return a token's name in the vocabulary, its text and its id."""
    name = pipe.tokenizer.convert_ids_to_tokens(token)
    return {
        "token": name if name is not None else f"(id {token})",
        "word": pipe.tokenizer.decode([token]),
        "id": token,
    }


def generated_token_info(
    pipe: Any, token: int, probabilities_V: Tensor, n_candidates: int
) -> dict[str, Any]:
    """Return a generated token with its probability, and the most probable tokens there."""
    best = probabilities_V.topk(min(n_candidates, len(probabilities_V)))
    return token_info(pipe, token) | {
        "probability": float(probabilities_V[token]),
        "candidates": [
            token_info(pipe, candidate) | {"probability": probability}
            for candidate, probability in zip(
                best.indices.tolist(), best.values.tolist(), strict=True
            )
        ],
    }


def tokens(pipe: Any, ids: list[int]) -> list[dict[str, Any]]:
    return [token_info(pipe, token) for token in ids]
