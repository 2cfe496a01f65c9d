"""Collect the results of an experiment from its runs; unchanged results are not recomputed."""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any

from playground.common.stats import quantile
from playground.runs.state import Run

from . import analysis, length_generalization
from .analysis import TARGET_SCORE, VariantResult, has_score
from .length_generalization import LengthEvaluator
from .spec import MAX_RUNS
from .state import ExperimentState
from .summary import RunMetrics, RunSummary, ScoreSummary
from .variant import Variant

MAX_POINTS = 200  # of one curve
MAX_EVALUATIONS = 400  # maximum evaluations of one run in a curve


def variant_results(
    state: ExperimentState, runs: Mapping[str, Run], drawn: Collection[str] | int = MAX_RUNS
) -> tuple[Hashable, dict[str, Any]]:
    """Return a cache key, and the medians and ranges of each variant with a summary.

    The variants `drawn` also have curves and single runs: labels, or a number of the best ones.
    """
    experiment, cache = state.experiment, state.cache
    keys = _variant_keys(state, runs)
    if isinstance(drawn, int):
        drawn = _best(state, runs, keys, drawn)
    labels = frozenset(drawn)
    key = tuple(keys.values()), labels
    cached = cache.results
    if cached is None or cached[0] != key:
        cache.drawn = {label: cache.drawn[label] for label in labels & cache.drawn.keys()}
        names = list(experiment.grid)
        variants = [
            _variant_result(state, runs, at, keys[at], RunSummary, cache.drawn)
            if variant.full_label in labels
            else _variant_result(state, runs, at, keys[at], ScoreSummary, cache.by_variant)
            for at, variant in enumerate(experiment.variants)
        ]
        results = {
            "fields": names,
            "variants": variants,
            "drawn": analysis.best_variants(
                [each for each in variants if each["label"] in labels], len(labels)
            ),
            "summary": analysis.summarize(names, variants) + experiment.task_note,
            "test": analysis.conclusion(variants).strip(),
        }
        cached = cache.results = (key, results)
        state.release_summaries()
    return cached


def _variant_keys(state: ExperimentState, runs: Mapping[str, Run]) -> dict[int, Hashable]:
    """Return the part of the state of the runs of each variant that its results depend on."""
    seeds = state.experiment.seeds
    return {
        at: tuple(_run_key(state, f"{at}/{seed}", runs) for seed in seeds)
        for at in range(len(state.experiment.variants))
    }


def _best(
    state: ExperimentState, runs: Mapping[str, Run], keys: Mapping[int, Hashable], n: int
) -> list[str]:
    """Return the labels of the best variants; of all, if there are no more than `n`."""
    variants = state.experiment.variants
    if n >= len(variants):
        return [variant.full_label for variant in variants]
    cache = state.cache.by_variant
    rows = [_variant_result(state, runs, *each, ScoreSummary, cache) for each in keys.items()]
    return analysis.best_variants(rows, n)


def _variant_result(
    state: ExperimentState,
    runs: Mapping[str, Run],
    at: int,
    key: Hashable,
    kind: type[ScoreSummary],
    cache: dict[str, tuple[Hashable, VariantResult]],
) -> VariantResult:
    """Return the result of a variant, with curves and single runs for the kind `RunSummary`."""
    variant = state.experiment.variants[at]
    cached = cache.get(variant.full_label)
    if cached is None or cached[0] != key:
        metrics = [
            {"seed": seed} | _metrics(state, variant, state.runs.get(run), runs.get(run), kind)
            for seed, run in ((seed, f"{at}/{seed}") for seed in state.experiment.seeds)
        ]
        drawn = draw_runs(metrics if kind is RunSummary else [])
        if kind is ScoreSummary:
            drawn["seeds"] = [{"run": each["run"]} for each in metrics if each["run"]]
        result: Any = analysis.summarize_variant(variant, metrics) | drawn
        cached = cache[variant.full_label] = key, result
    return cached[1]


