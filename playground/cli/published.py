"""published: reproduce a published claim."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common.storage import checkpoints_root
from playground.models.config_fields import ConfigError
from playground.runs.memory import ensure_memory_available
from playground.training.config import RunConfig

from .common import check_output_dir, exit_with_error, reject_options, reserve_output_dir
from .experiment_runs import experiments_folder_option, run_experiment
from .train import train_with_progress, translating_option_names

if TYPE_CHECKING:
    from playground.training.trainer import Trainer


@click.command()
@click.argument("name", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the run.")
@click.option("--threads", type=int, default=1, show_default=True, help="CPU threads.")
@experiments_folder_option
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def published(name: str | None, seed: int, threads: int, out: Path | None, as_json: bool) -> None:
    """Reproduce a published claim: train as published, and compare the measured result.

    Without NAME, the claims are listed. The exit code is 1 if the result differs.
    """
    from playground.experiments.replications import (
        CLAIMS,
        claims,
        metrics_of_run,
        outcome,
        outcome_of_lengths,
        replication_config,
    )

    if name is None:
        reject_options(("seed", "num_threads", "out"), "without a NAME; give one")
        claims_listed = claims()
        for line in [] if as_json else claims_listed:
            click.echo(f"{line['name']:20} {line['title']}: {line['statement']} ({line['source']})")
            click.echo(f"{'':20} {line['missing'] or line['command']}")
        if as_json:
            click.echo(json.dumps(claims_listed))
        return
    out = out or checkpoints_root() / "runs" / f"published-{name}"
    try:
        if name in CLAIMS and (requested := CLAIMS[name].experiment) is not None:
            result = outcome_of_lengths(run_experiment(dict(requested), out)["lengths"])
        else:
            config = replication_config(name, seed).replace(num_threads=threads)
            ensure_memory_available(config)
            result = outcome(
                name, train_and_measure(config, out, metrics_of_run, CLAIMS[name].measure)
            )
    except ConfigError as error:
        exit_with_error(translating_option_names(error))
    if as_json:
        click.echo(json.dumps(result | {"out": str(out), "seed": seed}))
    else:
        click.echo(result["summary"])
    if not result["passed"]:
        raise SystemExit(1)


def train_and_measure(
    config: RunConfig, out: Path, metrics_of_run: Callable[..., dict[str, Any]], measure: str
) -> dict[str, Any]:
    """Train or continue a run, save its checkpoint, and return its metrics."""
    from playground.checkpoints.checkpoint import metrics_record, save_checkpoint
    from playground.models.transformer import Transformer

    trainer, lines = _new_or_resumed(config, out)
    failure, exit_code = train_with_progress(trainer, lines)
    scores = None if failure else trainer.evaluate()
    try:
        save_checkpoint(out, trainer, lines, scores)
    except CheckpointError as error:
        failure, exit_code = str(error), exit_code or 1
    else:
        failure = failure and f"{failure}; saved to {out}, the same command continues from there"
    if failure or scores is None:
        click.echo(f"playground: {failure}", err=True)
        raise SystemExit(exit_code)
    metrics = metrics_of_run(
        config, [metrics_record(line) for line in lines], dataclasses.asdict(scores)
    )
    if measure == "symbol_loss" and isinstance(trainer.eval_model, Transformer):
        from playground.evaluation import annotated_transformer_loss
        from playground.tasks.held_out import build_held_out_set
        from playground.training.trainer import FINAL_EVAL_SIZE

        held_out = build_held_out_set(
            trainer.task, FINAL_EVAL_SIZE, config.task.min_length, config.task.max_length
        )
        metrics["symbol_loss"] = annotated_transformer_loss(trainer.eval_model.cpu(), held_out)
    return metrics


def _new_or_resumed(config: RunConfig, out: Path) -> tuple[Trainer, list[Any]]:
    """Return the trainer of a run, and its metrics so far, from the checkpoint in `out` if any."""
    from playground.checkpoints.checkpoint import resume_trainer
    from playground.training.trainer import Trainer

    is_new = not (out / "config.json").is_file()
    click.get_current_context().with_resource(
        reserve_output_dir(out, lambda: check_output_dir(out, keeps_existing=is_new))
    )
    if is_new:
        return Trainer(config), []
    try:
        if read_manifest(out).config != config:
            exit_with_error(
                f"--out {out} already holds a checkpoint with other settings; choose "
                "another folder, or remove it"
            )
        return resume_trainer(out)
    except CheckpointError as error:
        exit_with_error(str(error))
