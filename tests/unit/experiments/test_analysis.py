import csv
import io
import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.common.format import format_percent
from playground.common.stats import min_p_value, rank_test
from playground.experiments.analysis import (
    conclusion,
    count,
    describe_planned_test,
    format_range,
    min_seeds,
    summarize,
    summarize_variant,
    to_csv,
)
from playground.experiments.presets import EXPERIMENT_PRESETS, load_stored, spec
from playground.experiments.results import (
    exact_match_at,
    first_step_reaching,
    interval_means,
    median_and_range,
    subsample_steps,
)
from playground.experiments.spec import ExperimentSpec
from playground.experiments.variant import Variant
from tests.support.app_server import ROOT

# the page's script follows the same rules: tests/js/experiments.test.js
VECTORS = json.loads((ROOT / "tests/data/range_vectors.json").read_text(encoding="utf-8"))


def runs(*times, exact=None, steps=200, done=True):
    """Return runs that reach 99 % at these steps; None means never."""
    exacts = exact or [1.0 if time else 0.4 for time in times]
    return [
        {
            "seed": seed,
            "done": done,
            "exact_match": share,
            "exact_at_budget": share,
            "steps": steps,
            "steps_to": time,
            "seconds": 2.0,
            "curve": [[10, 0.1], [20, share]],
            "loss": [[10, 2.0], [20, 1.0 - share]],
        }
        for seed, (time, share) in enumerate(zip(times, exacts, strict=True))
    ]


def variant(value, *args, field="norm_placement", **more):
    return summarize_variant(Variant({field: value}, {}), runs(*args, **more))


def result(*variants, names=("norm_placement",)):
    return summarize(names, variants)


def test_the_first_step_that_reaches_99_percent():
    assert first_step_reaching([(10, 0.5), (20, 0.99), (30, 0.7), (40, 1.0)]) == 20
    assert first_step_reaching([(10, 0.5), (20, 0.9899)]) is None
    assert first_step_reaching([]) is None


def test_evaluation_of_an_interruption_does_not_count():
    scored = [(10, 0.5), (17, 0.995), (20, 1.0), (25, 1.0)]
    assert first_step_reaching(scored, every=10) == 20
    assert first_step_reaching(scored[:2], every=10) == 17  # where the run ends there


def test_losses_are_means_between_two_evaluations():
    assert interval_means([2, 5], [4.0, 2.0, 3.0, 1.0, 2.0, 9.0]) == [[2, 3.0], [5, 2.0]]
    assert interval_means([12], [1.0, 3.0], first=11) == [[12, 2.0]]
    assert interval_means([], [1.0]) == interval_means([3], [], first=5) == []


RARE = "if the variants did not differ, so large a difference in ranks would be this rare"


def test_summary_names_the_best_variant_with_ranges_and_p_value():
    assert result(variant("post", 160, 180, 200), variant("pre", 80, 90, 100)) == (
        "Changing norm_placement: pre reached 99 % after 90 (80–100) steps; post reached 99 % "
        "after 180 (160–200) steps (median and range of 3 seeds each). "
        "These seeds cannot show a difference (smallest possible p = 0.1); use at least 4."
    )
    assert result(variant("post", *range(160, 165)), variant("pre", *range(80, 85))).endswith(
        "each). post needed 2.0 times as many steps as pre. These seeds show a difference: an "
        f"exact Mann–Whitney test gives p = 0.0079; {RARE}."
    )


def test_many_cells_are_many_comparisons():
    def of_seeds(n):
        rates = (10, 50, 90, 130, 170)
        return result(*(variant(rate, *(rate + at for at in range(n))) for rate in rates))

    assert "difference (smallest possible p = 0.079); use at least 6." in of_seeds(5)
    assert (
        "These seeds show a difference between 10 and 50, the best two: an exact Mann–Whitney test "
        f"gives p = 0.022, corrected for the 10 pairs of variants (Bonferroni); {RARE}."
        in of_seeds(6)
    )


