"""How hard each task is: steps of the fast preset until 99 % exact match on 2,000 held-out sequences, or what was reached instead."""

from __future__ import annotations

from statistics import median
from typing import Any

from playground.tasks import TASKS
from playground.training.presets import preset_config
from playground.training.trainer import Trainer

GOAL = 0.99
SEEDS = 1
BUDGET = 600  # steps; the learning rate falls over four fifths of them


def measure(seeds: int = SEEDS, budget: int = BUDGET) -> list[dict[str, Any]]:
    """Every task with every seed, on the preset's own lengths. A seed that does not reach the goal counts with the score it ended at."""
    rows = []
    for name in TASKS:
        steps, ended, asked = [], [], 0
        for seed in range(seeds):
            fields = {"task": name, "seed": seed, "until": GOAL, "steps": budget, "decay_steps": budget * 4 // 5}
            trainer = Trainer(preset_config("fast", fields))
            for _ in trainer:
                pass
            scores = trainer.evaluate()
            ended.append(scores.exact_match)
            asked = scores.n
            if scores.exact_match >= GOAL:
                steps.append(trainer.step_count)
            print(f"{name}, seed {seed}: {scores.exact_match:.2%} of {asked} after {trainer.step_count} steps", flush=True)
        rows.append({"task": name, "seeds": seeds, "budget": budget, "asked": asked, "steps": steps, "scores": ended})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = [
        "| task | seeds that reach 99 % | steps: median (most) | lowest score of a seed at its end | sequences asked |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        steps = f"{median(row['steps']):g} ({max(row['steps'])})" if row["steps"] else f"not in {row['budget']}"
        lines.append(f"| {row['task']} | {len(row['steps'])} of {row['seeds']} | {steps} | {min(row['scores']):.2%} | {row['asked']:,} |")
    return "\n".join(lines)
