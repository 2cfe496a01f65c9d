"""published: replicate published claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
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
from .setting_options import translating_option_names
from .train import train_with_progress

if TYPE_CHECKING:
    from playground.experiments.claim import Claim
    from playground.training.trainer import Trainer


@click.command()
@click.argument("name", required=False)
@click.option("--all", "run_all", is_flag=True, help="Replicate every claim, one after the other.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the run.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 20),
    default=None,
    help="Number of runs with the seeds 0, 1, ...; the median is compared. [default: one run with "
    "--seed; an experiment has its own seeds]",
)
@click.option("--threads", type=int, default=1, show_default=True, help="CPU threads.")
@experiments_folder_option
@click.option("--json", "as_json", is_flag=True, help="Write one line of JSON for each result.")
def published(
    name: str | None,
    run_all: bool,
    seed: int,
    seeds: int | None,
    threads: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Replicate a published claim: train as published, and compare the measured result.

    Without NAME and --all, the claims are listed. The exit code is 1 if a result fails its
    criterion.
    """
    from playground.experiments.claims import CLAIMS
    from playground.experiments.replications import find_claim

    if name is None and not run_all:
        reject_options(("seed", "seeds", "threads", "out"), "without a NAME or --all; give one")
        _list_claims(as_json)
        return
    if name is not None and run_all:
        exit_with_error(f"--all includes {name}; give only one of them")
    if seeds is not None:
        reject_options(("seed",), "with --seeds; give only one of them")
    chosen = list(range(seeds)) if seeds else [seed]
    has_failed = False
    for each in [name] if name is not None else list(CLAIMS):
        try:
            claim = find_claim(each)
            click.echo(f"{each}: {claim.title}, {_expected_duration(claim, chosen)}", err=True)
            folder = _output_folder(out, each, run_all)
            if claim.experiment is not None:
                result = _replicate_experiment(each, claim.experiment, seeds, folder)
            else:
                result = _replicate_run(each, claim, chosen, threads, folder)
        except ConfigError as error:
            exit_with_error(translating_option_names(error))
        line = json.dumps(result | {"out": str(folder), "seed": seed})
        click.echo(line if as_json else result["summary"])
        has_failed |= result["passed"] is False or "verdict" not in result
    if has_failed:
        raise SystemExit(1)


def _list_claims(as_json: bool) -> None:
    from playground.experiments.replications import claims

    listed = claims()
    if as_json:
        click.echo(json.dumps(listed))
        return
    for line in listed:
        click.echo(f"{line['name']:20} {line['title']}: {line['statement']} ({line['source']})")
        duration = f"about {line['estimated_minutes']:g} min on two cores"
        click.echo(f"{'':20} {line['unavailable_reason'] or line['command']} ({duration})")


def _expected_duration(claim: Claim, seeds: list[int]) -> str:
    n_runs = 1 if claim.experiment is not None else len(seeds)
    return f"about {n_runs * claim.estimated_minutes:g} min on two cores"


def _output_folder(out: Path | None, name: str, run_all: bool) -> Path:
    if out is None:
        return checkpoints_root() / "runs" / f"published-{name}"
    return out / name if run_all else out


def _replicate_experiment(
    name: str, spec: Mapping[str, Any], seeds: int | None, out: Path
) -> dict[str, Any]:
    from playground.experiments.replications import outcome_of_experiment

    own_seeds = {"seeds": list(range(seeds))} if seeds else {}
    return outcome_of_experiment(name, run_experiment({**spec, **own_seeds}, out))


def _replicate_run(
    name: str, claim: Claim, seeds: list[int], threads: int, out: Path
) -> dict[str, Any]:
    """Train a run for each seed; several seeds have their own folders in `out`."""
    from playground.experiments.replications import (
        metrics_of_run,
        outcome_of_seeds,
        replication_config,
    )

    metrics = []
    for seed in seeds:
        config = replication_config(name, seed).replace(num_threads=threads)
        ensure_memory_available(config)
        folder = out / f"seed-{seed}" if len(seeds) > 1 else out
        metrics.append(train_and_measure(config, folder, metrics_of_run, claim.measure))
    return outcome_of_seeds(name, metrics)


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
    if measure == "annotated_transformer_loss" and isinstance(trainer.eval_model, Transformer):
        from playground.evaluation import annotated_transformer_loss
        from playground.tasks.held_out import build_held_out_set
        from playground.training.trainer import FINAL_EVAL_SIZE

        held_out = build_held_out_set(
            trainer.task, FINAL_EVAL_SIZE, config.task.min_length, config.task.max_length
        )
        metrics[measure] = annotated_transformer_loss(trainer.eval_model.cpu(), held_out)
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
