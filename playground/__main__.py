"""The command line: python -m playground COMMAND; --help lists them."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NoReturn

import click
from tqdm import tqdm

from playground import __version__
from playground.comparison.work import QUIET
from playground.families import FAMILIES
from playground.models.config import SettingError
from playground.origins import from_argument, is_argument, keep
from playground.runs.memory import check_memory
from playground.tasks import TASKS
from playground.tasks.rows import RowsError
from playground.training.config import RunConfig, TaskConfig, field_owner, setting_of, settings_at
from playground.training.manifest import CheckpointError, read_manifest
from playground.training.presets import PRESETS, family_config, preset_config

if TYPE_CHECKING:
    from playground.training.trainer import Trainer

CHECKPOINTS = Path(__file__).resolve().parent.parent / "checkpoints"
NAMED_APART = (
    "task", "min_length", "max_length", "source_vocabulary", "target_vocabulary", "rows", "vocabulary", "longest_answer",
)  # fmt: skip
SCHEMES = ("learned", "sinusoidal", "rope", "alibi", "t5")
CHANGED_ON_RESUME = ("steps", "until", "eval_every", "eval_n", "device")


def refuse(message: str) -> NoReturn:
    """End with exit code 2 and one line that says what to change."""
    click.echo(f"playground: {message}", err=True)
    raise SystemExit(2)


def option_name(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def speak_flags(error: SettingError) -> str:
    """A setting's error with the command line's spelling of its name."""
    flag = {"max_length": "--length", "rows": "--task"}.get(error.field, option_name(error.field))
    return str(error).replace(error.field, flag, 1)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for every setting of a run; the config checks the values, so that there is one place that does."""
    for name in reversed([n for n in field_owner() if n not in NAMED_APART]):
        field = setting_of(name)
        kind = type(field.default)
        shown = f"{field.metadata['help']} [default: {field.default}, or the preset's]"
        if kind is bool:
            command = click.option(f"{option_name(name)}/--no-{name.replace('_', '-')}", name, default=None, help=shown)(command)
        else:
            value_type = click.Choice(field.metadata["choices"]) if field.metadata["choices"] else kind
            command = click.option(option_name(name), name, type=value_type, default=None, help=shown)(command)
    return command


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How rows of somebody's own are read."""
    apart = click.option("--words/--characters", "words", default=None, help="What a symbol of the rows is. [default: as found]")
    return click.option("--columns", default="", metavar="SOURCE,TARGET", help="The columns of a table that hold the rows.")(apart(command))


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="playground")
def main() -> None:
    """Train a small transformer, score it, ask it, look inside, publish it."""


