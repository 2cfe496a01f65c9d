"""lengths, experiment and published: the Lab on the command line."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click

from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common.storage import checkpoints_root
from playground.datasets.pairs import DatasetError
from playground.models.config_fields import ConfigError
from playground.runs.memory import ensure_memory_available
from playground.runs.run import DIVERGED_MESSAGE
from playground.tasks import TASKS
from playground.training.config import RunConfig, field_named

from .common import (
    MultiValueOption,
    check_output_dir,
    exit_with_error,
    load_model_or_exit,
    progress_bar,
    reject_options,
    reserve_output_dir,
)
from .train import train_with_progress, translating_option_names, with_option_names

SCHEMES = ("learned", "sinusoidal", "rope", "alibi", "t5")


def experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every Lab command."""
    command = click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")(
        command
    )
    command = click.option(
        "--csv",
        "table",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the results as a table.",
    )(command)
    return click.option(
        "--set",
        "settings",
        cls=MultiValueOption,
        multiple=True,
        metavar="NAME=VALUE ...",
        help="Settings of every run: max_steps=500 norm_placement=post.",
    )(command)


def experiments_folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        default=None,
        help=(
            "Folder of runs and figures; finished runs are not repeated. [default: in "
            "checkpoints/runs]"
        ),
    )(command)


@click.command()
@click.argument(
    "checkpoints", metavar="[CHECKPOINT ...]", nargs=-1, type=click.Path(path_type=Path)
)
@click.option(
    "--schemes",
    cls=MultiValueOption,
    multiple=True,
    help=f"Position encodings to compare. [default: {' '.join(SCHEMES)}]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 20),
    default=3,
    show_default=True,
    help="Runs per position encoding, seeds 0, 1, ...",
)
@click.option(
    "--length", type=int, default=10, show_default=True, help="Maximum length in training."
)
@click.option(
    "--times",
    type=click.IntRange(1, 20),
    default=5,
    show_default=True,
    help="Evaluate lengths up to this multiple.",
)
@click.option(
    "--n",
    type=click.IntRange(20, 2000),
    default=200,
    show_default=True,
    help="Held-out sequences per length.",
)
@experiments_folder_option
@experiment_options
def lengths(
    checkpoints: tuple[Path, ...],
    schemes: tuple[str, ...],
    seeds: int,
    length: int,
    times: int,
    n: int,
    out: Path | None,
    settings: tuple[str, ...],
    table: Path | None,
    as_json: bool,
) -> None:
    """Measure how far each position encoding generalizes to longer sequences than in training.

    Ctrl-C ends the command; the same command continues. With CHECKPOINTs, nothing is trained
    and those are evaluated.
    """
    if checkpoints:
        reject_options(
            ("schemes", "seeds", "length", "settings"),
            "on CHECKPOINTs, which are trained; leave it out",
        )
        results = evaluate_lengths(checkpoints, times, n)
        print_length_results(results, out, table, as_json)
        return
    position_types = field_named("position_type").metadata["choices"]
    for scheme in schemes:
        if scheme not in position_types:
            exit_with_error(f"--schemes {scheme}: choose one of {', '.join(position_types)}")
    parsed = parse_settings(settings)
    base = {
        "task": "reverse",
        "min_length": 1,
        "max_length": length,
        "max_steps": 1000,
        "eval_every": 50,
    } | parsed
    base.setdefault("lr_decay_steps", base["max_steps"])
    spec = {
        "name": "lengths",
        "base": base,
        "grid": {"position_type": list(schemes or SCHEMES)},
        "seeds": list(range(seeds)),
    }
    out = out or checkpoints_root() / "runs" / "lengths"
    results = run_experiment(
        spec | {"kind": "lengths", "times": times, "n": n}, out, max_length="--length"
    )["lengths"]
    print_length_results(results, out, table, as_json)


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
    type=click.IntRange(1, 20),
    default=None,
    help="Runs per variant, seeds 0, 1, ... [default: 3]",
)
@experiments_folder_option
@experiment_options
def experiment(
    question: str | None,
    vary: tuple[str, ...],
    seeds: int | None,
    out: Path | None,
    settings: tuple[str, ...],
    table: Path | None,
    as_json: bool,
) -> None:
    """Vary one or two settings, train every variant with several seeds, and report the effect.

    QUESTION is a prepared experiment; without it, give --vary. Without either, the prepared
    ones are listed. Ctrl-C ends the command; the same command continues.
    """
    from playground.experiments.presets import list_presets
    from playground.experiments.presets import spec as prepared
    from playground.experiments.spec import LENGTHS, parse_value

    if question is None and not vary:
        reject_options(
            ("settings", "seeds", "out", "table"), "without a QUESTION or --vary; give one of them"
        )
        summary = list_presets()
        for line in [] if as_json else summary:
            click.echo(
                f"{line['name']:14} {line['title']} "
                f"{line['missing'] or '{} runs'.format(line['runs'])}"
            )
        if as_json:
            click.echo(json.dumps(summary))
        return
    try:
        if question is not None:
            spec = prepared(question)
        else:
            spec = {"name": "experiment", "base": {"min_length": 1}, "grid": {}, "seeds": [0, 1, 2]}
        if vary:
            pairs = [word.partition("=")[::2] for word in vary]
            for name, texts in pairs:
                if not texts:
                    exit_with_error(
                        f"--vary {name} has no values; write NAME=VALUE,VALUE, such as n_heads=1,2"
                    )
            spec["grid"] = {
                name: [parse_value(name, text) for text in texts.split(",")]
                for name, texts in pairs
            }
        spec["base"] |= parse_settings(settings)
        spec["seeds"] = list(range(seeds)) if seeds else spec["seeds"]
    except ConfigError as error:
        exit_with_error(str(error))
    out = out or checkpoints_root() / "runs" / "experiments"
    report = run_experiment(spec, out)
    if report["kind"] == LENGTHS:
        print_length_results(report["lengths"], out, table, as_json)
        return
    from playground.experiments.analysis import to_csv
    from playground.figures.experiments import write

    results = report["results"]
    files = write(out, "experiment", results) if any(cell["n"] for cell in results["cells"]) else []
    if table:
        table.write_text(to_csv(results["fields"], results["cells"]), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(results | {"out": str(out), "files": [str(path) for path in files]}))
        return
    for cell in results["cells"]:
        click.echo(format_variant(cell))
    click.echo(results["summary"])
    for path in files[:1]:
        click.echo(f"{path}")


