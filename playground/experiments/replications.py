"""Compare trained runs with published claims (claims.py)."""

import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any, NotRequired, TypedDict

from playground import ASSETS_DIR
from playground.common import messages
from playground.common.format import format_percent
from playground.models.config_fields import ConfigError
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.training.config import RunConfig, section_of_field

from .analysis import first_step_reaching, interval_means
from .claim import Claim
from .claims import CLAIMS
from .spec import parse_experiment
from .variant import VARIANT_KEY, label

NEAR_PERFECT = 0.999  # exact match
# settings that a replication may choose
MACHINE_SETTINGS = ("seed", "device", "num_threads", "eval_every")
GENERALIZED, MEMORIZED_LOSS = 0.9, 0.1  # held-out exact match and training loss
MIN_GENERALIZATION_STEP, MIN_DELAY = 500, 5  # of grokking: updates, and times as late
MIN_TWO_LAYERS, MAX_ONE_LAYER = 0.95, 0.5  # exact match
# as published, best first; those in one group are about equal
EXPECTED_ORDER = (("none", "t5"), ("alibi",), ("rope", "sinusoidal"))

# Written by `python -m benchmarks published`
STORED_RESULTS = ASSETS_DIR / "benchmarks" / "results" / "published.json"


class Result(TypedDict):
    """The comparison of measurements with a claim, for JSON.

    measured       the measured value: the median over the seeds, or a value for each variant
    passed         whether the criterion is met; None without a measurement
    summary        all of it in one text
    verdict        "pass" or "fail"
    measured_text  the measured value as text
    by_seed        of runs: the measured value of each
    curve          of runs: the values that the published curve of the claim is compared with
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


class ListedClaim(TypedDict):
    """A claim for JSON, with the command that replicates it.

    `unavailable_reason` is "" when the claim can run, otherwise the reason why it cannot.
    """

    name: str
    title: str
    source: str
    measure: str
    statement: str
    published: Any
    curve: list[Any]
    criterion: str
    deviations: list[str]
    estimated_minutes: float
    settings: dict[str, Any]
    experiment: Any
    seed: int
    command: str
    unavailable_reason: str
    parameters: NotRequired[int]


def find_claim(name: str) -> Claim:
    """Return a claim.

    Raises:
        ConfigError: when it is unknown.
    """
    if name not in CLAIMS:
        raise ConfigError("name", messages.choose_one_of("claim", repr(name), CLAIMS))
    return CLAIMS[name]


def replication_config(name: str, seed: int = 0) -> RunConfig:
    """Return the configuration of the run that replicates a claim.

    Raises:
        ConfigError: when the claim or one of its settings is unknown, or it needs an experiment.
    """
    claim = find_claim(name)
    if claim.experiment is not None:
        raise ConfigError("name", f"{name} needs an experiment of several runs, not one run")
    unknown = sorted(set(claim.settings) - set(section_of_field()) - {"architecture"})
    if unknown:
        raise ConfigError(
            unknown[0],
            f"{name} needs the setting {unknown[0]}, which is not a setting of a run here",
        )
    return RunConfig.from_flat(dict(claim.settings) | {"seed": seed})


def claims() -> list[ListedClaim]:
    """Return every claim."""
    return [_describe_claim(name, claim) for name, claim in CLAIMS.items()]


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
            }
            for row in stored["rows"]
            if row["done"]
        }
    except (OSError, ValueError, KeyError):
        return {}


def _describe_claim(name: str, claim: Claim) -> ListedClaim:
    line: ListedClaim = {
        "name": name,
        "title": claim.title,
        "source": claim.source,
        "measure": claim.measure,
        "statement": claim.statement,
        "published": claim.published,
        "curve": [list(point) for point in claim.curve.items()],
        "criterion": claim.criterion,
        "deviations": list(claim.deviations),
        "estimated_minutes": claim.estimated_minutes,
        "settings": dict(claim.settings),
        "experiment": claim.experiment,
        "seed": 0,
        "command": f"python -m benchmarks published --only {name}",
        "unavailable_reason": "",
    }
    try:
        if claim.experiment is None:
            line["parameters"] = replication_config(name).model.parameter_count()
        else:
            parse_experiment(claim.experiment, owner="")
            line["settings"] = _experiment_settings(claim.experiment)
    except ConfigError as error:
        line["unavailable_reason"] = str(error)
    return line


def _experiment_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an experiment by name; a variant is a text."""
    grid = {
        name: [label(value) for value in values] if name == VARIANT_KEY else values
        for name, values in spec["grid"].items()
    }
    return {**spec["base"], **grid, "seeds": spec["seeds"]}


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
        "steps_to": first_step_reaching(evaluations, NEAR_PERFECT, every),
        "generalization_step": first_step_reaching(evaluations, GENERALIZED, every),
        "memorization_step": next(memorized, None),
        "seconds": lines[-1]["seconds"] if lines else 0.0,
        "parameters": config.model.parameter_count(),
        "annotated_transformer_loss": None,
        "exact_match_curve": [list(each) for each in evaluations],
        "loss_curve": interval_means(steps, losses, lines[0]["step"]) if lines else [],
    }


