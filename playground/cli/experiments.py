"""experiment: vary settings, and report the effect."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from playground.common.storage import checkpoints_root
from playground.models.config_fields import ConfigError

from .common import MultiValueOption, exit_with_error, json_option, number_option, reject_options
from .experiment_runs import (
    experiments_folder_option,
    figure_option,
    parse_settings,
    print_report,
    read_spec,
    run_experiment,
    table_option,
)
from .shards import train_elsewhere


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
@experiments_folder_option
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
    """Return the experiment that these options describe.

    Raises ConfigError for an unknown experiment or setting, or an invalid value.
    """
    from playground.experiments.presets import default_seeds
    from playground.experiments.presets import spec as preset_spec
    from playground.experiments.variant import parse_value

    spec: dict[str, Any]
    if question is None:
        spec = {"name": "experiment", "base": {"min_length": 1}, "grid": {}}
    elif question.endswith((".json", ".toml")):
        spec = {"grid": {}} | read_spec(Path(question))
    else:
        spec = preset_spec(question)
    if vary:
        pairs = [word.partition("=")[::2] for word in vary]
        for name, values in pairs:
            if not values:
                exit_with_error(
                    f"--vary {name} has no values; use NAME=VALUE,VALUE, such as n_heads=1,2"
                )
        spec["grid"] = {
            name: [parse_value(name, value) for value in values.split(",")]
            for name, values in pairs
        }
    spec["base"] |= parse_settings(settings)
    if seeds:
        spec["seeds"] = parse_seeds(seeds)
    elif question is None or vary:
        spec["seeds"] = default_seeds(math.prod(map(len, spec["grid"].values())))
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
