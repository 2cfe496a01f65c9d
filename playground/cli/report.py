"""report and export-page: write a checkpoint as one HTML file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def html_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that writes a checkpoint as one HTML file."""
    for add in (
        json_option,
        click.option("--overwrite", is_flag=True, help="Replace an existing file."),
        click.option(
            "--name",
            default="",
            help="Name of the model in the file. [default: the name of the checkpoint folder]",
        ),
        click.option(
            "-o",
            "--out",
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            help="Output HTML file.",
        ),
        checkpoint_argument,
    ):
        command = add(command)
    return command


@click.command()
@html_options
def report(checkpoint: Path, out: Path, name: str, overwrite: bool, as_json: bool) -> None:
    """Write a report of a checkpoint as one self-contained HTML file.

    It contains scores with confidence intervals, learning curves, attention patterns, predictions,
    settings and the command that repeats the training.
    """
    step = check_files(checkpoint, out, name, overwrite)
    from playground.reports.report import write_report

    write_html(write_report, checkpoint, out, name, as_json, step, "report")


@click.command("export-page")
@html_options
def export_page(checkpoint: Path, out: Path, name: str, overwrite: bool, as_json: bool) -> None:
    """Write a checkpoint as one HTML file that runs the model in the browser.

    The page needs no server and no network. Its readers type inputs, see what each head reads,
    and switch parts of the model off. It contains the weights and some held-out sequences.
    """
    step = check_files(checkpoint, out, name, overwrite)
    from playground.reports.interactive_page import write_page

    write_html(write_page, checkpoint, out, name, as_json, step, "page")


def check_files(checkpoint: Path, out: Path, name: str, overwrite: bool) -> int:
    """Return the step of a checkpoint; exit if it cannot be read or `out` cannot be written."""
    manifest = read_checkpoint(checkpoint)
    if not (name or checkpoint.resolve().name).isprintable():
        exit_with_error("the name has characters that cannot be printed; give another with --name")
    check_output_file("--out", out)
    if out.exists() and not overwrite:
        exit_with_error(f"--out {out} already exists; choose another file, or add --overwrite")
    return manifest.step


def write_html(
    write: Callable[[Path, Path, str], str],
    checkpoint: Path,
    out: Path,
    name: str,
    as_json: bool,
    step: int,
    what: str,
) -> None:
    """Write a file, and print what was written."""
    content = write(checkpoint, run_folder(checkpoint), name).encode()
    write_file(out, content)
    if as_json:
        click.echo(json.dumps({what: str(out), "bytes": len(content), "step": step}))
    else:
        click.echo(f"wrote the {what} of step {step:,} to {out}; open it in a browser")
