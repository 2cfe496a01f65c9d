"""Symbols and their numbers.

Every vocabulary begins with the same three special tokens, so a padding mask
needs to know nothing about the task:

    0 PAD   fills a row up to the width of its batch; never attended to, never scored
    1 SOS   start of sequence; the first token that the decoder is given
    2 EOS   end of sequence; ends every source and every target
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass

PAD, SOS, EOS = 0, 1, 2
SPECIAL = ("PAD", "SOS", "EOS")
ALPHABET = string.digits + string.ascii_lowercase + string.ascii_uppercase


class UnknownSymbol(ValueError):
    """Text holds something that is no symbol of this vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of a task; symbol i has the token number i + 3.

    >>> Vocabulary("0123456789").encode("3 1 4")
    [6, 4, 7]
    """

    symbols: str

    def __len__(self) -> int:
        return len(SPECIAL) + len(self.symbols)

    def encode(self, text: str) -> list[int]:
        """Token numbers of `text`, without SOS and EOS; blanks and commas between symbols are optional.

        Raises:
            UnknownSymbol: naming the symbol and what is accepted.
        """
        tokens = []
        for symbol in text.replace(",", " "):
            if symbol.isspace():
                continue
            at = self.symbols.find(symbol)
            if at < 0:
                raise UnknownSymbol(f"{symbol!r} is not a symbol of this task; use {self.describe()}, as in {self.example()}")
            tokens.append(at + len(SPECIAL))
        return tokens

    def decode(self, tokens: Iterable[int]) -> list[str]:
        """Symbols up to the first EOS; PAD and SOS, which only a wrong answer holds there, keep their names."""
        symbols = []
        for token in tokens:
            if token == EOS:
                break
            symbols.append(self.name(token))
        return symbols

    def name(self, token: int) -> str:
        """The symbol of one token number, or the name of a special token."""
        return SPECIAL[token] if token < len(SPECIAL) else self.symbols[token - len(SPECIAL)]

    def describe(self) -> str:
        """What a person may type, in a few characters: `0–9`, `0–9 a–c`."""
        kinds = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
        parts = ["".join(s for s in self.symbols if s in kind) for kind in kinds]
        return " ".join(part if len(part) < 3 else f"{part[0]}–{part[-1]}" for part in parts if part)

    def example(self) -> str:
        """A short sequence in this vocabulary."""
        return " ".join(self.symbols[i % len(self.symbols)] for i in (3, 1, 4))
