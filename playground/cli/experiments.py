"""experiment: vary settings, and report the effect; and what the commands of shards share."""

from __future__ import annotations

import json
import math
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playground.common import messages
from playground.common.storage import checkpoints_root
from playground.models.config_fields import ConfigError
from playground.runs.limits import ensure_memory_available
from playground.runs.worker_protocol import DIVERGED_MESSAGE

from .common import (
    MultiValueOption,
    check_output_file,
    create_output_dir,
    exit_with_error,
    json_option,
    number_option,
    output_option,
    progress_bar,
    record_signals,
    reject_options,
)

if TYPE_CHECKING:
    from playground.experiments.analysis import VariantResult
    from playground.experiments.length_generalization import SchemeResult
    from playground.experiments.service import ExperimentService
    from playground.experiments.spec import Experiment

OWNER = "the command line"
MAX_SPEC_BYTES = 1 << 20


FIGURE_TYPES = (".png", ".svg", ".pdf")


def _check_file(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Reject a file that cannot be written, or a figure of another type, before any work."""
    if path:
        if option.name == "figure" and path.suffix not in FIGURE_TYPES:
            exit_with_error(
                f"--figure {path} has no type of a figure; end its name with "
                f"{', '.join(FIGURE_TYPES)}"
            )
        check_output_file(option.opts[0], path)
    return path


def _file_option(name: str, parameter: str, description: str) -> Callable[[Any], Any]:
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option(name, parameter, type=file, callback=_check_file, help=description)


table_option = _file_option("--csv", "table", "Write the results as a table.")
figure_option = _file_option("--figure", "figure", "Draw the results: a .png, .svg or .pdf file.")


@click.command()
@click.argument("question", required=False)
@click.option(
    "--vary",
    cls=MultiValueOption,
    multiple=True,
    metavar="NAME=V,V ...",
    help="One or two settings with values; architecture and task are allowed, too.",
)
@click.option(
    "--seeds",
    cls=MultiValueOption,
    multiple=True,
    metavar="N or SEED SEED ...",
    help="Number of seeds 0, 1, ..., or the seeds: 3,4,5. [default: 5, for more variants more]",
)
@click.option(
    "--set",
    "settings",
    cls=MultiValueOption,
    multiple=True,
    metavar="NAME=VALUE ...",
    help="Settings of every run: max_steps=500 norm_placement=post.",
)
@click.option(
    "--on",
    cls=MultiValueOption,
    multiple=True,
    metavar="BACKEND NAME=VALUE ...",
    help="Train in jobs, with options: slurm partition=cpu minutes=60, or hf-jobs flavor=cpu-xl.",
)
@number_option(
    "--runs-per-shard", 1, 1000, "Runs of one job. [default: 20 with slurm, 100 with hf-jobs]"
)
@click.option("--detach", is_flag=True, help="End after the submission; only with --on.")
@output_option(
    "Folder of the runs; finished runs are not repeated. [default: in checkpoints/runs]",
    required=False,
)
@table_option
@figure_option
@json_option
def experiment(
    question: str | None,
    vary: tuple[str, ...],
    seeds: tuple[str, ...],
    settings: tuple[str, ...],
    on: tuple[str, ...],
    runs_per_shard: int | None,
    detach: bool,
    out: Path | None,
    table: Path | None,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Vary settings, train every variant with several seeds, and report the effect.

    QUESTION is a prepared experiment, or a .json or .toml file; without it, give --vary. Without
    either, the prepared ones are listed. Ctrl-C interrupts the command; run it again to resume.
    """
    if question is None and not vary:
        reject_options(
            ("settings", "seeds", "out", "table", "figure", "on"),
            "without a QUESTION or --vary; give one of them",
        )
        print_presets(as_json)
        return
    try:
        spec = build_spec(question, vary, seeds, settings)
    except ConfigError as error:
        exit_with_error(str(error))
    if on:
        if out is None:
            exit_with_error("--on needs --out, a folder; with slurm one that all nodes share")
        from .shards import train_elsewhere

        report = train_elsewhere(spec, out, on, runs_per_shard, detach)
    else:
        reject_options(("runs_per_shard", "detach"), "without --on")
        out = out or checkpoints_root() / "runs" / "experiments"
        report = run_experiment(spec, out)
    print_report(report, out, table, figure, as_json)


def print_presets(as_json: bool) -> None:
    """Print the prepared experiments."""
    from playground.experiments.presets import EXPERIMENT_PRESETS, spec
    from playground.experiments.spec import ExperimentSpec

    presets = [
        {"name": name, "title": preset.title, "why": preset.why, "spec": spec(name)}
        | {"runs": ExperimentSpec(**spec(name)).n_runs}
        for name, preset in EXPERIMENT_PRESETS.items()
    ]
    if as_json:
        click.echo(json.dumps(presets))
        return
    for preset in presets:
        click.echo(f"{preset['name']:14} {preset['title']} {preset['runs']} runs")


def build_spec(
    question: str | None, vary: tuple[str, ...], seeds: tuple[str, ...], settings: tuple[str, ...]
) -> dict[str, Any]:
    """Return the experiment that these options describe, or raise ConfigError."""
    from playground.experiments import presets
    from playground.experiments.variant import parse_grid

    spec: dict[str, Any]
    if question is None:
        spec = {"name": "experiment", "base": {"min_length": 1}, "grid": {}}
    elif question.endswith((".json", ".toml")):
        spec = {"grid": {}} | read_spec(Path(question))
    else:
        spec = presets.spec(question)
    if vary:
        pairs = [word.partition("=")[::2] for word in vary]
        if empty := [name for name, values in pairs if not values]:
            exit_with_error(
                f"--vary {empty[0]} has no values; use NAME=VALUE,VALUE, such as n_heads=1,2"
            )
        spec["grid"] = parse_grid(pairs)
    spec["base"] |= parse_settings(settings)
    if seeds:
        spec["seeds"] = parse_seeds(seeds)
    elif question is None or vary:
        spec["seeds"] = presets.default_seeds(math.prod(map(len, spec["grid"].values())))
    return spec


def parse_seeds(words: tuple[str, ...]) -> list[int]:
    """Parse the number of seeds, or a list of seeds; raise ConfigError for anything else."""
    from playground.experiments.spec import MAX_RUNS

    texts = [text for word in words for text in word.split(",")]
    are_seeds = all(text.isascii() and text.isdigit() and len(text) <= 10 for text in texts)
    if not are_seeds or (len(texts) == 1 and not 1 <= int(texts[0]) <= MAX_RUNS):
        raise ConfigError(
            "seeds",
            f"--seeds {' '.join(words)[:60]} is no number of seeds from 1 to {MAX_RUNS} and no "
            "list of seeds; use 5 for the seeds 0 to 4, or a list such as 3,4,5",
        )
    numbers = [int(text) for text in texts]
    return numbers if len(numbers) > 1 else list(range(numbers[0]))


def parse_settings(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE arguments as settings."""
    from playground.experiments.variant import parse_value

    settings = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals:
            exit_with_error(
                f"--set {argument} is not a setting; use NAME=VALUE, such as max_steps=500"
            )
        try:
            settings[name] = parse_value(name, text)
        except ConfigError as error:
            exit_with_error(str(error))
    return settings


def read_spec(path: Path) -> dict[str, Any]:
    """Read the specification of an experiment from a .json or .toml file."""
    from playground.common.strict_json import parse_strict_json

    try:
        with path.open("rb") as file:
            data = file.read(MAX_SPEC_BYTES)  # a device may have no end
        spec = tomllib.loads(data.decode()) if path.suffix == ".toml" else parse_strict_json(data)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        exit_with_error(f"{path} cannot be read as an experiment: {reason}")
    if not isinstance(spec, dict) or not isinstance(spec.setdefault("base", {}), dict):
        exit_with_error(f"{path} is no experiment; it must have settings by name in base and grid")
    return spec


@contextmanager
def open_experiments(out: Path) -> Iterator[ExperimentService]:
    """Open the experiments of a folder, which this process locks meanwhile."""
    from playground.experiments.service import ExperimentService
    from playground.runs.registry import Registry
    from playground.runs.storage_folder import locked_storage

    with locked_storage(out):
        registry = Registry(out, idle_timeout_s=0, release_after_s=0, has_count_limits=False)
        registry.single_owner = OWNER  # who owns every dataset of this machine
        service = ExperimentService(registry)
        try:
            yield service
        finally:
            service.close()
            registry.shutdown(20)


def run_experiment(spec: dict[str, Any], out: Path) -> dict[str, Any]:
    """Run an experiment, or continue the same one in `out`, and return its report.

    A signal saves the runs and ends the command.
    """
    from playground.experiments.spec import parse_experiment
    from playground.runs.record import owner_id

    try:
        requested = parse_experiment(spec, owner_id(OWNER))
        # Without this check, a run would wait forever for memory that the machine does not have.
        for variant in requested.variants:
            ensure_memory_available(variant.config(requested.seeds[0]))
        create_output_dir(out)
        with open_experiments(out) as service:
            same = service.find_equivalent(requested, OWNER)
            experiment = same or service.start(spec, OWNER)
            service.resume(experiment, OWNER)
            signals = _wait_with_progress(service, experiment)
            state, report = service.state(experiment, OWNER), service.details(experiment, OWNER)
    except OSError as error:
        exit_with_error(messages.output_folder_not_writable(out, error))
    # A diverged run is a valid result.
    failed = [
        line
        for line in report["planned_runs"]
        if line["status"] == "failed" and not line["message"].startswith(DIVERGED_MESSAGE)
    ]
    if signals or state != "done" or failed:
        reason = report["message"] or next(
            (line["message"] for line in failed), "stopped by a signal"
        )
        click.echo(f"playground: {reason}; the same command continues from here", err=True)
        raise SystemExit(128 + signals[0] if signals else 1)
    return report


def print_report(
    report: dict[str, Any], out: Path, table: Path | None, figure: Path | None, as_json: bool
) -> None:
    """Print the results of an experiment, and write its table and its figure."""
    from playground.experiments.results import to_csv

    if lengths := report.get("lengths"):
        results, lines = lengths, map(format_scheme, lengths["rows"])
    else:
        results = report["results"]
        lines = map(format_variant, results["variants"])
    if table:
        table.write_bytes(to_csv(report["results"], lengths).encode())
    if figure:
        from playground.figures.experiment import experiment_figure
        from playground.figures.style import render

        try:
            figure.write_bytes(render(experiment_figure(report), figure.suffix.removeprefix(".")))
        except ValueError as error:
            exit_with_error(str(error))
    if as_json:
        click.echo(json.dumps(results | {"out": str(out)}))
        return
    for line in lines:
        click.echo(line)
    click.echo(results["summary"])


def _wait_with_progress(service: ExperimentService, experiment: Experiment) -> list[int]:
    """Wait for the end of an experiment, with a progress bar; return the signals received."""
    signals = record_signals()
    estimate = service.estimate(experiment, OWNER)["message"]
    test = experiment.describe_planned_test()
    click.echo(f"{experiment.n_runs} runs; {estimate}. {test}".rstrip(), err=True)
    done, total = service.progress(experiment, OWNER)
    last_message = ""
    with progress_bar(total=total, initial=done, unit="step") as bar:
        while service.state(experiment, OWNER) == "running" and not signals:
            time.sleep(0.2)
            done, _ = service.progress(experiment, OWNER)
            bar.update(done - bar.n)
            row = service.summary(experiment, OWNER)
            if row["message"] not in ("", last_message):
                last_message = row["message"]
                bar.write(f"playground: {last_message}", file=sys.stderr)
            bar.set_postfix(row["statuses"])
    return signals


def format_variant(variant: VariantResult) -> str:
    exact, steps = variant["exact_match"], variant["steps_to"]
    if exact is None or steps is None:
        return (
            f"{variant['label']:28} diverged in {variant['diverged']} of {variant['planned']} runs"
        )
    when = (
        f"99 % after {steps['median']:,.0f} steps"
        if steps["median"] is not None
        else f"99 % not reached in {variant['steps']:,}"
    )
    if 0 < steps["reached"] < steps["n"]:
        when += f" ({steps['reached']} of {steps['n']} seeds)"
    return (
        f"{variant['label']:28} exact match {exact['median']:7.2%} ({exact['low']:.2%} to "
        f"{exact['high']:.2%}), {when}"
    )


def format_scheme(row: SchemeResult) -> str:
    """Format the reach of one variant as a line."""
    reach = row["reach"]
    if reach is None:
        return f"{row['label']:24} no run could be evaluated"
    return (
        f"{row['label']:24} 99 % exact match up to length {reach['median']:g} "
        f"(range {reach['low']:g} to {reach['high']:g})"
    )
