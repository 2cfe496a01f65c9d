"""Difficulty of the tasks.

Steps of the fast preset to 99 % exact match, or the score at the end.
"""

from __future__ import annotations

from typing import Any

from playground.tasks import TASKS
from playground.training.presets import preset_config
from playground.training.trainer import Trainer

from ._results import Progress, format_commit
from .accuracy import format_median

TARGET_SCORE = 0.99
SEEDS = 5
MAX_STEPS = 600  # steps; the learning rate falls over four fifths of them


def measure(seeds: int = SEEDS, budget: int = MAX_STEPS) -> list[dict[str, Any]]:
    """Train every task with every seed, on its default lengths.

    A seed that misses the goal counts with its last score. Finished seeds of an interrupted
    measurement are not measured again.
    """
    progress = Progress("tasks")
    for name in TASKS:
        row = progress.row(task=name, seeds=seeds, budget=budget)
        if len(row.get("scores", [])) < seeds:
            row |= measure_task(name, seeds, budget)
            progress.write()
    return progress.rows


def measure_task(name: str, seeds: int = SEEDS, budget: int = MAX_STEPS) -> dict[str, Any]:
    """Return the row of one task."""
    steps, ended, n_evaluated, lengths = [], [], 0, [1, TASKS[name].default_max_length]
    for seed in range(seeds):
        fields = {
            "task": name,
            "seed": seed,
            "stop_at_exact_match": TARGET_SCORE,
            "max_steps": budget,
            "lr_decay_steps": budget * 4 // 5,
        }
        trainer = Trainer(preset_config("fast", fields))
        for _ in trainer:
            pass
        scores = trainer.evaluate()
        ended.append(scores.exact_match)
        n_evaluated = scores.n
        if scores.exact_match >= TARGET_SCORE:
            steps.append(trainer.step_count)
        print(
            f"{name}, seed {seed}: {scores.exact_match:.2%} of {n_evaluated} after "
            f"{trainer.step_count} "
            "steps",
            flush=True,
        )
    return {
        "task": name,
        "seeds": seeds,
        "budget": budget,
        "lengths": lengths,
        "n_evaluated": n_evaluated,
        "steps": steps,
        "scores": ended,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| task | seeds that reach 99 % | steps: median (maximum) | lowest exact match at the end "
        "| sequences evaluated |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        steps = (
            format_median(row["steps"], row["seeds"]) if row["steps"] else f"not in {row['budget']}"
        )
        lines.append(
            f"| {row['task']} | {len(row['steps'])} of {row['seeds']} | {steps} | "
            f"{min(row['scores']):.2%} | {row['n_evaluated']:,} |"
        )
    own = [
        f"{row['task']} on {row['measured']['date']} {format_commit(row['measured'])}"
        for row in rows
        if "measured" in row
    ]
    return "\n".join([*lines, *(["", f"Measured again alone: {'; '.join(own)}."] if own else [])])
