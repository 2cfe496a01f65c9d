"""inspect: the figures of a model."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from playground.common import messages
from playground.common.stats import wilson_interval

from .common import (
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
    "--n", 1, 10_000, "Held-out sequences for the ablation of each component.", default=512
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

    from playground.evaluation import evaluate
    from playground.inspection.inspected_model import InspectedModel
    from playground.inspection.views.figure_data import build_report
    from playground.runs.weight_history import read_lines

    torch.set_num_threads(1)  # more threads are slower at this size

    def report_progress(message: str) -> None:
        click.echo(f"{message} ...", err=True)

    lines = [line for line in read_lines(run_folder(checkpoint)) if line["step"] <= manifest.step]
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
    heads = [row for row in report["ablation"] if row["method"] == "zero" and "head" in row["name"]]
    missed, is_distinguishable = most_missed_head(heads)
    if as_json:
        most_missed = missed | {"is_distinguishable": is_distinguishable}
        names = [path.name for path in files]
        click.echo(json.dumps({"out": str(out), "files": names, "most_missed": most_missed}))
        return
    before, after, requested = missed["exact_match_before"], missed["exact_match"], missed["n"]
    low, high = wilson_interval(round(after * requested), requested)
    remark = "" if is_distinguishable else "no head differs from all others; among the "
    click.echo(
        f"{remark}most important head{'' if is_distinguishable else 's'}: "
        f"{missed['name']}; without it {after:.2%} [{low:.2%}, {high:.2%}] instead of "
        f"{before:.2%} of {requested:,} held-out sequences"
    )
    click.echo(f"{len(report)} figures with their data in {out}: {', '.join(report)}")


def most_missed_head(heads: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """Return the ablation with the lowest exact match, and whether it differs from all others.

    It differs if its 95 % interval lies below those of the intact model and of the other heads.
    """
    first, *others = sorted(heads, key=lambda row: row["exact_match"])
    n, scores = first["n"], [row["exact_match"] for row in others]
    _, high = wilson_interval(round(first["exact_match"] * n), n)
    return first, all(
        high < wilson_interval(round(score * n), n)[0]
        for score in (first["exact_match_before"], *scores)
    )


def run_folder(checkpoint: Path) -> Path:
    """Return the folder with a checkpoint's metrics: its run's, or its own."""
    parent = checkpoint.resolve().parent.parent
    return (
        parent
        if not (checkpoint / "metrics.jsonl").is_file() and (parent / "metrics.jsonl").is_file()
        else checkpoint
    )
