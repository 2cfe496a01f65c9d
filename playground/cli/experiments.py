"""experiment: vary one or two settings, and report the effect."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playground.common.storage import checkpoints_root
from playground.models.config_fields import ConfigError

from .common import MultiValueOption, check_output_file, exit_with_error, reject_options
from .experiment_runs import (
    experiment_options,
    experiments_folder_option,
    parse_settings,
    run_experiment,
)

if TYPE_CHECKING:
    from playground.experiments.analysis import VariantResult
    from playground.experiments.length_generalization import SchemeResult


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
@experiments_folder_option
@experiment_options
def experiment(
    question: str | None,
    vary: tuple[str, ...],
    seeds: tuple[str, ...],
    out: Path | None,
    settings: tuple[str, ...],
    table: Path | None,
    as_json: bool,
) -> None:
    """Vary one or two settings, train every variant with several seeds, and report the effect.

    QUESTION is a prepared experiment; without it, give --vary. Without either, the prepared
    ones are listed. Ctrl-C interrupts the command; run it again to resume.
    """
    if question is None and not vary:
        reject_options(
            ("settings", "seeds", "out", "table"), "without a QUESTION or --vary; give one of them"
        )
        print_presets(as_json)
        return
    try:
        spec = build_spec(question, vary, seeds, settings)
    except ConfigError as error:
        exit_with_error(str(error))
    if table:
        check_output_file("--csv", table)
    out = out or checkpoints_root() / "runs" / "experiments"
    report = run_experiment(spec, out)
    from playground.experiments import analysis, length_generalization
    from playground.experiments.spec import LENGTHS

    if report["kind"] == LENGTHS:
        results = report["lengths"]
        csv = length_generalization.to_csv(results["rows"], results["test"])
        lines = map(format_scheme, results["rows"])
    else:
        results = report["results"]
        csv = analysis.to_csv(results["fields"], results["variants"], results["test"])
        lines = map(format_variant, results["variants"])
    if table:
        table.write_text(csv, encoding="utf-8")
    if as_json:
        click.echo(json.dumps(results | {"out": str(out)}))
        return
    for line in lines:
        click.echo(line)
    click.echo(results["summary"])


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

    Raises:
        ConfigError: for an unknown experiment or setting, or an invalid value.
    """
    from playground.experiments.presets import default_seeds
    from playground.experiments.presets import spec as preset_spec
    from playground.experiments.variant import parse_value

    spec: dict[str, Any] = (
        {"name": "experiment", "base": {"min_length": 1}, "grid": {}}
        if question is None
        else preset_spec(question)
    )
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
    n_variants = math.prod(map(len, spec["grid"].values()))
    spec["seeds"] = parse_seeds(seeds) if seeds else default_seeds(n_variants)
    return spec


def parse_seeds(words: tuple[str, ...]) -> list[int]:
    """Parse the number of seeds, or a list of seeds.

    Raises:
        ConfigError: for anything else.
    """
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
    untrained = ", ".join(
        f"{first} to {last} of its {side}"
        for side, (first, last) in (row["untrained"] or {}).items()
    )
    untrained_note = f"; never trained: positions {untrained}" if untrained else ""
    reach = row["reach"]
    if reach is None:
        return f"{row['label']:24} no run could be evaluated{untrained_note}"
    return (
        f"{row['label']:24} 99 % exact match up to length {reach['median']:g} "
        f"(range {reach['low']:g} to {reach['high']:g}){untrained_note}"
    )
