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

from playground.models.config import SettingError
from playground.runs.memory import check_memory
from playground.runs.run import DIVERGED
from playground.tasks import TASKS
from playground.tasks.rows import RowsError
from playground.training.config import RunConfig, setting_of
from playground.training.manifest import CheckpointError, read_manifest

from .terminal import (
    CHECKPOINTS,
    Several,
    check_out,
    model_of,
    progress_bar,
    refuse,
    refuse_options,
    reserve_out,
)
from .training import learn, speak_flags, with_flags

SCHEMES = ("learned", "sinusoidal", "rope", "alibi", "t5")


def lab_options(command: Callable[..., Any]) -> Callable[..., Any]:
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
        cls=Several,
        multiple=True,
        metavar="NAME=VALUE ...",
        help="Settings of every run: steps=500 norm=post.",
    )(command)


def lab_home(command: Callable[..., Any]) -> Callable[..., Any]:
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
    cls=Several,
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
@lab_home
@lab_options
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
        refuse_options(
            ("schemes", "seeds", "length", "settings"),
            "on CHECKPOINTs, which are trained; leave it out",
        )
        found = asked_by_length(checkpoints, times, n)
        tell_lengths(found, out, table, as_json)
        return
    known = setting_of("positions").metadata["choices"]
    for scheme in schemes:
        if scheme not in known:
            refuse(f"--schemes {scheme}: choose one of {', '.join(known)}")
    given = read_settings(settings)
    base = {
        "task": "reverse",
        "min_length": 1,
        "max_length": length,
        "steps": 1000,
        "eval_every": 50,
    } | given
    base.setdefault("decay_steps", base["steps"])
    spec = {
        "name": "lengths",
        "base": base,
        "grid": {"positions": list(schemes or SCHEMES)},
        "seeds": list(range(seeds)),
    }
    out = out or CHECKPOINTS / "runs" / "lengths"
    found = carried_out(
        spec | {"kind": "lengths", "times": times, "n": n}, out, max_length="--length"
    )["lengths"]
    tell_lengths(found, out, table, as_json)


@click.command()
@click.argument("question", required=False)
@click.option(
    "--vary",
    cls=Several,
    multiple=True,
    metavar="NAME=V,V ...",
    help="One or two settings with values; family and task are allowed, too.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 20),
    default=None,
    help="Runs per variant, seeds 0, 1, ... [default: 3]",
)
@lab_home
@lab_options
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
    from playground.lab.experiment import LENGTHS, value_of
    from playground.lab.questions import questions
    from playground.lab.questions import spec as prepared

    if question is None and not vary:
        refuse_options(
            ("settings", "seeds", "out", "table"), "without a QUESTION or --vary; give one of them"
        )
        told = questions()
        for line in [] if as_json else told:
            click.echo(
                f"{line['name']:14} {line['title']} "
                f"{line['missing'] or '{} runs'.format(line['runs'])}"
            )
        if as_json:
            click.echo(json.dumps(told))
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
                    refuse(
                        f"--vary {name} has no values; write NAME=VALUE,VALUE, such as n_heads=1,2"
                    )
            spec["grid"] = {
                name: [value_of(name, text) for text in texts.split(",")] for name, texts in pairs
            }
        spec["base"] |= read_settings(settings)
        spec["seeds"] = list(range(seeds)) if seeds else spec["seeds"]
    except SettingError as error:
        refuse(str(error))
    out = out or CHECKPOINTS / "runs" / "experiments"
    report = carried_out(spec, out)
    if report["kind"] == LENGTHS:
        tell_lengths(report["lengths"], out, table, as_json)
        return
    from playground.lab.results import to_csv
    from playground.plots.lab import write

    found = report["results"]
    files = write(out, "experiment", found) if any(cell["n"] for cell in found["cells"]) else []
    if table:
        table.write_text(to_csv(found["fields"], found["cells"]), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found | {"out": str(out), "files": [str(path) for path in files]}))
        return
    for cell in found["cells"]:
        click.echo(cell_in_words(cell))
    click.echo(found["sentence"])
    for path in files[:1]:
        click.echo(f"{path}")


