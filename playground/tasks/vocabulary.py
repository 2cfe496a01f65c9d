"""Symbols and their token ids. Every vocabulary begins with the same three special tokens:

0 PAD   fills a sequence up to the width of its batch; no attention, no loss
1 SOS   start of sequence; the first input of the decoder
2 EOS   end of sequence; ends every source and every target
"""

import re
import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from playground.errors import UserError

PAD, SOS, EOS = 0, 1, 2
SPECIAL_TOKENS = ("PAD", "SOS", "EOS")
FIRST_SYMBOL_ID = len(SPECIAL_TOKENS)  # the token id of the first symbol
MAX_LISTED = 12  # symbols that are listed one by one in messages
ALPHABET = string.digits + string.ascii_lowercase + string.ascii_uppercase
# The characters with the property Default_Ignorable_Code_Point, which have no glyph.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Those that change how the characters beside them look: joiners and variation selectors.
_JOINING = re.compile("[\u180b-\u180d\u180f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MAY_COMPOSE = re.compile("[\u0300-\U0010ffff]")  # text without these is in form C


class UnknownSymbolError(UserError):
    """A text contains a symbol that is not in the vocabulary."""


def normalize(text: str) -> str:
    """Return a text in Unicode normalization form C, in which é has one spelling.

    The tokenizer of a published model uses the same function. That of `unicodedata` differs for
    characters of newer Unicode versions, and between Python versions. A text with an unpaired
    surrogate, which no vocabulary contains, is returned as it is.
    """
    if not _MAY_COMPOSE.search(text):
        return text
    from tokenizers.normalizers import NFC  # only here, because few texts need it

    try:
        return NFC().normalize_str(text)
    except UnicodeEncodeError:
        return text


def format_token(token: str) -> str:
    """Format a token so that it can be seen: U+200B for an invisible character.

    Joiners stay in a token that has visible characters. A mark without a letter gets a circle.
    """
    has_visible = bool(INVISIBLE.sub("", token))
    text = INVISIBLE.sub(
        lambda match: (
            match[0] if has_visible and _JOINING.match(match[0]) else f"U+{ord(match[0]):04X}"
        ),
        token,
    )
    return f"◌{text}" if unicodedata.category(text[:1] or " ")[0] == "M" else text


@dataclass(frozen=True)
class Vocabulary:
    """The symbols of a task; symbol i has the token id i + 3.

    >>> Vocabulary("0123456789").encode("3 1 4")
    [6, 4, 7]
    >>> Vocabulary(("cat", "dog")).encode("dog cat")
    [4, 3]

    If every symbol is a single character, spaces and commas between symbols are optional.
    Otherwise symbols are words, separated by spaces.
    """

    symbols: str | tuple[str, ...]

    def __len__(self) -> int:
        return len(SPECIAL_TOKENS) + len(self.symbols)

    @cached_property
    def token_ids(self) -> dict[str, int]:
        """Return the token id of each symbol."""
        return {symbol: token for token, symbol in enumerate(self.symbols, FIRST_SYMBOL_ID)}

    @cached_property
    def single_characters(self) -> bool:
        return all(len(symbol) == 1 for symbol in self.symbols)

    def split(self, text: str) -> list[str]:
        """Split a text into symbols, known or not, after its normalization."""
        text = normalize(text)
        if not self.single_characters:
            return text.split()
        spaced = text if "," in self.token_ids else text.replace(",", " ")
        return [character for character in spaced if not character.isspace()]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`, without SOS and EOS.

        Raises UnknownSymbolError for an unknown symbol; the message names it and the accepted ones.
        """
        tokens = []
        for symbol in self.split(text):
            if symbol not in self.token_ids:
                raise UnknownSymbolError(
                    f"{format_token(symbol[:40])!r} is not a token of this task; use "
                    f"{self.describe()}, as in {self.example()}"
                )
            tokens.append(self.token_ids[symbol])
        return tokens

    def decode(self, tokens: Iterable[int]) -> list[str]:
        """Return the symbols up to the first EOS.

        PAD and SOS, which only a wrong prediction contains, keep their names.
        """
        symbols = []
        for token in tokens:
            if token == EOS:
                break
            symbols.append(self.token_name(token))
        return symbols

    def token_name(self, token: int) -> str:
        """Return the symbol of a token id, or the name of a special token."""
        return (*SPECIAL_TOKENS, *self.symbols)[token]

    def describe(self) -> str:
        """Describe the symbols briefly: `0–9`, `0–9 a–c`, `0–9 +`, `cat dog and 40 more`."""
        ranges, others = [], [*self.symbols]
        for kind in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
            part = [symbol for symbol in self.symbols if len(symbol) == 1 and symbol in kind]
            if len(part) > 2 and "".join(part) in kind:
                ranges.append(f"{part[0]}–{part[-1]}")
                others = [symbol for symbol in others if symbol not in part]
        more = [f"and {len(others) - MAX_LISTED} more"] if len(others) > MAX_LISTED else []
        return " ".join([*ranges, *map(format_token, others[:MAX_LISTED]), *more])

    def example(self) -> str:
        """Return a short sequence in this vocabulary."""
        return " ".join(self.symbols[i % len(self.symbols)] for i in (3, 1, 4))
