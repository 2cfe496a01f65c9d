"""The benchmark on real pipelines, in this process."""

import json
import shutil
import threading

import pytest

from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.pretrained.benchmark.export import ModelRow, format_row, latest_rows
from playground.pretrained.benchmark.job import BenchmarkRequest
from playground.pretrained.jobs import run
from playground.pretrained.loading.model_files import training_data_note
from playground.pretrained.loading.model_names import METADATA_FILE
from playground.pretrained.loading.resolver import resolve


def run_benchmark(fields, cancel_when=None):
    """Return the rows and the result of a benchmark, which a row may cancel."""
    rows, cancelled = [], threading.Event()

    def receive(kind, *content):
        rows.extend(content if kind == "row" else ())
        if cancel_when and kind == "row" and cancel_when(content[0]):
            cancelled.set()

    try:
        return rows, run("benchmark", fields, ProgressReporter(receive, cancelled))
    except JobCancelled:
        return rows, None


@pytest.fixture(scope="module")
def full_benchmark(digits, tiny_gpt2, tiny_bert):
    models = [tiny_gpt2, tiny_bert, "/no/such folder"]
    fields = {"checkpoint": str(digits), "name": "own", "models": models, "n": 6, "shots": 1}
    return run_benchmark(fields)


@pytest.mark.smoke
def test_every_line_has_its_label(full_benchmark, tiny_gpt2, tiny_bert):
    rows, result = full_benchmark
    fields = ("model", "description", "n")
    lines = [(*map(row.get, fields), bool(row["error"])) for row in result["rows"]]
    unknown = "a folder; its training data is unknown"
    assert lines == [
        ("chance", "baseline", 6, False),
        ("copy the input", "baseline", 6, False),
        ("most frequent token", "baseline", 6, False),
        ("most frequent target", "baseline", 6, False),
        ("own", "trained on this task", 6, False),
        (tiny_gpt2, unknown, 6, False),
        (tiny_bert, unknown, 6, False),
        ("/no/such folder", "not evaluated", 0, True),
    ]
    assert latest_rows(rows) == result["rows"]
    assert all(set(row) == set(ModelRow.__annotations__) for row in result["rows"])
    assert result["rows"][4]["exact_match"] == 1.0
    assert result["rows"][7]["exact_match"] is None
    assert "is not the name of a model" in result["rows"][7]["error"]
    for row in result["rows"][5:7]:
        assert row["finished"] is True
        assert row["parameters"] > 0
        assert row["seconds_per_example"] > 0
        assert 0 <= row["exact_match_low"] <= row["exact_match"] <= row["exact_match_high"] <= 1
    assert "1 few-shot examples" in result["rows"][5]["decoding"]


def test_the_caption_names_the_comparison(full_benchmark):
    rows, result = full_benchmark
    assert rows[0]["kind"] == "settings"
    assert rows[0]["caption"] == result["caption"]
    assert "own (" in result["caption"]
    assert "was trained on exactly this task, reverse of 3 tokens" in result["caption"]
    assert "do not compete on equal terms" in result["caption"]
    assert rows[0]["few_shot_examples"] == [
        [" ".join(tokens) for tokens in (example.split(), example.split()[::-1])]
        for example, _ in rows[0]["few_shot_examples"]
    ]


def test_every_item_has_the_input_of_the_model(full_benchmark, tiny_gpt2):
    examples = [row for row in full_benchmark[0] if row["kind"] == "example"]
    items = [row for row in examples if row["model"] == tiny_gpt2]
    assert [row["number"] for row in items] == [1, 2, 3, 4, 5, 6]
    for row in items:
        assert row["prompt"].endswith(f"Input: {row['source']}\nOutput:")
        assert row["correct"] == (row["prediction"] == row["target"].split())
    json.dumps(full_benchmark[0], allow_nan=False)


def test_a_cancelled_benchmark_keeps_its_finished_rows(digits, tiny_gpt2):
    fields = {"checkpoint": str(digits), "models": [tiny_gpt2], "n": 20, "shots": 0}
    last = {"kind": "model", "model": tiny_gpt2, "n": 2}
    rows, result = run_benchmark(fields, cancel_when=lambda row: row.items() >= last.items())
    assert result is None
    lines = latest_rows(rows)
    ends = [(row["model"], row["n"], row["finished"]) for row in lines[4:]]
    assert ends == [(digits.name, 20, True), (tiny_gpt2, 2, False)]
    assert sum(row["kind"] == "example" and row["model"] == tiny_gpt2 for row in rows) == 2


def test_fine_tuned_folder_has_a_description(tiny_gpt2, tmp_path):
    folder = shutil.copytree(tiny_gpt2, tmp_path / "tuned")
    resolved = resolve(str(folder), ProgressReporter())
    metadata = json.dumps({"from": "gpt2", "task": "reverse", "steps": 50})
    for text, note in (
        (metadata, "fine-tuned: 50 steps on reverse, from gpt2"),
        ("[1]", "unknown"),
    ):
        (folder / METADATA_FILE).write_text(text)
        assert note in training_data_note(resolved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n is 0; give a whole number from 1 to 500"),
        ({"n": True}, "n is True"),
        ({"shots": 33}, "shots is 33; give a whole number from 0 to 32"),
        ({"models": [f"m{n}" for n in range(7)]}, "models has 7 values; give up to 6 models"),
        ({"models": [3]}, "models[0] is 3; give the name of a model"),
        ({"checkpoint": ""}, "give a checkpoint to compare with"),
    ],
)
def test_browser_state_is_validated(change, message):
    with pytest.raises(UserError) as error:
        BenchmarkRequest.parse({"checkpoint": "somewhere"} | change)
    assert message in str(error.value)


def test_shared_server_compares_fewer_examples(monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    with pytest.raises(UserError, match="n is 41; give a whole number from 1 to 40"):
        BenchmarkRequest.parse({"checkpoint": "somewhere", "n": 41})


def test_terminal_row_does_not_round_up_to_100_percent():
    row = dict.fromkeys(ModelRow.__annotations__)
    row |= {"model": "own", "error": "", "decoding": ""}
    row |= {"exact_match": 0.9996, "exact_match_low": 0.99, "exact_match_high": 1.0}
    assert " 99.9 % [ 99%, 100%]" in format_row(row)
    assert "100 % [ 99%, 100%]" in format_row(row | {"exact_match": 1.0})
