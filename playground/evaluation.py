"""Evaluation on held-out sequences, with free-running generation.

Whether a causal decoder generates the right target shows in one pass over it, without generation.

exact match      fraction of sequences whose whole generated target is correct, EOS included
token accuracy   fraction of target tokens (EOS included) that are correct at their position;
                 missing tokens count as wrong
held-out loss    mean teacher-forced cross-entropy of the target tokens, without dropout

A small set has a larger fraction of short sequences than a large one: for lengths 1 to 10, 12.5 %
of 256 sequences have length 3, but 3.4 % of 2,000. So intermediate scores, on 256 sequences, are
about 0.4 points higher than final ones.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.architectures.packed_rows import can_pack, packed_exact_match_and_loss
from playground.architectures.seq2seq_model import Seq2SeqModel, eval_mode, split_into_chunks
from playground.errors import UserError
from playground.models.transformer import Transformer
from playground.tasks import PAD
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.tasks.task import Batch, Task
from playground.tasks.vocabulary import SPECIAL_TOKENS


@dataclass(frozen=True)
class LengthResult:
    """Scores of the `n` distinct sequences of one length.

    `available` is the number of distinct held-out sequences; None if they were not counted.
    """

    length: int
    n: int
    available: int | None
    exact_match: float | None
    token_accuracy: float | None


@dataclass(frozen=True)
class EvalResult:
    """Scores over `n` distinct held-out sequences, in total and by length."""

    n: int
    exact_match: float
    token_accuracy: float
    by_length: tuple[LengthResult, ...]


def safe_divide(numerator: int, denominator: int) -> float:
    """Return numerator / denominator, or 0 if the denominator is 0."""
    return numerator / denominator if denominator else 0.0


def evaluate(model: Seq2SeqModel, held_out: HeldOutSet) -> EvalResult:
    """Evaluate a model. `held_out` must be on the device of the model."""
    return aggregate(held_out, score_targets(model, held_out))


def score_targets(
    model: Seq2SeqModel,
    held_out: HeldOutSet,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Score each held-out sequence (3N, float64): correct tokens, exact match (1 or 0), and loss.

    The loss is summed over the tokens, and NaN if the model does not compute it in the same pass.
    Only examples without an exact match are decoded, for their token accuracy.
    """
    scores_3N = torch.zeros(3, len(held_out.lengths_B), dtype=torch.float64)
    for rows in split_into_chunks(model.config, held_out.batch):
        batch = held_out.batch.select(rows.to(held_out.batch.source_BS.device))
        exact_match_B, loss_B = exact_match_and_loss(model, batch, label_smoothing)
        if loss_B is None:
            loss_B = torch.full(exact_match_B.shape, torch.nan, device=exact_match_B.device)
        match_BT = batch.labels_BT != PAD
        if not bool(exact_match_B.all()):
            missed = batch.select(~exact_match_B)
            generated_BT = model.generate(missed.source_BS, missed.labels_BT.shape[1])
            match_BT[~exact_match_B] &= generated_BT == missed.labels_BT
        scores_3B = torch.stack((match_BT.sum(1).float(), exact_match_B.float(), loss_B.float()))
        scores_3N[:, rows] = scores_3B.cpu().double()
    return scores_3N


def exact_match_and_loss(
    model: Seq2SeqModel, batch: Batch, label_smoothing: float = 0.0
) -> tuple[Tensor, Tensor | None]:
    """Return `Seq2SeqModel.exact_match_and_loss`, from packed rows where that works."""
    if can_pack(model):
        return packed_exact_match_and_loss(model, batch, label_smoothing)
    return model.exact_match_and_loss(batch, label_smoothing)


def mean_loss(held_out: HeldOutSet, scores_3N: Tensor) -> float | None:
    """Return the loss of `score_targets` for each token; None if there is no finite one."""
    loss = float(scores_3N[2].sum()) / max(1, int((held_out.batch.labels_BT != PAD).sum()))
    return loss if math.isfinite(loss) else None


def aggregate(held_out: HeldOutSet, scores_3N: Tensor) -> EvalResult:
    """Aggregate the counts of `score_targets` over all held-out sequences."""
    correct_tokens_B, exact_match_B, _ = scores_3N
    tokens_B = (held_out.batch.labels_BT != PAD).sum(1).cpu()
    by_length = []
    for length, available in held_out.num_available.items():
        of_length_B = held_out.lengths_B == length
        n = int(of_length_B.sum())
        exact = int(exact_match_B[of_length_B].sum()) / n if n else None
        counts = int(correct_tokens_B[of_length_B].sum()), int(tokens_B[of_length_B].sum())
        token = safe_divide(*counts) if n else None
        by_length.append(LengthResult(length, n, available, exact, token))
    n = len(exact_match_B)
    return EvalResult(
        n,
        safe_divide(int(exact_match_B.sum()), n),
        safe_divide(int(correct_tokens_B.sum()), int(tokens_B.sum())),
        tuple(by_length),
    )


def exact_match_at_length(model: Seq2SeqModel, task: Task, length: int, n: int) -> tuple[int, int]:
    """Count the exact matches among up to `n` distinct held-out sequences of one length.

    Returns the number of exact matches and of evaluated sequences; there are fewer than `n` only if
    fewer exist. Raises UserError if the model has too few positions for that length.
    """
    needed, available = max(length, task.max_target_length(length)) + 1, model.config.max_positions
    if needed > available:
        raise UserError(
            f"length {length} needs {needed} positions, but the model has max_positions "
            f"{available}; use shorter sequences"
        )
    held_out = build_held_out_set(task, n, length, length)
    if not len(held_out.lengths_B):
        return 0, 0
    device = next(model.parameters()).device
    n_correct = 0
    for rows in split_into_chunks(model.config, held_out.batch):
        batch = held_out.batch.select(rows).to(device)
        n_correct += int(exact_match_and_loss(model, batch)[0].sum())
    return n_correct, len(held_out.lengths_B)


@torch.no_grad()
def annotated_transformer_loss(
    model: Transformer, held_out: HeldOutSet, smoothing: float = 0.0
) -> float:
    """Return the loss of The Annotated Transformer, in nats for each token.

    It is the Kullback-Leibler divergence from the smoothed target to the model's distribution under
    teacher forcing (Rush 2018, sections "Label Smoothing" and "A First Example"). The smoothed
    target has probability 1 - smoothing for the correct token and smoothing / (V - 2) for every
    other token except padding. Special tokens do not count: its sequences have no EOS.
    """
    total = torch.zeros((), dtype=torch.float64)
    count = 0
    with eval_mode(model):
        for rows in split_into_chunks(model.config, held_out.batch):
            batch = held_out.batch.select(rows)
            memory_BSD = model.encode(batch.source_BS)
            log_p_BTV = model.log_probs(
                model.decode(batch.decoder_input_BT, memory_BSD, batch.source_BS)
            )
            target_BTV = torch.full_like(log_p_BTV, smoothing / (log_p_BTV.shape[-1] - 2))
            target_BTV.scatter_(2, batch.labels_BT[..., None], 1 - smoothing)
            target_BTV[..., PAD] = 0
            is_symbol_BT = batch.labels_BT >= len(SPECIAL_TOKENS)
            loss_BT = F.kl_div(log_p_BTV, target_BTV, reduction="none").sum(-1)
            total += loss_BT[is_symbol_BT].cpu().double().sum()
            count += int(is_symbol_BT.sum())
    return float(total) / count
