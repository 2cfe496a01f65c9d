"""The summary of the benchmarks, and the comparison with an earlier commit."""

import pytest

from benchmarks import _results, summary
from benchmarks.accuracy_vs_references import REFERENCES
from benchmarks.reference_models import OURS


@pytest.fixture(autouse=True)
def results_dir(monkeypatch, tmp_path):
    monkeypatch.setattr(_results, "RESULTS_DIR", tmp_path)
    return tmp_path


def run(model, seed, seconds, end_reason="goal"):
    measured = {"seconds": seconds, "end_reason": end_reason}
    return measured | {"part": "seeds", "setting": summary.MIXED, "model": model, "seed": seed}


def test_goals_without_results_have_no_row():
    assert summary.summarize() == []
    _results.save_results("watching", {}, unfinished=True)
    assert summary.summarize() == []


@pytest.mark.parametrize(("steps", "is_met"), [([30, 40], True), ([30, 50], False), ([30], False)])
def test_steps_are_met_if_every_seed_keeps_the_promise(steps, is_met):
    row = {"setting": "copy", "seeds": 2, "promised": 40, "steps": steps, "reached": len(steps)}
    _results.save_results("accuracy", [row, row | {"promised": None}])
    (result,) = summary.summarize()
    assert result.is_met is is_met
    assert f"{len(steps)} of 2" in result.measured


def test_ratios_pair_seeds_and_skip_seeds_that_miss_the_target():
    first, second = REFERENCES[0].name, REFERENCES[1].name
    runs = [run(OURS, 0, 2.0), run(OURS, 1, 3.0), run(first, 0, 10.0), run(first, 1, 12.0)]
    runs += [run(second, 0, 4.0, end_reason="time")]
    _results.save_results("peers", {"runs": runs})
    by_model = {result.what.rpartition("against ")[2]: result for result in summary.summarize()}
    assert by_model[first].measured == "0.23 times; n = 2"
    assert by_model[first].is_met
    assert by_model[second].measured == "not reached"
    assert not by_model[second].is_met


def test_a_missed_goal_has_a_reason_below_the_table():
    kinds = {"modules": 120_000, "the page": 60_000}
    visits = [{"bytes": 180_000, "requests": 60, "by_kind": kinds}]
    starts = {"before": [5.0], "now": [4.0]}
    rows = {"visits": visits, "loads": [], "starts": starts}
    _results.save_results("page-traffic", rows)
    table = summary.table(summary.summarize())
    reasons = table.partition("Why goals are missed:")[2].strip()
    what = "first visit until a model, transferred"
    assert reasons == f"- {what}: Of these, 120 kB are modules, 60 kB are the page."