@given(
    st.integers(2, 6).flatmap(
        lambda k: st.lists(
            st.lists(st.none() | st.integers(1, 9), min_size=1, max_size=7), min_size=k, max_size=k
        )
    )
)
def test_a_verdict_needs_a_corrected_p_below_the_level(times):
    variants = [variant(i, *each) for i, each in enumerate(times)]
    done = [each["by_seed"]["steps_to"] for each in variants]
    pairs = math.comb(len(times), 2)
    text = conclusion(variants)
    if RARE in text or "times as many" in text:
        assert min(pairs * rank_test(*two) for two in itertools.combinations(done, 2)) < 0.05
    smallest = pairs * min(min_p_value(len(a), len(b)) for a, b in itertools.combinations(done, 2))
    actual = min(pairs * rank_test(*two) for two in itertools.combinations(done, 2))
    assert min(smallest, actual) < 0.05 or "cannot show a difference" in text or "Too few" in text


def test_ties_in_unequal_groups_can_be_more_extreme_than_distinct_values():
    lost = [run | {"diverged": True, "exact_match": None} for run in runs(None, done=False)]
    quick = summarize_variant(Variant({"norm_placement": "pre"}, {}), runs(10, 20, 30))
    slow = summarize_variant(
        Variant({"norm_placement": "post"}, {}), [*runs(None, None, None), *lost]
    )
    assert conclusion([quick, slow]).endswith(f"gives p = 0.029; {RARE}.")
    assert "smallest possible p = 0.25" in conclusion(
        [variant("pre", 1), variant("post", None, None, None)]
    )


@pytest.mark.parametrize("measure", ["exact_match", "at_budget"])
def test_diverged_runs_are_below_every_score_in_the_test(measure):
    def arm(steps, n_diverged, exacts):
        ended = runs(*[None] * len(exacts), exact=exacts, steps=steps)
        lost = [run | {"diverged": True, "exact_match": None} for run in runs(None, done=False)]
        return summarize_variant(
            Variant({"n_heads": steps}, {"max_steps": steps}), [*ended, *lost * n_diverged]
        )

    stable = arm(100, 0, [0.5 + 0.01 * i for i in range(10)])
    few = arm(100 if measure == "exact_match" else 400, 6, [0.6, 0.61, 0.62, 0.63])
    text = result(few, stable, names=("n_heads",))
    assert text.index("54.5 %") < text.index("61.5 %")
    assert "61.5 % (60.0–63.0 %) (6 of 10 diverged; scores are of the others)" in text
    assert "These seeds show no difference: an exact Mann–Whitney test gives p = " in text
    lost = arm(few["budget"], 10, [])
    assert conclusion([lost, stable]).endswith(f"gives p < 0.0001; {RARE}.")


@pytest.mark.parametrize("n_variants", range(2, 13))
def test_the_fewest_seeds_are_the_first_whose_p_reaches_the_level(n_variants):
    n = min_seeds(n_variants)
    pairs = math.comb(n_variants, 2)
    extremes = [[*range(n)], [*range(n, 2 * n)]]
    assert pairs * rank_test(*extremes) < 0.05
    assert pairs * rank_test(*(values[1:] for values in extremes)) >= 0.05
    assert "cannot show" not in describe_planned_test(n, n_variants)
    assert f"use at least {n}." in describe_planned_test(n - 1, n_variants)


@pytest.mark.parametrize("name", EXPERIMENT_PRESETS)
def test_each_prepared_experiment_has_seeds_that_can_show_a_difference(name):
    prepared = ExperimentSpec.model_validate(spec(name))
    n_variants, n_seeds = len(prepared.variants), len(prepared.seeds)
    assert n_seeds == (5 if n_variants < 5 else 6)
    assert math.comb(n_variants, 2) * min_p_value(n_seeds, n_seeds) < 0.05


@pytest.mark.parametrize("name", load_stored())
def test_a_stored_result_answers_its_question(name):
    stored = load_stored()[name]
    results = stored["results"]
    prepared = ExperimentSpec.model_validate(spec(name))
    variants = [each.values for each in prepared.variants]
    assert all(each["values"] in variants for each in results["variants"])
    assert stored["runs"] == stored["statuses"]["done"]
    summary = summarize(results["fields"], results["variants"])
    assert results["summary"] == summary + prepared.task_note
    assert conclusion(results["variants"]) == f" {results['test']}"
    assert results["test"] in to_csv(results["fields"], results["variants"], results["test"])


