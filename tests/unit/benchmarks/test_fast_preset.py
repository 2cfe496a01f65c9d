from unittest.mock import patch

import pytest

from benchmarks import fast_preset
from benchmarks.fast_preset import PaddedTrainer
from playground.architectures import packed_rows
from playground.training.presets import preset_config

pytestmark = pytest.mark.usefixtures("frozen_heap")  # every round collects garbage

TINY = {
    "task": "copy",
    "n_symbols": 4,
    "min_length": 2,
    "max_length": 4,
    "d_model": 16,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 16,
    "eval_every": 2,
    "eval_size": 16,
}


def test_padded_trainer_neither_trains_nor_scores_packed_rows():
    config = preset_config("adam", TINY | {"max_steps": 2, "device": "cpu"})
    with patch.object(packed_rows, "pack") as pack:
        list(PaddedTrainer(config))
    assert not pack.called


def test_presets_run_with_equal_seeds_and_are_compared(monkeypatch):
    monkeypatch.setattr(fast_preset, "SECONDS", 0)
    monkeypatch.setattr(fast_preset, "STEP_SETTINGS", {"tiny": TINY})
    monkeypatch.setattr(fast_preset, "GOALS", {"tiny copy": TINY | {"max_steps": 4}})
    rows = fast_preset.measure(seeds=2)
    [steps], [goal] = rows["steps"], rows["goals"]
    assert steps["rounds"] >= 5
    assert set(steps["milliseconds"]) == {"padded", "packed", "fast"}
    assert [run["steps"] for run in goal["adam"] + goal["fast"]] == [4, 4, 4, 4]
    table = fast_preset.table(rows)
    assert "| tiny copy | version 0.2.0 | 0 of 2 | not reached |" in table
    assert len(table.splitlines()) == 3 + 1 + 2 + 2
