"""Summarize an experiment from measured numbers: medians, ranges, curves, and a text."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from playground.common.format import format_csv, format_percent
from playground.common.stats import (
    MAX_EXACT,
    censored_summary,
    corrected_p_value,
    five_number_summary,
    min_p_value,
    quantile,
    ranges_disjoint,
    rank_test,
)

from .variant import VARIANT_KEY, Variant

TARGET_SCORE = 0.99  # exact match of a learned task
SIGNIFICANCE_LEVEL = 0.05  # significance level


class VariantResult(TypedDict):
    """The result of a variant over its seeds; `planned` counts runs, `n` those with a score.

    Where nothing draws them, the curves and those of unfinished runs (`live`) are empty, and
    `seeds` has only the names of the runs.
    """

    label: str
    short: str
    values: dict[str, Any]
    planned: int
    n: int
    diverged: int
    changed: int
    exact_match: dict[str, Any] | None
    steps_to: dict[str, Any] | None
    at_budget: dict[str, Any] | None
    by_seed: dict[str, list[Any]]
    budget: int
    eval_every: int
    eval_size: int
    steps: int
    seconds: dict[str, Any] | None
    curve: dict[str, list[float]]
    loss: dict[str, list[float]]
    live: list[dict[str, Any]]
    seeds: list[dict[str, Any]]


def summarize_variant(variant: Variant, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the result of a variant without its curves; each of `runs` has `RunScores`.

    Only finished runs with unchanged settings count. A diverged run counts as ended without
    reaching the target.
    """
    done = list(filter(has_score, runs))
    training = variant.config(0).training
    diverged = sum(bool(run.get("diverged")) and not run.get("changed") for run in runs)
    exact_match = [run["exact_match"] for run in done]
    at_budget = [exact for run in done if (exact := run["exact_at_budget"]) is not None]
    steps_needed = [run["steps_to"] for run in done] + [None] * diverged
    return {
        "label": variant.full_label,
        "short": variant.short_label,
        "values": variant.values,
        "planned": len(runs),
        "n": len(done),
        "diverged": diverged,
        "changed": sum(
            bool(run.get("changed")) and (run["done"] or bool(run.get("diverged"))) for run in runs
        ),
        "exact_match": five_number_summary(exact_match),
        "steps_to": censored_summary(steps_needed),
        "at_budget": five_number_summary(at_budget),
        "by_seed": {"exact_match": exact_match, "steps_to": steps_needed, "at_budget": at_budget},
        "budget": variant.steps,
        "eval_every": training.eval_every,
        "eval_size": training.eval_size,
        "steps": max((run["steps"] for run in runs), default=0),
        "seconds": five_number_summary([run["seconds"] for run in done]),
    }


def has_score(run: Mapping[str, Any]) -> bool:
    """Return whether a run counts: it has ended, with unchanged settings."""
    return run["done"] and run["exact_match"] is not None and not run.get("changed")


# The summary


def summarize(names: Sequence[str], variants: Sequence[Mapping[str, Any]]) -> str:
    """Summarize the effect of the varied settings, whose `names` the page replaces by labels."""
    done = [variant for variant in variants if _ended(variant)]
    planned, changed = (
        sum(variant[name] for variant in variants) for name in ("planned", "changed")
    )
    finished = sum(map(_ended, variants)) + changed
    left_out = f" Left out: {changed} of {planned} runs, whose settings changed during training."
    left_out = left_out if changed else ""
    if not done:
        return "No run has finished yet." + left_out
    varied = " and ".join(
        "several settings together" if name == VARIANT_KEY else name for name in names
    )
    so_far = f", so far with {finished} of {planned} runs" if finished < planned else ""
    described = _described(done, variants) + conclusion(variants)
    return f"Changing {varied}{so_far}: {described}{left_out}"


def _ended(variant: Mapping[str, Any]) -> int:
    """Return the number of ended runs of a variant that count."""
    return variant["n"] + variant["diverged"]


def _ranked(variants: Sequence[Mapping[str, Any]]) -> tuple[str, list[Mapping[str, Any]]]:
    """Return the measure that compares the variants, and the variants, the best first.

    It is the number of steps to 99 % if one variant reaches it, else the final exact match; with
    unequal budgets the exact match at the smallest one ("at_budget").
    """
    if len({variant["budget"] for variant in variants}) > 1:
        return "at_budget", sorted(variants, key=lambda each: -_median(each, "at_budget"))
    if any(variant["steps_to"]["reached"] for variant in variants):
        return "steps_to", sorted(variants, key=_ranking_key)
    return "exact_match", sorted(variants, key=lambda each: -_median(each, "exact_match"))


