"""lengths: measure how far position encodings generalize to longer sequences."""

import json
from pathlib import Path
from typing import Any

import click

from playground.architectures.base import Seq2SeqModel
from playground.common.storage import checkpoints_root
from playground.datasets.pairs import DatasetError
from playground.tasks import TASKS
from playground.training.config import RunConfig, field_named

from .common import (
    MultiValueOption,
    exit_with_error,
    load_model_or_exit,
    number_option,
    progress_bar,
    reject_options,
)
from .experiment_runs import (
    experiment_options,
    experiments_folder_option,
    parse_settings,
    run_experiment,
)

SCHEMES = ("learned", "sinusoidal", "rope", "alibi", "t5")


@click.command()
@click.argument(
    "checkpoints", metavar="[CHECKPOINT ...]", nargs=-1, type=click.Path(path_type=Path)
)
@click.option(
    "--schemes",
    cls=MultiValueOption,
    multiple=True,
    help=f"Position encodings to compare. [default: {' '.join(SCHEMES)}]",
)
@number_option("--seeds", 1, 20, "Runs per position encoding, seeds 0, 1, ...", default=3)
@click.option(
    "--length", type=int, default=10, show_default=True, help="Maximum length in training."
)
@number_option(
    "--times", 1, 20, "Evaluate up to this multiple of the maximum length in training.", default=5
)
@number_option("--n", 20, 2000, "Held-out sequences per length.", default=200)
@experiments_folder_option
@experiment_options
def lengths(
    checkpoints: tuple[Path, ...],
    schemes: tuple[str, ...],
    seeds: int,
    length: int,
    times: int,
    n: int,
    out: Path | None,
    settings: tuple[str, ...],
    table: Path | None,
    as_json: bool,
) -> None:
    """Measure how far each position encoding generalizes beyond the lengths in training.

    Ctrl-C interrupts the command; run it again to resume. With CHECKPOINTs, the command only
    evaluates these.
    """
    if checkpoints:
        reject_options(
            ("schemes", "seeds", "length", "settings"),
            "on CHECKPOINTs, which are already trained; omit it",
        )
        results = evaluate_lengths(checkpoints, times, n)
        print_length_results(results, out, table, as_json)
        return
    position_types = field_named("position_type").metadata["choices"]
    for scheme in schemes:
        if scheme not in position_types:
            exit_with_error(f"--schemes {scheme}: choose one of {', '.join(position_types)}")
    parsed = parse_settings(settings)
    base = {
        "task": "reverse",
        "min_length": 1,
        "max_length": length,
        "max_steps": 1000,
        "eval_every": 50,
    } | parsed
    base.setdefault("lr_decay_steps", base["max_steps"])
    spec = {
        "name": "lengths",
        "base": base,
        "grid": {"position_type": list(schemes or SCHEMES)},
        "seeds": list(range(seeds)),
    }
    out = out or checkpoints_root() / "runs" / "lengths"
    results = run_experiment(
        spec | {"kind": "lengths", "times": times, "n": n}, out, max_length="--length"
    )["lengths"]
    print_length_results(results, out, table, as_json)


def evaluate_lengths(checkpoints: tuple[Path, ...], times: int, n: int) -> dict[str, Any]:
    """Evaluate checkpoints at each length up to a multiple of their training length.

    A checkpoint with too few positions is evaluated up to its maximum.
    """
    import torch

    from playground.experiments.length_generalization import (
        scores,
        summarize_checkpoints,
        summarize_scheme,
    )

    torch.set_num_threads(1)  # more threads are slower at this size
    rows = []
    for checkpoint in checkpoints:
        manifest, model = load_model_or_exit(checkpoint)
        task = manifest.config.task
        counts = _count_by_length(checkpoint, manifest.config, model, times, n)
        runs = [{"seed": manifest.config.training.seed, "scores": scores(counts)}]
        rows.append(
            summarize_scheme(checkpoint.name, runs, manifest.config)
            | {"task": task.task, "trained": [task.min_length, task.max_length]}
        )
    # the smallest minimum and the smallest maximum of the lengths in training
    trained = [min(row["trained"][end] for row in rows) for end in (0, 1)]
    return {
        "trained": trained,
        "max_length": max(row["max_length"] for row in rows),
        "n_requested": n,
        "rows": rows,
        "summary": summarize_checkpoints(rows),
    }


def _count_by_length(
    checkpoint: Path, config: RunConfig, model: Seq2SeqModel, times: int, n: int
) -> list[dict[str, int]]:
    """Return the number of exact matches, and of held-out sequences, at each length."""
    from playground.evaluation import exact_match_at_length
    from playground.tasks import LOOKUP

    task, counts = config.task.load(), []
    first, last = (
        (config.task.min_length, config.task.max_length)
        if config.task.task == LOOKUP
        else (TASKS[config.task.task].min_length, times * config.task.max_length)
    )
    lengths = range(first, last + 1)
    for length in progress_bar(iterable=lengths, desc=checkpoint.name, unit="length"):
        if max(length, task.max_target_length(length)) + 1 > config.model.max_positions:
            click.echo(
                f"playground: {checkpoint} has positions for {length - 1} tokens; longer "
                "sequences are skipped",
                err=True,
            )
            break
        try:
            n_correct, n_sequences = exact_match_at_length(model, task, length, n)
        except DatasetError as error:
            exit_with_error(str(error))
        counts.append({"length": length, "right": n_correct, "n": n_sequences})
    return counts


def print_length_results(
    results: dict[str, Any], out: Path | None, table: Path | None, as_json: bool
) -> None:
    """Print the accuracy at each length, and write it as figures and a CSV table."""
    from playground.experiments.length_generalization import to_csv
    from playground.figures.experiments import write

    files: list[Path] = []
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            if any(row["reach"] for row in results["rows"]):
                files = [
                    *write(out, "answers-by-length", results),
                    *write(out, "lengths-heatmap", results),
                ]
        if table:
            table.write_text(to_csv(results["rows"]), encoding="utf-8")
    except OSError as error:
        exit_with_error(
            f"{error.filename} cannot be written: {error.strerror}; choose another folder"
        )
    if as_json:
        click.echo(
            json.dumps(
                results | {"out": str(out) if out else None, "files": [str(path) for path in files]}
            )
        )
        return
    for row in results["rows"]:
        click.echo(format_scheme(row))
    click.echo(results["summary"])
    for path in files:
        click.echo(str(path))


def format_scheme(row: dict[str, Any]) -> str:
    """Format the reach of one position encoding or checkpoint as a line."""
    untrained = ", ".join(
        f"{first} to {last} of its {side}"
        for side, (first, last) in (row["untrained"] or {}).items()
    )
    untrained_note = f"; never trained: positions {untrained}" if untrained else ""
    reach = row["reach"]
    if reach is None:
        return f"{row['label']:24} no run could be evaluated{untrained_note}"
    return (
        f"{row['label']:24} 99 % exact match up to length {reach['median']:g} "
        f"(range {reach['low']:g} to {reach['high']:g}){untrained_note}"
    )
