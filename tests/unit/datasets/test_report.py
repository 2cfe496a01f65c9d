"""The report about a dataset."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.common.stats import wilson_interval
from playground.datasets.report import describe, held_out_warning, summarize
from playground.datasets.sources import read_bytes, read_text

PAIRS = [(f"{a}{b}{c}", f"{c}{b}{a}") for a in "abcdefg" for b in "abcdefg" for c in "abcdefg"]
LINES = [f"{a},{b}" for a, b in PAIRS]
TABS = "\n".join(f"{a}\t{b}" for a, b in PAIRS)


@pytest.mark.parametrize(
    ("data", "name", "recognized"),
    [
        (TABS.encode(), "a.tsv", "Text, UTF-8, separated by tabs; the first line is an example"),
        (
            ('sep=;\r\nQuelle;"Ziel, groß"\r\n' + "\r\n".join(LINES).replace(",", ";")).encode(
                "latin-1"
            ),
            "a.csv",
            'CSV, Latin-1, separated by semicolons; the first line gives the names: Quelle, "Ziel, '
            'groß"',
        ),
        (
            "".join(f'{{"a": "{a}", "b": "{b}"}}\n' for a, b in PAIRS).encode("utf-16"),
            "a.jsonl",
            "JSON Lines, UTF-16; the columns: a, b",
        ),
    ],
)
def test_the_report_has_what_was_recognized(data, name, recognized):
    dataset = read_bytes(data, name)
    assert describe(dataset)["recognized"] == summarize(dataset)[0] == recognized
    assert len(dataset) == len(PAIRS)


@given(st.lists(st.sampled_from(["repeated", "other", "no target", "decomposed"]), max_size=30))
def test_every_row_is_counted_once(kinds):
    rows = {"repeated": LINES[0], "other": f"{PAIRS[0][0]},zzz", "no target": "abc,"}
    added = [rows.get(kind, f"e\u0301{n},x") for n, kind in enumerate(kinds)]
    report = describe(read_bytes("\n".join([*LINES, *added]).encode(), "a.tsv"))
    parts = ("n_pairs", "n_duplicates", "n_conflicts", "n_skipped")
    assert report["n_rows"] == len(LINES) + len(added) == sum(report[part] for part in parts)
    expected = [kinds.count(kind) for kind in ("repeated", "other", "no target", "decomposed")]
    assert [report[part] for part in (*parts[1:], "n_normalized")] == expected
    assert len(report["skipped"]) == min(5, report["n_skipped"])


@pytest.mark.parametrize("row", [",abc", "only a source,", "a b,", "xyz,\x07", "-"])
def test_an_unusable_row_changes_no_token(row):
    usual = read_bytes("\n".join(LINES).encode(), "a.tsv")
    dataset = read_bytes("\n".join([*LINES[:20], row, *LINES[20:]]).encode(), "a.tsv")
    assert dataset.sha256 == usual.sha256
    assert dataset.report.n_skipped == 1


def test_sentences_name_what_is_left_out_and_normalized():
    text = "\n".join([*LINES[:200], "e\u0301,x", "a,", *["b,"] * 6])
    sentences = summarize(read_text(text))
    assert any(each.startswith("7 of 208 rows are left out: row 202 has no") for each in sentences)
    assert any("; and 2 more" in each for each in sentences)
    assert any("1 pair had letters in another Unicode form" in each for each in sentences)


def test_a_score_on_few_held_out_examples_has_its_interval():
    for n in range(1, 20):
        low = wilson_interval(n, n)[0]
        assert f"{n} of {n} right means {int(100 * low)} to 100 %" in held_out_warning(n)
    assert held_out_warning(1).startswith("only 1 example is held out")
    assert held_out_warning(20) == held_out_warning(0) == ""
