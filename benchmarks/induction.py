"""Induction heads: the runs of the lesson with five seeds."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, cast

from playground.architectures.decoder_only import DecoderOnlyModel
from playground.inspection.induction import induction_scores
from playground.inspection.inspected_model import InspectedModel
from playground.lessons.interpretability_measurements import INDUCTION_SCORE
from playground.lessons.lessons import LESSONS, experiment
from playground.lessons.trained_run import EVAL_EXAMPLES
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

from ._results import Progress, run_once

SEEDS = 5


def measure() -> list[dict[str, Any]]:
    """Train both runs of the lesson with each seed."""
    progress, lesson = Progress("induction"), LESSONS["induction"]
    for seed in range(SEEDS):
        planned = experiment(lesson, {"seed": seed}).planned_runs()
        for label, (_, variant, _) in zip(lesson.runs, planned, strict=True):
            row = progress.row(run=label, seed=seed)
            run_once(progress, row, partial(measure_run, variant.config(seed)))
    return progress.rows


def measure_run(config: RunConfig) -> dict[str, Any]:
    """Return the score of the best head of one run, and its CPU seconds."""
    started = time.process_time()
    trainer = Trainer(config)
    *_, last = trainer
    seconds = time.process_time() - started
    model = cast(DecoderOnlyModel, trainer.eval_model)
    batch = InspectedModel.from_model(config, model).held_out(EVAL_EXAMPLES).batch
    best = max(induction_scores(model, batch), key=lambda score: score.prefix_matching)
    print(f"{config.model.n_layers} layers, seed {config.training.seed}: {best}", flush=True)
    return {
        "prefix_matching": best.prefix_matching,
        "copying": best.copying,
        "exact_match": last.exact_match,
        "cpu_seconds": seconds,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown."""
    lines = [
        f"| model | seeds with a head above {INDUCTION_SCORE} | prefix matching of the best head "
        "| its copying | exact match | CPU seconds |",
        "|---|---|---|---|---|---|",
    ]
    for label in dict.fromkeys(row["run"] for row in rows):
        runs = [row for row in rows if row["run"] == label]
        n_above = sum(row["prefix_matching"] > INDUCTION_SCORE for row in runs)
        ranges = (
            f"{min(row[name] for row in runs):.{digits}f} to "
            f"{max(row[name] for row in runs):.{digits}f}"
            for name, digits in (
                ("prefix_matching", 2),
                ("copying", 2),
                ("exact_match", 3),
                ("cpu_seconds", 0),
            )
        )
        lines.append(f"| {label} | {n_above} of {len(runs)} | {' | '.join(ranges)} |")
    return "\n".join(lines)
