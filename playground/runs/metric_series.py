"""The metrics of a run in the server process, and their downsampling for the curves.

Each metric is a column of float64 values, 40 bytes per step in total.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

METRIC_COLUMNS = ("loss", "learning_rate", "grad_norm", "seconds", "steps_per_second")
PLOTTED_COLUMNS = ("loss", "learning_rate", "grad_norm")  # what the page draws
SCORE_NAMES = ("exact_match", "token_accuracy")
MAX_DELTA_POINTS = 3000  # points in one response; a longer gap gets the whole decimated curve

Score = tuple[int, float]  # a step and its exact match
MAX_LISTED_SCORES = 24
# step, exact match, token accuracy, sequences, held-out loss if it was measured
Evaluation = tuple[int, float, float, int, float | None]


class MetricSeries:
    """One point for every step from `first` on, and the scores of the evaluated steps.

    One thread may append points while others read: readers ignore what follows the last complete
    point, and copy a column before they use it.
    """

    def __init__(self, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        self.first = 1
        self._count = 0  # complete points
        self.columns = {name: array("d") for name in METRIC_COLUMNS}
        self.evaluations: list[Evaluation] = []
        self.add(lines)

    def __len__(self) -> int:
        return self._count

    @property
    def last(self) -> int:
        """The step of the last point; 0 if there is none."""
        count = self._count
        return self.first + count - 1 if count else 0

    @property
    def scores(self) -> tuple[Score, ...]:
        """The exact match of some evaluations, for the list of runs."""
        return thin_scores([(step, score) for step, score, *_ in self.evaluations])

    @property
    def best(self) -> float | None:
        """The best exact match so far."""
        return max((score for _, score, *_ in self.evaluations), default=None)

    def add(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append the metrics of the next steps. Raises ValueError for a gap or an invalid line."""
        for line in lines:
            step, held_out_loss = line["step"], line.get("held_out_loss")
            is_scored = line.get("exact_match") is not None
            try:
                row = [float(line.get(name) or 0.0) for name in METRIC_COLUMNS]
                scores = [float(line.get(name) or 0.0) for name in SCORE_NAMES if is_scored]
                held_out_loss = None if held_out_loss is None else float(held_out_loss)
            except (TypeError, ValueError, OverflowError, KeyError) as error:
                raise ValueError(
                    f"step {step} has invalid metrics ({type(error).__name__})"
                ) from None
            if not len(self):
                self.first = step
            elif step != self.last + 1:
                raise ValueError(f"step {step} does not follow step {self.last}")
            for column, value in zip(self.columns.values(), row, strict=True):
                column.append(value)
            if scores:
                size = line.get("eval_size") or 0
                self.evaluations.append((step, scores[0], scores[1], size, held_out_loss))
            self._count += 1

    def delta_since(self, n_points: int) -> dict[str, Any]:
        """Return the points after the first `n_points` ones, in order.

        If there are too many, or fewer than `n_points` exist, return the whole downsampled curve.
        With `whole` the client replaces its curve.
        """
        count = self._count
        if n_points > count or count - n_points > MAX_DELTA_POINTS:
            return self.downsampled(MAX_DELTA_POINTS // 2)
        steps = list(range(self.first + n_points, self.first + count))
        return {
            "whole": n_points == 0,
            "count": count,
            "steps": steps,
            **{name: list(self.columns[name][n_points:count]) for name in PLOTTED_COLUMNS},
            "evaluations": downsample_evaluations(
                [each for each in self.evaluations if steps and steps[0] <= each[0] <= steps[-1]]
            ),
        }

    def downsampled(self, columns: int) -> dict[str, Any]:
        """Return the points of lowest and of highest loss of about `columns` intervals of steps."""
        count = self._count
        plotted = {name: np.array(self.columns[name][:count]) for name in PLOTTED_COLUMNS}
        loss, last = plotted["loss"], self.first + count - 1
        if len(loss) <= 2 * columns:
            chosen = np.arange(len(loss))
        else:
            starts = np.linspace(0, len(loss), columns, endpoint=False, dtype=np.int64)
            ends = np.append(starts[1:], len(loss))
            extremes = [
                (a + loss[a:b].argmin(), a + loss[a:b].argmax())
                for a, b in zip(starts, ends, strict=True)
            ]
            chosen = np.unique(np.array([*chain.from_iterable(extremes), 0, len(loss) - 1]))
        return {
            "whole": True,
            "count": count,
            "steps": (chosen + self.first).tolist(),
            **{name: values[chosen].tolist() for name, values in plotted.items()},
            "evaluations": downsample_evaluations(
                [each for each in self.evaluations if each[0] <= last]
            ),
        }

    def latest(self) -> dict[str, Any]:
        """Return the last point, with the columns that only the status line needs."""
        count = self._count
        if not count:
            return {"step": 0}
        values = {name: column[count - 1] for name, column in self.columns.items()}
        return {"step": self.first + count - 1} | values


def thin_scores(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Return every second score, and the last, until they fit into the list of runs."""
    while len(scores) > MAX_LISTED_SCORES:
        scores = [*scores[:-1:2], scores[-1]]
    return tuple(scores)


def downsample_evaluations(
    evaluations: list[Evaluation], max_count: int = 1000
) -> list[Evaluation]:
    """Reduce the scores to the lowest and highest exact match of each interval."""
    if len(evaluations) <= max_count:
        return list(evaluations)
    width = -(-len(evaluations) // (max_count // 2))
    selected: list[Evaluation] = []
    for start in range(0, len(evaluations), width):
        interval = evaluations[start : start + width]
        selected += sorted({min(interval, key=lambda s: s[1]), max(interval, key=lambda s: s[1])})
    return [*selected, *([evaluations[-1]] if selected[-1] != evaluations[-1] else [])]