@main.command()
@click.option(
    "--task",
    default=None,
    help=f"What is learned: {', '.join(TASKS)}; or rows.tsv, data.csv, hub:user/dataset, path.py:function. [default: reverse]",
)
@row_options
@click.option("--length", "max_length", type=int, default=None, help="Longest sequence. [default: 10]")
@click.option("--min-length", type=int, default=None, help="Shortest sequence. [default: the same as --length]")
@click.option("--family", type=click.Choice(list(FAMILIES)), default=None, help="What kind of model learns it. [default: transformer]")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), default=None, help="Settings that go together. [default: fast, or the family's]"
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=None, help="The checkpoint's folder. [default: in checkpoints/runs]"
)
@click.option("--overwrite", is_flag=True, help="Replace the checkpoint that --out already holds.")
@click.option("--resume", type=click.Path(path_type=Path), default=None, help="Go on from this checkpoint; --steps says how far in all.")
@click.option("--weights-only", is_flag=True, help="Leave out what only resuming needs: a third of the size.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
@setting_options
def train(
    task: str | None, columns: str, words: bool | None, max_length: int | None, min_length: int | None, preset: str | None,
    out: Path | None, overwrite: bool, resume: Path | None, weights_only: bool, as_json: bool, **settings: Any,
) -> None:  # fmt: skip
    """Train a model and keep its checkpoint."""
    given = {k: v for k, v in settings.items() if v is not None}
    given |= {k: v for k, v in (("task", task), ("max_length", max_length), ("min_length", min_length)) if v is not None}
    if resume is None and task is not None and is_argument(task):
        given |= rows_given(task, columns, words, given)
    elif columns or words is not None:
        refuse("--columns, --words and --characters say how rows are read; name the rows with --task")
    if resume is not None:
        if weights_only and out in (None, resume):
            refuse("--weights-only would leave nothing to resume in its place; name another folder with --out")
        config = resumed_config(resume, given, preset)
        out = out or resume
    else:
        config = new_config(given, preset)
        out = out or CHECKPOINTS / "runs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.task.task}"
    check_out(out, keeps_what_is_there=not overwrite and out != resume)

    from playground.training.checkpoint import load_trainer, save_checkpoint
    from playground.training.trainer import Trainer

    try:
        trainer, metrics = load_trainer(resume, **given) if resume is not None else (Trainer(config), [])
        trainer.task.prepare(trainer.config.task.min_length, trainer.config.task.max_length)
    except SettingError as error:
        refuse(speak_flags(error))
    except ValueError as error:
        refuse(str(error))
    failure, exit_code = learn(trainer, metrics)
    scores = None if failure else trainer.evaluate()
    try:
        save_checkpoint(out, trainer, metrics, scores, resumable=not weights_only)
    except CheckpointError as error:
        failure, exit_code = f"{failure}; {error}" if failure else str(error), exit_code or 1
    else:
        failure = failure and f"{failure}; saved to {out}, go on with --resume {out}"
    if failure or scores is None:
        click.echo(f"playground: {failure}", err=True)
        raise SystemExit(exit_code)
    result = {
        "exact_match": scores.exact_match,
        "token_accuracy": scores.token_accuracy,
        "steps": trainer.step_count,
        "seconds": round(trainer.seconds, 3),
        "parameters": trainer.config.model.parameter_count(),
        "device": trainer.device.type,
        "checkpoint": str(out),
    }
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(f"exact match {scores.exact_match:.2%}, symbols {scores.token_accuracy:.2%}, of {scores.n:,} held-out sequences")
        click.echo(f"{trainer.step_count} steps in {trainer.seconds:.1f} s on {trainer.device.type}; checkpoint {out}")


@main.command()
@click.argument("task", metavar="ROWS")
@row_options
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def rows(task: str, columns: str, words: bool | None, as_json: bool) -> None:
    """Check rows of a task (a file of source, tab, target; a CSV; hub:user/dataset), show the first, and keep them here, where
    checkpoints that were trained on them find them."""
    found = rows_given(task, columns, words, {}, shown=0 if as_json else 8)
    if as_json:
        click.echo(json.dumps(found))


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--n", type=click.IntRange(1, 100_000), default=2000, show_default=True, help="Held-out sequences to ask.")
@click.option("--min-length", type=int, default=None, help="Shortest sequence. [default: the model's own]")
@click.option("--length", "max_length", type=int, default=None, help="Longest sequence. [default: the model's own]")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def evaluate(checkpoint: Path, n: int, min_length: int | None, max_length: int | None, as_json: bool) -> None:
    """Score a checkpoint on held-out sequences, which never trained it."""
    manifest = manifest_of(checkpoint)
    own = manifest.config.task
    try:
        longest = own.max_length if max_length is None else max_length
        shortest = min(own.min_length, longest) if min_length is None else min_length
        task = dataclasses.replace(own, max_length=longest, min_length=shortest)
        RunConfig(task, manifest.config.model, manifest.config.training, manifest.config.family)
    except SettingError as error:
        refuse(speak_flags(error))

    from playground.evaluation import evaluate as score
    from playground.tasks.held_out import held_out_set

    _, family = model_of(checkpoint)
    try:
        scores = score(family, held_out_set(task.load(), n, task.min_length, task.max_length))
    except RowsError as error:
        refuse(str(error))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(scores) | {"checkpoint": str(checkpoint)}))
        return
    click.echo(f"exact match {scores.exact_match:.2%}, symbols {scores.token_accuracy:.2%}, of {scores.n:,} held-out sequences")
    for line in scores.by_length:
        exact = "none held out" if line.exact_match is None else f"{line.exact_match:7.2%} of {line.n}"
        click.echo(f"  length {line.length:3}   {exact}" + (f" ({line.available} exist)" if line.available is not None else ""))


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("sequence")
def predict(checkpoint: Path, sequence: str) -> None:
    """A checkpoint's answer to a sequence such as "3 1 4"; the last line of the output is the answer alone."""
    manifest, family = model_of(checkpoint)
    import torch

    from playground.runs.view import View

    config = manifest.config
    reply = View(config.task.load(), config, torch.device("cpu")).answer(family, sequence)
    if "error" in reply:
        refuse(reply["error"])
    if reply["note"]:
        click.echo(f"playground: {reply['note']}", err=True)
    click.echo(" ".join(reply["given"]))


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("sequence")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder that gets the figures.")
@click.option("--n", type=click.IntRange(1, 10_000), default=512, show_default=True, help="Held-out sequences asked without each part.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def inspect(checkpoint: Path, sequence: str, out: Path, n: int, as_json: bool) -> None:
    """Draw what happens inside a checkpoint on a sequence such as "3 1 4": where every head looks, what is lost without each part,
    what each layer would answer. Each figure as PNG, SVG and PDF, with its data beside it as CSV or JSON."""
    from playground.plots.heads import FIGURES

    manifest, family = model_of(checkpoint)
    known = {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "pdf", "csv", "json")}
    if out.exists() and any(path.name not in known for path in out.iterdir()):
        refuse(f"--out {out} is a folder with other things in it; choose a new or empty one")

    import torch

    from playground.inspection.subject import NotInspectable
    from playground.plots.drawn import draw_all
    from playground.runs.history import read_lines
    from playground.tasks import UnknownSymbol

    torch.set_num_threads(1)  # more only get into each other's way at this size

    def tell(sentence: str) -> None:
        click.echo(f"{sentence} ...", err=True)

    run = run_of(checkpoint)
    try:
        lines = [line for line in read_lines(run) if line["step"] <= manifest.step]
        earlier = earlier_weights(run, manifest.step)
        found, files = draw_all(
            out, manifest.config, family, sequence, n, lines=lines, scores=manifest.scores, history=earlier, tell=tell
        )  # fmt: skip
    except (UnknownSymbol, NotInspectable, CheckpointError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"--out {out} cannot be written: {error.strerror}; choose another folder")
    missed = next(row for row in found["ablation"] if row["name"] == found["head"]["title"])
    if as_json:
        click.echo(json.dumps({"out": str(out), "files": [path.name for path in files], "most_missed": missed}))
        return
    before, after, asked = missed["exact_match_before"], missed["exact_match"], missed["n"]
    click.echo(f"the head most missed: {missed['name']}; without it {after:.2%} instead of {before:.2%} of {asked:,} held-out sequences")
    click.echo(f"{len(found)} figures with their data in {out}: {', '.join(found)}")


