"""inspect: every figure of a model."""

import json
from pathlib import Path

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

    They show attention weights, ablations and the logit lens. Each figure is saved as PNG, SVG
    and PDF, with its data as CSV or JSON.
    """
    from playground.figures.catalog import FIGURES

    manifest, model = load_model_or_exit(checkpoint)
    file_names = {
        f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "pdf", "csv", "json")
    }
    if out.exists() and any(path.name not in file_names for path in out.iterdir()):
        exit_with_error(messages.output_folder_not_empty(out))

    import torch

    from playground.figures.export import export_figures
    from playground.inspection.inspected_model import InspectionError
    from playground.runs.weight_history import read_lines
    from playground.tasks import UnknownSymbolError

    torch.set_num_threads(1)  # more threads are slower at this size

    def report_progress(message: str) -> None:
        click.echo(f"{message} ...", err=True)

    run = run_folder(checkpoint)
    try:
        lines = [line for line in read_lines(run) if line["step"] <= manifest.step]
        history = weight_history(run, manifest.step)
        report, files = export_figures(
            out,
            manifest.config,
            model,
            sequence,
            n,
            lines=lines,
            scores=manifest.scores,
            history=history,
            report_progress=report_progress,
        )
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
    """Return the folder with a checkpoint's metrics and weight history: its run's, or its own."""
    parent = checkpoint.resolve().parent.parent
    return (
        parent
        if not (checkpoint / "metrics.jsonl").is_file() and (parent / "metrics.jsonl").is_file()
        else checkpoint
    )


def weight_history(run: Path, step: int) -> dict[int, Path]:
    """Return the stored weights of a run up to `step`, evenly thinned: {step: file}.

    Empty for a checkpoint without a run.
    """
    from playground.runs.weight_history import subsample, weight_steps, weights_path

    return {
        each: weights_path(run, each)
        for each in subsample([each for each in weight_steps(run) if each <= step])
    }