def test_unequal_budgets_are_compared_by_exact_match_at_the_smallest():
    def architecture(steps, *exacts):
        runs_of_seeds = [
            run | {"exact_at_budget": exact}
            for run, exact in zip(runs(*[90] * 5, steps=steps), exacts, strict=True)
        ]
        return summarize_variant(Variant({"n_heads": steps}, {"max_steps": steps}), runs_of_seeds)

    one, two = architecture(100, *[0.9] * 5), architecture(400, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert result(one, two, names=("n_heads",)) == (
        "Changing n_heads: by exact match after 100 steps, the last evaluation that all runs "
        "share: 100 had 90.0 %; 400 had 30.0 % (10.0–50.0 %) (median and range of 5 seeds each). "
        "These seeds show a difference: an exact Mann–Whitney test gives p = 0.0079; "
        f"{RARE}."
    )
    row, other = csv.DictReader(io.StringIO(to_csv(["n_heads"], [one, two])))
    budget = "exact_match_at_smallest_budget_"
    assert (row[f"{budget}median"], other[f"{budget}low"]) == ("0.9", "0.1")


def test_the_step_of_a_score_at_a_budget_is_the_one_that_was_measured():
    def of_budget(steps, exact):
        settings = {"max_steps": steps, "eval_every": 100}
        return summarize_variant(Variant({"n_heads": steps}, settings), exact)

    two = [of_budget(300, runs(None)), of_budget(400, runs(None))]
    waiting = of_budget(150, runs(None, done=False))
    assert "by exact match after 300 steps, the last" in summarize(["n_heads"], two)
    assert "by exact match after 100 steps, the last" in summarize(["n_heads"], [*two, waiting])


def test_score_at_a_budget_is_that_of_the_last_step_that_all_runs_evaluate():
    evaluations = [(50, 0.1), (100, 0.2), (120, 0.3), (150, 0.4)]
    at = [exact_match_at(evaluations, budget, 50) for budget in (20, 50, 120, 150, 900)]
    assert at == [None, 0.1, 0.2, 0.4, 0.4]


def test_final_scores_are_compared_if_no_run_reaches_the_target():
    actual = result(
        variant("pre", None, None, exact=[0.5, 0.6]), variant("post", None, None, exact=[0.1, 0.2])
    )
    assert actual.startswith(
        "Changing norm_placement: nothing reached 99 % exact match in 200 steps: pre ended at "
        "55.0 % (50.0–60.0 %); post ended at 15.0 %"
    )
    assert "cannot show a difference (smallest possible p = 0.33); use at least 4" in actual


def test_variant_with_unreached_seeds_has_no_median_steps():
    some = variant("post", 150, None, None)
    assert (some["steps_to"]["median"], some["steps_to"]["reached"]) == (None, 1)
    actual = result(some, variant("pre", 80, 90, 100))
    expected = "post reached 99 % in 1 of 3 seeds within 200 steps, ending at 40.0 % (40.0–100 %)"
    assert expected in actual
    assert "did not reach 99 % within 200 steps" in result(
        variant("pre", 80, 90), variant("post", None, None)
    )


def test_summary_names_the_best_the_second_and_the_last_variant():
    actual = result(
        *(variant(rate, time, time + 2) for rate, time in ((1, 90), (2, 60), (3, 120), (4, 75))),
        names=("n_heads",),
    )
    order = [
        actual.index(f"{rate} reached 99 % after {n}") for rate, n in ((2, 61), (4, 76), (3, 121))
    ]
    assert order == sorted(order)
    assert "1 reached" not in actual.replace("121 reached", "")


def test_runs_that_are_not_done_do_not_count():
    half = summarize_variant(
        Variant({"norm_placement": "pre"}, {}), [*runs(80), *runs(None, done=False)]
    )
    assert (half["n"], half["planned"], half["steps_to"]["reached"]) == (1, 2, 1)
    assert result(half).startswith(
        "Changing norm_placement, so far with 1 of 2 runs: pre reached 99 % after 80 steps (1 seed)"
    )
    assert result(variant("pre", None, done=False)) == "No run has finished yet."


def test_curve_is_median_and_range_at_common_steps():
    curves = [[[10, 0.0], [20, 0.5], [30, 1.0]], [[10, 0.2], [20, 0.9]], [[10, 0.4], [20, 0.7]]]
    expected = {"steps": [10, 20], "median": [0.2, 0.7], "low": [0.0, 0.5], "high": [0.4, 0.9]}
    assert median_and_range(curves) == expected
    assert median_and_range([]) == {"steps": [], "median": [], "low": [], "high": []}
    long = median_and_range([[[step, 0.5] for step in range(1, 1001)]])["steps"]
    assert (len(long), long[0], long[-1]) == (200, 1, 1000)


def test_csv_leaves_unreached_steps_empty_and_states_the_limit():
    text = to_csv(["norm_placement"], [variant("pre", 80, 90), variant("post", None, 100)])
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["norm_placement"] for row in rows] == ["pre", "post"]
    assert [row["steps_to_99_median"] for row in rows] == ["85.0", ""]
    assert [row["not_reached_within"] for row in rows] == ["", "200"]


