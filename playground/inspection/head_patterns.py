"""Attention patterns of the heads, measured over many held-out sequences.

For each head: the fraction of its attention on named patterns, its entropy, and its distance to
the task's alignment. The pass is teacher-forced. A row of the attention weights counts if its query
may attend to at least two positions and is a token of the sequence or its EOS. All rows that count
have the same weight.

Shapes: L layers, B batch, S source, T target, H heads, Q queries, M memory.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from playground.architectures.seq2seq_model import split_into_chunks
from playground.tasks import PAD
from playground.tasks.task import Batch, Task

from .attention_recording import record_teacher_forced
from .hooks import ATTENTION_KINDS, Component, all_heads
from .inspected_model import InspectedModel

NUM_SEQUENCES = 256
PATTERNS = {
    "diagonal": "position i attends to position i",
    "anti-diagonal": "position i attends to position i counted from the end: the last source "
    "token before EOS, the one before it, ...",
    "previous": "position i attends to i - 1",
    "next": "position i attends to i + 1",
    "first": "every position attends to the first",
    "last": "every position attends to the last token of the source, its EOS",
    "uniform": "every position attends to all positions equally",
}
PATTERN_SENTENCES = {
    "diagonal": "attends to its own position",
    "anti-diagonal": "attends to the mirrored position",
    "previous": "attends to the previous position",
    "next": "attends to the next position",
    "first": "attends to the first token",
    "last": "attends to EOS",
    "uniform": "attends uniformly",
}
# A head has a pattern if its normalized score (`above_baseline`) on it is at least this.
CLEAR_PATTERN = 0.5
# A head is uniform if its normalized score on "uniform" is at least this and no pattern is clear.
UNIFORM_PATTERN = 0.7
# With a baseline from here on a pattern is not informative: rows of two cells reach it on any.
MAX_BASELINE = 0.5


@dataclass(frozen=True)
class HeadScore:
    """Scores of one head: means over all rows of the attention weights of all sequences.

    patterns            for each of `PATTERNS` the fraction of attention on it, from 0 to 1; for
                        "uniform" the overlap with a uniform row (1 - total variation); None if the
                        pattern is impossible, such as one in the future
    uniform_baseline    the score of a uniform row on the pattern; for "uniform" the overlap of a
                        one-hot row with it
    entropy             entropy of a row of weights in nats; 0 if all attention is on one position
    max_entropy         entropy of a uniform row, the maximum
    alignment_fraction  fraction of attention on the source token that the target token depends on
    alignment_distance  mean distance to that token in positions: the earth mover's distance to the
                        ideal row

    `alignment_fraction` and `alignment_distance` exist for cross-attention in tasks with a known
    alignment.
    """

    head: Component
    patterns: dict[str, float | None]
    uniform_baseline: dict[str, float | None]
    entropy: float
    max_entropy: float
    alignment_fraction: float | None
    alignment_distance: float | None

    def above_baseline(self, name: str) -> float:
        """Return a pattern's score, normalized so that the baseline is 0 and the maximum is 1."""
        chance = self.uniform_baseline[name] or 0.0
        return ((self.patterns[name] or 0.0) - chance) / (1 - chance)

    @property
    def best_pattern(self) -> str:
        """Return the pattern with the highest normalized score.

        It is "uniform" for a uniform head without a clear pattern, and empty if the rows have so
        few cells that the patterns cannot be distinguished.
        """
        telling = [
            name
            for name, share in self.patterns.items()
            if share is not None and name != "uniform" and self.is_distinguishable(name)
        ]
        if not telling:
            return ""
        best = max(telling, key=self.above_baseline)
        flat = (
            self.patterns["uniform"] is not None
            and self.above_baseline("uniform") >= UNIFORM_PATTERN
        )
        return "uniform" if flat and self.above_baseline(best) < CLEAR_PATTERN else best

    @property
    def clarity(self) -> float:
        """Return the normalized score on the best pattern; 0 without one."""
        return self.above_baseline(self.best_pattern) if self.best_pattern else 0.0

    @property
    def is_clear(self) -> bool:
        """Return whether the head is uniform or has a clear pattern."""
        return self.best_pattern == "uniform" or self.clarity >= CLEAR_PATTERN

    def is_distinguishable(self, name: str) -> bool:
        """Return whether the baseline is low enough to detect the pattern."""
        return (self.uniform_baseline[name] or 0.0) < MAX_BASELINE

    @property
    def description(self) -> str:
        """Describe the pattern, for example "attends to the previous position".

        Without a clear pattern, the description states it and names the nearest one.
        """
        best = self.best_pattern
        if not best:
            return "too few positions to compare"
        if self.is_clear:
            return PATTERN_SENTENCES[best]
        return (
            f"no clear pattern; nearest: {best}"
            if (self.patterns[best] or 0.0) > 1.5 * (self.uniform_baseline[best] or 0.0)
            else "no clear pattern"
        )


