"""Compare the training of the fast preset with that of version 0.2.0, interleaved on one machine.

Version 0.2.0 is the preset adam with padded batches. Both train and score in the same code, on one
thread. A part of the speed comes from packed rows, which the first table measures alone; the second
one counts CPU seconds until 99.9 % of 2,000 held-out sequences are exact matches.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

from playground.evaluation import EvalResult
from playground.training.presets import preset_config
from playground.training.run_config import RunConfig
from playground.training.trainer import FINAL_EVAL_SIZE, Trainer

from ._timing import format_interval, rounds, speedup
from .accuracy import TARGET_SCORE, format_median
from .accuracy_vs_references import TimedTrainer

SEEDS = 5
SECONDS = 30  # for each row of the first table; at least seven rounds
MAX_STEPS = 400
STEP_SETTINGS: dict[str, dict[str, Any]] = {
    "lengths 1 to 10": {},
    "lengths 1 to 20": {"max_length": 20},
    "length 10": {"min_length": 10},
    "parity, lengths 1 to 10": {"task": "parity"},
}
GOALS: dict[str, dict[str, Any]] = {
    "reverse, lengths 1 to 10": {},
    "reverse, length 10": {"min_length": 10},
}


class PaddedTrainer(TimedTrainer):
    """A Trainer that trains and scores on padded batches."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config, pack=False)

    def score(self, n: int = FINAL_EVAL_SIZE) -> tuple[EvalResult, float | None]:
        with patch("playground.evaluation.can_pack", return_value=False):
            return super().score(n)


def measure_steps(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the steps per second of packed rows over padded batches, and of both presets."""
    unlimited = {"max_steps": 1_000_000, "eval_every": 1_000_000, "device": "cpu"}
    fixed_schedule = {"lr_schedule": "constant", "learning_rate": 1e-4}
    adam = preset_config("adam", fields | unlimited | fixed_schedule)
    fast = preset_config("fast", fields | unlimited | fixed_schedule)
    seconds = rounds(
        {
            "padded": Trainer(adam, pack=False).train_step,
            "packed": Trainer(adam).train_step,
            "fast": Trainer(fast).train_step,
        },
        SECONDS,
    )
    return {
        "setting": name,
        "rounds": len(seconds["padded"]),
        "milliseconds": {each: round(1e3 * median(seconds[each]), 2) for each in seconds},
        "packed": speedup(seconds["packed"], seconds["padded"]),
        "fast": speedup(seconds["fast"], seconds["padded"]),
    }


def measure_goal(name: str, fields: dict[str, Any], seeds: int) -> dict[str, Any]:
    """Train with both presets in turn, seed by seed, until the target score."""
    row: dict[str, Any] = {"setting": name, "seeds": seeds, "adam": [], "fast": []}
    for seed in range(seeds):
        stop = {"seed": seed, "stop_at_exact_match": TARGET_SCORE, "max_steps": MAX_STEPS}
        settings = stop | fields | {"device": "cpu"}
        for preset, trainer_class in (("adam", PaddedTrainer), ("fast", TimedTrainer)):
            trainer = trainer_class(preset_config(preset, settings))
            started = time.process_time()
            for _ in trainer:
                pass
            seconds = time.process_time() - started - trainer.evaluation_seconds
            run = {
                "steps": trainer.step_count,
                "reached": trainer.stopped_early,
                "seconds": round(seconds, 3),
                "scoring": round(trainer.evaluation_seconds, 3),
            }
            row[preset].append(run)
            print(f"{name}, {preset}, seed {seed}: {run}", flush=True)
    return row


def measure(seeds: int = SEEDS) -> dict[str, Any]:
    torch.set_num_threads(1)
    measure_goal("warm-up", {"max_steps": 3, "max_length": 4}, 1)  # torch initializes once
    return {
        "steps": [measure_steps(name, fields) for name, fields in STEP_SETTINGS.items()],
        "goals": [measure_goal(name, fields, seeds) for name, fields in GOALS.items()],
    }


def table(rows: dict[str, Any]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| step of batch 128 | rounds | padded, packed, packed with Muon and averages: ms | speed, "
        "packed / padded: median (95 % interval) | speed, fast preset / padded Adam: median (95 % "
        "interval) |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['setting']} | {row['rounds']} | "
        f"{', '.join(f'{value:g}' for value in row['milliseconds'].values())} | "
        f"{format_interval(row['packed'])} | {format_interval(row['fast'])} |"
        for row in rows["steps"]
    ]
    lines += [
        "",
        "| to 99.9 % | settings | seeds that reach it | steps: median (maximum) | CPU seconds of "
        "training: median | CPU seconds of scoring: median | both / those of version 0.2.0: median "
        "over seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows["goals"]:
        totals = [
            [run["seconds"] + run["scoring"] for run in row[preset]] for preset in ("adam", "fast")
        ]
        ratio = median(fast / adam for adam, fast in zip(*totals, strict=True))
        for preset, text in (("adam", "version 0.2.0"), ("fast", "fast preset")):
            reached = [run["steps"] for run in row[preset] if run["reached"]]
            training, scoring = (
                median(run[name] for run in row[preset]) for name in ("seconds", "scoring")
            )
            lines.append(
                f"| {row['setting']} | {text} | {len(reached)} of {row['seeds']} | "
                f"{format_median(reached, row['seeds'])} | {training:.2f} | {scoring:.2f} | "
                f"{f'{ratio:.2f}' if preset == 'fast' else ''} |"
            )
    return "\n".join(lines)
