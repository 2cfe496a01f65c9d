"""A masked language model in the benchmark: it fills masked positions."""

from collections.abc import Sequence
from typing import Any

import torch

from playground.common import messages
from playground.errors import UserError

from ..prompts import Example, masked_prompt
from .models import Output, PretrainedModel


def find_symbol_tokens(tokenizer: Any, symbols: Sequence[str], name: str) -> dict[str, int]:
    """Return the token id of each symbol, with a leading space if the vocabulary has that.

    Raises UserError if the tokenizer of the model `name` has no mask, or no token for a symbol.
    """
    if not tokenizer.mask_token:
        raise UserError(messages.missing_mask_token(name))
    token_ids: dict[str, int] = {}
    for symbol in symbols:
        encoded = (
            tokenizer.encode(text, add_special_tokens=False) for text in (f" {symbol}", symbol)
        )
        ids = [ids[0] for ids in encoded if len(ids) == 1 and ids[0] != tokenizer.unk_token_id]
        if not ids:
            raise UserError(
                f"{name} has no single token for {symbol!r}, so it cannot predict it at one "
                "masked position; compare on a task of digits"
            )
        token_ids[symbol] = int(ids[0])
    return token_ids


class PretrainedMaskedLM(PretrainedModel):
    """A masked language model: predicts the target, whose length is known, at masked positions."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.mask = self.tokenizer.mask_token
        self.token_id_by_symbol = find_symbol_tokens(self.tokenizer, self.symbols, self.name)
        max_example = max(self.items, key=lambda item: len(item.source) + len(item.target))
        self.fit_few_shot(
            lambda shots: len(self.token_ids(masked_prompt(max_example, shots, self.mask)))
        )
        self.decoding = (
            f"fill-mask after {len(self.examples)} few-shot examples, all positions masked at once"
        )
        ambiguous = [
            symbol
            for symbol, token in self.token_id_by_symbol.items()
            if list(self.token_id_by_symbol.values()).index(token) != self.symbols.index(symbol)
        ]
        if ambiguous:
            self.add_caveat(
                f"its tokenizer maps {' '.join(ambiguous)} to the same token as another symbol"
            )

    @torch.no_grad()
    def generate(self, example: Example) -> Output:
        self.progress.raise_if_cancelled()
        text = masked_prompt(example, self.examples, self.mask)
        inputs = self.pipe.preprocess(text)
        filled = self.pipe.postprocess(self.pipe.forward(inputs), top_k=1)
        best = [each[0] for each in filled] if isinstance(filled[0], list) else filled
        predicted = [each["token_str"].strip() for each in best]
        parsed = tuple(each if each in self.symbols else None for each in predicted)
        return Output(text, " ".join(predicted), parsed)
