"""Represent a finished run of a lesson, and format its values.

Shapes: B batch, T target, Q query, M memory (keys and values).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.checkpoints.checkpoint import build_model, load_weights
from playground.checkpoints.metrics import read_metrics
from playground.common.format import format_percent
from playground.evaluation import exact_match_at_length
from playground.inspection.inspected_model import InspectedModel, load_inspected_model
from playground.runs.weight_history import weight_steps, weights_path
from playground.tasks import EOS, PAD
from playground.training.run_config import RunConfig

Result = dict[str, Any]
EVAL_EXAMPLES = 256  # held-out sequences
EXAMPLES_PER_LENGTH = 100
MIN_EXAMPLES = 20  # minimum number of held-out sequences of a length
MAX_STEPS = 24  # at which a measurement follows training


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its label, its metrics for each step, its checkpoint and its history."""

    label: str
    lines: list[dict[str, Any]]
    folder: Path
    history: Path

    @classmethod
    def of(cls, label: str, run: Path, checkpoint: Path) -> TrainedRun:
        return cls(label, list(read_metrics(run)), checkpoint, run)

    @cached_property
    def subject(self) -> InspectedModel:
        return load_inspected_model(self.folder)

    @property
    def config(self) -> RunConfig:
        return self.subject.config

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("exact_match") is not None]

    def models_over_training(self) -> Iterator[tuple[int, Seq2SeqModel]]:
        """Yield some stored steps, and the model with their weights: one model that changes."""
        model = build_model(self.config).eval()
        for step in log_spaced(weight_steps(self.history), MAX_STEPS):
            load_weights(model, weights_path(self.history, step))
            yield step, model

    def first_at(self, goal: float) -> dict[str, Any] | None:
        """Return the first evaluation with at least this exact match, or None."""
        return next((line for line in self.evaluations if line["exact_match"] >= goal), None)

    def curve(self, metric: str = "exact_match") -> dict[str, Any]:
        lines = [line for line in self.lines if line.get(metric) is not None]
        return curve(self.label, {line["step"]: line[metric] for line in lines})


def result(value: Any, outcome: str, explanation: str, figures: list[dict[str, Any]]) -> Result:
    """Return the result of a measurement, for JSON.

    value        what a guess is compared with; None when there is no measured value
    outcome      the same value as text
    explanation  one paragraph that explains it, with the numbers of these runs
    figures      [{"kind": "curves" | "map" | "bars" | "outputs", ...}]
    """
    return {"value": value, "outcome": outcome, "explanation": explanation, "figures": figures}


def log_spaced(steps: list[int], max_count: int) -> list[int]:
    """Select at most `max_count` of the sorted steps, with both ends, evenly in log(1 + step)."""
    if len(steps) <= max_count:
        return steps
    low, high = steps[0] + 1, steps[-1] + 1
    chosen = {0, len(steps) - 1}
    for i in range(1, max_count - 1):
        step = low * (high / low) ** (i / (max_count - 1)) - 1
        free = [index for index in range(len(steps)) if index not in chosen]
        chosen.add(min(free, key=lambda index: abs(steps[index] - step)))
    return [steps[index] for index in sorted(chosen)]


def percent(share: float) -> str:
    """Format a fraction in percent with a non-breaking space."""
    return format_percent(share).replace(" ", "\u00a0")


def curve(label: str, points: Mapping[int, float]) -> dict[str, Any]:
    return {"label": label, "xs": list(points), "ys": list(points.values())}


def curves_figure(
    title: str, metric: str, series: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    return {"kind": "curves", "title": title, "metric": metric, "series": series, **more}


def map_figure(
    title: str, rows: list[str], columns: list[str], weights_QM: Tensor, **more: Any
) -> dict[str, Any]:
    weights = [[round(weight, 3) for weight in row] for row in weights_QM.tolist()]
    labels = {"rows": rows, "columns": columns}
    return {"kind": "map", "title": title, **labels, "weights": weights, **more}


def bars_figure(title: str, bars: Iterable[tuple[str, float, str]]) -> dict[str, Any]:
    """Return the figure of labels, values and notes."""
    names = ("label", "value", "note")
    return {
        "kind": "bars",
        "title": title,
        "bars": [dict(zip(names, bar, strict=True)) for bar in bars],
    }


def exact_match_curves(runs: list[TrainedRun]) -> dict[str, Any]:
    series = [run.curve() for run in runs]
    return curves_figure("Exact match on held-out sequences", "exact_match", series)


def exact_match_by_length(subject: InspectedModel, last: int) -> dict[int, float]:
    """Return the exact match at each length up to `last` with enough held-out sequences."""
    shares = {}
    for length in range(subject.config.task.min_length, last + 1):
        right, n = exact_match_at_length(subject.model, subject.task, length, EXAMPLES_PER_LENGTH)
        if n >= MIN_EXAMPLES:
            shares[length] = right / n
    return shares


def length_figure(shares: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Return the figure of the exact match by length, of each run by its label."""
    first = min(length for each in shares.values() for length in each)
    series = [curve(label, each) for label, each in shares.items()]
    note = (
        f"The axis begins at {first}: of shorter lengths, fewer than {MIN_EXAMPLES} held-out "
        "sequences exist."
        if first > 1
        else ""
    )
    title = "Exact match by length"
    return curves_figure(title, "exact_match", series, x_label="length", note=note)


def same(generated_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Return which outputs are exactly right (B booleans)."""
    return ((generated_BT == labels_BT) | (labels_BT == PAD)).all(1)


def same_multiset(generated_BT: Tensor, labels_BT: Tensor) -> Tensor:
    """Return which outputs have the right tokens, in any order (B booleans); widths may differ."""
    width = max(generated_BT.shape[1], labels_BT.shape[1])
    generated, labels = (
        F.pad(each.masked_fill((each == EOS).cumsum(1) > 0, PAD), (0, width - each.shape[1]))
        for each in (generated_BT, labels_BT)
    )
    return (generated.sort(1).values == labels.sort(1).values).all(1)


@torch.no_grad()
def cross_attention(subject: InspectedModel, text: str) -> tuple[Tensor, list[str], list[str]]:
    """Return the cross-attention weights on a text (LHTS), and the tokens of source and target."""
    batch = subject.encode_text(text)
    layers = subject.model.attention_weights(batch).cross
    source, target = batch.source_BS[0].tolist(), batch.labels_BT[0].tolist()
    weights_LHTS = torch.stack([weights_BHTS[0] for weights_BHTS in layers])
    return weights_LHTS, subject.token_names(source), subject.token_names(target)


def decode(subject: InspectedModel, tokens: Tensor) -> str:
    return " ".join(subject.task.vocabulary.decode(tokens.tolist()))