class Several(click.Option):
    """An option that takes every word until the next option: --schemes learned rope."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        option = next(found for name in self.opts if (found := parser._long_opt.get(name)))
        take = option.process

        def process(value: str, state: Any) -> None:
            take(value, state)
            while state.rargs and not state.rargs[0].startswith("-"):
                take(state.rargs.pop(0), state)

        option.process = process


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option(
    "--models", cls=Several, multiple=True, metavar="MODEL ...", show_default=True, default=("gpt2", "bert-base-uncased"),
    help="Pretrained models: names on the Hub, or folders that hold one; several after one flag.",
)  # fmt: skip
@click.option("--n", type=click.IntRange(1, 500), default=20, show_default=True, help="Held-out sequences to ask.")
@click.option("--shots", type=click.IntRange(0, 32), default=8, show_default=True, help="Worked examples in a prompt, as far as they fit.")
@click.option("--rank", type=click.IntRange(0, 500), default=None, help="How many items are ranked among candidates, too. [default: 10]")
@click.option("--csv", "csv_file", type=click.Path(path_type=Path, dir_okay=False), default=None, help="Write the table to this file.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON: the table, and every item as it was asked and answered.")
def compare(
    checkpoint: Path, models: tuple[str, ...], n: int, shots: int, rank: int | None, csv_file: Path | None, as_json: bool
) -> None:  # fmt: skip
    """Ask a checkpoint and pretrained models the same held-out sequences. Exit code 1 where a model could not be asked."""
    manifest_of(checkpoint)
    if csv_file and not csv_file.resolve().parent.is_dir():
        refuse(f"--csv {csv_file} cannot be written: there is no such folder; choose another file")
    os.environ.update(QUIET | {"HF_TOKEN": ""})  # before huggingface_hub reads them: nobody's token is sent

    from playground.comparison.sheet import standing, to_csv, to_json
    from playground.comparison.table import line_in_words

    told: list[dict[str, Any]] = []
    what = {"checkpoint": str(checkpoint), "models": list(models), "n": n, "shots": shots, "rank": rank}
    result, ended = carry_out("table", what, told)
    if result is None:
        click.echo("playground: told to end; the rows so far:", err=True)
    rows = standing(told)
    if csv_file:
        try:
            csv_file.write_text(to_csv(told), encoding="utf-8")
        except OSError as error:
            refuse(f"--csv {csv_file} cannot be written: {error.strerror}; choose another file")
    if as_json:
        click.echo(to_json(told, result, indent=None))
    else:
        click.echo(f"{'':34} {'exact match':^19} {'token accuracy':^19} {'rank accuracy':^19} {'parameters':>13}")
        for row in rows:
            click.echo(line_in_words(row))
        for note in [*(row["note"] for row in rows if row["note"]), *(row["sentence"] for row in told if row["kind"] == "leak")]:
            click.echo(f"  {note}")
        click.echo(next((row["caption"] for row in told if row["kind"] == "settings"), ""))
    if ended or any(row["error"] for row in rows):
        raise SystemExit(128 + ended if ended else 1)


@main.command()
@click.argument("model")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--steps", type=click.IntRange(1, 5000), default=100, show_default=True, help="Updates of the weights.")
@click.option("--learning-rate", type=float, default=2e-4, show_default=True, help="Size of an update at its largest.")
@click.option("--batch-size", type=click.IntRange(1, 256), default=16, show_default=True, help="Sequences in each update.")
@click.option("--n", type=click.IntRange(1, 1000), default=64, show_default=True, help="Held-out sequences behind each score.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="The same seed gives the same losses.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder that gets the model.")
@click.option("--overwrite", is_flag=True, help="Replace the model that --out already holds.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def finetune(
    model: str, checkpoint: Path, steps: int, learning_rate: float, batch_size: int, n: int, seed: int, out: Path, overwrite: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Train a pretrained MODEL (a name on the Hub, or a folder) on the task of a CHECKPOINT; `compare --models` takes what comes of it.
    Ctrl-C keeps the weights so far."""
    manifest_of(checkpoint)
    if out.resolve() == checkpoint.resolve() or (out.exists() and any(out.iterdir()) and not (out / "fine-tuned.json").is_file()):
        refuse(f"--out {out} is a folder with other things in it; choose a new or empty one")
    if (out / "fine-tuned.json").is_file() and not overwrite:
        refuse(f"--out {out} already holds a fine-tuned model; choose another folder, or add --overwrite")
    check_out(out, keeps_what_is_there=False)
    what = {
        "model": model, "checkpoint": str(checkpoint), "into": str(out), "steps": steps, "learning_rate": learning_rate,
        "batch_size": batch_size, "n": n, "seed": seed,
    }  # fmt: skip
    result, ended = carry_out("finetune", what, [])
    if result is None:
        refuse("told to end before the first step; nothing was written")
    if as_json:
        click.echo(json.dumps(result))
    else:
        before, after = result["before"], result["after"]
        scored = f"exact match {before['exact_match']:.2%} before" + (
            f", {after['exact_match']:.2%} at step {after['step']}" if after else ""
        )
        click.echo(f"{scored}, of {before['scored']} held-out sequences without a worked example")
        click.echo(f"{result['steps']} steps in {result['seconds']:.1f} s; compare with --models {out}")
    if ended:
        raise SystemExit(128 + ended)


