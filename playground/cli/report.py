"""report: write an HTML report of a checkpoint."""

import json
from pathlib import Path

import click

from playground.common.atomic_write import write_file

from .common import (
    check_output_file,
    checkpoint_argument,
    exit_with_error,
    json_option,
    read_checkpoint,
)
from .inspect import run_folder


@click.command()
@checkpoint_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Output HTML file.",
)
@click.option(
    "--name",
    default="",
    help="Name of the model in the report. [default: the name of the checkpoint folder]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@json_option
def report(checkpoint: Path, out: Path, name: str, overwrite: bool, as_json: bool) -> None:
    """Write a report of a checkpoint as one self-contained HTML file.

    It contains scores with confidence intervals, learning curves, attention patterns, predictions,
    settings and the command that repeats the training.
    """
    manifest = read_checkpoint(checkpoint)
    if not (name or checkpoint.resolve().name).isprintable():
        exit_with_error("the name has characters that cannot be printed; give another with --name")
    check_output_file("--out", out)
    if out.exists() and not overwrite:
        exit_with_error(f"--out {out} already exists; choose another file, or add --overwrite")

    from playground.reports.report import write_report

    text = write_report(checkpoint, run_folder(checkpoint), name)
    write_file(out, text.encode())
    if as_json:
        click.echo(
            json.dumps({"report": str(out), "bytes": len(text.encode()), "step": manifest.step})
        )
    else:
        click.echo(f"wrote the report of step {manifest.step:,} to {out}; open it in a browser")
