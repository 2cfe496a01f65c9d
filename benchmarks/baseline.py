"""CPU seconds to 99.9 % exact match, compared with an earlier commit of this repository.

Both commits train their own fast preset. Each run is a process of its own with one thread; the two
commits alternate seed by seed. Seconds include evaluation, but not the imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

from ._results import Progress
from .accuracy import FIRST_SEED, TARGET_SCORE, format_median

BASELINE_COMMIT = "e54af3e"
ROOT = Path(__file__).parent.parent
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {
    "reverse, lengths 1 to 10": (10, {}),
    "reverse, length 10": (5, {"min_length": 10}),
}
# Runs in the folder of either commit. The name of the last setting differs.
SCRIPT = """
import json, sys, time
from playground.training.presets import preset_config
from playground.training.trainer import Trainer
fields, stop_name, target = json.loads(sys.argv[1])
trainer = Trainer(preset_config("fast", {**fields, stop_name: target, "device": "cpu"}))
started = time.process_time()
for _ in trainer:
    pass
seconds = time.process_time() - started
score = trainer.evaluate().exact_match
print(json.dumps({"steps": trainer.step_count, "seconds": round(seconds, 3), "score": score}))
"""
STOP_SETTING = {"baseline": "until", "now": "stop_at_exact_match"}


def measure(settings: dict[str, tuple[int, dict[str, Any]]] = SETTINGS) -> list[dict[str, Any]]:
    """Train both commits with every seed, in turns.

    Finished seeds of an interrupted measurement are not measured again.

    Raises:
        subprocess.CalledProcessError: If git does not have the commit, or a run fails.
    """
    progress = Progress("baseline")
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", BASELINE_COMMIT, "playground"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            # Python 3.11.3 and earlier have no filters.
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(folder)
        for name, (n_seeds, fields) in settings.items():
            row = progress.row(setting=name, seeds=n_seeds)
            row.setdefault("baseline", [])
            row.setdefault("now", [])
            for seed in range(FIRST_SEED + len(row["now"]), FIRST_SEED + n_seeds):
                for version, root in (("baseline", folder), ("now", ROOT)):
                    run = train_once(Path(root), version, {**fields, "seed": seed})
                    row[version] = [*row[version][: seed - FIRST_SEED], run]
                    print(f"{name}, seed {seed}, {version}: {run}", flush=True)
                progress.write()
    return progress.rows


def train_once(root: Path, version: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Train the fast preset of the code in `root`; return steps, CPU seconds and score."""
    arguments = json.dumps([fields, STOP_SETTING[version], TARGET_SCORE])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, arguments],
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ratios(row: dict[str, Any]) -> list[float]:
    """Return the CPU seconds of this commit divided by those of the baseline, seed by seed."""
    return [
        now["seconds"] / baseline["seconds"]
        for baseline, now in zip(row["baseline"], row["now"], strict=True)
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| to 99.9 % | commit | seeds that reach it | steps: median (maximum) | CPU seconds: "
        f"median | divided by those of {BASELINE_COMMIT}, seed by seed: median (range) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        for version, label in (("baseline", BASELINE_COMMIT), ("now", "this commit")):
            runs = row[version]
            steps = [run["steps"] for run in runs if run["score"] >= TARGET_SCORE]
            share = ""
            if version == "now":
                all_ratios = ratios(row)
                share = f"{median(all_ratios):.2f} ({min(all_ratios):.2f} to {max(all_ratios):.2f})"
            lines.append(
                f"| {row['setting']} | {label} | {len(steps)} of {len(runs)} | "
                f"{format_median(steps, len(runs))} | {median(run['seconds'] for run in runs):.2f} "
                f"| {share} |"
            )
    return "\n".join(lines)