def carry_out(kind: str, what: dict[str, Any], told: list[dict[str, Any]]) -> tuple[dict[str, Any] | None, int]:
    """Do a job of the comparer in this process, under a progress bar; its rows go to `told`. Returns its result, None when it was
    told to end before there was one, and the number of the signal that said so."""
    from playground.comparison.work import Cancelled, Refused, Tell
    from playground.comparison.work import run as do

    told_to_end: list[int] = []
    cancelled = threading.Event()

    def end(number: int, frame: object) -> None:
        told_to_end.append(number)
        cancelled.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    result = None
    with tqdm(disable=None, file=sys.stderr, unit_scale=True) as bar:

        def hear(kind: str, *content: Any) -> None:
            if kind == "row":
                told.append(content[0])
            elif kind == "say":
                bar.write(content[0], file=sys.stderr)
                bar.reset()
            else:
                bar.total, bar.n, bar.unit = content[1], content[0], content[2]
                bar.refresh()

        try:
            result = do(kind, what, Tell(hear, cancelled))
        except Cancelled:
            pass
        except Refused as error:
            refuse(str(error))
    return result, told_to_end[0] if told_to_end else 0


def lab_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every command of the lab takes."""
    command = click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")(command)
    command = click.option("--csv", "table", type=click.Path(path_type=Path, dir_okay=False), help="Write what was found as a table.")(
        command
    )
    return click.option(
        "--set", "settings", cls=Several, multiple=True, metavar="NAME=VALUE ...", help="Settings of every run: steps=500 norm=post."
    )(command)  # fmt: skip


def lab_home(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--out", type=click.Path(path_type=Path, file_okay=False), default=None,
        help="The folder of runs and figures; what is finished there is not trained again. [default: in checkpoints/runs]",
    )(command)  # fmt: skip


@main.command()
@click.argument("checkpoints", metavar="[CHECKPOINT ...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--schemes", cls=Several, multiple=True, help=f"Positions to compare. [default: {' '.join(SCHEMES)}]")
@click.option("--seeds", type=click.IntRange(1, 20), default=3, show_default=True, help="Runs of each scheme, seeds 0, 1, ...")
@click.option("--length", type=int, default=10, show_default=True, help="Longest sequence in training.")
@click.option("--times", type=int, default=5, show_default=True, help="Ask sequences up to so many times as long.")
@click.option("--n", type=int, default=200, show_default=True, help="Held-out sequences of each length.")
@lab_home
@lab_options
def lengths(
    checkpoints: tuple[Path, ...], schemes: tuple[str, ...], seeds: int, length: int, times: int, n: int, out: Path | None,
    settings: tuple[str, ...], table: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Train on sequences up to a length, ask for longer ones, and draw how far each scheme of positions reaches. Ctrl-C ends it; the
    same command goes on. With CHECKPOINTs, nothing is trained and those are asked."""
    if checkpoints:
        found = asked_by_length(checkpoints, times, n)
        tell_lengths(found, out, table, as_json)
        return
    given = read_settings(settings)
    base = {"task": "reverse", "min_length": 1, "max_length": length, "steps": 1000, "eval_every": 50} | given
    base.setdefault("decay_steps", base["steps"])
    spec = {"name": "lengths", "base": base, "grid": {"positions": list(schemes or SCHEMES)}, "seeds": list(range(seeds))}
    out = out or CHECKPOINTS / "runs" / "lengths"
    found = carried_out(spec | {"kind": "lengths", "times": times, "n": n}, out)["lengths"]
    tell_lengths(found, out, table, as_json)


