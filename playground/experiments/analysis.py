"""Summarize an experiment: medians, ranges and curves of each variant, and a text.

The functions take measured numbers; they do not access runs or files.
"""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from playground.common.format import format_percent
from playground.common.stats import (
    censored_summary,
    five_number_summary,
    min_p_value,
    quantile,
    ranges_disjoint,
    rank_test,
)

from .variant import VARIANT_KEY, Variant

TARGET_SCORE = 0.99  # exact match of a learned task
SIGNIFICANCE_LEVEL = 0.05  # significance level
MAX_POINTS = 200  # of one curve
MAX_EVALUATIONS = 400  # maximum evaluations of one run in a curve


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


def subsample_steps(steps: Sequence[int], every: int, planned: int) -> list[int]:
    """Return at most a few hundred of the evaluation steps, including the last one.

    The selection depends only on `every` and `planned`, so all seeds of a variant share it.
    """
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


def summarize_variant(variant: Variant, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize one variant.

    Each of `runs` has seed, done, exact_match (final; None before the end), steps (total), steps_to
    (None: not reached), seconds, curve ([[step, exact match], ...]) and loss (see
    `interval_means`). Only finished runs count, and only with unchanged settings (changed: []). A
    diverged run counts as ended without reaching the target.
    """
    done = [
        run
        for run in runs
        if run["done"] and run["exact_match"] is not None and not run.get("changed")
    ]
    diverged = sum(bool(run.get("diverged")) and not run.get("changed") for run in runs)
    exact_match = [run["exact_match"] for run in done]
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
        "by_seed": {"exact_match": exact_match, "steps_to": steps_needed},
        "steps": max((run["steps"] for run in runs), default=0),
        "seconds": five_number_summary([run["seconds"] for run in done]),
        "curve": median_and_range([run["curve"] for run in done]),
        "loss": median_and_range([run["loss"] for run in done]),
    }


def median_and_range(curves: Sequence[Sequence[Sequence[float]]]) -> dict[str, list[float]]:
    """Return median and range over seeds at the steps that all curves share."""
    by_step = [{int(step): value for step, value in curve} for curve in curves]
    common = sorted(set.intersection(*map(set, by_step))) if by_step else []
    if len(common) > MAX_POINTS:
        common = [common[i * (len(common) - 1) // (MAX_POINTS - 1)] for i in range(MAX_POINTS)]
    at = [[curve[step] for curve in by_step] for step in common]
    return {
        "steps": list(common),
        "median": [quantile(shares, 0.5) for shares in at],
        "low": [min(shares) for shares in at],
        "high": [max(shares) for shares in at],
    }


# The summary


def summarize(names: Sequence[str], variants: Sequence[Mapping[str, Any]]) -> str:
    """Summarize the effect of the varied settings (`names`).

    An exact rank test over the seeds compares the best two variants; the text has its p-value. The
    page replaces the names by labels.
    """
    done = [variant for variant in variants if _ended(variant)]
    planned, changed = (
        sum(variant[name] for variant in variants) for name in ("planned", "changed")
    )
    finished = sum(map(_ended, variants)) + changed
    left_out = (
        f" Left out: {changed} of {planned} runs, whose settings changed during training."
        if changed
        else ""
    )
    if not done:
        return "No run has finished yet." + left_out
    varied = " and ".join(
        "several settings together" if name == VARIANT_KEY else name for name in names
    )
    begin = (
        f"Changing {varied}, so far with {finished} of {planned} runs: "
        if finished < planned
        else f"Changing {varied}: "
    )
    return begin + _compared(done) + left_out


def _ended(variant: Mapping[str, Any]) -> int:
    """Return the number of ended runs of a variant that count."""
    return variant["n"] + variant["diverged"]


def _compared(variants: Sequence[Mapping[str, Any]]) -> str:
    learned = any(variant["steps_to"]["reached"] for variant in variants)
    measure = "steps_to" if learned else "exact_match"
    order = sorted(
        variants, key=_ranking_key if learned else lambda variant: -_median_score(variant)
    )
    best, rest = order[0], order[1:]
    seeds = " each, ".join(dict.fromkeys(_format_seeds(_ended(variant)) for variant in variants))
    if not rest:
        return f"{best['short']} {_describe(best, learned)} ({seeds})."
    first, last = rest[0], rest[-1]
    descriptions = [f"{best['short']} {_describe(best, learned)}"]
    descriptions += [f"{first['short']} {_describe(first, learned)}"] if first is not last else []
    descriptions += [f"{last['short']} {_describe(last, learned)}"]
    head = (
        ""
        if learned
        else f"nothing reached 99 % exact match in "
        f"{max(each['steps'] for each in variants):,} steps: "
    )
    gap = f" ({seeds}{' each' if ' each' not in seeds else ''}). "
    significance = _describe_significance(best, first, measure, len(variants))
    return f"{head}{'; '.join(descriptions)}{gap}{significance}."


def _ranking_key(variant: Mapping[str, Any]) -> tuple[float, float, float]:
    """Rank by the fraction of seeds that learned, then by speed, then by final score."""
    steps_to = variant["steps_to"]
    return (
        -steps_to["reached"] / steps_to["n"],
        steps_to["median"] if steps_to["median"] is not None else float("inf"),
        -_median_score(variant),
    )


def _median_score(variant: Mapping[str, Any]) -> float:
    """Return the median score, or -1 when all runs diverged."""
    return variant["exact_match"]["median"] if variant["exact_match"] else -1.0


def _describe(variant: Mapping[str, Any], learned: bool) -> str:
    if not variant["n"]:
        return f"diverged in {variant['diverged']} of {variant['diverged']} seeds"
    odd = f" ({variant['diverged']} of {_ended(variant)} diverged)" if variant["diverged"] else ""
    return _describe_scores(variant, learned) + odd


def _describe_scores(variant: Mapping[str, Any], learned: bool) -> str:
    if not learned:
        return f"ended at {format_range(variant['exact_match'], format_percent)}"
    steps_to = variant["steps_to"]
    if steps_to["reached"] == steps_to["n"]:
        return f"reached 99 % after {format_range(steps_to, count)} steps"
    final_range = format_range(variant["exact_match"], format_percent)
    end = f"within {variant['steps']:,} steps, ending at {final_range}"
    if not steps_to["reached"]:
        return f"did not reach 99 % {end}"
    return f"reached 99 % in {steps_to['reached']} of {steps_to['n']} seeds {end}"


def _describe_significance(
    best: Mapping[str, Any], other: Mapping[str, Any], measure: str, n_variants: int
) -> str:
    """Describe whether the best variant differs from the second of `n_variants`."""
    one, two = best[measure], other[measure]
    if one is None or two is None:
        return "A diverged variant has no score to compare"
    ratio = ""
    if (
        measure == "steps_to"
        and two["median"] is not None
        and one["median"]
        and ranges_disjoint(one, two)
    ):
        ratio = (
            f"{other['short']} needed {two['median'] / one['median']:.1f} times as many steps as "
            f"{best['short']}. "
        )
    names = (best["short"], other["short"])
    return ratio + describe_rank_test(
        names, best["by_seed"][measure], other["by_seed"][measure], n_variants
    )


def describe_rank_test(
    names: tuple[str, str],
    one: Sequence[float | None],
    other: Sequence[float | None],
    n_variants: int,
) -> str:
    """Describe whether two variants, the best of `n_variants`, differ by an exact rank test.

    Several variants are several comparisons. The best two are no pair that was chosen beforehand,
    so the text names the p-value for a reader of the whole table (Bonferroni). It has no final
    period.
    """
    if min(len(one), len(other)) == 1:
        return "A single seed does not show whether this is more than chance"
    p = rank_test(one, other)
    between = f"between {names[0]} and {names[1]} " if n_variants > 2 else ""
    result = f"An exact rank test {between}gives p {format_p_value(p)}"
    if p < SIGNIFICANCE_LEVEL:
        result += ", so chance alone is an unlikely explanation"
    elif p <= min_p_value(len(one), len(other)):
        result += (
            f", the lowest p-value of {len(one)} and {len(other)} seeds: more seeds are needed to "
            "call it a difference"
        )
    else:
        result += ", so these seeds do not show a difference"
    if n_variants > 2:
        pairs = n_variants * (n_variants - 1) // 2
        result += (
            f". Only the best two of {n_variants} are tested; for all {pairs} pairs, the threshold "
            f"is p = {SIGNIFICANCE_LEVEL / pairs:.2g} (Bonferroni)"
        )
    return result


def format_p_value(p: float) -> str:
    """A p-value with two digits and its sign: "= 0.031" or "< 0.0001"."""
    return f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"


def format_range(values: Mapping[str, Any], format_value: Callable[[float], str]) -> str:
    """Format a median with its range, as in "3.0 % (1.0–5.0 %)".

    `formatRange` of lab/result_tables.js follows the same rule; one test has both.
    """
    low, high = format_value(values["low"]), format_value(values["high"])
    return format_value(values["median"]) + (
        f" ({low.removesuffix(' %')}–{high})" if low != high else ""
    )


def _format_seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"median and range of {n} seeds"


def count(number: float) -> str:
    """Format a number of steps; a half is rounded up."""
    return f"{math.floor(number + 0.5):,}"


# For spreadsheets

CSV_COLUMNS = (
    "label",
    "n",
    "diverged",
    "planned",
    "exact_match_median",
    "exact_match_low",
    "exact_match_high",
    "steps_to_99_median",
    "steps_to_99_low",
    "steps_to_99_high",
    "reached_99",
    "not_reached_within",
    "seconds_median",
)


def to_csv(names: Sequence[str], variants: Sequence[Mapping[str, Any]]) -> str:
    """Return CSV with a row for each variant.

    A target that was not reached is an empty field, with the number of steps in
    `not_reached_within`. `n` runs have a score; `diverged` runs have none and count as not reached.
    """
    lines = []
    for variant in variants:
        exact = variant["exact_match"] or {}
        steps = variant["steps_to"] or {}
        seconds = variant["seconds"] or {}
        censored_at = variant["steps"] if steps and steps["reached"] < steps["n"] else None
        row = [
            variant["label"],
            variant["n"],
            variant["diverged"],
            variant["planned"],
            exact.get("median"),
            exact.get("low"),
            exact.get("high"),
            steps.get("median"),
            steps.get("low"),
            steps.get("high"),
            steps.get("reached"),
            censored_at,
            seconds.get("median"),
        ]
        # The variant's label is a column of its own.
        varied = [variant["values"].get(name) for name in names if name != VARIANT_KEY]
        lines.append([*varied, *row])
    return to_csv_text([*(name for name in names if name != VARIANT_KEY), *CSV_COLUMNS], lines)


def to_csv_text(head: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Format rows as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows([["" if value is None else value for value in line] for line in lines])
    return text.getvalue()
