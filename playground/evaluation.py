"""Scores on held-out sequences. An answer counts as the model gives it, written symbol by symbol from its own earlier ones.

exact match      share of sequences whose whole answer is right, EOS included
token accuracy   share of answer tokens (EOS included) that are right at their place; what is missing counts as wrong
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from playground.families.family import Family
from playground.tasks import PAD
from playground.tasks.held_out import HeldOut


@dataclass(frozen=True)
class LengthScore:
    """Scores of the sequences of one length; all `n` are distinct. `available`: how many exist, None where not counted."""

    length: int
    n: int
    available: int | None
    exact_match: float | None
    token_accuracy: float | None


@dataclass(frozen=True)
class Evaluation:
    """Scores over `n` distinct held-out sequences, together and by length."""

    n: int
    exact_match: float
    token_accuracy: float
    by_length: tuple[LengthScore, ...]


def ratio(right: int, of: int) -> float:
    """right / of, and 0 where there is nothing to count."""
    return right / of if of else 0.0


def evaluate(family: Family, held_out: HeldOut) -> Evaluation:
    """Score a family. `held_out` must be on its device.

    Rows that a family knows it solves are all right; only the others are decoded, for their token accuracy.
    """
    right_tokens, tokens, right_rows = [], [], []
    width = family.config.row_width(held_out.batch.source_BS.shape[1], held_out.batch.target_BT.shape[1])
    for rows in torch.arange(len(held_out.lengths_B)).split(family.config.rows_at_a_time(width)):
        batch = held_out.batch.rows(rows.to(held_out.batch.source_BS.device))
        real_BT = batch.labels_BT != PAD
        solved_B = family.solves(batch)
        match_BT = real_BT.clone()
        if not bool(solved_B.all()):
            missed = batch.rows(~solved_B)
            answer_BT = family.solve(missed.source_BS, missed.labels_BT.shape[1])
            match_BT[~solved_B] &= answer_BT == missed.labels_BT
        tokens.append(real_BT.sum(1).cpu())
        right_tokens.append(match_BT.sum(1).cpu())
        right_rows.append(solved_B.cpu())
    tokens_B, right_tokens_B, right_B = torch.cat(tokens), torch.cat(right_tokens), torch.cat(right_rows)
    by_length = []
    for length, available in held_out.available.items():
        of_length_B = held_out.lengths_B == length
        n = int(of_length_B.sum())
        exact = ratio(int(right_B[of_length_B].sum()), n) if n else None
        token = ratio(int(right_tokens_B[of_length_B].sum()), int(tokens_B[of_length_B].sum())) if n else None
        by_length.append(LengthScore(length, n, available, exact, token))
    n = len(right_B)
    return Evaluation(n, ratio(int(right_B.sum()), n), ratio(int(right_tokens_B.sum()), int(tokens_B.sum())), tuple(by_length))
