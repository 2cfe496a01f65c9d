"""Measure length generalization: count correct outputs at each length, and summarize the counts."""

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypedDict

from playground.architectures.parameter_groups import parameter_count
from playground.common.format import format_csv, format_percent
from playground.common.stats import five_number_summary, quantile, wilson_interval
from playground.runs.record import WEIGHTS_EVICTED
from playground.runs.registry import Registry
from playground.runs.snapshots import InspectorClient
from playground.runs.state import Run

from .analysis import TARGET_SCORE, describe_rank_test, format_range, format_seeds
from .spec import LENGTHS, MIN_PER_LENGTH, evaluation_cost
from .state import ExperimentState, PendingEvaluation
from .summary import ScoreSummary

LENGTHS_PER_REQUEST = 5  # lengths in one request, so that other requests run in between
MAX_FLOPS_PER_REQUEST = 1e12  # cost limit of one request (experiment.work): seconds on one core


class LengthEvaluator:
    """Evaluate the runs of all experiments, one request at a time."""

    def __init__(self, registry: Registry, inspector: InspectorClient) -> None:
        self.registry = registry
        self.inspector = inspector
        self._last_response: Future[dict[str, Any]] | None = None

    def counts(self, state: ExperimentState, run: Run) -> list[dict[str, int]]:
        """Return the counts of a run, from memory or as stored."""
        key = (run.id, run.step)
        cached = state.cache.length_counts.get(key)
        if cached is None:
            if run.status != "done":
                return []
            stored = state.summary(run.id, run, ScoreSummary)
            cached = state.cache.length_counts[key] = stored.counts if stored else []
        return cached

    def remaining_lengths(self, state: ExperimentState, run: Run) -> list[int]:
        """Return the lengths of a run that are not evaluated yet."""
        evaluated = {line["length"] for line in self.counts(state, run)}
        lengths = state.experiment.evaluated_lengths(run.config.to_flat())
        return [length for length in lengths if length not in evaluated]

    def unevaluated_runs(self, state: ExperimentState, runs: Mapping[str, Run]) -> list[Run]:
        """Return the finished runs whose evaluation is not complete."""
        if state.experiment.kind != LENGTHS:
            return []
        done = [run for run in runs.values() if run.status == "done"]
        return [run for run in done if self.remaining_lengths(state, run)]

    def advance(self, state: ExperimentState, runs: Mapping[str, Run]) -> bool:
        """Store the counts of the last response and send the next request, if a run needs one.

        Return whether the evaluation continues. A failed request ends the experiment, because the
        same request would fail again.
        """
        if state.pending is not None:
            if not state.pending.response.done():
                return True
            finished, state.pending = state.pending, None
            response = finished.response.result()
            if "error" in response:
                state.message, state.owner = response["error"], ""
                return True
            state.cache.length_counts[finished.run_id, finished.step] += response["scores"]
        return any(self._evaluate(state, run) for run in self.unevaluated_runs(state, runs))

    def _evaluate(self, state: ExperimentState, run: Run) -> bool:
        """Request the next lengths of a run; return whether other runs must wait."""
        remaining, n = self.remaining_lengths(state, run), state.experiment.n
        if run.evicted == WEIGHTS_EVICTED:
            return False
        if self._last_response is not None and not self._last_response.done():
            return True
        lengths = next_lengths(remaining, parameter_count(run.config.model), n)
        request = json.dumps({"lengths": lengths, "n": n})
        self._last_response = self.registry.snapshots.request(
            "lengths", run, request, run.step, process=self.inspector
        )
        state.pending = PendingEvaluation(run.id, run.step, self._last_response)
        state.requested_at = time.monotonic()
        return True


def next_lengths(left: Sequence[int], parameters: int, n: int) -> list[int]:
    """Return the lengths of the next request: at least one, within the cost limit."""
    selected: list[int] = []
    spent = 0.0
    for length in left[:LENGTHS_PER_REQUEST]:
        spent += evaluation_cost(parameters, n, length)
        if selected and spent > MAX_FLOPS_PER_REQUEST:
            break
        selected.append(length)
    return selected


