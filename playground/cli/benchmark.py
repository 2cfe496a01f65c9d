"""compare and finetune: pretrained models on the task of a checkpoint."""

import json
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playground.common import messages

from .common import (
    MultiValueOption,
    check_output_dir,
    checkpoint_argument,
    exit_with_error,
    json_option,
    number_option,
    output_option,
    progress_bar,
    read_checkpoint,
    record_signals,
    reserve_output_dir,
)

if TYPE_CHECKING:
    from playground.pretrained.benchmark.export import ModelRow

MAX_LINE_WIDTH = 100  # columns of a caption


@click.command()
@checkpoint_argument
@click.option(
    "--models",
    cls=MultiValueOption,
    multiple=True,
    metavar="MODEL ...",
    show_default=True,
    default=("gpt2", "bert-base-uncased"),
    help="Pretrained models: names on the Hub, or folders that hold one; several after one flag.",
)
@number_option("--n", 1, 500, "Number of held-out sequences.", default=20)
@number_option("--shots", 0, 32, "Few-shot examples in a prompt, as far as they fit.", default=8)
@json_option
def compare(
    checkpoint: Path, models: tuple[str, ...], as_json: bool, **numbers: int | None
) -> None:
    """Compare a checkpoint with pretrained models on the same held-out sequences.

    The exit code is 1 if a model could not be evaluated.
    """
    read_checkpoint(checkpoint)
    from playground.pretrained.benchmark.export import latest_rows, to_json
    from playground.pretrained.jobs import QUIET_ENV

    # before the import of huggingface_hub, which reads them; no token is sent
    os.environ.update(QUIET_ENV | {"HF_TOKEN": ""})
    events: list[dict[str, Any]] = []
    request = {"checkpoint": str(checkpoint), "models": list(models), **numbers}
    result, status = run_job("benchmark", request, events)
    if result is None:
        click.echo("playground: stopped by a signal; the rows so far:", err=True)
    rows = latest_rows(events)
    if as_json:
        click.echo(to_json(events, result))
    else:
        _print_table(events, rows)
    if status or any(row["error"] for row in rows):
        raise SystemExit(128 + status if status else 1)


def _print_table(events: list[dict[str, Any]], rows: list["ModelRow"]) -> None:
    from playground.pretrained.benchmark.export import format_comparison, format_row

    click.echo(f"{'':34} {'exact match':^19} {'token accuracy':^19} {'parameters':>13}")
    for row in rows:
        click.echo(format_row(row))
    for note in (note for row in rows for note in (row["caveat"], format_comparison(row)) if note):
        click.echo(
            click.wrap_text(note, MAX_LINE_WIDTH, initial_indent="  ", subsequent_indent="  ")
        )
    caption = next((row["caption"] for row in events if row["kind"] == "settings"), "")
    click.echo(click.wrap_text(caption, MAX_LINE_WIDTH))


@click.command()
@click.argument("model")
@checkpoint_argument
@number_option("--steps", 1, 5000, "Training steps.", default=100)
@click.option(
    "--learning-rate", type=float, default=2e-4, show_default=True, help="Peak learning rate."
)
@number_option("--batch-size", 1, 256, "Sequences per step.", default=16)
@number_option("--n", 1, 1000, "Held-out sequences per evaluation.", default=64)
@number_option("--seed", 0, 2**31 - 1, "The same seed gives the same losses.", default=0)
@output_option("Output folder of the model.")
@click.option("--overwrite", is_flag=True, help="Replace the model that --out already holds.")
@json_option
def finetune(
    model: str, checkpoint: Path, out: Path, overwrite: bool, as_json: bool, **settings: float
) -> None:
    """Train a pretrained MODEL (a name on the Hub, or a folder) on the task of a CHECKPOINT.

    `compare --models` accepts the result. Ctrl-C saves the weights so far.
    """
    read_checkpoint(checkpoint)
    if out.resolve() == checkpoint.resolve() or (
        out.exists() and any(out.iterdir()) and not (out / "fine-tuned.json").is_file()
    ):
        exit_with_error(messages.output_folder_not_empty(out))
    if (out / "fine-tuned.json").is_file() and not overwrite:
        exit_with_error(
            f"--out {out} already holds a fine-tuned model; choose another folder, or add "
            "--overwrite"
        )
    click.get_current_context().with_resource(
        reserve_output_dir(out, lambda: check_output_dir(out, keeps_existing=False))
    )
    paths = {"checkpoint": str(checkpoint), "destination": str(out)}
    request = {"model": model, **paths, **settings}
    result, status = run_job("finetune", request, [])
    if result is None:
        exit_with_error("stopped by a signal before the first step; nothing was written")
    if as_json:
        click.echo(json.dumps(result))
    else:
        before, after = result["before"], result["after"]
        scored = f"exact match {before['exact_match']:.2%} before" + (
            f", {after['exact_match']:.2%} at step {after['step']}" if after else ""
        )
        click.echo(f"{scored}, of {before['eval_size']} held-out sequences, zero-shot")
        click.echo(
            f"{result['steps']} steps in {result['seconds']:.1f} s; compare with --models {out}"
        )
    if status:
        raise SystemExit(128 + status)


def run_job(
    kind: str, request: dict[str, Any], events: list[dict[str, Any]]
) -> tuple[dict[str, Any] | None, int]:
    """Run a job of the comparison in this process with a progress bar; its rows go to `events`.

    Returns its result (None: a signal ended it before there was one), and the number of the signal.
    """
    from playground.jobs.progress import JobCancelled, ProgressReporter
    from playground.pretrained.jobs import run as do

    cancelled = threading.Event()
    interrupted, result = record_signals(cancelled.set), None
    with progress_bar(unit_scale=True) as bar:

        def on_message(kind: str, *content: Any) -> None:
            if kind == "row":
                events.append(content[0])
            elif kind == "message":
                bar.write(content[0], file=sys.stderr)
                bar.reset()
            else:
                bar.total, bar.n, bar.unit = content[1], content[0], content[2]
                bar.refresh()

        with suppress(JobCancelled):
            result = do(kind, request, ProgressReporter(on_message, cancelled))
    return result, interrupted[0] if interrupted else 0