@click.command()
@click.argument("name", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the run.")
@click.option("--threads", type=int, default=1, show_default=True, help="CPU threads.")
@lab_home
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def published(name: str | None, seed: int, threads: int, out: Path | None, as_json: bool) -> None:
    """Reproduce a published claim: train as published, and compare the measured result.

    Without NAME, the claims are listed. The exit code is 1 if the result differs.
    """
    from playground.lab.published import (
        CLAIMS,
        claims,
        config_of,
        facts_of_lines,
        verdict,
        verdict_of_lengths,
    )

    if name is None:
        refuse_options(("seed", "threads", "out"), "without a NAME; give one")
        told = claims()
        for line in [] if as_json else told:
            click.echo(f"{line['name']:20} {line['title']}: {line['told']} ({line['source']})")
            click.echo(f"{'':20} {line['missing'] or line['command']}")
        if as_json:
            click.echo(json.dumps(told))
        return
    out = out or CHECKPOINTS / "runs" / f"published-{name}"
    try:
        if name in CLAIMS and (asked := CLAIMS[name].experiment) is not None:
            result = verdict_of_lengths(carried_out(dict(asked), out)["lengths"])
        else:
            config = config_of(name, seed).replace(threads=threads)
            check_memory(config)
            result = verdict(name, measured(config, out, facts_of_lines, CLAIMS[name].measure))
    except SettingError as error:
        refuse(speak_flags(error))
    if as_json:
        click.echo(json.dumps(result | {"out": str(out), "seed": seed}))
    else:
        click.echo(result["sentence"])
    if not result["passed"]:
        raise SystemExit(1)


def measured(
    config: RunConfig, out: Path, facts_of_lines: Callable[..., dict[str, Any]], measure: str
) -> dict[str, Any]:
    """Train or continue a run, save its checkpoint, and return its metrics."""
    from playground.models.transformer import Transformer
    from playground.training.checkpoint import as_line, load_trainer, save_checkpoint
    from playground.training.trainer import Trainer

    trainer, metrics = Trainer(config), list[Any]()
    click.get_current_context().with_resource(
        reserve_out(
            out, lambda: check_out(out, keeps_what_is_there=not (out / "config.json").is_file())
        )
    )
    if (out / "config.json").is_file():
        try:
            if read_manifest(out).config != config:
                refuse(
                    f"--out {out} already holds a checkpoint with other settings; choose "
                    "another folder, or remove it"
                )
            trainer, metrics = load_trainer(out)
        except CheckpointError as error:
            refuse(str(error))
    failure, exit_code = learn(trainer, metrics)
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
    facts = facts_of_lines(config, [as_line(line) for line in metrics], dataclasses.asdict(scores))
    if measure == "symbol_loss" and isinstance(trainer.family, Transformer):
        from playground.evaluation import symbol_loss
        from playground.tasks.held_out import held_out_set
        from playground.training.trainer import CONFIRMING_N

        held_out = held_out_set(
            trainer.task, CONFIRMING_N, config.task.min_length, config.task.max_length
        )
        facts["symbol_loss"] = symbol_loss(trainer.family.cpu(), held_out)
    return facts


def read_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE words as settings."""
    from playground.lab.experiment import value_of

    given = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            refuse(f"--set {word} is not a setting; write NAME=VALUE, such as steps=500")
        try:
            given[name] = value_of(name, text)
        except SettingError as error:
            refuse(str(error))
    return given


def carried_out(spec: dict[str, Any], out: Path, **flags: str) -> dict[str, Any]:
    """Run an experiment, and return its report.

    Results of the same experiment in `out` are reused. A signal saves and ends. `flags` maps
    settings to their own options.
    """
    from playground.lab.experiment import Experiment
    from playground.lab.laboratory import Laboratory
    from playground.runs.registry import Registry
    from playground.runs.run import Refused, fingerprint

    owner = "the command line"
    told_to_end: list[int] = []
    registry, lab = None, None
    try:
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
        asked = Experiment(owner=fingerprint(owner), **spec)
        # without the check, a run would wait forever for memory that the machine does not have
        for cell in asked.cells:
            check_memory(cell.config(asked.seeds[0]))
        registry = Registry(out, lease=0, reap=0)
        lab = Laboratory(registry)
        found = next((each for each in lab.of_owner(owner) if each.same_as(asked)), None)
        found = found or lab.begin(spec, owner)
        lab.resume(found, owner)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: told_to_end.append(number))
        estimate = lab.estimate(found, owner)["sentence"]
        click.echo(f"{found.n_runs} runs; {estimate}", err=True)
        at, of = lab.progress(found, owner)
        said = ""
        with progress_bar(total=of, initial=at, unit="step") as bar:
            while (state := lab.state(found, owner)) == "going" and not told_to_end:
                time.sleep(0.2)
                at, _ = lab.progress(found, owner)
                bar.update(at - bar.n)
                row = lab.row(found, owner)
                if row["message"] not in ("", said):
                    said = row["message"]
                    bar.write(f"playground: {said}", file=sys.stderr)
                bar.set_postfix(row["statuses"])
        report = lab.report(found, owner)
    except SettingError as error:
        refuse(with_flags(str(error), flags))
    except Refused as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"--out {out} cannot be written: {error.strerror}; choose another folder")
    finally:
        if lab:
            lab.close()
        if registry:
            registry.shutdown(20)
    # A diverged run is a valid result.
    failed = [
        line
        for line in report["lines"]
        if line["status"] == "failed" and not line["message"].startswith(DIVERGED)
    ]
    if told_to_end or state != "done" or failed:
        why = report["message"] or next((line["message"] for line in failed), "stopped by a signal")
        click.echo(f"playground: {why}; the same command continues from here", err=True)
        raise SystemExit(128 + told_to_end[0] if told_to_end else 1)
    return report


def asked_by_length(checkpoints: tuple[Path, ...], times: int, n: int) -> dict[str, Any]:
    """Evaluate checkpoints at each length up to a multiple of their training length.

    A checkpoint with too few positions is evaluated up to its maximum.
    """
    import torch

    from playground.evaluation import right_at
    from playground.lab.lengths import scheme_result, scores, sentence_of_checkpoints
    from playground.tasks import ROWS

    torch.set_num_threads(1)  # more threads are slower at this size
    rows = []
    for checkpoint in checkpoints:
        manifest, family = model_of(checkpoint)
        own = manifest.config.task
        task, counts = own.load(), []
        shortest, longest_asked = (
            (own.min_length, own.max_length)
            if own.task == ROWS
            else (TASKS[own.task].shortest, times * own.max_length)
        )
        lengths = range(shortest, longest_asked + 1)
        for length in progress_bar(iterable=lengths, desc=checkpoint.name, unit="length"):
            if max(length, task.answer_length(length)) + 1 > manifest.config.model.max_positions:
                click.echo(
                    f"playground: {checkpoint} has positions for {length - 1} symbols; longer "
                    "sequences are skipped",
                    err=True,
                )
                break
            try:
                right, asked = right_at(family, task, length, n)
            except RowsError as error:
                refuse(str(error))
            counts.append({"length": length, "right": right, "n": asked})
        told = [{"seed": manifest.config.training.seed, "scores": scores(counts)}]
        described = {"task": own.task, "trained": [own.min_length, own.max_length]}
        rows.append(scheme_result(checkpoint.name, told, manifest.config) | described)
    # the range of lengths in the training of all checkpoints
    trained = [
        min(row["trained"][0] for row in rows),
        min(row["trained"][1] for row in rows),
    ]
    longest = max(row["longest"] for row in rows)
    return {
        "trained": trained,
        "longest": longest,
        "asked": n,
        "rows": rows,
        "sentence": sentence_of_checkpoints(rows),
    }


def tell_lengths(
    found: dict[str, Any], out: Path | None, table: Path | None, as_json: bool
) -> None:
    """Draw and print the accuracy at each length."""
    from playground.lab.lengths import to_csv
    from playground.plots.lab import write

    files: list[Path] = []
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            if any(row["reach"] for row in found["rows"]):
                files = [
                    *write(out, "answers-by-length", found),
                    *write(out, "lengths-heatmap", found),
                ]
        if table:
            table.write_text(to_csv(found["rows"]), encoding="utf-8")
    except OSError as error:
        refuse(f"{error.filename} cannot be written: {error.strerror}; choose another folder")
    if as_json:
        click.echo(
            json.dumps(
                found | {"out": str(out) if out else None, "files": [str(path) for path in files]}
            )
        )
        return
    for row in found["rows"]:
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
    click.echo(found["sentence"])
    for path in files[:4:3]:
        click.echo(f"{path}")


def cell_in_words(cell: dict[str, Any]) -> str:
    """Format one variant of an experiment as a line."""
    exact, steps = cell["exact_match"], cell["steps_to"]
    if exact is None:
        return f"{cell['label']:28} diverged in {cell['diverged']} of {cell['planned']} runs"
    when = (
        f"99 % after {steps['median']:,.0f} steps"
        if steps["median"] is not None
        else f"99 % not reached in {cell['steps']:,}"
    )
    if 0 < steps["reached"] < steps["n"]:
        when += f" ({steps['reached']} of {steps['n']} seeds)"
    return (
        f"{cell['label']:28} exact match {exact['median']:7.2%} ({exact['low']:.2%} to "
        f"{exact['high']:.2%}), {when}"
    )
