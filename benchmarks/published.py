"""Replicate published results.

Runs `python -m playground published NAME --seeds 3` for each claim.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from playground.experiments.claims import CLAIMS

from ._results import Progress, run_once

SEEDS = 3


def measure() -> list[dict[str, Any]]:
    """Measure each claim in its own process."""
    progress = Progress("published")
    for name in CLAIMS:
        row = progress.row(name=name, seeds=SEEDS)
        run_once(progress, row, partial(measure_claim, name))
    return progress.rows


def measure_claim(name: str) -> dict[str, Any]:
    """Return the row of one claim."""
    arguments = ["published", name, "--seeds", str(SEEDS), "--json", "--out"]
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "playground", *arguments, str(Path(scratch) / "run")]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - started
    if not done.stdout.strip():
        raise RuntimeError(f"{name} printed nothing: {done.stderr[-500:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    print(result["summary"], flush=True)
    return {
        "name": name,
        "seeds": SEEDS,
        "done": True,
        "value": result["measured"],
        "by_seed": result.get("by_seed"),
        "passed": result["passed"],
        "verdict": result.get("verdict", "not measured"),
        "result": result.get("measured_text", result["summary"]),
        "seconds": round(seconds),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    lines = ["| claim | published | reproduced | criterion | |", "|---|---|---|---|---|"]
    for row in rows:
        claim = CLAIMS[row["name"]]
        lines.append(
            f"| {claim.title} | {claim.statement} | {row['result']} | {claim.criterion} | "
            f"{row['verdict']} |"
        )
    return "\n".join(lines)