def unmeasured_model(registry: Registry, name: str, run: Run) -> Mapping[str, Any] | None:
    """Return the model for the loss measurement, or None when the claim needs no loss."""
    needs_loss = find_claim(name).measure == "annotated_transformer_loss"
    is_measured = needs_loss and run.status == "done" and not run.modified_settings
    return registry.snapshots.model_ref(run, run.step) if is_measured else None


def evaluate_replication(
    registry: Registry,
    name: str,
    run: Run,
    seconds: float = 120.0,
    measured: Mapping[str, Any] | None = None,
) -> Result:
    """Compare a run with a claim. This call blocks during the evaluation.

    Args:
        measured: the response of the inspection process, if available; otherwise requested here.

    Raises:
        ConfigError: when the claim is unknown or needs an experiment.
    """
    from playground.runs.weight_history import read_lines

    required = replication_config(name)
    if run.status != "done":
        return _without_result(name, f"the run is {run.status}; only a finished run is compared")
    if run.modified_settings:
        changed = ", ".join(run.modified_settings)
        return _without_result(
            name,
            f"this run does not have the settings of the claim: {changed} changed during the run; "
            "run it again",
        )
    metrics = metrics_of_run(run.config, list(read_lines(run.folder)), run.scores)
    if measured is None and (model := unmeasured_model(registry, name, run)) is not None:
        measured = registry.snapshots.slow_inspector.request("loss", dict(model)).result(seconds)
    if measured is not None:
        metrics["annotated_transformer_loss"] = measured.get("loss")
    return outcome(name, metrics, differing_settings(required, run.config))


def differing_settings(required: RunConfig, actual: RunConfig) -> list[str]:
    """Return the settings that differ from the claim, except those of the machine."""
    expected, settings = required.to_flat(), actual.to_flat()
    return [
        name
        for name in expected
        if name not in MACHINE_SETTINGS and settings.get(name) != expected[name]
    ]


def outcome(name: str, metrics: Mapping[str, Any], differing: Sequence[str] = ()) -> Result:
    """Compare the metrics of one run with a claim.

    Raises:
        ConfigError: when the claim is unknown.
    """
    if differing:
        return _without_result(
            name,
            "this run does not have the settings of the claim: it differs in "
            f"{', '.join(differing)}",
        )
    return outcome_of_seeds(name, [metrics])


