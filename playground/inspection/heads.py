"""What every head looks like over many held-out sequences: how much of its attention lies on named patterns, how spread out
it is, and how far from where the task says one should look.

The model is given the right answer. A row counts when there is something to choose, two cells or more that it may look at,
and a token of the sequence or its EOS to ask for; every such row counts the same.

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
    "diagonal": "position i looks at position i",
    "anti-diagonal": "position i looks at position i counted from the end: the source's last symbol, its last but one, ...",
    "previous": "position i looks at i - 1",
    "next": "position i looks at i + 1",
    "first": "every position looks at the first",
    "last": "every position looks at the last token of the source, its EOS",
    "uniform": "every position looks everywhere alike",
}
LOOKS = {
    "diagonal": "looks at its own position",
    "anti-diagonal": "looks at its position counted from the end",
    "previous": "looks one position back",
    "next": "looks one position ahead",
    "first": "looks at the first symbol",
    "last": "looks at EOS",
    "uniform": "looks everywhere alike",
}
CLEAR = (
    0.5  # a head has a pattern where at least this share of its attention beyond chance lies on it
)
FLAT = 0.7  # likewise, of what it has in common with a uniform row beyond what one place has
TOO_FEW = (
    0.5  # mean chance from which on a pattern tells nothing: rows of two cells score so much on any
)


@dataclass(frozen=True)
class HeadScore:
    """Means over all rows of all sequences.

    patterns   for each of PATTERNS the share of attention that lies on it; for "uniform" the share that a uniform row has in
               common with this one (1 - total variation). From 0 to 1; None where the pattern cannot be, such as the future
    chance     what a uniform row would score on it; for "uniform" what a row has in common with it that looks at a single place
    entropy    of the weights in a row, in nats: 0 looks at one place; `most_entropy`, looks everywhere alike
    aligned    cross-attention of tasks that say where an answer's symbol comes from: the share of attention on that symbol
    distance   likewise: how far off it looks on average, in positions: the earth mover's distance to the ideal row
    """

    head: Component
    patterns: dict[str, float | None]
    chance: dict[str, float | None]
    entropy: float
    most_entropy: float
    aligned: float | None
    distance: float | None

    def beyond_chance(self, name: str) -> float:
        """Return a pattern's score on a scale from 0, that of chance, to 1; below 0 for less than chance."""
        chance = self.chance[name] or 0.0
        return ((self.patterns[name] or 0.0) - chance) / (1 - chance)

    @property
    def best(self) -> str:
        """The pattern on which most of its attention beyond chance lies; "uniform" for a flat head without a clear one.

        Empty where rows have so few cells that no pattern can be told from another.
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
        """Whether chance leaves room to have this pattern or not to have it."""
        return (self.chance[name] or 0.0) < TOO_FEW

    @property
    def description(self) -> str:
        """What it looks like most: "looks one position back", or that it has no clear pattern and which one is nearest."""
        best = self.best
        if not best:
            return "too few places to tell"
        if best == "uniform" or self.beyond_chance(best) >= CLEAR:
            return LOOKS[best]
        return (
            f"no clear pattern; most on {best}"
            if (self.patterns[best] or 0.0) > 1.5 * (self.chance[best] or 0.0)
            else "no clear pattern"
        )


def score_heads(subject: Subject, n: int = SEQUENCES) -> list[HeadScore]:
    """Every head's scores over `n` held-out sequences."""
    return score_heads_on(subject, subject.held_out(n).batch)


@torch.no_grad()
def score_heads_on(subject: Subject, batch: Batch) -> list[HeadScore]:
    """Every head's scores over the sequences of a batch."""
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
    """Every head's scores at several steps of a run, from the weights that were kept: {step: file}.

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
    """Each measure as its values in every row (broadcasting to LBHQ), and which rows it counts in (BQ)."""
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
    """What is the same for every head, as LBHQ."""
    return value_BQ[:, None].expand(weights_LBHQM.shape[:-1])


def _cells(kind: str, batch: Batch, possible_BQM: Tensor) -> dict[str, Tensor]:
    """For each pattern that this kind of attention can have, the one cell of a row that belongs to it (BQM, at most one true)."""
    (q, m), device = possible_BQM.shape[1:], possible_BQM.device
    query_Q1, memory_M = torch.arange(q, device=device)[:, None], torch.arange(m, device=device)
    memory_BM = batch.labels_BT if kind == "decoder" else batch.source_BS
    last_B11 = (memory_BM != PAD).sum(1)[
        :, None, None
    ] - 1  # of a source the EOS, of what was written the last symbol
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
    """BT: the source position that each answer position depends on, -1 where none does; None for a task that does not say."""
    ideal_BT = torch.full_like(batch.labels_BT, -1)
    for row, length in enumerate(((batch.source_BS != PAD).sum(1) - 1).tolist()):
        places = task.alignment(length)
        if places is None:
            return None
        ideal_BT[row, : len(places)] = torch.tensor(places, device=ideal_BT.device)
    return ideal_BT