def drawn_results(state: ExperimentState, runs: Mapping[str, Run]) -> Iterator[VariantResult]:
    """Yield the result of each variant with its curves and its single runs; none stays here."""
    for each in _variant_keys(state, runs).items():
        yield _variant_result(state, runs, *each, RunSummary, {})
    state.release_summaries()


def _metrics(
    state: ExperimentState,
    variant: Variant,
    run_id: str | None,
    run: Run | None,
    kind: type[ScoreSummary],
) -> dict[str, Any]:
    """Return the metrics of a run of the plan: stored ones, or those of the run so far."""
    if summary := state.summary(run_id, run, kind):
        return vars(summary.metrics) | {"run": f"run:{run_id}" if run else None}
    return vars(run_metrics(state, run) if run else RunMetrics(steps=variant.steps))


def run_metrics(state: ExperimentState, run: Run) -> RunMetrics:
    """Return the metrics of a run so far."""
    points = run.load_points()
    evaluations = [(step, exact) for step, exact, *_ in points.evaluations]
    training = run.config.training
    steps = subsample_steps(
        [step for step, _ in evaluations], training.eval_every, training.max_steps
    )
    exact_at = dict(evaluations)
    return RunMetrics(
        run=f"run:{run.id}",
        done=run.status == "done",
        diverged=run.diverged,
        changed=run.modified_settings,
        exact_match=run.scores["exact_match"] if run.scores else None,
        exact_at_budget=exact_match_at(
            evaluations, state.experiment.smallest_budget, training.eval_every
        ),
        n=run.scores["n"] if run.scores else None,
        steps=run.steps,
        steps_to=first_step_reaching(evaluations, every=training.eval_every),
        seconds=run.seconds,
        curve=[[step, exact_at[step]] for step in steps],
        loss=interval_means(steps, points.columns["loss"], points.first),
    )


def to_csv(results: Mapping[str, Any], lengths: Mapping[str, Any] | None = None) -> str:
    """Return a table of the results of variants, or those by length."""
    if lengths:
        return length_generalization.to_csv(lengths["rows"], lengths["test"])
    return analysis.to_csv(results["fields"], results["variants"], results["test"])


def _run_key(state: ExperimentState, key: str, runs: Mapping[str, Run]) -> Hashable:
    """Return the part of the state of a run that its results depend on."""
    run = runs.get(key)
    if run is None:
        run_id = state.runs.get(key)
        return run_id if run_id in state.summarized else None
    return run.id, run.step, run.status, run.scores is None, len(run.changes)


def length_results(
    state: ExperimentState, runs: Mapping[str, Run], evaluator: LengthEvaluator
) -> tuple[Hashable, dict[str, Any]]:
    """Return a cache key, and exact match and maximum length of each scheme with a summary."""
    keys = [each for each, _, _ in state.experiment.planned_runs()]
    n_counts = sum(len(evaluator.counts(state, run)) for run in runs.values())
    key = (*(_run_key(state, each, runs) for each in keys), n_counts)
    cached = state.cache.lengths
    if cached is None or cached[0] != key:
        cached = state.cache.lengths = (key, _compare_lengths(state, runs, evaluator))
        state.release_summaries()
    return cached


def _compare_lengths(
    state: ExperimentState, runs: Mapping[str, Run], evaluator: LengthEvaluator
) -> dict[str, Any]:
    experiment = state.experiment
    rows = []
    for at, variant in enumerate(experiment.variants):
        task = variant.config(experiment.seeds[0]).task
        by_seed = [
            {"seed": seed} | _length_scores(state, f"{at}/{seed}", runs, evaluator)
            for seed in experiment.seeds
        ]
        rows.append(
            length_generalization.summarize_scheme(variant.short_label, by_seed, task.max_length)
        )
    lengths = [experiment.max_evaluated_length(variant.settings) for variant in experiment.variants]
    trained, untestable = [task.min_length, task.max_length], experiment.why_lengths_untestable
    summary = length_generalization.summarize(rows, trained, max(lengths), untestable)
    return {
        "trained": trained,
        "max_length": max(lengths),
        "n_requested": experiment.n,
        "rows": rows,
        "summary": summary + experiment.task_note,
        "test": length_generalization.conclusion(rows, untestable),
    }