@main.command()
@click.argument("question", required=False)
@click.option("--vary", cls=Several, multiple=True, metavar="NAME=V,V ...", help="One or two settings, family and task too, with values.")
@click.option("--seeds", type=click.IntRange(1, 20), default=None, help="Runs of each combination, seeds 0, 1, ... [default: 3]")
@lab_home
@lab_options
def experiment(
    question: str | None, vary: tuple[str, ...], seeds: int | None, out: Path | None, settings: tuple[str, ...], table: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Change one or two settings, train every combination with several seeds, and say what it bought. QUESTION is a prepared one;
    without it, give --vary. Without either, the prepared questions are listed. Ctrl-C ends it; the same command goes on."""
    from playground.lab.experiment import LENGTHS, value_of
    from playground.lab.questions import questions
    from playground.lab.questions import spec as prepared

    if question is None and not vary:
        told = questions()
        for line in [] if as_json else told:
            click.echo(f"{line['name']:14} {line['title']} {line['missing'] or '{} runs'.format(line['runs'])}")
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
            spec["grid"] = {name: [value_of(name, text) for text in texts.split(",")] for name, texts in pairs}
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
    files = write(out, "experiment", found)
    if table:
        table.write_text(to_csv(found["fields"], found["cells"]), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(found | {"out": str(out), "files": [str(path) for path in files]}))
        return
    for cell in found["cells"]:
        click.echo(cell_in_words(cell))
    click.echo(found["sentence"])
    click.echo(f"{files[0]}")


@main.command()
@click.argument("name", required=False)
@click.option("--seed", type=int, default=0, show_default=True, help="The run's seed.")
@click.option("--threads", type=int, default=1, show_default=True, help="Processor threads.")
@lab_home
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def published(name: str | None, seed: int, threads: int, out: Path | None, as_json: bool) -> None:
    """Reproduce a published claim: train as published, measure the same, and put both figures side by side. Without NAME, the claims
    are listed. Exit code 1 where ours does not agree."""
    from playground.lab.published import CLAIMS, claims, config_of, facts_of_lines, verdict, verdict_of_lengths

    if name is None:
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


def measured(config: RunConfig, out: Path, facts_of_lines: Callable[..., dict[str, Any]], measure: str) -> dict[str, Any]:
    """Train a run, keep its checkpoint, and gather what it measured."""
    from playground.models.transformer import Transformer
    from playground.training.checkpoint import as_line, save_checkpoint
    from playground.training.trainer import Trainer

    if (out / "config.json").is_file():
        refuse(f"--out {out} already holds a checkpoint; choose another folder, or remove it")
    check_out(out, keeps_what_is_there=True)
    trainer, metrics = Trainer(config), list[Any]()
    failure, exit_code = learn(trainer, metrics)
    scores = None if failure else trainer.evaluate()
    try:
        save_checkpoint(out, trainer, metrics, scores)
    except CheckpointError as error:
        failure, exit_code = str(error), exit_code or 1
    if failure or scores is None:
        click.echo(f"playground: {failure}", err=True)
        raise SystemExit(exit_code)
    facts = facts_of_lines(config, [as_line(line) for line in metrics], dataclasses.asdict(scores))
    if measure == "symbol_loss" and isinstance(trainer.family, Transformer):
        from playground.evaluation import symbol_loss
        from playground.tasks.held_out import held_out_set
        from playground.training.trainer import CONFIRMING_N

        held_out = held_out_set(trainer.task, CONFIRMING_N, config.task.min_length, config.task.max_length)
        facts["symbol_loss"] = symbol_loss(trainer.family.cpu(), held_out)
    return facts


def read_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE words as settings."""
    from playground.lab.experiment import value_of

    given = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            refuse(f"--set {word} is no setting; write NAME=VALUE, such as steps=500")
        try:
            given[name] = value_of(name, text)
        except SettingError as error:
            refuse(str(error))
    return given


def carried_out(spec: dict[str, Any], out: Path) -> dict[str, Any]:
    """Everything about an experiment once it is over. What `out` holds of the same one is taken up, what is finished not repeated; a
    signal saves and ends."""
    from playground.lab.experiment import Experiment
    from playground.lab.laboratory import Laboratory
    from playground.runs.registry import Refused, Registry
    from playground.runs.run import fingerprint

    owner = "the command line"
    told_to_end: list[int] = []
    registry, lab = None, None
    try:
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
        asked = Experiment(owner=fingerprint(owner), **spec)
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
        with tqdm(total=of, initial=at, unit="step", disable=None, file=sys.stderr) as bar:
            while (state := lab.state(found, owner)) == "going" and not told_to_end:
                time.sleep(0.2)
                at, _ = lab.progress(found, owner)
                bar.update(at - bar.n)
                bar.set_postfix(lab.row(found, owner)["statuses"])
        report = lab.report(found, owner)
    except SettingError as error:
        refuse(speak_flags(error))
    except Refused as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"--out {out} cannot be written: {error.strerror}; choose another folder")
    finally:
        if lab:
            lab.close()
        if registry:
            registry.shutdown(20)
    failed = [line for line in report["lines"] if line["status"] == "failed"]
    if told_to_end or state != "done" or failed:
        why = report["message"] or next((line["message"] for line in failed), "told to end")
        click.echo(f"playground: {why}; the same command goes on from here", err=True)
        raise SystemExit(128 + told_to_end[0] if told_to_end else 1)
    return report