def best_variants(variants: Sequence[Mapping[str, Any]], n: int) -> list[str]:
    """Return the labels of the best `n` variants; those without a result are last."""
    ended = [variant for variant in variants if _ended(variant)]
    ranked = _ranked(ended)[1] + [variant for variant in variants if not _ended(variant)]
    return [variant["label"] for variant in ranked[:n]]


def _measured(variant: Mapping[str, Any], measure: str) -> list[Any]:
    """Return the values that the test compares: a diverged run is below every score."""
    lost = [] if measure == "steps_to" else [-1.0] * variant["diverged"]
    return [*variant["by_seed"][measure], *lost]


def _described(variants: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, Any]]) -> str:
    """Describe the best, the second and the last of the ended variants."""
    measure, order = _ranked(variants)
    seeds = " each, ".join(dict.fromkeys(format_seeds(_ended(variant)) for variant in variants))
    if not order[1:]:
        return f"{order[0]['short']} {_describe(order[0], measure)} ({seeds})."
    chosen = [*order[:2], *order[2:][-1:]]
    head = ""
    if measure == "exact_match":
        most = max(each["steps"] for each in variants)
        head = f"nothing reached 99 % exact match in {most:,} steps: "
    elif measure == "at_budget":
        every = max(each["eval_every"] for each in planned)
        step = min(each["budget"] for each in planned) // every * every  # of `exact_match_at`
        head = f"by exact match after {step:,} steps, the last evaluation that all runs share: "
    descriptions = "; ".join(f"{each['short']} {_describe(each, measure)}" for each in chosen)
    return f"{head}{descriptions} ({seeds}{' each' if ' each' not in seeds else ''})."


def _ranking_key(variant: Mapping[str, Any]) -> tuple[float, float, float]:
    """Rank by the fraction of seeds that learned, then by speed, then by final score."""
    steps_to = variant["steps_to"]
    return (
        -steps_to["reached"] / steps_to["n"],
        steps_to["median"] if steps_to["median"] is not None else float("inf"),
        -_median(variant, "exact_match"),
    )


def _median(variant: Mapping[str, Any], measure: str) -> float:
    """Return the median of a score over all ended runs, or -1 without any."""
    return quantile(_measured(variant, measure) or [-1.0], 0.5)


def _describe(variant: Mapping[str, Any], measure: str) -> str:
    if not variant["n"]:
        return f"diverged in {variant['diverged']} of {variant['diverged']} seeds"
    lost = f"{variant['diverged']} of {_ended(variant)} diverged; scores are of the others"
    return _describe_scores(variant, measure) + (f" ({lost})" if variant["diverged"] else "")


def _describe_scores(variant: Mapping[str, Any], measure: str) -> str:
    if measure == "at_budget":
        scores = variant["at_budget"]
        return f"had {format_range(scores, format_percent)}" if scores else "had no evaluation"
    if measure == "exact_match":
        return f"ended at {format_range(variant['exact_match'], format_percent)}"
    steps_to = variant["steps_to"]
    if steps_to["reached"] == steps_to["n"]:
        return f"reached 99 % after {format_range(steps_to, count)} steps"
    final_range = format_range(variant["exact_match"], format_percent)
    end = f"within {variant['steps']:,} steps, ending at {final_range}"
    if not steps_to["reached"]:
        return f"did not reach 99 % {end}"
    return f"reached 99 % in {steps_to['reached']} of {steps_to['n']} seeds {end}"


def conclusion(variants: Sequence[Mapping[str, Any]]) -> str:
    """Return what a test of the best two ended variants shows; empty for fewer than two."""
    done = [variant for variant in variants if _ended(variant)]
    if len(done) < 2:
        return ""
    measure, (best, second, *_) = _ranked(done)
    values, others = _measured(best, measure), _measured(second, measure)
    if not values or not others:
        return " A variant without an evaluation has no score to compare."
    one, two = best[measure], second[measure]
    ratio = ""
    p = corrected_p_value(rank_test(values, others), len(variants))
    if (
        measure == "steps_to"
        and p < SIGNIFICANCE_LEVEL
        and two["median"] is not None
        and one["median"]
        and ranges_disjoint(one, two)
    ):
        ratio = (
            f" {second['short']} needed {two['median'] / one['median']:.1f} times as many steps as "
            f"{best['short']}."
        )
    names = (best["short"], second["short"])
    result = describe_rank_test(names, values, others, len(variants), best["planned"])
    return f"{ratio} {result}."


