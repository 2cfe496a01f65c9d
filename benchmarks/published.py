"""Replicate published results.

Runs `python -m playground published NAME --seeds 3` for each claim; an experiment has its own
seeds.
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

from playground.experiments.replications import claims

from ._results import Progress, run_once

SEEDS = 3


def measure() -> list[dict[str, Any]]:
    """Measure each claim in its own process."""
    progress = Progress("published")
    for claim in claims():
        seeds = SEEDS if claim["experiment"] is None else len(claim["experiment"]["seeds"])
        run_once(progress, progress.row(name=claim["name"], seeds=seeds), partial(replicate, claim))
    return progress.rows


def replicate(claim: dict[str, Any], seeds: int | None = None) -> dict[str, Any]:
    """Return the row of one claim; `seeds` replaces the number of seeds."""
    arguments = ["published", claim["name"], "--json", "--out"]
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "playground", *arguments, str(Path(scratch) / "run")]
        if seeds or claim["experiment"] is None:
            command += ["--seeds", str(seeds or SEEDS)]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - started
    if not done.stdout.strip():
        raise RuntimeError(f"{claim['name']} printed nothing: {done.stderr[-500:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    print(result["summary"], flush=True)
    return {
        "title": claim["title"],
        "published": result["statement"],
        "criterion": result["criterion"],
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
    lines += [
        f"| {row['title']} | {row['published']} | {row['result']} | {row['criterion']} | "
        f"{row['verdict']} |"
        for row in rows
    ]
    return "\n".join(lines)
