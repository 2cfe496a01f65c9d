"""The commands evaluate and predict."""

import dataclasses
import json
import sys
from pathlib import Path

import click

from playground.common import messages
from playground.errors import UserError
from playground.models.config_fields import ConfigError

from .common import (
    checkpoint_argument,
    exit_with_error,
    json_option,
    number_option,
    read_checkpoint,
)
from .train import translating_option_names


@click.command()
@checkpoint_argument
@number_option("--n", 1, 100_000, "Number of held-out sequences.", default=2000)
@click.option("--min-length", type=int, help="Minimum length. [default: the model's own]")
@click.option("--length", "max_length", type=int, help="Maximum length. [default: the model's own]")
@json_option
def evaluate(
    checkpoint: Path, n: int, min_length: int | None, max_length: int | None, as_json: bool
) -> None:
    """Evaluate a checkpoint on held-out sequences, which are not in its training data."""
    manifest = read_checkpoint(checkpoint)
    task_config = manifest.config.task
    try:
        longest = task_config.max_length if max_length is None else max_length
        shortest = min(task_config.min_length, longest) if min_length is None else min_length
        task = dataclasses.replace(task_config, max_length=longest, min_length=shortest)
        dataclasses.replace(manifest.config, task=task)  # checks it
    except ConfigError as error:
        exit_with_error(translating_option_names(error))

    from playground.checkpoints.checkpoint import load_model
    from playground.evaluation import evaluate as score
    from playground.tasks.held_out import build_held_out_set

    _, model = load_model(checkpoint)
    scores = score(model, build_held_out_set(task.load(), n, task.min_length, task.max_length))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(scores) | {"checkpoint": str(checkpoint)}))
        return
    click.echo(messages.scores_summary(scores.exact_match, scores.token_accuracy, scores.n))
    for line in scores.by_length:
        share = line.exact_match
        exact = "none held out" if share is None else f"{share:7.2%} of {line.n}"
        existing = f" ({line.available} exist)" if line.available is not None else ""
        click.echo(f"  length {line.length:3}   {exact}{existing}")


@click.command()
@checkpoint_argument
@click.argument("sequences", metavar="SEQUENCE ...", nargs=-1, required=True)
@json_option
def predict(checkpoint: Path, sequences: tuple[str, ...], as_json: bool) -> None:
    """Print a checkpoint's predictions for sequences such as "3 1 4", one line for each.

    `-` reads sequences from the lines of stdin.
    """

    from playground.checkpoints.checkpoint import load_model
    from playground.runs.snapshot import SnapshotBuilder

    manifest, model = load_model(checkpoint)
    config = manifest.config
    view = SnapshotBuilder(config)
    if sequences == ("-",):
        sequences = tuple(line.strip() for line in sys.stdin if line.strip())
    predictions = []
    for sequence in sequences:
        try:
            predictions.append(view.predict(model, sequence))
        except UserError as error:
            exit_with_error(f"{sequence}: {error}" if len(sequences) > 1 else str(error))
    for note in dict.fromkeys(reply["note"] for reply in predictions if reply["note"]):
        click.echo(f"playground: {note}", err=True)
    if as_json:
        answers = zip(sequences, predictions, strict=True)
        click.echo(json.dumps([{"sequence": sequence, **reply} for sequence, reply in answers]))
        return
    for reply in predictions:
        click.echo(" ".join(reply["prediction"]))