def scores(counts: Sequence[Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return exact match by length with its 95 % Wilson interval; None without sequences."""
    lines = []
    for line in sorted(counts, key=lambda each: each["length"]):
        low, high = wilson_interval(line["right"], line["n"]) if line["n"] else (None, None)
        share = line["right"] / line["n"] if line["n"] else None
        lines.append({**line, "exact_match": share, "low": low, "high": high})
    return lines


def max_reliable_length(lines: Sequence[Mapping[str, Any]]) -> int:
    """Return the length up to which every length scores at least 99 %; 0 if the first fails.

    Lengths with few held-out sequences are skipped: one wrong output would decide them.
    """
    last = 0
    for line in lines:
        if line["n"] < MIN_PER_LENGTH:
            continue
        if line["exact_match"] < TARGET_SCORE:
            break
        last = line["length"]
    return last


class SchemeResult(TypedDict):
    """The exact match of a scheme by length, over its seeds.

    reach   the maximum reliable length, of each seed in `reaches`
    beyond  the mean exact match beyond the training lengths
    """

    label: str
    planned: int
    n: int
    out: int
    lengths: list[int]
    median: list[float]
    low: list[float]
    high: list[float]
    reach: dict[str, Any] | None
    reaches: list[int]
    max_length: int
    beyond: dict[str, Any] | None
    runs: list[Mapping[str, Any]]


def summarize_scheme(label: str, runs: Sequence[Mapping[str, Any]], trained: int) -> SchemeResult:
    """Summarize one scheme, trained up to a length, over the seeds with scores.

    `out` marks a run that will never have scores.
    """
    done = [run for run in runs if run["scores"]]
    by_length: dict[int, list[float]] = {}
    for run in done:
        for line in run["scores"]:
            if line["exact_match"] is not None:
                by_length.setdefault(line["length"], []).append(line["exact_match"])
    lengths = sorted(length for length, shares in by_length.items() if len(shares) == len(done))
    reaches = [max_reliable_length(run["scores"]) for run in done]
    beyond = [mean_extrapolation_score(run["scores"], trained) for run in done]
    return {
        "label": label,
        "planned": len(runs),
        "n": len(done),
        "out": sum(run.get("out", False) for run in runs),
        "lengths": lengths,
        "median": [quantile(by_length[length], 0.5) for length in lengths],
        "low": [min(by_length[length]) for length in lengths],
        "high": [max(by_length[length]) for length in lengths],
        "reach": five_number_summary(reaches),
        "reaches": reaches,
        "max_length": max((line["length"] for run in done for line in run["scores"]), default=0),
        "beyond": five_number_summary([share for share in beyond if share is not None]),
        "runs": list(runs),
    }


def mean_extrapolation_score(lines: Sequence[Mapping[str, Any]], trained: int) -> float | None:
    """Return the mean exact match beyond the training lengths, or None without scores."""
    shares = [
        line["exact_match"]
        for line in lines
        if line["length"] > trained and line["exact_match"] is not None
    ]
    return sum(shares) / len(shares) if shares else None


def summarize(
    rows: Sequence[Mapping[str, Any]], trained: Sequence[int], max_length: int, untestable: str = ""
) -> str:
    """Summarize the results of the schemes; `untestable` is why no test can compare them."""
    done = [row for row in rows if row["n"]]
    planned, finished, out = (sum(row[name] for row in rows) for name in ("planned", "n", "out"))
    left_out = (
        f" Left out: {out} of {planned} runs, which diverged or whose settings changed during "
        "training."
        if out
        else ""
    )
    if not done:
        return "No run has been evaluated yet." + left_out
    begin = f"So far, with {finished} of {planned} runs: " if finished + out < planned else ""
    test = conclusion(rows, untestable)
    return _comparison(done, trained, max_length, begin, test) + left_out


def _comparison(
    done: Sequence[Mapping[str, Any]],
    trained: Sequence[int],
    max_length: int,
    begin: str,
    test: str,
) -> str:
    low, high = trained
    begin += "trained" if begin else "Trained"
    begin += f" on length {low}–{high}" if low < high else f" on length {high}"
    begin += f" and evaluated up to {max_length}, "
    best, *rest = _ranked(done)
    if not best["reach"]["high"]:
        return f"{begin}nothing keeps 99 % exact match at any length; train for more steps."
    text = (
        f"{best['label']} keeps 99 % exact match up to length {_describe_reach(best, max_length)}"
    )
    for row in rest:
        text += f", {row['label']} to {_describe_reach(row, max_length)}"
    text += f" ({format_seeds(best['n'])})"
    # shares over the same lengths
    tested = [row for row in done if row["beyond"] and row["max_length"] == max_length]
    if not tested:
        text += f". No length beyond {max_length} was evaluated"
    elif len(tested) == 1:
        subject = f" of {tested[0]['label']}" if rest else ""
        share = format_percent(tested[0]["beyond"]["median"])
        text += f". Beyond length {high}, exact match{subject} is {share}"
    else:
        further = max(tested, key=lambda row: row["beyond"]["median"])
        text += (
            f". Beyond length {high}, {further['label']} has the highest median exact match, "
            f"{format_percent(further['beyond']['median'])}, which has no test; a test is of the "
            "99 % lengths only"
        )
    return f"{begin}{text}. {test}" if rest else f"{begin}{text}."


def _ranked(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the schemes with results, the best first."""
    return sorted(
        (row for row in rows if row["n"]),
        key=lambda row: (-row["reach"]["median"], -(row["beyond"] or {"median": 0.0})["median"]),
    )


def conclusion(rows: Sequence[Mapping[str, Any]], untestable: str = "") -> str:
    """Return what a test of the best two schemes shows; empty for fewer than two."""
    if len(ranked := _ranked(rows)) < 2:
        return ""
    if untestable:
        return f"There is no test: {untestable}."
    best, second, *_ = ranked
    names = best["label"], second["label"]
    reaches = best["reaches"], second["reaches"]
    return f"{describe_rank_test(names, *reaches, len(rows), best['planned'])}."


def _describe_reach(row: Mapping[str, Any], max_length: int) -> str:
    limit = f", evaluated up to {row['max_length']} only" if row["max_length"] < max_length else ""
    return format_range(row["reach"], "{:g}".format) + limit


def to_csv(rows: Sequence[Mapping[str, Any]], test: str = "") -> str:
    """Return CSV with a row for each scheme, seed and length; the first one has the `test`."""
    columns = ("length", "n", "right", "exact_match", "low", "high")
    lines = [
        [row["label"], run["seed"], *(line[name] for name in columns)]
        for row in rows
        for run in row["runs"]
        for line in run["scores"]
    ]
    names = ["scheme", "seed", *columns[:4], "wilson_low", "wilson_high", "test"]
    return format_csv([names, *([*line, "" if i else test] for i, line in enumerate(lines))])
