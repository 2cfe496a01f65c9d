"""Parameter counts of well-known models, and the facts about the families."""

import subprocess
import sys

import pytest

from playground.comparison.process import run
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.model_facts import ARCHITECTURE_FACTS, ARCHITECTURE_TREE, gpt3_parts


def test_counts_are_those_of_the_published_weights():
    actual = run("model-sizes", {"parameters": 200_000, "name": "mine"}, ProgressReporter())
    sizes = {row["name"]: row for row in actual["models"]}
    assert sizes["GPT-2"]["parameters"] == 124_439_808
    assert sizes["BERT base"]["parameters"] == 109_482_240
    assert sizes["BERT base"]["method"] == "counted"
    assert (sizes["GPT-3"]["parameters"], sizes["GPT-3"]["method"]) == (174_604_259_328, "counted")
    assert (sizes["PaLM"]["parameters"], sizes["PaLM"]["method"]) == (540_000_000_000, "cited")
    assert sizes["PaLM"]["ratio"] == 2_700_000
    assert all(row["source"] for row in actual["models"])
    assert actual["models"][0]["name"] == "mine"
    counts = [row["parameters"] for row in actual["models"]]
    assert counts == sorted(counts)
    assert "this model" not in {
        row["name"] for row in run("model-sizes", {}, ProgressReporter())["models"]
    }


def test_parts_of_gpt3_sum_to_its_totals():
    parts = {row["part"]: row for row in gpt3_parts()}
    assert sum(row["by_formula"] for row in parts.values()) == 175_181_291_520
    assert sum(row["counted"] for row in parts.values()) == 174_604_259_328
    assert parts["queries"]["by_formula"] == parts["queries"]["counted"] == 14_495_514_624
    assert parts["feed-forward, up"]["counted"] == 57_982_058_496
    assert parts["output layer"] == {
        "part": "output layer",
        "formula": "50,257 × 12,288",
        "by_formula": 617_558_016,
        "counted": 0,  # the table of the token embeddings
    }
    assert parts["position vectors"]["counted"] == 2048 * 12_288


def test_invalid_sizes_are_rejected():
    with pytest.raises(UserError, match="parameters is 'many'"):
        run("model-sizes", {"parameters": "many"}, ProgressReporter())


def test_the_families_and_the_tree_are_whole():
    columns = {
        "architecture",
        "examples",
        "direction",
        "generates",
        "best_for",
        "objective",
        "cross_attention",
    }
    assert all(set(row) == columns and all(row.values()) for row in ARCHITECTURE_FACTS)
    names = [row["name"] for row in ARCHITECTURE_TREE]
    assert [row["year"] for row in ARCHITECTURE_TREE] == sorted(
        row["year"] for row in ARCHITECTURE_TREE
    )
    assert all(
        parent in names[:index]
        for index, row in enumerate(ARCHITECTURE_TREE)
        for parent in row["from"]
    )
    assert {row["architecture"] for row in ARCHITECTURE_TREE} == {
        row["architecture"] for row in ARCHITECTURE_FACTS
    }


def test_the_page_reads_presets_without_torch():
    code = (
        "import sys, playground.pretrained.model_facts; sys.exit('torch' in sys.modules or "
        "'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
