"""Facts about the families."""

import subprocess
import sys

from playground.pretrained.model_facts import ARCHITECTURE_FACTS, ARCHITECTURE_TREE


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
