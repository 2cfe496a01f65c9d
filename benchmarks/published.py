"""Replicate published results.

Runs `python -m playground published NAME` for each result that takes one run.
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

SEED = 0


def measure() -> list[dict[str, Any]]:
    """Measure each claim that takes one run, in its own process."""
    progress = Progress("published")
    for claim in claims():
        if claim["experiment"] is None:
            run_once(
                progress, progress.row(name=claim["name"], seed=SEED), partial(reproduce, claim)
            )
    return progress.rows


def reproduce(claim: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one claim."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable,
            "-m",
            "playground",
            "published",
            claim["name"],
            "--seed",
            str(SEED),
            "--json",
            "--out",
        ]
        started = time.monotonic()
        done = subprocess.run(
            [*command, str(Path(scratch) / "run")], capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - started
    if not done.stdout.strip():
        raise RuntimeError(f"{claim['name']} printed nothing: {done.stderr[-500:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    print(result["summary"], flush=True)
    return {
        "title": claim["title"],
        "published": result["statement"],
        "rule": result["rule"],
        "ours": result["ours"],
        "passed": result["passed"],
        "sentence": result["summary"],
        "seconds": round(seconds),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    lines = ["| claim | published | ours | rule | |", "|---|---|---|---|---|"]
    for row in rows:
        ours = (
            f"step {row['ours']}" if row["name"] == "x-transformers-copy" else f"{row['ours']:.4g}"
        )
        if row["name"] in ("uva-reversal", "mingpt-sort"):
            ours = f"{row['ours']:.2%}"
        lines.append(
            f"| {row['title']} | {row['published']} | {ours} | {row['rule']} | "
            f"{_outcome_label(row)} |"
        )
    return "\n".join(lines)


def _outcome_label(row: dict[str, Any]) -> str:
    if not row["passed"]:
        return "does not hold"
    return (
        "reached; there is no figure to hold against"
        if row["published"].startswith("no figure")
        else "holds"
    )