def asked_by_length(checkpoints: tuple[Path, ...], times: int, n: int) -> dict[str, Any]:
    """What checkpoints answer at each length up to so many times their training's, or as far as they have positions."""
    import torch

    from playground.evaluation import right_at
    from playground.lab.lengths import scheme_result, scores, sentence
    from playground.tasks import ROWS, TASKS
    from playground.tasks.rows import RowsError

    torch.set_num_threads(1)  # more only get into each other's way at this size
    rows, trained, longest = [], [], 0
    for checkpoint in checkpoints:
        manifest, family = model_of(checkpoint)
        own = manifest.config.task
        task, counts = own.load(), []
        shortest, longest_asked = (
            (own.min_length, own.max_length) if own.task == ROWS else (TASKS[own.task].shortest, times * own.max_length)
        )
        lengths = range(shortest, longest_asked + 1)
        for length in tqdm(lengths, desc=checkpoint.name, unit="length", disable=None, file=sys.stderr):
            if max(length, task.answer_length(length)) + 1 > manifest.config.model.max_positions:
                click.echo(f"playground: {checkpoint} has positions for {length - 1} symbols; longer ones are not asked", err=True)
                break
            try:
                right, asked = right_at(family, task, length, n)
            except RowsError as error:
                refuse(str(error))
            counts.append({"length": length, "right": right, "n": asked})
        told = [{"seed": manifest.config.training.seed, "scores": scores(counts)}]
        rows.append(scheme_result(checkpoint.name, told, manifest.config))
        trained.append([own.min_length, own.max_length])
        longest = max(longest, *(line["length"] for line in counts))
    together = [min(low for low, _ in trained), max(high for _, high in trained)]
    return {"trained": together, "longest": longest, "asked": n, "rows": rows, "sentence": sentence(rows, together, longest)}


def tell_lengths(found: dict[str, Any], out: Path | None, table: Path | None, as_json: bool) -> None:
    """Draw and print what is right at each length."""
    from playground.lab.lengths import to_csv
    from playground.plots.lab import write

    files: list[Path] = []
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            files = [*write(out, "answers-by-length", found), *write(out, "lengths-heatmap", found)]
        if table:
            table.write_text(to_csv(found["rows"]), encoding="utf-8")
    except OSError as error:
        refuse(f"{error.filename} cannot be written: {error.strerror}; choose another place")
    if as_json:
        click.echo(json.dumps(found | {"out": str(out) if out else None, "files": [str(path) for path in files]}))
        return
    for row in found["rows"]:
        sides = ", ".join(f"{first} to {last} of its {side}" for side, (first, last) in (row["untrained"] or {}).items())
        rows = f"; no step trained positions {sides}" if sides else ""
        reach = row["reach"]
        click.echo(f"{row['label']:24} 99 % up to length {reach['median']:g} (range {reach['low']:g} to {reach['high']:g}){rows}")
    click.echo(found["sentence"])
    for path in files[:4:3]:
        click.echo(f"{path}")


def cell_in_words(cell: dict[str, Any]) -> str:
    """One combination of an experiment in a line."""
    exact, steps = cell["exact_match"], cell["steps_to"]
    when = f"99 % after {steps['median']:,.0f} steps" if steps["median"] is not None else f"99 % not reached in {cell['steps']:,}"
    if 0 < steps["reached"] < steps["n"]:
        when += f" ({steps['reached']} of {steps['n']} seeds)"
    return f"{cell['label']:28} exact match {exact['median']:7.2%} ({exact['low']:.2%} to {exact['high']:.2%}), {when}"


