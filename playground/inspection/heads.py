"""Attention patterns of the heads, measured over many held-out sequences.

For each head: the fraction of its attention on named patterns, its entropy, and its distance to
the task's alignment. The pass is teacher-forced. A row of the attention weights counts if its query
may attend to at least two positions and is a token of the sequence or its EOS. All rows that count
have the same weight.

Shapes: L layers, B batch, S source, T target, H heads, Q queries, M memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from playground.families.family import rows_that_fit
from playground.tasks import PAD
from playground.tasks.task import Batch, Task
from playground.training.checkpoint import build_family, load_weights
from playground.training.config import RunConfig

from .components import ATTENTION, Component, heads
from .recording import record_forced
from .subject import Subject

SEQUENCES = 256
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
LOOKS = {
    "diagonal": "attends to its own position",
    "anti-diagonal": "attends to its position counted from the end",
    "previous": "attends to the previous position",
    "next": "attends to the next position",
    "first": "attends to the first token",
    "last": "attends to EOS",
    "uniform": "attends uniformly",
}
# A head has a pattern if its normalized score (`beyond_chance`) on it is at least this.
CLEAR = 0.5
# A head is uniform if its normalized score on "uniform" is at least this and no pattern is clear.
FLAT = 0.7
# With a baseline from here on a pattern is not informative: rows of two cells reach it on any.
TOO_FEW = 0.5


@dataclass(frozen=True)
class HeadScore:
    """Scores of one head: means over all rows of the attention weights of all sequences.

    patterns       for each of `PATTERNS` the fraction of attention on it, from 0 to 1; for
                   "uniform" the overlap with a uniform row (1 - total variation); None if the
                   pattern is impossible, such as one in the future
    chance         the baseline: the score of a uniform row on the pattern; for "uniform" the
                   overlap of a one-hot row with it
    entropy        entropy of a row of weights in nats; 0 if all attention is on one position
    most_entropy   entropy of a uniform row, the maximum
    aligned        fraction of attention on the source token that the target token depends on
    distance       mean distance to that token in positions: the earth mover's distance to the
                   ideal row

    `aligned` and `distance` exist for cross-attention in tasks with a known alignment.
    """

    head: Component
    patterns: dict[str, float | None]
    chance: dict[str, float | None]
    entropy: float
    most_entropy: float
    aligned: float | None
    distance: float | None

    def beyond_chance(self, name: str) -> float:
        """Return a pattern's score, normalized so that the baseline is 0 and the maximum is 1."""
        chance = self.chance[name] or 0.0
        return ((self.patterns[name] or 0.0) - chance) / (1 - chance)

    @property
    def best(self) -> str:
        """Return the pattern with the highest normalized score.

        It is "uniform" for a uniform head without a clear pattern, and empty if the rows have so
        few cells that the patterns cannot be distinguished.
        """
        telling = [
            name
            for name, share in self.patterns.items()
            if share is not None and name != "uniform" and self.is_telling(name)
        ]
        if not telling:
            return ""
        best = max(telling, key=self.beyond_chance)
        flat = self.patterns["uniform"] is not None and self.beyond_chance("uniform") >= FLAT
        return "uniform" if flat and self.beyond_chance(best) < CLEAR else best

    def is_telling(self, name: str) -> bool:
        """Return whether the baseline is low enough to detect the pattern."""
        return (self.chance[name] or 0.0) < TOO_FEW

    @property
    def description(self) -> str:
        """Describe the pattern, for example "attends to the previous position".

        Without a clear pattern, the description says so and names the nearest one.
        """
        best = self.best
        if not best:
            return "too few positions to tell"
        if best == "uniform" or self.beyond_chance(best) >= CLEAR:
            return LOOKS[best]
        return (
            f"no clear pattern; nearest: {best}"
            if (self.patterns[best] or 0.0) > 1.5 * (self.chance[best] or 0.0)
            else "no clear pattern"
        )


def score_heads(subject: Subject, n: int = SEQUENCES) -> list[HeadScore]:
    """Score every head over `n` held-out sequences."""
    return score_heads_on(subject, subject.held_out(n).batch)


@torch.no_grad()
def score_heads_on(subject: Subject, batch: Batch) -> list[HeadScore]:
    """Score every head over the sequences of a batch."""
    family = subject.family
    totals: defaultdict[tuple[str, str], Tensor] = defaultdict(
        lambda: torch.zeros((), dtype=torch.double)
    )
    rows: defaultdict[tuple[str, str], int] = defaultdict(int)
    for some in rows_that_fit(family.config, batch):
        part = batch.rows(some.to(batch.source_BS.device))
        recording = record_forced(family, part)
        for kind in ATTENTION:
            weights_LBHQM = recording.attention[kind]
            for name, (value_LBHQ, counts_BQ) in _measured(
                kind, weights_LBHQM, recording.possible[kind], part, subject.task
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
            chance={name: mean(head, f"chance of {name}") for name in PATTERNS},
            entropy=mean(head, "entropy") or 0.0,
            most_entropy=mean(head, "most entropy") or 0.0,
            aligned=mean(head, "aligned"),
            distance=mean(head, "distance"),
        )
        for head in heads(family.config)
    ]


