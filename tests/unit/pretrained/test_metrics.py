import json

import pytest
from scipy.stats import binomtest

from playground.common.stats import wilson_interval
from playground.pretrained.benchmark.export import latest_rows, to_json
from playground.pretrained.benchmark.metrics import (
    MetricAccumulator,
    correct_positions,
    exact_match,
    parse_answer,
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("4  1 3 ", ("4", "1", "3")),
        ("413", None),
        (" 4, 1, 3", None),
        (" 4 1 3 and so on", None),
        (" 4 1\t3", None),
        (" ４ 1 3", None),
        ("   ", None),
        (" 4 1 3\n\nInput: 2 2 1", ("4", "1", "3")),
        ("\n4 1 3", None),
    ],
)
def test_an_answer_is_read_strictly(text, read):
    assert parse_answer(text, "0123456789") == read


def test_extra_tokens_prevent_an_exact_match():
    for has_eos in (True, False):  # the end is one more token
        for predicted, expected in (
            (("4", "1", "3"), [True, True, True, True]),
            (("1", "4", "3", "9"), [False, False, True, False]),
            (("4",), [True, False, False, False]),
            (("4", None, "3"), [True, False, True, True]),
            (None, [False] * 4),
        ):
            actual = correct_positions(predicted, ("4", "1", "3"), has_eos)
            assert actual == expected[: 3 + has_eos]
    assert exact_match(("4", "1", "3"), ("4", "1", "3"))
    assert not exact_match(("4", "1", "3", "9"), ("4", "1", "3"))
    assert not exact_match(None, ())


def test_a_tally_counts_examples_and_tokens():
    tally = MetricAccumulator(has_eos=True)
    assert tally.compute()["exact_match"] is None
    tally.add(("4", "1"), ("4", "1"), 1.0)
    tally.add(("4", "9", "3"), ("4", "1", "3"), 2.0)
    tally.add(None, ("4", "1", "3", "5", "5"), 6.0)
    result = tally.compute()
    assert (result["n"], result["n_tokens"]) == (3, 13)
    assert result["exact_match"] == pytest.approx(1 / 3)
    assert result["token_accuracy"] == pytest.approx(6 / 13)
    assert (result["token_accuracy_low"], result["token_accuracy_high"]) == wilson_interval(6, 13)
    assert result["seconds_per_example"] == 3.0


def test_two_models_are_compared_on_the_same_examples():
    one, other = MetricAccumulator(has_eos=True), MetricAccumulator(has_eos=True)
    for is_one, is_other in [(1, 0)] + [(0, 1)] * 8 + [(1, 1)] * 5 + [(0, 0)] * 3:
        for tally, is_right in ((one, is_one), (other, is_other)):
            tally.add(("1",) if is_right else None, ("1",), 0.0)
    expected = pytest.approx(binomtest(1, 9).pvalue)
    assert one.compare(other) == {"only_this": 1, "only_checkpoint": 8, "p_value": expected}
    assert one.compare(one) == {"only_this": 0, "only_checkpoint": 0, "p_value": 1}


RESULT = [
    {"kind": "settings", "caption": "what is compared"},
    {"kind": "model", "index": 1, "model": "a, b", "exact_match": 0.0, "finished": False},
    {"kind": "model", "index": 0, "model": "chance", "exact_match": None, "finished": True},
    {"kind": "example", "model": "a, b", "number": 1, "raw_output": ' 4 "1"\n'}
    | {"prediction": ["4", None], "correct": False},
    {"kind": "model", "index": 1, "model": "a, b", "exact_match": 0.25, "finished": True},
]


def test_the_table_holds_the_latest_line_of_each_model():
    latest = [(row["model"], row["exact_match"]) for row in latest_rows(RESULT)]
    assert latest == [("chance", None), ("a, b", 0.25)]
    decoded = json.loads(to_json(RESULT))
    assert (len(decoded["rows"]), len(decoded["examples"])) == (2, 1)
    assert json.loads(to_json(RESULT, {"caption": "done", "rows": []}))["caption"] == "done"
