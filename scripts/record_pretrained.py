"""Record what *Compare* shows before a job ran here: `python -m scripts.record_pretrained FOLDER`.

The folder holds the weights of SmolLM2-135M-Instruct as a checkpoint of transformers.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
from typing import Any

import torch

from playground import CHECKPOINTS_DIR
from playground.jobs.progress import ProgressReporter
from playground.pretrained.jobs import run
from playground.ui.page import STATIC_DIR

MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
TEXT = {"model": MODEL, "text": "What is the capital of France?", "chat": True}
GENERATION = TEXT | {"task": "text-generation", "new_tokens": 24, "top_k": 8}
BENCHMARK = {"models": [MODEL], "n": 20, "shots": 8}


def record(name: str, kind: str, request: dict[str, Any], folder: str) -> None:
    """Run a job with the weights in a folder, and write its request, rows and result."""
    rows: dict[Any, dict[str, Any]] = {}

    def receive(message: str, *content: Any) -> None:
        if message == "row" and content[0].get("kind") != "example":
            row = content[0]  # that of a model in the benchmark replaces the one before
            rows[(row["kind"], row.get("index")) if "kind" in row else row["n"]] = row
        elif message == "message":
            print(content[0], flush=True)

    local = json.loads(json.dumps(request).replace(MODEL, folder))
    checkpoint = {"checkpoint": str(CHECKPOINTS_DIR / "reverse")} if kind == "benchmark" else {}
    result = run(kind, local | checkpoint, ProgressReporter(receive))
    recorded = {
        "request": request | {"of": "checkpoint:reverse"},
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, PyTorch {torch.__version__}",
        "rows": list(rows.values()),
        "result": result if kind == "inference" else None,
    }
    text = json.dumps(recorded, separators=(",", ":")).replace(folder, MODEL)
    (STATIC_DIR / "compare" / f"{name}.json").write_text(text + "\n")


def main(folder: str) -> None:
    os.environ["PLAYGROUND_LOCAL_MODELS"] = "1"
    record("continue", "inference", GENERATION, folder)
    record("benchmark", "benchmark", BENCHMARK, folder)


if __name__ == "__main__":
    main(sys.argv[1])