@click.command()
@click.argument("name", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the run.")
@click.option("--threads", type=int, default=1, show_default=True, help="CPU threads.")
@experiments_folder_option
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def published(name: str | None, seed: int, threads: int, out: Path | None, as_json: bool) -> None:
    """Reproduce a published claim: train as published, and compare the measured result.

    Without NAME, the claims are listed. The exit code is 1 if the result differs.
    """
    from playground.experiments.replications import (
        CLAIMS,
        claims,
        metrics_of_run,
        outcome,
        outcome_of_lengths,
        replication_config,
    )

    if name is None:
        reject_options(("seed", "num_threads", "out"), "without a NAME; give one")
        claims_listed = claims()
        for line in [] if as_json else claims_listed:
            click.echo(f"{line['name']:20} {line['title']}: {line['statement']} ({line['source']})")
            click.echo(f"{'':20} {line['missing'] or line['command']}")
        if as_json:
            click.echo(json.dumps(claims_listed))
        return
    out = out or checkpoints_root() / "runs" / f"published-{name}"
    try:
        if name in CLAIMS and (requested := CLAIMS[name].experiment) is not None:
            result = outcome_of_lengths(run_experiment(dict(requested), out)["lengths"])
        else:
            config = replication_config(name, seed).replace(num_threads=threads)
            ensure_memory_available(config)
            result = outcome(
                name, train_and_measure(config, out, metrics_of_run, CLAIMS[name].measure)
            )
    except ConfigError as error:
        exit_with_error(translating_option_names(error))
    if as_json:
        click.echo(json.dumps(result | {"out": str(out), "seed": seed}))
    else:
        click.echo(result["summary"])
    if not result["passed"]:
        raise SystemExit(1)


def train_and_measure(
    config: RunConfig, out: Path, facts_of_lines: Callable[..., dict[str, Any]], measure: str
) -> dict[str, Any]:
    """Train or continue a run, save its checkpoint, and return its metrics."""
    from playground.checkpoints.checkpoint import metrics_record, resume_trainer, save_checkpoint
    from playground.models.transformer import Transformer
    from playground.training.trainer import Trainer

    trainer, metrics = Trainer(config), list[Any]()
    click.get_current_context().with_resource(
        reserve_output_dir(
            out, lambda: check_output_dir(out, keeps_existing=not (out / "config.json").is_file())
        )
    )
    if (out / "config.json").is_file():
        try:
            if read_manifest(out).config != config:
                exit_with_error(
                    f"--out {out} already holds a checkpoint with other settings; choose "
                    "another folder, or remove it"
                )
            trainer, metrics = resume_trainer(out)
        except CheckpointError as error:
            exit_with_error(str(error))
    failure, exit_code = train_with_progress(trainer, metrics)
    scores = None if failure else trainer.evaluate()
    try:
        save_checkpoint(out, trainer, metrics, scores)
    except CheckpointError as error:
        failure, exit_code = str(error), exit_code or 1
    else:
        failure = failure and f"{failure}; saved to {out}, the same command continues from there"
    if failure or scores is None:
        click.echo(f"playground: {failure}", err=True)
        raise SystemExit(exit_code)
    facts = facts_of_lines(
        config, [metrics_record(line) for line in metrics], dataclasses.asdict(scores)
    )
    if measure == "symbol_loss" and isinstance(trainer.eval_model, Transformer):
        from playground.evaluation import annotated_transformer_loss
        from playground.tasks.held_out import build_held_out_set
        from playground.training.trainer import FINAL_EVAL_SIZE

        held_out = build_held_out_set(
            trainer.task, FINAL_EVAL_SIZE, config.task.min_length, config.task.max_length
        )
        facts["symbol_loss"] = annotated_transformer_loss(trainer.eval_model.cpu(), held_out)
    return facts


def parse_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE words as settings."""
    from playground.experiments.spec import parse_value

    settings = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            exit_with_error(
                f"--set {word} is not a setting; write NAME=VALUE, such as max_steps=500"
            )
        try:
            settings[name] = parse_value(name, text)
        except ConfigError as error:
            exit_with_error(str(error))
    return settings


def run_experiment(spec: dict[str, Any], out: Path, **flags: str) -> dict[str, Any]:
    """Run an experiment, and return its report.

    Results of the same experiment in `out` are reused. A signal saves and ends. `flags` maps
    settings to their own options.
    """
    from playground.errors import UserError
    from playground.experiments.service import ExperimentService
    from playground.experiments.spec import Experiment
    from playground.runs.registry import Registry
    from playground.runs.run import owner_id

    owner = "the command line"
    interrupted: list[int] = []
    registry, service = None, None
    try:
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
        accepted = Experiment(owner=owner_id(owner), **spec)
        # without the check, a run would wait forever for memory that the machine does not have
        for cell in accepted.variants:
            ensure_memory_available(cell.config(accepted.seeds[0]))
        registry = Registry(out, idle_timeout_s=0, release_after_s=0)
        service = ExperimentService(registry)
        results = next(
            (each for each in service.list_for_owner(owner) if each.is_equivalent(accepted)), None
        )
        results = results or service.submit(spec, owner)
        service.resume(results, owner)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: interrupted.append(number))
        estimate = service.estimate(results, owner)["message"]
        click.echo(f"{results.n_runs} runs; {estimate}", err=True)
        at, of = service.progress(results, owner)
        last_message = ""
        with progress_bar(total=of, initial=at, unit="step") as bar:
            while (state := service.state(results, owner)) == "running" and not interrupted:
                time.sleep(0.2)
                at, _ = service.progress(results, owner)
                bar.update(at - bar.n)
                row = service.summary(results, owner)
                if row["message"] not in ("", last_message):
                    last_message = row["message"]
                    bar.write(f"playground: {last_message}", file=sys.stderr)
                bar.set_postfix(row["statuses"])
        report = service.details(results, owner)
    except ConfigError as error:
        exit_with_error(with_option_names(str(error), flags))
    except UserError as error:
        exit_with_error(str(error))
    except OSError as error:
        exit_with_error(f"--out {out} cannot be written: {error.strerror}; choose another folder")
    finally:
        if service:
            service.close()
        if registry:
            registry.shutdown(20)
    # A diverged run is a valid result.
    failed = [
        line
        for line in report["lines"]
        if line["status"] == "failed" and not line["message"].startswith(DIVERGED_MESSAGE)
    ]
    if interrupted or state != "done" or failed:
        reason = report["message"] or next(
            (line["message"] for line in failed), "stopped by a signal"
        )
        click.echo(f"playground: {reason}; the same command continues from here", err=True)
        raise SystemExit(128 + interrupted[0] if interrupted else 1)
    return report


def evaluate_lengths(checkpoints: tuple[Path, ...], times: int, n: int) -> dict[str, Any]:
    """Evaluate checkpoints at each length up to a multiple of their training length.

    A checkpoint with too few positions is evaluated up to its maximum.
    """
    import torch

    from playground.evaluation import exact_match_at_length
    from playground.experiments.length_generalization import (
        scores,
        summarize_checkpoints,
        summarize_scheme,
    )
    from playground.tasks import LOOKUP

    torch.set_num_threads(1)  # more threads are slower at this size
    rows = []
    for checkpoint in checkpoints:
        manifest, model = load_model_or_exit(checkpoint)
        own = manifest.config.task
        task, counts = own.load(), []
        shortest, max_requested = (
            (own.min_length, own.max_length)
            if own.task == LOOKUP
            else (TASKS[own.task].min_length, times * own.max_length)
        )
        lengths = range(shortest, max_requested + 1)
        for length in progress_bar(iterable=lengths, desc=checkpoint.name, unit="length"):
            if (
                max(length, task.max_target_length(length)) + 1
                > manifest.config.model.max_positions
            ):
                click.echo(
                    f"playground: {checkpoint} has positions for {length - 1} symbols; longer "
                    "sequences are skipped",
                    err=True,
                )
                break
            try:
                right, total = exact_match_at_length(model, task, length, n)
            except DatasetError as error:
                exit_with_error(str(error))
            counts.append({"length": length, "right": right, "n": total})
        lines_by_checkpoint = [{"seed": manifest.config.training.seed, "scores": scores(counts)}]
        description = {"task": own.task, "trained": [own.min_length, own.max_length]}
        rows.append(
            summarize_scheme(checkpoint.name, lines_by_checkpoint, manifest.config) | description
        )
    # the range of lengths in the training of all checkpoints
    trained = [
        min(row["trained"][0] for row in rows),
        min(row["trained"][1] for row in rows),
    ]
    max_evaluated = max(row["max_length"] for row in rows)
    return {
        "trained": trained,
        "max_length": max_evaluated,
        "n_requested": n,
        "rows": rows,
        "summary": summarize_checkpoints(rows),
    }


def print_length_results(
    results: dict[str, Any], out: Path | None, table: Path | None, as_json: bool
) -> None:
    """Draw and print the accuracy at each length."""
    from playground.experiments.length_generalization import to_csv
    from playground.figures.experiments import write

    files: list[Path] = []
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            if any(row["reach"] for row in results["rows"]):
                files = [
                    *write(out, "answers-by-length", results),
                    *write(out, "lengths-heatmap", results),
                ]
        if table:
            table.write_text(to_csv(results["rows"]), encoding="utf-8")
    except OSError as error:
        exit_with_error(
            f"{error.filename} cannot be written: {error.strerror}; choose another folder"
        )
    if as_json:
        click.echo(
            json.dumps(
                results | {"out": str(out) if out else None, "files": [str(path) for path in files]}
            )
        )
        return
    for row in results["rows"]:
        sides = ", ".join(
            f"{first} to {last} of its {side}"
            for side, (first, last) in (row["untrained"] or {}).items()
        )
        rows = f"; no step trained positions {sides}" if sides else ""
        reach = row["reach"]
        if reach is None:
            click.echo(f"{row['label']:24} no run that could be evaluated{rows}")
            continue
        click.echo(
            f"{row['label']:24} 99 % up to length {reach['median']:g} (range {reach['low']:g} "
            f"to {reach['high']:g}){rows}"
        )
    click.echo(results["summary"])
    for path in files[:4:3]:
        click.echo(f"{path}")


def format_variant(variant: dict[str, Any]) -> str:
    """Format one variant of an experiment as a line."""
    exact, steps = variant["exact_match"], variant["steps_to"]
    if exact is None:
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
