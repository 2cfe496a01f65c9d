"""Steps and CPU seconds until 99.9 % exact match on 2,000 held-out sequences, over seeds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from playground.common.stats import censored_summary
from playground.training.presets import preset_config
from playground.training.trainer import Trainer

from ._results import Progress

TARGET_SCORE = 0.999
FIRST_SEED = 100  # the presets were chosen on smaller seeds


@dataclass(frozen=True)
class Setting:
    """A row of the table: the run, the number of seeds, and the promised steps."""

    name: str
    seeds: int
    expected_steps: int | None
    preset: str
    fields: dict[str, Any]


LONGER = {"max_length": 20, "max_steps": 600, "lr_decay_steps": 480, "position_std": 2.0}
SETTINGS = (
    Setting("reverse, length 10", 10, 40, "fast", {"min_length": 10}),
    Setting("copy, length 10", 10, 40, "fast", {"task": "copy", "min_length": 10}),
    Setting("reverse, lengths 1 to 10", 10, 130, "fast", {}),
    Setting("copy, lengths 1 to 10", 5, None, "fast", {"task": "copy"}),
    Setting(
        "reverse, lengths 1 to 20, position_std 2; decay over 480 of 600 steps",
        5,
        300,
        "fast",
        LONGER,
    ),
    Setting("one head: reverse, lengths 1 to 10", 5, None, "one-head", {}),
    Setting("the paper's settings: reverse, length 10", 3, None, "paper", {"min_length": 10}),
    Setting("as in the tutorial: reverse, length 10", 3, None, "tutorial", {"min_length": 10}),
)


def measure(
    settings: tuple[Setting, ...] = SETTINGS, name: str = "accuracy"
) -> list[dict[str, Any]]:
    """Train every setting with every seed.

    A seed that misses the goal counts with its last score. Finished seeds of an interrupted
    measurement are not measured again.
    """
    progress = Progress(name)
    for setting in settings:
        row = progress.row(
            setting=setting.name, seeds=setting.seeds, promised=setting.expected_steps
        )
        for each in ("steps", "seconds", "scores"):
            row.setdefault(each, [])
        for seed in range(FIRST_SEED + len(row["scores"]), FIRST_SEED + setting.seeds):
            trainer = Trainer(
                preset_config(
                    setting.preset,
                    {**setting.fields, "seed": seed, "stop_at_exact_match": TARGET_SCORE},
                )
            )
            started = time.process_time()  # of one thread: other work on the machine does not count
            for _ in trainer:
                pass
            seconds = time.process_time() - started
            score = trainer.evaluate().exact_match
            row["scores"].append(score)
            if score >= TARGET_SCORE:
                row["steps"].append(trainer.step_count)
                row["seconds"].append(round(seconds, 2))
            row |= {"reached": len(row["steps"]), "lowest_score": min(row["scores"])}
            progress.write()
            print(
                f"{setting.name}, seed {seed}: {score:.2%} after {trainer.step_count} steps, "
                f"{seconds:.1f} s",
                flush=True,
            )
    return progress.rows


def format_median(steps: list[int], seeds: int) -> str:
    """Format the median and the maximum of the steps to a goal, over all seeds.

    Seeds that never reach the goal count as infinitely many steps. If the median or the maximum
    falls among them, the text states it.
    """
    text = censored_summary([*steps, *[None] * (seeds - len(steps))])
    if text is None or not steps:
        return "not reached"
    upper = f"{text['high']:g}" if text["high"] is not None else f"{max(steps)} and more"
    return (f"{text['median']:g}" if text["median"] is not None else "not reached") + f" ({upper})"


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| setting | seeds that reach it | steps: median (maximum) | goal | CPU seconds, where "
        "reached: median | lowest exact match of a seed at its end |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        seeds = len(row.get("scores", [])) or row["seeds"]
        steps = format_median(row["steps"], seeds)
        seconds = f"{median(row['seconds']):.1f}" if row["seconds"] else ""
        promised = f"at most {row['promised']}" if row["promised"] else ""
        lines.append(
            f"| {row['setting']} | {row['reached']} of {seeds} | {steps} | {promised} | {seconds} "
            f"| {row['lowest_score']:.2%} |"
        )
    return "\n".join(lines)