def outcome_of_seeds(name: str, runs: Sequence[Mapping[str, Any]]) -> Result:
    """Compare the runs of several seeds with a claim, by the median of the measured value.

    A value that a run did not reach counts as worse than every other one.

    Raises:
        ConfigError: when the claim is unknown.
    """
    claim = find_claim(name)
    values = [run.get(claim.measure) for run in runs]
    is_step = claim.measure == "generalization_step"
    if not is_step and None in values:
        return _without_result(name, f"{claim.measure} was not measured")
    missing = float("inf")
    ordered = sorted(
        runs, key=lambda run: missing if run.get(claim.measure) is None else run[claim.measure]
    )
    middle = ordered[(len(runs) - 1) // 2 if claim.measure != "exact_match" else len(runs) // 2]
    known = [value for value in values if value is not None]
    median_value = None if len(known) < len(values) else median(known)
    metrics = middle if len(runs) % 2 else {**middle, claim.measure: median_value}
    measured_text = _describe_metrics(claim, metrics)
    if len(runs) > 1:
        each = ", ".join(_format_value(claim.measure, value) for value in values)
        measured_text += f" (median of {len(runs)} seeds: {each})"
    result = _result(name, metrics[claim.measure], _meets_criterion(claim, metrics), measured_text)
    quantity = "exact_match_curve" if is_step else "loss_curve"
    curve = metrics.get(quantity, []) if claim.curve else []
    return {**result, "by_seed": values, "curve": curve}


def outcome_of_experiment(name: str, details: Mapping[str, Any]) -> Result:
    """Compare the results of an experiment (`ExperimentService.details`) with a claim."""
    claim = find_claim(name)
    if claim.measure == "order":
        return outcome_of_lengths(details["lengths"], name)
    variants = details["results"]["variants"]
    if any(variant["n"] < variant["planned"] for variant in variants):
        return _without_result(name, "not every run has finished yet")
    medians = {variant["label"]: variant["exact_match"]["median"] for variant in variants}
    measured_text = "; ".join(f"{each}: {format_percent(score)}" for each, score in medians.items())
    return _result(
        name, medians, _needs_two_layers(variants), f"median exact match: {measured_text}"
    )


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
        return _without_result(name, "not every position encoding has been measured yet")
    medians = {scheme: beyond[scheme]["median"] for group in EXPECTED_ORDER for scheme in group}
    groups = [[medians[scheme] for scheme in group] for group in EXPECTED_ORDER]
    passed = all(min(one) >= max(next_one) for one, next_one in itertools.pairwise(groups))
    ranked = sorted(medians.items(), key=lambda each: -each[1])
    measured_text = "median exact match beyond length 20: " + ", ".join(
        f"{scheme} {format_percent(share)}" for scheme, share in ranked
    )
    if not any(medians.values()):
        passed = False
        measured_text += "; no output beyond the training lengths is correct, so there is no order"
    return _result(name, medians, passed, measured_text)


def _result(name: str, measured: Any, passed: bool, measured_text: str) -> Result:
    claim = find_claim(name)
    verdict = "pass" if passed else "fail"
    return {
        "name": name,
        "published": claim.published,
        "statement": claim.statement,
        "criterion": claim.criterion,
        "measured": measured,
        "passed": passed,
        "verdict": verdict,
        "measured_text": measured_text,
        "summary": (
            f"published: {claim.statement}; measured: {measured_text}; {verdict}: {claim.criterion}"
        ),
    }


def _without_result(name: str, reason: str) -> Result:
    """Return the result of a claim that cannot be compared yet, with the reason."""
    claim = find_claim(name)
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
    is_loss = claim.measure == "annotated_transformer_loss"
    return bool(value <= threshold if is_loss else value >= threshold)


def _describe_metrics(claim: Claim, metrics: Mapping[str, Any]) -> str:
    value = _format_value(claim.measure, metrics[claim.measure])
    if claim.measure == "generalization_step":
        memorized = metrics["memorization_step"]
        return f"held-out exact match of 90 %: {value}; training loss below {MEMORIZED_LOSS}: " + (
            f"update {memorized:,}" if memorized else "not reached"
        )
    if claim.measure == "annotated_transformer_loss":
        return f"{value} after {metrics['steps']:,} updates"
    noun = "tokens" if claim.measure == "token_accuracy" else "sequences"
    return f"{value} of the {noun}, on {metrics['n']:,} held-out sequences"


def _format_value(measure: str, value: float | None) -> str:
    if measure == "generalization_step":
        return "not reached" if value is None else f"update {value:,.0f}"
    return (
        f"{value:.4f}"
        if measure == "annotated_transformer_loss"
        else f"{value:.2%}".replace("%", " %")
    )
