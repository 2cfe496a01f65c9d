"""run-shard and collect, and an experiment whose shards train elsewhere."""

from __future__ import annotations

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playground.hub.repo_ids import machine_token

from .common import (
    create_output_dir,
    exit_with_error,
    json_option,
    output_option,
    progress_bar,
    record_signals,
)
from .experiments import (
    OWNER,
    figure_option,
    open_experiments,
    print_report,
    read_spec,
    run_experiment,
    table_option,
)

if TYPE_CHECKING:
    from playground.experiments.shards import ShardedExperiment


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--shard", metavar="K/N", required=True, help="Runs K, K + N, ... of the plan.")
@output_option("Folder of the runs; finished runs are not repeated.")
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for a copy of the results, from which a later attempt on another disk continues.",
)
def run_shard(spec: Path, shard: str, out: Path, results: Path | None) -> None:
    """Train a part of the experiment in a file. A signal saves the runs and ends the command.

    The weights of finished runs stay only with weights = true in the file.
    """
    from playground.experiments.shards import finished_runs, mirrored_results

    words = shard.split("/")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        exit_with_error(f"--shard {shard} is no shard; use K/N, such as 0/8")
    experiment = read_spec(spec) | {"shard": tuple(map(int, words))}
    has_weights = experiment.get("weights") is True
    try:
        with mirrored_results(out, results, has_weights) if results else nullcontext():
            run_experiment(experiment, out)
    finally:
        for run in () if has_weights else finished_runs(out):
            shutil.rmtree(run)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--cancel", is_flag=True, help="End the jobs; each saves its runs first.")
@table_option
@figure_option
@json_option
def collect(
    folder: Path, cancel: bool, table: Path | None, figure: Path | None, as_json: bool
) -> None:
    """Show the jobs and the results so far of an experiment that trains elsewhere."""
    from playground.experiments.shards import ShardedExperiment
    from playground.experiments.spec import MAX_RUNS
    from playground.figures.experiment import MAX_LINES
    from playground.runs.record import owner_id

    sharded = ShardedExperiment.read(folder, owner_id(OWNER))
    sharded.backend.token = machine_token()
    if cancel:
        sharded.cancel()
    states = sharded.states()  # first: a job that is not among them writes no more results
    report = _merged_report(sharded, MAX_RUNS if as_json else MAX_LINES if figure else 0)
    jobs = ", ".join(f"shard {shard} {state}" for shard, state in sorted(states.items()))
    n_done, n_runs = report["statuses"].get("done", 0), report["runs"]
    waiting = jobs or "no job waits or runs"
    click.echo(f"{n_done} of {n_runs} runs have ended; {waiting}", err=True)
    print_report(report, folder, table, figure, as_json)


def train_elsewhere(
    spec: dict[str, Any], out: Path, on: tuple[str, ...], runs_per_shard: int | None, detach: bool
) -> dict[str, Any]:
    """Train an experiment in shards, and return its report.

    `on` has the name of the backend and its options as NAME=VALUE. A signal ends the command; the
    jobs go on.
    """
    from playground.experiments.shards import ShardedExperiment, ShardJobs
    from playground.experiments.spec import MAX_RUNS, parse_experiment
    from playground.runs.record import owner_id

    requested = parse_experiment(spec, owner_id(OWNER))
    backend, *words = on
    if problem := next((word for word in words if "=" not in word), ""):
        exit_with_error(f"--on {backend} {problem} is no option; use NAME=VALUE, as in minutes=30")
    options = dict(word.split("=", 1) for word in words)
    jobs = ShardJobs.plan(requested, backend, options, runs_per_shard or 0)
    create_output_dir(out)
    sharded = ShardedExperiment.create(out.resolve(), requested, jobs)
    sharded.backend.token = machine_token()
    if cost := sharded.describe_cost():
        click.echo(f"playground: {cost}", err=True)
        if sys.stdin.isatty():
            click.confirm("Submit them?", default=True, abort=True, err=True)
    signals = record_signals()
    with progress_bar(total=requested.n_runs, unit="run") as bar:
        for n_finished, states in sharded.train():
            bar.update(n_finished - bar.n)
            bar.set_postfix(states)
            if signals or detach:
                break
    if signals or detach:
        click.echo(
            f"playground: the jobs go on without this command; python -m playground collect {out} "
            "has their results so far, and the same command waits for them again",
            err=True,
        )
        raise SystemExit(128 + signals[0] if signals else 0)
    return _merged_report(sharded, MAX_RUNS)


def _merged_report(sharded: ShardedExperiment, n_drawn: int) -> dict[str, Any]:
    from playground.experiments.shards import MERGED

    sharded.merge()
    with open_experiments(sharded.folder) as service:
        merged = service.store.find(MERGED, OWNER)
        assert merged is not None
        return service.details(merged, OWNER, n_drawn)
