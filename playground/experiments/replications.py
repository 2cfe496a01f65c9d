"""The published claims of claims.toml: experiments with a published value, and their comparison."""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NotRequired, TypedDict

from playground import ASSETS_DIR
from playground.checkpoints.metrics import read_metrics
from playground.common.format import format_percent
from playground.common.validation import Definition, read_definitions
from playground.runs.state import Run
from playground.training.run_config import RunConfig

from .results import first_step_reaching, interval_means
from .spec import ExperimentSpec
from .variant import VARIANT_KEY

LOSS = "annotated_transformer_loss"  # a measure that needs the model of the run
GENERALIZED, MEMORIZED_LOSS = 0.9, 0.1  # held-out exact match and training loss
MIN_GENERALIZATION_STEP, MIN_DELAY = 500, 5  # of grokking: updates, and times as late
MIN_TWO_LAYERS, MAX_ONE_LAYER = 0.95, 0.5  # exact match
# as published, best first; those in one group are about equal
EXPECTED_ORDER = (("none", "t5"), ("alibi",), ("rope", "sinusoidal"))

# Written by `python -m benchmarks published`
STORED_RESULTS = ASSETS_DIR / "benchmarks" / "results" / "published.json"


class Claim(Definition):
    """A published claim, and the experiment that replicates it.

    measure     the metric that is compared, see `metrics_of_run`
    statement   the published result; published: its value, if it has one
    criterion   as text, with the `threshold` of the measured value, if it has one
    deviations  the differences from the original, with their effect
    curve       the published values by update, where the source prints them: the held-out exact
                match for the measure "generalization_step", otherwise the loss
    """

    title: str
    source: str
    measure: str
    statement: str
    published: float | None = None
    criterion: str
    threshold: float = 0.0
    deviations: tuple[str, ...]
    curve: tuple[tuple[int, float], ...] = ()
    experiment: ExperimentSpec


CLAIMS = read_definitions(Path(__file__).with_name("claims.toml"), Claim)


class Result(TypedDict):
    """The comparison of measurements with a claim, for JSON.

    measured  the median over the seeds, or a value for each variant; `measured_text` as text
    passed    whether the criterion is met; None without a measurement
    summary   all of it in one text
    by_seed   of runs: the measured value of each
    curve     of runs: the values that the published curve of the claim is compared with
    """

    name: str
    published: Any
    statement: str
    criterion: str
    measured: Any
    passed: bool | None
    summary: str
    verdict: NotRequired[str]
    measured_text: NotRequired[str]
    by_seed: NotRequired[list[Any]]
    curve: NotRequired[list[Any]]


class StoredResult(TypedDict):
    """The project's own result of a claim."""

    text: str
    passed: bool
    date: str
    seeds: int


@cache
def stored_results() -> dict[str, StoredResult]:
    """Return the project's own result of each claim; {} without measurements."""
    try:
        stored = json.loads(STORED_RESULTS.read_text(encoding="utf-8"))
        return {
            row["name"]: {
                "text": row["result"],
                "passed": row["passed"],
                "date": row.get("measured", stored)["date"],
                "seeds": row["seeds"],
            }
            for row in stored["rows"]
            if row["done"]
        }
    except (OSError, ValueError, KeyError):
        return {}


