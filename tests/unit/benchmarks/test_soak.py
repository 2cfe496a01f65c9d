"""The soak test counts lost points and damaged checkpoints."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import load_soak, one_client
from playground.checkpoints.checkpoint import save_checkpoint
from playground.training.trainer import Trainer
from tests.support.small_runs import tiny_config


@pytest.fixture
def run_folder(tmp_path):
    """A run with three steps and a checkpoint of the third."""
    trainer = Trainer(tiny_config())
    lines = [{"step": trainer.train_step().step, "loss": 1.0} for _ in range(3)]
    save_checkpoint(tmp_path / "checkpoints" / "0000003", trainer, None)
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_an_intact_run_has_no_missing_points(run_folder):
    result = load_soak.count_stored_data([run_folder])
    assert (result["points"], result["points_missing"], result["points_twice"]) == (3, 0, 0)
    assert (result["checkpoints"], result["checkpoints_unreadable"]) == (1, 0)


def test_a_lost_point_and_a_damaged_checkpoint_count(run_folder):
    lines = (run_folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run_folder / "metrics.jsonl").write_text(lines[0] + lines[2])
    (run_folder / "checkpoints" / "0000003" / "model.safetensors").write_bytes(b"half of it")
    result = load_soak.count_stored_data([run_folder])
    assert (result["points"], result["points_missing"]) == (2, 1)
    assert result["checkpoints_unreadable"] == 1


@pytest.mark.parametrize(("name", "benchmark"), [("soak", load_soak), ("one-client", one_client)])
@pytest.mark.parametrize(("options", "is_saved"), [([], False), (["--keep"], True)])
def test_keep_saves_the_results(monkeypatch, name, benchmark, options, is_saved):
    saved = []
    monkeypatch.setattr(benchmark, "measure", lambda *args: {"polls": 1})
    monkeypatch.setattr(benchmark, "table", lambda rows: "| a table |")
    monkeypatch.setattr(benchmark, "save_results", lambda *args: saved.append(args))
    result = CliRunner().invoke(benchmark.main, options, catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "| a table |\n")
    assert saved == ([(name, {"polls": 1})] if is_saved else [])
