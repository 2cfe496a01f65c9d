"""Translation of English phrases into an invented language.

A source is a noun phrase such as "two red cars", or a sentence of noun phrase, verb and noun
phrase, with further noun phrases after "and". The invented language has no word for "a" and no
plural of nouns. In it,

- a noun phrase has the opposite order: noun, adjectives, number,
- an adjective ends in i for living beings and in o for objects,
- the verb comes last, and its ending is that of the subject.
"""

import re

import torch
from torch import Tensor

from . import words
from .task import Task
from .vocabulary import FIRST_SYMBOL_ID

NO_WORD, DETERMINER, ADJECTIVE, NOUN, VERB, AND = range(6)
# The English words in the order of their token ids: kind, number of words, forms of a word.
KINDS = (
    (DETERMINER, len(words.DETERMINERS), 1),
    (ADJECTIVE, len(words.ADJECTIVES), 1),
    (NOUN, len(words.NOUNS) // 2, 2),
    (VERB, len(words.VERBS) // 2, 2),
    (AND, 1, 1),
)
FIRST_IDS = (
    0,
    *(FIRST_SYMBOL_ID + sum(n * forms for _, n, forms in KINDS[:i]) for i in range(len(KINDS))),
)
N_WORDS = (1, *(n for _, n, _ in KINDS))
A = FIRST_SYMBOL_ID  # the token id of the determiner without a translation


def _source_pattern() -> re.Pattern[str]:
    """Return the grammar of sources."""
    adjectives = f"(?: (?:{'|'.join(words.ADJECTIVES)})){{0,2}}"
    one = f"a{adjectives} (?:{'|'.join(words.NOUNS[::2])})"
    several = f"(?:{'|'.join(words.DETERMINERS[1:])}){adjectives} (?:{'|'.join(words.NOUNS[1::2])})"
    subject = (
        f"(?:{one} (?:{'|'.join(words.VERBS[::2])})|{several} (?:{'|'.join(words.VERBS[1::2])}))"
    )
    noun_phrase = f"(?:{one}|{several})"
    return re.compile(f"{noun_phrase}|{subject} {noun_phrase}(?: and {noun_phrase})*")


SOURCE = _source_pattern()


class Translate(Task):
    """Translate a phrase: two red cars -> gar ruvo du."""

    name = "translate"

    def __init__(self, n_symbols: int = 10) -> None:
        super().__init__(n_symbols)
        size = len(self.vocabulary)
        self._kind_V = torch.zeros(size, dtype=torch.long)
        self._index_V = torch.zeros(size, dtype=torch.long)  # among the words of its kind
        for kind, n, forms in KINDS:
            of_kind = slice(FIRST_IDS[kind], FIRST_IDS[kind] + n * forms)
            self._kind_V[of_kind], self._index_V[of_kind] = kind, torch.arange(n * forms) // forms
        # The translation of each English word, with the ending i; "a" has none.
        translations = (
            *words.NUMBERS,
            *words.ADJECTIVES_BY_CLASS[::2],
            *(noun for noun in words.TRANSLATED_NOUNS for _ in range(2)),
            *(verb for verb in words.VERBS_BY_CLASS[::2] for _ in range(2)),
            words.TRANSLATED_AND,
        )
        self._translation_V = torch.zeros(size, dtype=torch.long)
        self._translation_V[A + 1 : A + 1 + len(translations)] = torch.tensor(
            [self.vocabulary.token_ids[word] for word in translations]
        )

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        device, width = sequence_BL.device, sequence_BL.shape[1]
        column_L, lengths_B1 = torch.arange(width, device=device), lengths_B[:, None]
        word_BL = torch.where(column_L < lengths_B1, sequence_BL, 0)
        kind_BL = self._kind_V.to(device)[word_BL]
        is_verb_BL = kind_BL == VERB
        first_BL = _first_columns(kind_BL)
        # the column of the noun at or after each word
        noun_BL = torch.where(kind_BL == NOUN, column_L, width - 1).flip(1).cummin(1).values.flip(1)
        is_object_BL = self._index_V.to(device)[word_BL.gather(1, noun_BL)] >= words.N_LIVING
        ends_in_o_BL = torch.where(is_verb_BL, is_object_BL[:, :1], is_object_BL)
        has_class_BL = is_verb_BL | (kind_BL == ADJECTIVE)
        translation_BL = self._translation_V.to(device)[word_BL] + (ends_in_o_BL & has_class_BL)
        column_BL = torch.where(kind_BL == AND, column_L, first_BL + noun_BL - column_L)
        column_BL = torch.where(is_verb_BL, lengths_B1, column_BL)
        is_left_out_BL = (word_BL == A) | (kind_BL == NO_WORD)
        order_BL = torch.where(is_left_out_BL, width + 1, column_BL).argsort(dim=1, stable=True)
        return translation_BL.gather(1, order_BL), (~is_left_out_BL).sum(1)

    def sample_with_lengths(
        self, lengths_B: Tensor, width: int, generator: torch.Generator
    ) -> Tensor:
        """Sample noun phrases of 2 to 4 words until a source is full, then its words."""
        n, device = len(lengths_B), generator.device
        kind_BL = torch.zeros((n, width), dtype=torch.long, device=device)
        column_L = torch.arange(width, device=device)
        start_B1 = torch.zeros_like(lengths_B)[:, None]
        sizes = torch.tensor((2, 3, 4), device=device)
        for i in range((width + 1) // 3):
            rest_B1 = lengths_B[:, None] - start_B1
            fits_BN = (rest_B1 == sizes) | (rest_B1 >= sizes + 3)
            score_BN = torch.rand(fits_BN.shape, generator=generator, device=device) + fits_BN
            end_B1 = start_B1 + sizes[score_BN.argmax(1, keepdim=True)]
            for kind, is_here_BL in (
                (ADJECTIVE, (column_L > start_B1) & (column_L < end_B1)),
                (DETERMINER, column_L == start_B1),
                (NOUN, column_L == end_B1 - 1),
                (AND if i else VERB, column_L == end_B1),
            ):
                kind_BL[is_here_BL] = kind
            start_B1 = end_B1 + 1
        kind_BL[column_L >= lengths_B[:, None]] = NO_WORD
        choice_BL = torch.rand(kind_BL.shape, generator=generator, device=device)
        return self._words(kind_BL, (choice_BL * _n_choices(kind_BL)).long())

    def enumerate_sources(self, index_N: Tensor, length: int) -> Tensor:
        parts = [torch.empty(0, length, dtype=torch.long)]
        for composition in words.compositions(length):
            kinds = [
                kind
                for i, size in enumerate(composition)
                for kind in (DETERMINER, *[ADJECTIVE] * (size - 2), NOUN, VERB if i == 0 else AND)
            ][:length]
            kind_1L = torch.tensor([kinds])
            n_L = _n_choices(kind_1L)[0]
            place_L = n_L.cumprod(0) // n_L
            count = int(n_L.prod())
            index_C = index_N[(index_N >= 0) & (index_N < count)]
            choice_CL = index_C[:, None] // place_L % n_L
            parts.append(self._words(kind_1L.expand(len(index_C), -1), choice_CL))
            index_N = index_N - count
        return torch.cat(parts)

    def validate_source(self, tokens: list[int]) -> str:
        if SOURCE.fullmatch(" ".join(map(self.vocabulary.token_name, tokens))):
            return ""
        return (
            "a source of this task is an English phrase of its words, as in two red cars, or a "
            "sentence, as in a dog sees two red cars"
        )

    def _words(self, kind_BL: Tensor, choice_BL: Tensor) -> Tensor:
        """Return the words of these kinds and choices, with the numbers of their noun phrases."""
        is_second_BL = _is_second_adjective(kind_BL)
        first_BL = choice_BL.roll(1, 1)
        choice_BL = torch.where(
            is_second_BL, (first_BL + 1 + choice_BL) % len(words.ADJECTIVES), choice_BL
        )
        is_plural_BL = choice_BL.gather(1, _first_columns(kind_BL)) > 0
        is_plural_BL = torch.where(kind_BL == VERB, is_plural_BL[:, :1], is_plural_BL)
        has_number_BL = (kind_BL == NOUN) | (kind_BL == VERB)
        first_id_BL = torch.tensor(FIRST_IDS, device=kind_BL.device)[kind_BL]
        return torch.where(
            has_number_BL, first_id_BL + 2 * choice_BL + is_plural_BL, first_id_BL + choice_BL
        )


def _first_columns(kind_BL: Tensor) -> Tensor:
    """Return the column of the determiner at or before each word."""
    column_L = torch.arange(kind_BL.shape[1], device=kind_BL.device)
    return torch.where(kind_BL == DETERMINER, column_L, 0).cummax(1).values


def _is_second_adjective(kind_BL: Tensor) -> Tensor:
    is_second_BL = (kind_BL == ADJECTIVE) & (kind_BL.roll(1, 1) == ADJECTIVE)
    is_second_BL[:, 0] = False
    return is_second_BL


def _n_choices(kind_BL: Tensor) -> Tensor:
    """Return from how many words each position chooses; a second adjective differs."""
    n_BL = torch.tensor(N_WORDS, device=kind_BL.device)[kind_BL]
    return torch.where(_is_second_adjective(kind_BL), n_BL - 1, n_BL)