def metrics_of_run(
    config: RunConfig, lines: Sequence[Mapping[str, Any]], scores: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the metrics of a run from its log and its final scores."""
    every = config.training.eval_every
    evaluations = [
        (line["step"], line["exact_match"]) for line in lines if line.get("exact_match") is not None
    ]
    steps = [step for step, _ in evaluations]
    losses = [line["loss"] for line in lines]
    memorized = (line["step"] for line in lines if line["loss"] < MEMORIZED_LOSS)
    return {
        "exact_match": scores["exact_match"] if scores else None,
        "token_accuracy": scores["token_accuracy"] if scores else None,
        "n": scores["n"] if scores else None,
        "steps": lines[-1]["step"] if lines else 0,
        "generalization_step": first_step_reaching(evaluations, GENERALIZED, every),
        "memorization_step": next(memorized, None),
        LOSS: None,
        "exact_match_curve": [list(each) for each in evaluations],
        "loss_curve": interval_means(steps, losses, lines[0]["step"]) if lines else [],
    }


def needs_loss(name: str, runs: Sequence[Run]) -> bool:
    """Return whether the comparison of these runs needs the loss of their models."""
    return CLAIMS[name].measure == LOSS and _why_incomparable(name, runs) == ""


def _outcome_of_runs(name: str, runs: Sequence[Run], losses: Sequence[float | None]) -> Result:
    if reason := _why_incomparable(name, runs):
        return without_result(name, reason)
    metrics = [
        metrics_of_run(run.config, list(read_metrics(run.folder)), run.scores) for run in runs
    ]
    for each, loss in zip(metrics, losses, strict=False):
        each[LOSS] = loss
    return outcome_of_seeds(name, metrics)


def _why_incomparable(name: str, runs: Sequence[Run]) -> str:
    """Return why the runs cannot be compared with a claim; empty if they can."""
    if len(runs) < CLAIMS[name].experiment.n_runs or any(run.status != "done" for run in runs):
        failed = (run.message for run in runs if run.status == "failed")
        return next(failed, "not every run has finished yet, or one was deleted")
    if changed := {setting: None for run in runs for setting in run.modified_settings}:
        return (
            f"the runs do not have the settings of the claim: {', '.join(changed)} changed during "
            "the training; delete the experiment and run it again"
        )
    return ""


def outcome_of_seeds(name: str, runs: Sequence[Mapping[str, Any]]) -> Result:
    """Compare the runs of several seeds with a claim, by the median of the measured value.

    A value that a run did not reach counts as worse than every other one.
    """
    claim = CLAIMS[name]
    values = [run.get(claim.measure) for run in runs]
    is_step = claim.measure == "generalization_step"
    if not is_step and None in values:
        return without_result(name, f"{claim.measure} was not measured")
    missing = float("inf")
    ordered = sorted(
        runs, key=lambda run: missing if run.get(claim.measure) is None else run[claim.measure]
    )
    middle = ordered[(len(runs) - 1) // 2 if claim.measure != "exact_match" else len(runs) // 2]
    known = [value for value in values if value is not None]
    median_value = None if len(known) < len(values) else median(known)
    metrics = middle if len(runs) % 2 else {**middle, claim.measure: median_value}
    measured_text = _describe_metrics(claim, metrics, len(runs))
    if len(runs) > 1:
        each = ", ".join(_format_value(claim.measure, value) for value in values)
        measured_text += f" (median of {len(runs)} seeds: {each})"
    result = _result(name, metrics[claim.measure], _meets_criterion(claim, metrics), measured_text)
    quantity = "exact_match_curve" if is_step else "loss_curve"
    curve = metrics.get(quantity, []) if claim.curve else []
    return {**result, "by_seed": values, "curve": curve}


def outcome_of_experiment(
    name: str,
    details: Mapping[str, Any],
    runs: Sequence[Run] = (),
    losses: Sequence[float | None] = (),
) -> Result:
    """Compare `ExperimentService.details` of a claim's experiment with the claim.

    `runs` and `losses` (of their models) are for claims with one variant (`needs_loss`).
    """
    measure = CLAIMS[name].measure
    if measure == "order":
        return outcome_of_lengths(details["lengths"], name)
    if measure == "layers":
        return _outcome_of_layers(name, details["results"]["variants"])
    return _outcome_of_runs(name, runs, losses)


def _outcome_of_layers(name: str, variants: Sequence[Mapping[str, Any]]) -> Result:
    if any(variant["n"] < variant["planned"] for variant in variants):
        return without_result(name, "not every run has finished yet")
    medians = {variant["label"]: variant["exact_match"]["median"] for variant in variants}
    measured_text = "; ".join(f"{each}: {format_percent(score)}" for each, score in medians.items())
    return _result(
        name,
        medians,
        _needs_two_layers(variants),
        f"exact match, {_name_median(variants)}: {measured_text}",
    )


def _name_median(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return "median of 3 seeds", or "1 seed"."""
    return f"median of {n} seeds" if (n := rows[0]["n"]) > 1 else "1 seed"


def _needs_two_layers(variants: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether only the variants with two layers learn the task."""
    medians = [
        (variant["values"][VARIANT_KEY]["n_layers"], variant["exact_match"]["median"])
        for variant in variants
    ]
    return all(
        score >= MIN_TWO_LAYERS if layers > 1 else score <= MAX_ONE_LAYER
        for layers, score in medians
    )


def outcome_of_lengths(results: Mapping[str, Any], name: str = "length-order") -> Result:
    """Compare the published order of position encodings with `ExperimentService.lengths`."""
    beyond = {row["label"]: row["beyond"] for row in results["rows"]}
    if any(beyond.get(scheme) is None for group in EXPECTED_ORDER for scheme in group) or any(
        row["n"] < row["planned"] for row in results["rows"]
    ):
        return without_result(name, "not every position encoding has been measured yet")
    medians = {scheme: beyond[scheme]["median"] for group in EXPECTED_ORDER for scheme in group}
    groups = [[medians[scheme] for scheme in group] for group in EXPECTED_ORDER]
    passed = all(min(one) >= max(next_one) for one, next_one in itertools.pairwise(groups))
    ranked = sorted(medians.items(), key=lambda each: -each[1])
    measured_text = f"exact match beyond length 20, {_name_median(results['rows'])}: " + ", ".join(
        f"{scheme} {format_percent(share)}" for scheme, share in ranked
    )
    if not any(medians.values()):
        passed = False
        measured_text += "; no output beyond the training lengths is correct, so there is no order"
    return _result(name, medians, passed, measured_text)


def _result(name: str, measured: Any, passed: bool, measured_text: str) -> Result:
    claim, verdict = CLAIMS[name], "pass" if passed else "fail"
    summary = (
        f"published: {claim.statement}; measured: {measured_text}; {verdict}: {claim.criterion}"
    )
    return {
        **without_result(name, summary),
        "measured": measured,
        "passed": passed,
        "verdict": verdict,
        "measured_text": measured_text,
    }


def without_result(name: str, reason: str) -> Result:
    """Return the result of a claim that cannot be compared yet, with the reason."""
    claim = CLAIMS[name]
    return {
        "name": name,
        "published": claim.published,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "measured": None,
        "passed": None,
        "summary": reason,
    }


def _meets_criterion(claim: Claim, metrics: Mapping[str, Any]) -> bool:
    value, threshold = metrics[claim.measure], claim.threshold
    if claim.measure == "generalization_step":
        memorized = metrics["memorization_step"]
        if value is None or memorized is None:
            return False
        return MIN_GENERALIZATION_STEP <= value <= threshold and value >= MIN_DELAY * memorized
    is_loss = claim.measure == LOSS
    return bool(value <= threshold if is_loss else value >= threshold)


def _describe_metrics(claim: Claim, metrics: Mapping[str, Any], n_runs: int) -> str:
    value = _format_value(claim.measure, metrics[claim.measure])
    if claim.measure == "generalization_step":
        memorized = metrics["memorization_step"]
        which = "in the middle run, " if n_runs > 1 else ""
        return (
            f"held-out exact match of 90 %: {value}; {which}training loss below {MEMORIZED_LOSS}: "
        ) + (f"update {memorized:,}" if memorized else "not reached")
    if claim.measure == LOSS:
        return f"{value} after {metrics['steps']:,} updates"
    noun = "tokens" if claim.measure == "token_accuracy" else "sequences"
    return f"{value} of the {noun}, on {metrics['n']:,} held-out sequences"


def _format_value(measure: str, value: float | None) -> str:
    if measure == "generalization_step":
        return "not reached" if value is None else f"update {value:,.0f}"
    return f"{value:.4f}" if measure == LOSS else f"{value:.2%}".replace("%", " %")