@pytest.mark.parametrize(
    ("write", "values", "text"),
    [(format_percent, *vector) for vector in VECTORS["percent"]]
    + [(count, *vector) for vector in VECTORS["steps"]],
)
def test_ranges_of_the_summary_are_rounded_like_those_of_the_table(write, values, text):
    assert format_range(dict(zip(("median", "low", "high"), values, strict=True)), write) == text


def test_diverged_runs_count_as_ended_and_are_reported_separately():
    lost = [run | {"diverged": True, "exact_match": None} for run in runs(None, None, done=False)]
    some = summarize_variant(Variant({"norm_placement": "post"}, {}), [*runs(80), *lost])
    assert (some["n"], some["diverged"]) == (1, 2)
    assert (some["steps_to"]["n"], some["steps_to"]["reached"]) == (3, 1)
    actual = result(some, variant("pre", 80, 90, 100))
    assert "so far" not in actual
    assert (
        "post reached 99 % in 1 of 3 seeds within 200 steps, ending at 100 % (2 of 3 diverged; "
        "scores are of the others)" in actual
    )
    every = summarize_variant(Variant({"norm_placement": "post"}, {}), lost)
    assert "post diverged in 2 of 2 seeds (" in result(variant("pre", None, None), every)
    assert "cannot show a difference" in result(variant("pre", None, None), every)
    assert "post diverged in 2 of 2 seeds" in result(every)
    row = next(csv.DictReader(io.StringIO(to_csv(["norm_placement"], [some]))))
    columns = ("n", "diverged", "reached_99", "not_reached_within")
    assert [row[name] for name in columns] == ["1", "2", "1", "200"]


def test_run_with_changed_settings_is_left_out_and_reported():
    odd = [run | {"changed": ["learning_rate"]} for run in runs(10)]
    actual = summarize_variant(Variant({"norm_placement": "pre"}, {}), [*runs(80), *odd])
    assert (actual["n"], actual["changed"], actual["steps_to"]["high"]) == (1, 1, 80)
    assert result(actual).startswith(
        "Changing norm_placement: pre reached 99 % after 80 steps (1 seed). Left out: 1 of 2 runs, "
        "whose settings changed during training."
    )


def test_long_runs_use_the_same_evaluations_for_every_seed():
    assert subsample_steps([10, 20, 25], 10, 25) == [10, 20, 25]
    one, two = (
        subsample_steps(range(1, 100_001), 1, 100_000),
        subsample_steps(range(1, 60_013), 1, 100_000),
    )
    assert (len(one), one[0], one[-1]) == (400, 250, 100_000)
    assert (two[-1], set(two[:-1]) <= set(one)) == (60_012, True)