def describe_rank_test(
    names: tuple[str, str],
    one: Sequence[float | None],
    other: Sequence[float | None],
    n_variants: int,
    planned: int,
) -> str:
    """Describe whether two variants, the best of `n_variants`, differ by a rank test.

    The p-value is corrected for all pairs, as the best two were not chosen beforehand. The test is
    unpaired although the variants share their seeds: the smallest p of n pairs is 2/2^n, which
    misses the threshold with five seeds, or with six after the correction for more than two
    variants. If a seed makes runs more alike, an unpaired test is conservative (Zimmerman 1997,
    Journal of Educational and Behavioral Statistics 22). The text has no final period.
    """
    p = corrected_p_value(rank_test(one, other), n_variants)
    if problem := too_few_seeds(len(one), len(other), n_variants, p):
        is_enough = min(len(one), len(other)) < planned and not too_few_seeds(
            planned, planned, n_variants
        )
        return "Too few of the planned seeds have a result for a test" if is_enough else problem
    between = f" between {names[0]} and {names[1]}, the best two" if n_variants > 2 else ""
    kind = "an exact" if len(one) + len(other) <= MAX_EXACT else "a"
    test = f"{kind} Mann–Whitney test gives p {format_p_value(p)}"
    if n_variants > 2:
        test += f", corrected for the {math.comb(n_variants, 2)} pairs of variants (Bonferroni)"
    if p >= SIGNIFICANCE_LEVEL:
        return f"These seeds show no difference{between}: {test}"
    rare = "if the variants did not differ, so large a difference in ranks would be this rare"
    return f"These seeds show a difference{between}: {test}; {rare}"


def too_few_seeds(n: int, m: int, n_variants: int, p: float = 1.0) -> str:
    """Return why `n` and `m` seeds of two variants cannot show a difference; empty if they can.

    With ties, `p` can be below the smallest one of distinct values.
    """
    lowest = min(p, min_p_value(n, m, n_variants))
    if n_variants < 2 or lowest < SIGNIFICANCE_LEVEL:
        return ""
    return (
        f"These seeds cannot show a difference (smallest possible p {format_p_value(lowest)}); "
        f"use at least {min_seeds(n_variants)}"
    )


def describe_planned_test(n_seeds: int, n_variants: int, untestable: str = "") -> str:
    """Return what a test of so many seeds can show, as a sentence; empty for one variant."""
    if n_variants < 2:
        return ""
    if untestable:
        return f"There is no test: {untestable}."
    lowest = min_p_value(n_seeds, n_seeds, n_variants)
    return (
        too_few_seeds(n_seeds, n_seeds, n_variants)
        or f"The smallest possible p of these seeds is {lowest:.2g}"
    ) + "."


def min_seeds(n_variants: int) -> int:
    """Return the minimum number of seeds with which two of `n_variants` can differ by the test."""
    return next(n for n in itertools.count(1) if min_p_value(n, n, n_variants) < SIGNIFICANCE_LEVEL)


def format_p_value(p: float) -> str:
    """A p-value with two digits and its sign: "= 0.031" or "< 0.0001"."""
    return f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"


def format_range(values: Mapping[str, Any], format_value: Callable[[float], str]) -> str:
    """Format a median with its range, as in "3.0 % (1.0–5.0 %)", as `formatRange` on the page."""
    low, high = format_value(values["low"]), format_value(values["high"])
    return format_value(values["median"]) + (
        f" ({low.removesuffix(' %')}–{high})" if low != high else ""
    )


def format_seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"median and range of {n} seeds"


def count(number: float) -> str:
    """Format a number of steps; a half is rounded up."""
    return f"{math.floor(number + 0.5):,}"


# For spreadsheets

RANGE = ("median", "low", "high")
CSV_COLUMNS = (
    *("label", "n", "diverged", "planned"),
    *(f"exact_match_{each}" for each in RANGE),
    *(f"exact_match_at_smallest_budget_{each}" for each in RANGE),
    *(f"steps_to_99_{each}" for each in RANGE),
    *("reached_99", "not_reached_within", "seconds_median", "test"),
)


def to_csv(names: Sequence[str], variants: Sequence[Mapping[str, Any]], test: str = "") -> str:
    """Return CSV with a row for each variant, and the conclusion of the `test` in the first row.

    A target that was not reached is empty, with the number of steps in `not_reached_within`;
    `diverged` runs count as not reached.
    """
    lines: list[list[Any]] = []
    for variant in variants:
        exact, at_budget, steps, seconds = (
            variant.get(name) or {} for name in ("exact_match", "at_budget", "steps_to", "seconds")
        )
        censored_at = variant["steps"] if steps and steps["reached"] < steps["n"] else None
        row = [
            *(variant[name] for name in ("label", "n", "diverged", "planned")),
            *(each.get(name) for each in (exact, at_budget, steps) for name in RANGE),
            steps.get("reached"),
            censored_at,
            seconds.get("median"),
            None if lines else test,
        ]
        # The variant's label is a column of its own.
        varied = [variant["values"].get(name) for name in names if name != VARIANT_KEY]
        lines.append([*varied, *row])
    return format_csv([[*(name for name in names if name != VARIANT_KEY), *CSV_COLUMNS], *lines])