def _length_scores(
    state: ExperimentState, key: str, runs: Mapping[str, Run], evaluator: LengthEvaluator
) -> dict[str, Any]:
    """Return the scores of an evaluated run; `out` marks a run that will have no scores."""
    run = runs.get(key)
    if run is None:
        stored = state.summary(state.runs.get(key), None, ScoreSummary)
        if stored is None:
            return {"scores": [], "out": False}
        is_out = stored.metrics.diverged or bool(stored.metrics.changed)
        scores = [] if is_out else length_generalization.scores(stored.counts)
        return {"scores": scores, "out": is_out}
    is_modified = bool(run.modified_settings)
    if run.status == "done" and not is_modified and not evaluator.remaining_lengths(state, run):
        scores = length_generalization.scores(evaluator.counts(state, run))
        return {"scores": scores, "out": run.diverged}
    return {"scores": [], "out": run.diverged or (run.status == "done" and is_modified)}


# The evaluations of runs as curves


def first_step_reaching(
    evaluations: Sequence[tuple[int, float]], share: float = TARGET_SCORE, every: int = 1
) -> int | None:
    """Return the step of the first evaluation with at least this exact match, or None.

    Only evaluations at multiples of `every` and the last one count: an interrupted run has an extra
    evaluation, which would otherwise favor it.
    """
    planned = [
        (step, exact)
        for step, exact in evaluations
        if step % every == 0 or step == evaluations[-1][0]
    ]
    return next((step for step, exact in planned if exact >= share), None)


def exact_match_at(
    evaluations: Sequence[tuple[int, float]], budget: int, every: int
) -> float | None:
    """Return the exact match after the last of `budget` steps that every run evaluates, or None.

    These are the multiples of `every`. A run that ended before keeps its last score.
    """
    until = budget // every * every
    return next((exact for step, exact in reversed(evaluations) if step <= until), None)


def subsample_steps(steps: Sequence[int], every: int, planned: int) -> list[int]:
    """Return at most a few hundred of the steps, with the last one; the same for all seeds."""
    spacing = every * max(1, -(-planned // (every * MAX_EVALUATIONS)))
    return [step for step in steps if step % spacing == 0 or step == steps[-1]]


def interval_means(
    evaluations: Sequence[int], losses: Sequence[float], first: int = 1
) -> list[list[float]]:
    """Return the mean training loss between evaluations: [[step, mean], ...].

    `evaluations` lists the evaluation steps; `losses` has one value per step, starting at `first`.
    """
    means, begin = [], 0
    for step in evaluations:
        part = losses[begin : step - first + 1]
        if part:
            means.append([step, sum(part) / len(part)])
        begin = step - first + 1
    return means


def draw_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part of a `VariantResult` that its runs (`RunMetrics`) draw; may be empty."""
    done = list(filter(has_score, runs))
    return {
        "curve": median_and_range([run["curve"] for run in done]),
        "loss": median_and_range([run["loss"] for run in done]),
        "live": [
            {name: each[name] for name in ("seed", "curve", "loss")}
            for each in runs
            if each["curve"] and not each["done"]
        ],
        "seeds": [
            {name: value for name, value in each.items() if name not in ("curve", "loss")}
            for each in runs
        ],
    }


def median_and_range(curves: Sequence[Sequence[Sequence[float]]]) -> dict[str, list[float]]:
    """Return median and range over seeds at the steps that all curves share."""
    by_step = [{point[0]: point[1] for point in curve} for curve in curves]
    common = sorted(set.intersection(*map(set, by_step))) if by_step else []
    if len(common) > MAX_POINTS:
        common = [common[i * (len(common) - 1) // (MAX_POINTS - 1)] for i in range(MAX_POINTS)]
    at = [sorted(curve[step] for curve in by_step) for step in common]
    return {
        "steps": list(map(int, common)),
        "median": [quantile(shares, 0.5) for shares in at],
        "low": [shares[0] for shares in at],
        "high": [shares[-1] for shares in at],
    }
