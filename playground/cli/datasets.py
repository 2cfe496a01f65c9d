"""The command dataset, and the options for reading a dataset."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from playground.datasets.pairs import DatasetError, PairDataset
from playground.datasets.report import describe, summarize
from playground.datasets.sources import HUB_PREFIX, ReadOptions, read_file
from playground.datasets.storage import store
from playground.hub.repo_ids import machine_token

from .common import exit_with_error, json_option

N_DISPLAYED = 8  # examples that the command prints
READING_OPTIONS = {
    "columns": click.option(
        "--columns",
        default="",
        metavar="SOURCE,TARGET",
        help="The columns of a table with source and target.",
    ),
    "has_names": click.option(
        "--header/--no-header",
        "has_names",
        default=None,
        help="Whether the first line names the columns, or is an example. [default: detected]",
    ),
    "words": click.option(
        "--words/--characters",
        "words",
        default=None,
        help="Whether a token of the dataset is a word or a character. [default: detected]",
    ),
    "config": click.option(
        "--config", default="", help="The configuration of a dataset on the Hub that has several."
    ),
    "split": click.option(
        "--split", default="", help="The split of a dataset on the Hub. [default: train]"
    ),
    "skip_unusable": click.option(
        "--skip-unusable", is_flag=True, help="Leave out the rows that cannot be used."
    ),
}


def dataset_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for reading a dataset."""
    for option in reversed(READING_OPTIONS.values()):
        command = option(command)
    return command


@click.command("dataset")
@click.argument("task")
@dataset_options
@json_option
def add_dataset(task: str, as_json: bool, **reading: Any) -> None:
    """Check and store a dataset, and print its first examples.

    TASK is a file (lines of source and target; CSV, JSON or Parquet; also as .gz) or
    hub:user/dataset[@revision]. Checkpoints that were trained on the dataset find it where it is
    stored.
    """
    dataset = read_dataset(task, **reading)
    for source, target in [] if as_json else dataset.preview(N_DISPLAYED):
        click.echo(f"{' '.join(source)} → {' '.join(target)}")
    if as_json:
        click.echo(json.dumps(dataset.task_settings() | {"report": describe(dataset)}))


def read_dataset(
    task: str,
    columns: str,
    has_names: bool | None,
    words: bool | None,
    config: str,
    split: str,
    skip_unusable: bool,
) -> PairDataset:
    """Read the dataset that `task` names, print the report about it, and store it."""
    is_on_hub = task.startswith(HUB_PREFIX)
    if (config or split) and not is_on_hub:
        exit_with_error("--config and --split select data on the Hub; leave them out for a file")
    try:  # a quoted name may have commas
        names = next(csv.reader([columns], skipinitialspace=True), [])
    except csv.Error:
        exit_with_error("--columns has a line end; write the two names on one line")
    options = ReadOptions([name.strip() for name in names], words, has_names, config, split)
    try:
        if is_on_hub:
            from playground.hub.dataset_files import read_hub

            dataset = read_hub(task, options, machine_token())
        else:
            dataset = read_file(Path(task), options)
    except DatasetError as error:
        exit_with_error(f"{error}{_option_for(error)}")
    if dataset.report.n_skipped and not skip_unusable:
        them = "it" if dataset.report.n_skipped == 1 else "them"
        exit_with_error(
            f"{dataset.describe_skipped('unusable')}; correct {them}, or leave {them} out with "
            "--skip-unusable"
        )
    for sentence in summarize(dataset):
        click.echo(f"playground: {sentence}", err=True)
    try:
        store(dataset)
    except OSError as error:
        exit_with_error(
            f"the dataset cannot be stored: {error.strerror or error}; free some space, or set "
            "PLAYGROUND_CHECKPOINTS to another folder"
        )
    return dataset


def _option_for(error: DatasetError) -> str:
    """Return the option that answers an error; empty if there is none."""
    options = {
        "--columns SOURCE,TARGET": error.columns,
        "--config NAME": error.configs,
        "--split NAME": error.splits,
    }
    return next((f" ({option})" for option, names in options.items() if names), "")