def hub_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What every errand on the Hub takes."""
    asks = click.option("--ask-token", is_flag=True, help="Ask for a token instead of taking what `hf auth login` left, or HF_TOKEN.")
    return asks(click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")(command))


@main.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.argument("repo", metavar="USER/NAME")
@click.option("--branch", default="main", show_default=True, help="The branch that gets the commit; made when it is missing.")
@click.option("--private", is_flag=True, help="A repository that is made is seen by nobody else.")
@click.option("--with-data", is_flag=True, help="Publish the exact training set too, as the dataset USER/NAME-data.")
@click.option("--dry-run", is_flag=True, help="List every file and what would happen to it; write nothing.")
@hub_options
def push(
    checkpoint: Path, repo: str, branch: str, private: bool, with_data: bool, dry_run: bool, ask_token: bool, as_json: bool
) -> None:  # fmt: skip
    """Publish a checkpoint on the Hugging Face Hub, in one commit."""
    manifest_of(checkpoint)
    run = (
        checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" and (checkpoint.parent.parent / "run.json").is_file() else None
    )
    told = on_the_hub(
        ask_token, needed=True, kind="plan" if dry_run else "push", repo=repo, revision=branch, private=private, with_data=with_data,
        checkpoint=str(checkpoint.resolve()), run=str(run) if run else "",
    )  # fmt: skip
    if as_json:
        told.pop("card", None)
        click.echo(json.dumps(told))
        return
    for plan in told["plans"]:
        whose = "private" if plan["private"] else "public"
        state = "is there" if plan["exists"] else "would be made" if dry_run else "was made"
        click.echo(f"{plan['kind']} {plan['repo']} ({whose}, branch {plan['revision']}): {state}")
        for change in plan["changes"]:
            click.echo(f"  {change['what']:8}{change['size']:>12,} bytes  {change['path']}")
    click.echo("nothing was written" if dry_run else told["url"])


@main.command()
@click.argument("repo", metavar="USER/NAME")
@click.option("--revision", default="main", show_default=True, help="A branch, a tag or a commit.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=None, help="The folder. [default: checkpoints/NAME]")
@hub_options
def pull(repo: str, revision: str, out: Path | None, ask_token: bool, as_json: bool) -> None:
    """Fetch a published model as a checkpoint; every file is checked before it counts."""
    from playground.hub.names import is_repo

    if not is_repo(repo):
        refuse(f"{repo!r} is no repository; name one as user/name")
    out = out or CHECKPOINTS / repo.rpartition("/")[2]
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        refuse(f"--out {out} is there already and stays as it is; choose a new or an empty folder")
    check_out(out, keeps_what_is_there=True)
    told = on_the_hub(ask_token, kind="pull", repo=repo, revision=revision, into=str(out.resolve()))
    if as_json:
        click.echo(json.dumps({"checkpoint": str(out), "commit": told["commit"], "step": told["step"]}))
    else:
        click.echo(f"{out}: {told['task']}, {told['parameters']:,} parameters, step {told['step']}, commit {told['commit'][:12]}")


@main.command()
@click.argument("repo", metavar="USER/NAME")
@click.option("--revision", default="main", show_default=True, help="A branch, a tag or a commit.")
@hub_options
def reproduce(repo: str, revision: str, ask_token: bool, as_json: bool) -> None:
    """Measure a published model again, beside what its card says. Exit code 1 where they differ."""
    told = on_the_hub(ask_token, kind="reproduce", repo=repo, revision=revision)
    card, measured = told["card"], told["measured"]
    if as_json:
        click.echo(json.dumps({"repo": repo, "commit": told["commit"], "card": card, "measured": measured}))
    else:
        said = f"{card['exact_match']:.2%}" + (f" of {card['n']:,}" if card.get("n") else "") if card else "no score"
        click.echo(f"the card says {said}; measured here {measured['exact_match']:.2%} of {measured['n']:,} held-out sequences")
    if card and abs(card["exact_match"] - measured["exact_match"]) >= 0.5 / measured["n"]:
        raise SystemExit(1)


@main.command()
@hub_options
def gallery(ask_token: bool, as_json: bool) -> None:
    """List the models on the Hub that carry the playground's tag, most liked first."""
    models = on_the_hub(ask_token, kind="gallery")["models"]
    if as_json:
        click.echo(json.dumps(models))
        return
    for model in models:
        exact = "" if model["exact_match"] is None else f"{model['exact_match']:.2%}"
        size = "" if model["parameters"] is None else f"{model['parameters']:,} parameters"
        click.echo(f"{model['repo']:40} {model['task']:16} {size:>23} {exact:>8} {model['likes']:>5} likes")
    if not models:
        click.echo("no model with the playground's tag yet")


def on_the_hub(ask_token: bool, needed: bool = False, **errand: Any) -> dict[str, Any]:
    """The result of an errand on the Hub; what it does meanwhile goes to stderr. A signal ends it."""
    from playground.hub.jobs import begin, cancel, supervise
    from playground.hub.work import Errand

    token = click.prompt("Token", hide_input=True, err=True).strip() if ask_token else ""
    if not token:
        from huggingface_hub import get_token

        token = get_token() or ""
    if needed and not token:
        refuse("publishing needs a token that may write: run `hf auth login`, set HF_TOKEN, or add --ask-token")
    told_to_end: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its process inherits this: Ctrl-C is sent to both, and it is for us to end it
    job = begin(Errand(**errand, token=token), on_say=lambda sentence: click.echo(f"{sentence} ...", err=True), fresh=True)
    while job.child and job.child.process.pid is None and not job.over.wait(0.01):
        pass
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: told_to_end.append(number))
    while not job.over.wait(0.2):
        supervise(job)
        if told_to_end:
            cancel(job)
    if job.result is None:
        click.echo(f"playground: {job.sentence}", err=True)
        raise SystemExit(128 + told_to_end[0] if told_to_end else 1)
    return job.result


def new_config(given: dict[str, Any], preset: str | None) -> RunConfig:
    """The run that the options describe; it fits this machine."""
    given.setdefault("min_length", given.get("max_length", 10))
    try:
        config = preset_config(preset or "fast", given) if preset or "family" not in given else family_config(**given)
        check_memory(config)
    except SettingError as error:
        refuse(speak_flags(error))
    return config