@torch.no_grad()
def score_heads(subject: InspectedModel, batch: Batch) -> list[HeadScore]:
    """Score every head over the sequences of a batch."""
    model = subject.transformer
    totals: defaultdict[tuple[str, str], Tensor] = defaultdict(
        lambda: torch.zeros((), dtype=torch.double)
    )
    rows: defaultdict[tuple[str, str], int] = defaultdict(int)
    for index in split_into_chunks(model.config, batch):
        sub_batch = batch.select(index.to(batch.source_BS.device))
        recording = record_teacher_forced(model, sub_batch)
        for kind in ATTENTION_KINDS:
            weights_LBHQM = recording.attention_weights[kind]
            for name, (value_LBHQ, counts_BQ) in _row_measures(
                kind, weights_LBHQM, recording.attn_mask[kind], sub_batch, subject.task
            ).items():
                totals[kind, name] = (
                    totals[kind, name]
                    + (value_LBHQ * counts_BQ[:, None]).sum((1, 3)).double().cpu()
                )
                rows[kind, name] += int(counts_BQ.sum())

    def mean(head: Component, name: str) -> float | None:
        count = rows[head.kind, name]
        return float(totals[head.kind, name][head.layer, head.head]) / count if count else None

    return [
        HeadScore(
            head=head,
            patterns={name: mean(head, name) for name in PATTERNS},
            uniform_baseline={name: mean(head, f"chance of {name}") for name in PATTERNS},
            entropy=mean(head, "entropy") or 0.0,
            max_entropy=mean(head, "most entropy") or 0.0,
            alignment_fraction=mean(head, "aligned"),
            alignment_distance=mean(head, "distance"),
        )
        for head in all_heads(model.config)
    ]


def _row_measures(
    kind: str, weights_LBHQM: Tensor, attn_mask_BQM: Tensor, batch: Batch, task: Task
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the value of each measure in every row, and which rows count.

    Values broadcast to LBHQ; the rows that count are BQ.
    """
    cells_BQ = attn_mask_BQM.sum(-1)
    is_query_BQ = (batch.source_BS if kind == "encoder" else batch.labels_BT) != PAD
    counts_BQ = is_query_BQ & (cells_BQ > 1)
    uniform_BQM = attn_mask_BQM / cells_BQ[..., None]
    measures = {}
    for name, cell_BQM in _pattern_masks(kind, batch, attn_mask_BQM).items():
        on_it_BQ = counts_BQ & cell_BQM.any(-1)
        measures[name] = ((weights_LBHQM * cell_BQM[:, None]).sum(-1), on_it_BQ)
        measures[f"chance of {name}"] = (
            _broadcast_heads((uniform_BQM * cell_BQM).sum(-1), weights_LBHQM),
            on_it_BQ,
        )
    measures["uniform"] = (torch.minimum(weights_LBHQM, uniform_BQM[:, None]).sum(-1), counts_BQ)
    measures["chance of uniform"] = (
        _broadcast_heads(1 / cells_BQ.clamp(min=1), weights_LBHQM),
        counts_BQ,
    )
    measures["entropy"] = (torch.special.entr(weights_LBHQM).sum(-1), counts_BQ)
    measures["most entropy"] = (_broadcast_heads(cells_BQ.float().log(), weights_LBHQM), counts_BQ)
    ideal_BT = _target_alignment(batch, task) if kind == "cross" else None
    if ideal_BT is not None:
        has_ideal_BT = counts_BQ & (ideal_BT >= 0)
        off_BTS = (
            torch.arange(attn_mask_BQM.shape[2], device=ideal_BT.device) - ideal_BT[..., None]
        ).abs()
        measures["aligned"] = ((weights_LBHQM * (off_BTS == 0)[:, None]).sum(-1), has_ideal_BT)
        measures["distance"] = ((weights_LBHQM * off_BTS[:, None]).sum(-1), has_ideal_BT)
    return measures


def _broadcast_heads(value_BQ: Tensor, weights_LBHQM: Tensor) -> Tensor:
    """Expand values that are the same for every head to LBHQ."""
    return value_BQ[:, None].expand(weights_LBHQM.shape[:-1])


def _pattern_masks(kind: str, batch: Batch, attn_mask_BQM: Tensor) -> dict[str, Tensor]:
    """Return the cell of each row that belongs to each possible pattern.

    Each is BQM with at most one true cell per row.
    """
    (q, m), device = attn_mask_BQM.shape[1:], attn_mask_BQM.device
    query_Q1, memory_M = torch.arange(q, device=device)[:, None], torch.arange(m, device=device)
    memory_BM = batch.labels_BT if kind == "decoder" else batch.source_BS
    # A source ends with EOS; the decoder input ends with the last token of the target.
    last_B11 = (memory_BM != PAD).sum(1)[:, None, None] - 1
    last_token_B11 = last_B11 if kind == "decoder" else last_B11 - 1
    cells = {
        "diagonal": memory_M == query_Q1,
        "anti-diagonal": memory_M == last_token_B11 - query_Q1,
        "previous": memory_M == query_Q1 - 1,
        "first": memory_M == 0 * query_Q1,
    }
    if kind != "decoder":
        cells |= {
            "next": memory_M == query_Q1 + 1,
            "last": (memory_M == last_B11).expand_as(attn_mask_BQM),
        }
    return {name: cell.expand_as(attn_mask_BQM) & attn_mask_BQM for name, cell in cells.items()}


def _target_alignment(batch: Batch, task: Task) -> Tensor | None:
    """Return the source position that each target position depends on (BT), or -1.

    Returns None for a task without a known alignment.
    """
    ideal_BT = torch.full_like(batch.labels_BT, -1)
    for row, length in enumerate(((batch.source_BS != PAD).sum(1) - 1).tolist()):
        source_positions = task.alignment(length)
        if source_positions is None:
            return None
        ideal_BT[row, : len(source_positions)] = torch.tensor(
            source_positions, device=ideal_BT.device
        )
    return ideal_BT