def scores_over_training(
    config: RunConfig, weights: Mapping[int, Path], n: int = SEQUENCES
) -> dict[int, list[HeadScore]]:
    """Score every head at several training steps of a run, from stored weights: {step: file}.

    Raises:
        CheckpointError: for a file that does not hold this model's weights.
    """
    subject = Subject.of(config, build_family(config))
    batch = subject.held_out(n).batch
    scores = {}
    for step, path in sorted(weights.items()):
        load_weights(subject.family, path)
        scores[step] = score_heads_on(subject, batch)
    return scores


def _measured(
    kind: str, weights_LBHQM: Tensor, possible_BQM: Tensor, batch: Batch, task: Task
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the value of each measure in every row, and which rows count.

    Values broadcast to LBHQ; the rows that count are BQ.
    """
    cells_BQ = possible_BQM.sum(-1)
    asked_BQ = (batch.source_BS if kind == "encoder" else batch.labels_BT) != PAD
    counts_BQ = asked_BQ & (cells_BQ > 1)
    uniform_BQM = possible_BQM / cells_BQ[..., None]
    found = {}
    for name, cell_BQM in _cells(kind, batch, possible_BQM).items():
        on_it_BQ = counts_BQ & cell_BQM.any(-1)
        found[name] = ((weights_LBHQM * cell_BQM[:, None]).sum(-1), on_it_BQ)
        found[f"chance of {name}"] = (
            _for_all_heads((uniform_BQM * cell_BQM).sum(-1), weights_LBHQM),
            on_it_BQ,
        )
    found["uniform"] = (torch.minimum(weights_LBHQM, uniform_BQM[:, None]).sum(-1), counts_BQ)
    found["chance of uniform"] = (
        _for_all_heads(1 / cells_BQ.clamp(min=1), weights_LBHQM),
        counts_BQ,
    )
    found["entropy"] = (torch.special.entr(weights_LBHQM).sum(-1), counts_BQ)
    found["most entropy"] = (_for_all_heads(cells_BQ.float().log(), weights_LBHQM), counts_BQ)
    ideal_BT = _ideal(batch, task) if kind == "cross" else None
    if ideal_BT is not None:
        known_BT = counts_BQ & (ideal_BT >= 0)
        off_BTS = (
            torch.arange(possible_BQM.shape[2], device=ideal_BT.device) - ideal_BT[..., None]
        ).abs()
        found["aligned"] = ((weights_LBHQM * (off_BTS == 0)[:, None]).sum(-1), known_BT)
        found["distance"] = ((weights_LBHQM * off_BTS[:, None]).sum(-1), known_BT)
    return found


def _for_all_heads(value_BQ: Tensor, weights_LBHQM: Tensor) -> Tensor:
    """Expand values that are the same for every head to LBHQ."""
    return value_BQ[:, None].expand(weights_LBHQM.shape[:-1])


def _cells(kind: str, batch: Batch, possible_BQM: Tensor) -> dict[str, Tensor]:
    """Return the cell of each row that belongs to each possible pattern.

    Each is BQM with at most one true cell per row.
    """
    (q, m), device = possible_BQM.shape[1:], possible_BQM.device
    query_Q1, memory_M = torch.arange(q, device=device)[:, None], torch.arange(m, device=device)
    memory_BM = batch.labels_BT if kind == "decoder" else batch.source_BS
    # In a source the last token is EOS; in the labels of the decoder it is the last symbol.
    last_B11 = (memory_BM != PAD).sum(1)[:, None, None] - 1
    symbol_B11 = last_B11 if kind == "decoder" else last_B11 - 1
    cells = {
        "diagonal": memory_M == query_Q1,
        "anti-diagonal": memory_M == symbol_B11 - query_Q1,
        "previous": memory_M == query_Q1 - 1,
        "first": memory_M == 0 * query_Q1,
    }
    if kind != "decoder":
        cells |= {
            "next": memory_M == query_Q1 + 1,
            "last": (memory_M == last_B11).expand_as(possible_BQM),
        }
    return {name: cell.expand_as(possible_BQM) & possible_BQM for name, cell in cells.items()}


def _ideal(batch: Batch, task: Task) -> Tensor | None:
    """Return the source position that each target position depends on (BT).

    It is -1 for a position without one. Returns None for a task without a known alignment.
    """
    ideal_BT = torch.full_like(batch.labels_BT, -1)
    for row, length in enumerate(((batch.source_BS != PAD).sum(1) - 1).tolist()):
        places = task.alignment(length)
        if places is None:
            return None
        ideal_BT[row, : len(places)] = torch.tensor(places, device=ideal_BT.device)
    return ideal_BT