def rows_given(task: str, columns: str, words: bool | None, given: dict[str, Any], shown: int = 0) -> dict[str, Any]:
    """The settings of a run on the rows that `task` names, which are kept here from now on; what was found in them is told, with
    the first ones where that is wanted."""
    longest = given.get("max_length", TaskConfig().max_length)
    drawn = {"symbols": given.get("symbols", 10), "min_length": given.get("min_length", longest), "max_length": longest}
    try:
        found = from_argument(task, [name.strip() for name in columns.split(",")] if columns else [], words, **drawn)
        keep(found)
    except RowsError as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"the rows cannot be kept: {error.strerror or error}; make room, or set PLAYGROUND_CHECKPOINTS to another folder")
    for source, target in found.preview(shown):
        click.echo(f"{' '.join(source)} → {' '.join(target)}")
    for sentence in found.in_words():
        click.echo(f"playground: {sentence}", err=True)
    return found.settings() | {name: given[name] for name in ("min_length", "max_length") if name in given}


def resumed_config(checkpoint: Path, given: dict[str, Any], preset: str | None) -> RunConfig:
    """The checkpoint's run with the few settings changed that may change on the way."""
    fixed = sorted(set(given) - set(CHANGED_ON_RESUME)) + (["preset"] if preset else [])
    if fixed:
        allowed = ", ".join(map(option_name, CHANGED_ON_RESUME))
        refuse(f"{option_name(fixed[0])} cannot change on --resume, which can take {allowed}; leave it out")
    manifest = manifest_of(checkpoint)
    if given.get("steps", settings_at(manifest.config.training, manifest.changes, manifest.step).steps) <= manifest.step:
        refuse(f"{checkpoint} is at step {manifest.step} already; say with --steps how far it should go in all")
    try:
        config = manifest.config.replace(**given)
        check_memory(config)
    except SettingError as error:
        refuse(speak_flags(error))
    return config


def check_out(out: Path, keeps_what_is_there: bool) -> None:
    """Refuse a folder that holds something else, or that cannot be written, before hours of training rather than after."""
    if keeps_what_is_there and (out / "config.json").exists():
        refuse(f"--out {out} already holds a checkpoint; choose another folder, go on with --resume {out}, or add --overwrite")
    if out.exists() and any(out.iterdir()) and not (out / "config.json").exists():
        refuse(f"--out {out} is a folder with other things in it; choose a new or empty one")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out.parent).close()
    except OSError as error:
        refuse(f"--out {out} cannot be written: {error.strerror}; choose another folder")


def run_of(checkpoint: Path) -> Path:
    """The folder where a checkpoint's metrics and earlier weights are: its run's, if it has one, else its own."""
    home = checkpoint.resolve().parent.parent
    return home if not (checkpoint / "metrics.jsonl").is_file() and (home / "metrics.jsonl").is_file() else checkpoint


def earlier_weights(run: Path, step: int) -> dict[int, Path]:
    """The weights that a run kept until `step`, evenly thinned: {step: file}. Empty for a checkpoint of no run."""
    from playground.runs.history import kept_steps, thinned, weights_path

    return {each: weights_path(run, each) for each in thinned([each for each in kept_steps(run) if each <= step])}


def learn(trainer: Trainer, metrics: list[Any]) -> tuple[str, int]:
    """Train to the end under a progress bar. Returns why it ended before, if it did, and the exit code for that.

    A signal is looked at between two steps: in the middle of one, weights and generators would not belong together.
    """
    from playground.training.trainer import TrainingDiverged

    told_to_end: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: told_to_end.append(number))
    total = trainer.settings.steps
    with tqdm(total=total, initial=trainer.step_count, unit="step", disable=None, file=sys.stderr) as bar:
        try:
            for step in trainer:
                metrics.append(step)
                bar.update()
                if step.exact_match is not None:
                    bar.set_postfix(loss=f"{step.loss:.4f}", exact_match=f"{step.exact_match:.2%}")
                if told_to_end:
                    return f"told to end at step {trainer.step_count}", 128 + told_to_end[0]
        except TrainingDiverged as error:
            return str(error), 1
    return "", 0


def manifest_of(checkpoint: Path) -> Any:
    try:
        return read_manifest(checkpoint)
    except CheckpointError as error:
        refuse(str(error))


def model_of(checkpoint: Path) -> Any:
    from playground.training.checkpoint import load_model

    try:
        return load_model(checkpoint)
    except CheckpointError as error:
        refuse(str(error))


def run(arguments: list[str] | None = None) -> None:
    """Click's own errors in one line too, with exit code 2."""
    try:
        main.main(arguments, prog_name="playground", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        raise SystemExit(2) from None
    except click.UsageError as error:
        refuse(error.format_message())
    except click.exceptions.Abort:
        raise SystemExit(130) from None


if __name__ == "__main__":
    run()
