"""inspect: the figures of a model."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from playground.checkpoints.manifest import CheckpointError
from playground.common import messages

from .common import (
    checkpoint_argument,
    exit_with_error,
    json_option,
    load_model_or_exit,
    number_option,
    output_option,
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
    "--n", 1, 10_000, "Held-out sequences for the ablation of each component.", default=512
)
@json_option
def inspect(checkpoint: Path, sequence: str, out: Path, n: int, as_json: bool) -> None:
    """Export figures of a checkpoint on a sequence such as "3 1 4".

    They show attention weights, ablations, the training curve and the exact match by length. Each
    figure is saved as PNG, SVG and PDF, with its data as CSV or JSON.
    """
    from playground.figures.figures import FIGURES, write

    manifest, model = load_model_or_exit(checkpoint)
    file_names = {
        f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "pdf", "csv", "json")
    }
    if out.exists() and any(path.name not in file_names for path in out.iterdir()):
        exit_with_error(messages.output_folder_not_empty(out))

    import torch

    from playground.evaluation import evaluate
    from playground.inspection.inspected_model import InspectedModel, InspectionError
    from playground.inspection.views.export import build_report
    from playground.runs.weight_history import read_lines
    from playground.tasks import UnknownSymbolError

    torch.set_num_threads(1)  # more threads are slower at this size

    def report_progress(message: str) -> None:
        click.echo(f"{message} ...", err=True)

    try:
        lines = [
            line for line in read_lines(run_folder(checkpoint)) if line["step"] <= manifest.step
        ]
        subject = InspectedModel.from_model(manifest.config, model)
        report: dict[str, Any] = build_report(subject, sequence, n, report_progress)
        scores = manifest.scores
        if scores is None:
            report_progress("evaluating on held-out sequences")
            scores = dataclasses.asdict(evaluate(model, subject.held_out(2000)))
        report["exact-match-by-length"] = scores
        if lines:
            report["loss"] = [{name: line.get(name) for name in METRIC_COLUMNS} for line in lines]
        report_progress("drawing figures")
        out.mkdir(parents=True, exist_ok=True)
        files = [path for name, data in report.items() for path in write(out, name, data)]
    except (UnknownSymbolError, InspectionError, CheckpointError) as error:
        exit_with_error(str(error))
    except OSError as error:
        exit_with_error(messages.output_folder_not_writable(out, error))
    missed = next(row for row in report["ablation"] if row["name"] == report["head"]["title"])
    if as_json:
        click.echo(
            json.dumps(
                {"out": str(out), "files": [path.name for path in files], "most_missed": missed}
            )
        )
        return
    before, after, requested = missed["exact_match_before"], missed["exact_match"], missed["n"]
    click.echo(
        f"most important head: {missed['name']}; without it {after:.2%} instead of {before:.2%} "
        f"of {requested:,} held-out sequences"
    )
    click.echo(f"{len(report)} figures with their data in {out}: {', '.join(report)}")


def run_folder(checkpoint: Path) -> Path:
    """Return the folder with a checkpoint's metrics: its run's, or its own."""
    parent = checkpoint.resolve().parent.parent
    return (
        parent
        if not (checkpoint / "metrics.jsonl").is_file() and (parent / "metrics.jsonl").is_file()
        else checkpoint
    )
