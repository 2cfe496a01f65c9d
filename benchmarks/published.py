"""Replicate published results: train each claim as published, with several seeds."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from playground.checkpoints.checkpoint import metrics_record
from playground.cli.experiments import run_experiment
from playground.evaluation import annotated_transformer_loss
from playground.experiments.replications import (
    CLAIMS,
    metrics_of_run,
    outcome_of_experiment,
    outcome_of_seeds,
)
from playground.models.transformer import Transformer
from playground.tasks.held_out import build_held_out_set
from playground.training.trainer import FINAL_EVAL_SIZE, Trainer

from ._results import Progress, run_once

SEEDS = 3


def measure() -> list[dict[str, Any]]:
    """Measure each claim."""
    progress = Progress("published")
    for name in CLAIMS:
        row = progress.row(name=name, seeds=SEEDS)
        run_once(progress, row, partial(measure_claim, name))
    return progress.rows


def measure_claim(name: str) -> dict[str, Any]:
    """Return the row of one claim."""
    experiment, started = CLAIMS[name].experiment, time.monotonic()
    if len(experiment.variants) == 1:
        result = outcome_of_seeds(name, [train(name, seed) for seed in range(SEEDS)])
    else:
        spec = experiment.model_dump() | {"seeds": list(range(SEEDS))}
        with tempfile.TemporaryDirectory() as scratch:
            details = run_experiment(spec, Path(scratch) / "runs")
        result = outcome_of_experiment(name, details)
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
        "seconds": round(time.monotonic() - started),
    }


def train(name: str, seed: int) -> dict[str, Any]:
    """Train the run of a claim, and return its metrics."""
    config = CLAIMS[name].experiment.variants[0].config(seed).replace(num_threads=1)
    trainer = Trainer(config)
    lines = [metrics_record(metrics) for metrics in trainer]
    metrics = metrics_of_run(config, lines, dataclasses.asdict(trainer.evaluate()))
    measure = CLAIMS[name].measure
    if measure == "annotated_transformer_loss" and isinstance(trainer.eval_model, Transformer):
        held_out = build_held_out_set(
            trainer.task, FINAL_EVAL_SIZE, config.task.min_length, config.task.max_length
        )
        metrics[measure] = annotated_transformer_loss(trainer.eval_model.cpu(), held_out)
    return metrics


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
