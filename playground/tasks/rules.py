"""Tasks on sequences of symbols. The value of a symbol is its index in 0-9 a-z A-Z."""

import torch
from torch import Tensor

from .hashing import position_keys, sequence_hash, splitmix64
from .task import Task
from .vocabulary import FIRST_SYMBOL_ID


def _column_index(sequence_BL: Tensor) -> Tensor:
    return torch.arange(sequence_BL.shape[1], device=sequence_BL.device)


def _is_symbol(sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
    """Return True at symbols, False at padding."""
    return _column_index(sequence_BL) < lengths_B[:, None]


class Reverse(Task):
    """Reverse the sequence: 3 1 4 1 5 -> 5 1 4 1 3."""

    name = "reverse"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        mirrored_BL = (lengths_B[:, None] - 1 - _column_index(sequence_BL)).clamp(min=0)
        return sequence_BL.gather(1, mirrored_BL), lengths_B

    def alignment(self, length: int) -> list[int]:
        return list(range(length - 1, -1, -1))


class Copy(Task):
    """Copy the sequence: 3 1 4 1 5 -> 3 1 4 1 5."""

    name = "copy"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        return sequence_BL, lengths_B

    def alignment(self, length: int) -> list[int]:
        return list(range(length))


class Repeat(Copy):
    """Repeat a sequence without early repetitions: 3 1 4 -> 3 1 4.

    No symbol occurs again before all others have occurred. So a decoder-only model reads random
    symbols and then the same again (Olsson et al. 2022), and with enough symbols each is the one
    that followed the symbol before it at its only earlier occurrence.
    """

    name = "repeat"

    def sample_with_lengths(
        self, lengths_B: Tensor, width: int, generator: torch.Generator
    ) -> Tensor:
        shape = (len(lengths_B), -(-width // self.n_symbols), self.n_symbols)
        random_BNV = torch.rand(shape, generator=generator, device=generator.device)
        return random_BNV.argsort(-1).flatten(1)[:, :width] + FIRST_SYMBOL_ID

    def enumerate_sources(self, index_N: Tensor, length: int) -> Tensor:
        # A symbol is first its rank among those that the symbols before it leave (Lehmer code).
        sequence_NL = torch.empty(len(index_N), length, dtype=torch.long)
        for i in range(length):
            n_left = self.n_symbols - i % self.n_symbols
            index_N, sequence_NL[:, i] = index_N // n_left, index_N % n_left
        for i in reversed(range(length)):
            end = (i // self.n_symbols + 1) * self.n_symbols
            sequence_NL[:, i + 1 : end] += sequence_NL[:, i + 1 : end] >= sequence_NL[:, i, None]
        return sequence_NL + FIRST_SYMBOL_ID


class Sort(Task):
    """Sort the symbols in ascending order: 3 1 4 1 5 -> 1 1 3 4 5."""

    name = "sort"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        behind = len(self.vocabulary)  # larger than any symbol
        padded_BL = torch.where(_is_symbol(sequence_BL, lengths_B), sequence_BL, behind)
        return padded_BL.sort(1).values, lengths_B


class Duplicate(Task):
    """Repeat the sequence once: 3 1 -> 3 1 3 1."""

    name = "duplicate"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        column_W = torch.arange(2 * sequence_BL.shape[1], device=sequence_BL.device)
        return sequence_BL.gather(1, column_W % lengths_B[:, None].clamp(min=1)), 2 * lengths_B

    def alignment(self, length: int) -> list[int]:
        return 2 * list(range(length))


class SwapHalves(Task):
    """Swap the two halves: 3 1 4 1 5 -> 4 1 5 3 1."""

    name = "swap-halves"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        lengths_B1 = lengths_B[:, None].clamp(min=1)
        column_BL = (_column_index(sequence_BL) + lengths_B1 // 2) % lengths_B1
        return sequence_BL.gather(1, column_BL), lengths_B

    def alignment(self, length: int) -> list[int]:
        return [*range(length // 2, length), *range(length // 2)]


class Caesar(Task):
    """Replace each symbol by the third one after it, cyclically: 3 1 9 -> 6 4 2."""

    name = "caesar"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        shift = min(3, self.n_symbols - 1)  # with three symbols, a shift of three would be a copy
        return (sequence_BL - FIRST_SYMBOL_ID + shift) % self.n_symbols + FIRST_SYMBOL_ID, lengths_B

    def alignment(self, length: int) -> list[int]:
        return list(range(length))


class Dedupe(Task):
    """Remove repeated symbols: 3 1 4 1 3 -> 3 1 4."""

    name = "dedupe"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        real_BL = _is_symbol(sequence_BL, lengths_B)
        # a stable sort keeps equal symbols in their order
        sorted_BL, origin_BL = torch.where(real_BL, sequence_BL, -1).sort(dim=1, stable=True)
        first_BL = torch.ones_like(real_BL)
        first_BL[:, 1:] = sorted_BL[:, 1:] != sorted_BL[:, :-1]
        is_first_BL = torch.zeros_like(real_BL).scatter(1, origin_BL, first_BL) & real_BL
        order_BL = (~is_first_BL).to(torch.uint8).argsort(dim=1, stable=True)
        return sequence_BL.gather(1, order_BL), is_first_BL.sum(1)


class Histogram(Task):
    """Replace each symbol with its count: 3 1 3 -> 2 1 2 (as in Weiss et al. 2021)."""

    name = "histogram"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        real_BL = _is_symbol(sequence_BL, lengths_B)
        symbols_BL = torch.where(real_BL, sequence_BL, 0)
        counts_BV = sequence_BL.new_zeros(len(sequence_BL), len(self.vocabulary))
        counts_BV.scatter_add_(1, symbols_BL, real_BL.long())
        counts_BL = counts_BV.gather(1, symbols_BL).clamp(max=self.n_symbols - 1)
        return counts_BL + FIRST_SYMBOL_ID, lengths_B


class Parity(Task):
    """Output 1 if the sum of the symbols is odd, else 0: 3 1 4 1 -> 1."""

    name = "parity"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        value_BL = sequence_BL - FIRST_SYMBOL_ID
        values_BL = torch.where(_is_symbol(sequence_BL, lengths_B), value_BL, 0)
        return values_BL.sum(1, keepdim=True) % 2 + FIRST_SYMBOL_ID, torch.ones_like(lengths_B)


class Brackets(Task):
    """Output 1 if the brackets are balanced, else 0: ( ( ) ) -> 1.

    Among random sequences balanced ones would be rare. So about half of the sources of even length
    are balanced, a quarter have equally many opening and closing brackets in random order, and a
    quarter are random. The evaluation uses equally many balanced and unbalanced ones of each
    length. Of lengths 1 to 10 only 2 balanced sequences are held out, of lengths 1 to 16 127.
    """

    name = "brackets"
    open, close = 5, 6  # token ids after those of 0 and 1, the symbols of the target
    all_strata = (FIRST_SYMBOL_ID, FIRST_SYMBOL_ID + 1)  # unbalanced, balanced

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        depth_BL = self._depth_changes(sequence_BL, lengths_B).cumsum(1)
        balanced_B = (depth_BL[:, -1] == 0) & (depth_BL >= 0).all(1)
        return balanced_B[:, None] + FIRST_SYMBOL_ID, torch.ones_like(lengths_B)

    def sample_with_lengths(
        self, lengths_B: Tensor, width: int, generator: torch.Generator
    ) -> Tensor:
        shape, device = (len(lengths_B), width), generator.device
        any_BL = torch.randint(self.open, self.close + 1, shape, generator=generator, device=device)
        is_symbol_BL = _is_symbol(any_BL, lengths_B)
        random_BL = torch.rand(shape, generator=generator, device=device)
        rank_BL = torch.where(is_symbol_BL, random_BL, 2.0).argsort(1).argsort(1)
        equal_BL = torch.where(rank_BL < lengths_B[:, None] // 2, self.open, self.close)
        # A sequence with equally many of each becomes balanced if it is rotated to start after its
        # lowest depth.
        depth_BL = self._depth_changes(equal_BL, lengths_B).cumsum(1)
        lowest_B1 = torch.where(is_symbol_BL, depth_BL, width).argmin(1, keepdim=True)
        lengths_B1 = lengths_B[:, None].clamp(min=1)
        rotation_BL = (_column_index(any_BL) + lowest_B1 + 1) % lengths_B1
        balanced_BL = equal_BL.gather(1, rotation_BL)
        choice_B1 = torch.rand((len(lengths_B), 1), generator=generator, device=device)
        unbalanced_BL = torch.where(choice_B1 < 0.75, equal_BL, any_BL)
        return torch.where(choice_B1 < 0.5, balanced_BL, unbalanced_BL)

    def enumerate_sources(self, index_N: Tensor, length: int) -> Tensor:
        return (index_N[:, None] >> torch.arange(length)) % 2 + self.open

    def strata(self, sequence_NL: Tensor) -> Tensor:
        lengths_N = torch.full((len(sequence_NL),), sequence_NL.shape[1])
        return self.target(sequence_NL, lengths_N)[0][:, 0]

    def validate_source(self, tokens: list[int]) -> str:
        if min(tokens) >= self.open:
            return ""
        return (
            f"a source of this task has brackets only; type ( and ), as in {self.example_source()}"
        )

    def _depth_changes(self, sequence_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return 1 at opening brackets, -1 at closing ones, 0 elsewhere."""
        step_BL = (sequence_BL == self.open).long() - (sequence_BL == self.close).long()
        return torch.where(_is_symbol(sequence_BL, lengths_B), step_BL, 0)


class OddsFirst(Task):
    """Move the odd symbols before the even ones: 3 4 1 2 -> 3 1 4 2."""

    name = "odds-first"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        even_BL = (sequence_BL - FIRST_SYMBOL_ID + 1) % 2
        rank_BL = torch.where(_is_symbol(sequence_BL, lengths_B), even_BL, 2)
        return sequence_BL.gather(1, rank_BL.argsort(dim=1, stable=True)), lengths_B


class RandomMapping(Task):
    """Map each source to a fixed random target: 3 1 4 -> 1 7 4.

    This is the control. A target contains no information about any other target, so on held-out
    sequences no model is better than chance.
    """

    name = "random"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        hash_B1 = sequence_hash(sequence_BL, lengths_B)[:, None]
        keys_L = position_keys(sequence_BL.shape[1], sequence_BL.device)
        mixed_BL = splitmix64(splitmix64(hash_B1 ^ keys_L))
        return (mixed_BL >> 16 & 0xFFFFFF) % self.n_symbols + FIRST_SYMBOL_ID, lengths_B
