"""inspect, report and export-page: a checkpoint as figures, and as one HTML file."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from playground.common import messages
from playground.common.atomic_write import write_file

from .common import (
    check_output_file,
    checkpoint_argument,
    create_output_dir,
    exit_with_error,
    json_option,
    number_option,
    output_option,
    read_checkpoint,
)

METRIC_COLUMNS = (
    "step",
    "loss",
    "learning_rate",
    "grad_norm",
    "exact_match",
    "token_accuracy",
    "held_out_loss",
)


@click.command()
@checkpoint_argument
@click.argument("sequence")
@output_option("Output folder of the figures.")
@number_option(
    "--n", 2, 10_000, "Held-out sequences for the ablation of each component.", default=512
)
@json_option
def inspect(checkpoint: Path, sequence: str, out: Path, n: int, as_json: bool) -> None:
    """Export figures of a checkpoint on a sequence such as "3 1 4".

    They show attention weights, ablations, the training curve and the exact match by length. Each
    figure is saved as PNG, SVG and PDF, with its data as CSV or JSON.
    """
    from playground.checkpoints.checkpoint import load_model
    from playground.figures.figures import FIGURES, write

    read_checkpoint(checkpoint)
    manifest, model = load_model(checkpoint)
    file_names = {
        f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "pdf", "csv", "json")
    }
    if out.exists() and any(path.name not in file_names for path in out.iterdir()):
        exit_with_error(messages.output_folder_not_empty(out))

    import torch

    from playground.checkpoints.metrics import read_metrics
    from playground.evaluation import evaluate
    from playground.inspection.inspected_model import InspectedModel
    from playground.inspection.views.figure_data import build_report

    torch.set_num_threads(1)  # more threads are slower at this size

    def report_progress(message: str) -> None:
        click.echo(f"{message} ...", err=True)

    lines = list(read_metrics(run_folder(checkpoint), manifest.step))
    subject = InspectedModel.from_model(manifest.config, model)
    subject.encode_text(sequence)  # an invalid one fails before the folder exists
    create_output_dir(out)
    report: dict[str, Any] = build_report(subject, sequence, n, report_progress)
    scores = manifest.scores
    if scores is None:
        report_progress("evaluating on held-out sequences")
        scores = dataclasses.asdict(evaluate(model, subject.held_out(2000)))
    report["exact-match-by-length"] = scores
    if lines:
        report["loss"] = [{name: line.get(name) for name in METRIC_COLUMNS} for line in lines]
    report_progress("drawing figures")
    files = [path for name, data in report.items() for path in write(out, name, data)]
    heads = [row for row in report["ablation"] if row["method"] == "mean" and "head" in row["name"]]
    most_missed, verdict = most_missed_head(heads)
    if as_json:
        result = {"out": str(out), "files": [path.name for path in files]}
        click.echo(json.dumps(result | {"most_missed": most_missed | {"verdict": verdict}}))
        return
    click.echo(
        f"{verdict}. The largest mean-ablation effect of a head, {most_missed['name']}: the "
        f"log-probability of a target falls by {most_missed['log_probability_drop']:.3f} nats "
        f"[{most_missed['drop_low']:.3f}, {most_missed['drop_high']:.3f}], and exact match is "
        f"{most_missed['exact_match']:.2%} instead of {most_missed['exact_match_before']:.2%} of "
        f"{most_missed['n']:,} held-out sequences"
    )
    click.echo(f"{len(report)} figures with their data in {out}: {', '.join(report)}")


def most_missed_head(heads: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Return the ablation with the largest drop, and how its 95 % interval compares."""
    first, *others = sorted(heads, key=lambda row: -row["log_probability_drop"])
    if first["drop_low"] <= 0:
        return first, "No head has an effect beyond noise"
    if all(first["drop_low"] > row["drop_high"] for row in others):
        return first, "One head has a larger effect than all others"
    return first, "No head differs from all others"


def run_folder(checkpoint: Path) -> Path:
    """Return the folder with a checkpoint's metrics: its run's, or its own."""
    parent = checkpoint.resolve().parent.parent
    folders = (checkpoint, parent)
    return next((each for each in folders if (each / "metrics.jsonl").is_file()), checkpoint)


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
def report(**options: Any) -> None:
    """Write a report of a checkpoint as one self-contained HTML file.

    It contains scores with confidence intervals, learning curves, attention patterns, predictions,
    settings and the command that repeats the training.
    """
    write_html("playground.reports.report:write_report", "report", **options)


@click.command("export-page")
@html_options
def export_page(**options: Any) -> None:
    """Write a checkpoint as one HTML file that runs the model in the browser.

    The page needs no server and no network. Its readers type inputs, see what each head reads,
    and switch parts of the model off. It contains the weights and some held-out sequences.
    """
    write_html("playground.reports.interactive_page:write_page", "page", **options)


def write_html(
    writer: str, what: str, checkpoint: Path, out: Path, name: str, overwrite: bool, as_json: bool
) -> None:
    """Write a file with a function of this module path, and print what was written."""
    manifest = read_checkpoint(checkpoint)
    if not (name or checkpoint.resolve().name).isprintable():
        exit_with_error("the name has characters that cannot be printed; give another with --name")
    check_output_file("--out", out)
    if out.exists() and not overwrite:
        exit_with_error(f"--out {out} already exists; choose another file, or add --overwrite")
    content = resolve_name(writer)(checkpoint, run_folder(checkpoint), name).encode()
    write_file(out, content)
    if as_json:
        click.echo(json.dumps({what: str(out), "bytes": len(content), "step": manifest.step}))
    else:
        click.echo(f"wrote the {what} of step {manifest.step:,} to {out}; open it in a browser")
