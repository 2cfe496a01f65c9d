"""The copy of a shard's results that outlives its disk."""

import pytest

from playground.experiments import shards
from playground.experiments.shards import mirrored_results
from tests.support.app_server import wait_for


def files(folder):
    return {path.name: path.read_text() for path in (folder / "experiments").iterdir()}


def write(folder, **contents):
    for name, text in contents.items():
        (folder / "experiments" / name.replace("_", ".")).write_text(text)


def test_results_are_copied_also_after_a_signal_and_continued_elsewhere(tmp_path):
    first, second, results = (tmp_path / name for name in ("first", "second", "results"))

    def train():
        with mirrored_results(first, results):
            write(first, a_json="{}", a_jsonl="line\n")
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        train()
    assert files(results) == {"a.json": "{}", "a.jsonl": "line\n"}
    with mirrored_results(second, results):
        assert files(second) == files(results)
        write(second, a_json="{1}", a_jsonl="line\nline\n")
    assert files(results) == {"a.json": "{1}", "a.jsonl": "line\nline\n"}


def test_results_are_copied_during_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "COPY_INTERVAL_S", 0.01)
    out, results = tmp_path / "out", tmp_path / "results"
    with mirrored_results(out, results):
        write(out, a_json="{}")
        wait_for(lambda: files(results) == {"a.json": "{}"}, 10, "a copy")


def test_unfinished_files_are_not_copied(tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    with mirrored_results(out, results):
        (out / "experiments" / ".a.json.1234.tmp").write_text("{")
    assert files(results) == {}


@pytest.mark.parametrize("has_weights", [True, False])
def test_finished_runs_are_copied_where_weights_stay(tmp_path, has_weights):
    out, results = tmp_path / "out", tmp_path / "results"
    with mirrored_results(out, results, has_weights):
        for run in ("done", "training"):
            checkpoint = out / "runs" / f"folder-of-{run}" / "checkpoints" / "5"
            checkpoint.mkdir(parents=True)
            (checkpoint.parents[1] / "run.json").write_text(f'{{"id": "{run}"}}')
            (checkpoint / "model.safetensors").write_bytes(b"weights")
        write(out, a_json='{"runs": {"0/0": "done", "0/1": "training"}, "summarized": ["done"]}')
    copied = [path.relative_to(results).parts[1] for path in results.rglob("*.safetensors")]
    assert copied == ["folder-of-done"] * has_weights
