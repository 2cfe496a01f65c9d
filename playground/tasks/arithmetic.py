"""Addition, digit by digit; the number of symbols is the base."""

import torch
from torch import Tensor

from .task import Task
from .vocabulary import FIRST_SYMBOL_ID


class Addition(Task):
    """Add two numbers: 3 8 + 7 5 -> 1 1 3.

    A source of L symbols is a number of L // 2 digits, a plus sign and a number of the remaining
    digits, both with leading zeros. The sum has one digit more than the longer number, so its
    length reveals nothing: 1 2 + 3 4 -> 0 4 6.
    """

    name = "addition"
    least_significant_first = False

    @property
    def plus_id(self) -> int:
        """Return the token id of the plus sign, which follows those of the digits."""
        return FIRST_SYMBOL_ID + self.n_symbols

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        width, device = sequence_BL.shape[1], sequence_BL.device
        column_L = torch.arange(width, device=device)
        is_plus_BL = (sequence_BL == self.plus_id) & (column_L < lengths_B[:, None])
        plus_B = torch.where(is_plus_BL.any(1), is_plus_BL.int().argmax(1), lengths_B)
        second_B = (lengths_B - 1 - plus_B).clamp(min=0)
        sum_lengths_B = torch.maximum(plus_B, second_B) + (plus_B < lengths_B)
        digit_BL = sequence_BL - FIRST_SYMBOL_ID
        carry_B = torch.zeros_like(lengths_B)
        sum_BL = torch.zeros_like(sequence_BL)  # the least significant digit first
        for digit_index in range(width):
            for last_B, digits_B in ((plus_B - 1, plus_B), (lengths_B - 1, second_B)):
                column_B1 = (last_B - digit_index).clamp(min=0)[:, None]
                carry_B = carry_B + torch.where(
                    digit_index < digits_B, digit_BL.gather(1, column_B1)[:, 0], 0
                )
            sum_BL[:, digit_index] = carry_B % self.n_symbols
            carry_B = carry_B // self.n_symbols
        if not self.least_significant_first:
            sum_BL = sum_BL.gather(1, (sum_lengths_B[:, None] - 1 - column_L).clamp(min=0))
        return sum_BL + FIRST_SYMBOL_ID, sum_lengths_B

    def sample_with_lengths(
        self, lengths_B: Tensor, width: int, generator: torch.Generator
    ) -> Tensor:
        digits_BL = super().sample_with_lengths(lengths_B, width, generator)
        column_L = torch.arange(width, device=generator.device)
        return torch.where(column_L == lengths_B[:, None] // 2, self.plus_id, digits_BL)

    def enumerate_sources(self, index_N: Tensor, length: int) -> Tensor:
        digits_NL = super().enumerate_sources(index_N, length - 1)
        plus_N1 = torch.full_like(index_N[:, None], self.plus_id)
        return torch.cat([digits_NL[:, : length // 2], plus_N1, digits_NL[:, length // 2 :]], dim=1)

    def example_source(self) -> str:
        a, b, c = (self.vocabulary.symbols[digit % self.n_symbols] for digit in (3, 1, 4))
        return f"{a} {b} + {c} {b}"

    def validate_source(self, tokens: list[int]) -> str:
        if tokens.count(self.plus_id) == 1 and self.plus_id not in (tokens[0], tokens[-1]):
            return ""
        return (
            "a source of this task is two numbers with one + between them, as in "
            f"{self.example_source()}"
        )


class AdditionReversed(Addition):
    """Add two numbers, the sum reversed: 3 8 + 7 5 -> 3 1 1 (as in Lee et al. 2023)."""

    name = "addition-reversed"
    least_significant_first = True


class ModularAddition(Task):
    """Add the symbols modulo the number of symbols (Power et al. 2022): 7 5 -> 2."""

    name = "modular-addition"

    def target(self, sequence_BL: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        column_L = torch.arange(sequence_BL.shape[1], device=sequence_BL.device)
        is_symbol_BL = column_L < lengths_B[:, None]
        sum_B = ((sequence_BL - FIRST_SYMBOL_ID) * is_symbol_BL).sum(1) % self.n_symbols
        target_BL = torch.zeros_like(sequence_BL)
        target_BL[:, 0] = sum_B + FIRST_SYMBOL_ID
        return target_BL, torch.ones_like(lengths_B)
