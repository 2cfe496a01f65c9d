"""The command train, the options of settings, and messages with their names."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common import messages
from playground.common.storage import checkpoints_root
from playground.datasets.sources import is_dataset_argument
from playground.models.config_fields import ConfigError
from playground.runs.limits import ensure_memory_available
from playground.tasks import LOOKUP, TASKS
from playground.training.presets import PRESETS, preset_config, requested_config
from playground.training.run_config import (
    RunConfig,
    default_max_length,
    describe_optimizer_groups,
    field_named,
    optimizer_groups,
    section_of_field,
)
from playground.training.setting_changes import config_at_step

from .common import (
    CommandWithExamples,
    check_output_dir,
    exit_with_error,
    json_option,
    option_name,
    output_option,
    progress_bar,
    record_signals,
    reject_options,
    reserve_output_dir,
)
from .datasets import READING_OPTIONS, dataset_options, read_dataset

if TYPE_CHECKING:
    from playground.evaluation import EvalResult
    from playground.training.trainer import Trainer

# settings without an option of their name: `train` has other options, or derives them
EXCLUDED_SETTINGS = (
    "task",
    "min_length",
    "max_length",
    "source_vocab_size",
    "target_vocab_size",
    "dataset_sha256",
    "dataset_symbols",
    "max_target_length",
)
RESUMABLE_SETTINGS = ("max_steps", "stop_at_exact_match", "eval_every", "eval_size", "device")


TRAIN_EXAMPLES = """\
python -m playground train --task sort --length 8 --max-steps 500 --out sorter
python -m playground train --preset one-head --position-type rope --seed 3
python -m playground train --task pairs.tsv --architecture recurrent
python -m playground train --resume sorter --max-steps 1000"""


def translating_option_names(error: ConfigError, **flags: str) -> str:
    """Return a setting's error message with the option names of the command line.

    Names that are also English words (seed, device) are replaced only if the error is about them.
    """
    options = (
        {name: option_name(name) for name in section_of_field() if "_" in name}
        | {"max_length": "--length", "dataset_sha256": "--task"}
        | flags
    )
    message = str(error)
    for name in sorted(options, key=len, reverse=True):
        message = re.sub(rf"(?<![\w-]){name}(?!\w)", options[name], message)
    if error.field in options:
        return message
    return message.replace(error.field, option_name(error.field), 1)


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every setting of a run; the config validates the values."""
    defaults = preset_config("fast").to_flat()
    for name in reversed([n for n in section_of_field() if n not in EXCLUDED_SETTINGS]):
        field = field_named(name)
        kind = type(field.default)
        help_text = f"{field.metadata['help']} [{defaults.get(name, field.default)}]"
        if kind is bool:
            command = click.option(
                f"{option_name(name)}/--no-{name.replace('_', '-')}",
                name,
                default=None,
                help=help_text,
            )(command)
        else:
            choices = field.metadata["choices"]
            value_type = click.Choice(tuple(choices)) if choices else kind
            command = click.option(option_name(name), name, type=value_type, help=help_text)(
                command
            )
    return command


class Train(CommandWithExamples):
    """A command with its help in sections, because sixty options in one list are hard to search."""

    TITLES: ClassVar = {  # of the sections
        "task": "Task",
        "model": "Model",
        "training": "Training",
        "": "Output and resuming",
    }
    SECTIONS: ClassVar = {  # of options that are not settings
        **dict.fromkeys(READING_OPTIONS, "task"),
        "architecture": "model",
        "preset": "training",
    }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {**section_of_field(), **self.SECTIONS}
        for section, title in self.TITLES.items():
            records = [
                record
                for parameter in self.get_params(ctx)
                if sections.get(parameter.name or "", "") == section
                and (record := parameter.get_help_record(ctx))
            ]
            with formatter.section(title):
                formatter.write_dl(records)


@click.command(cls=Train, epilog=TRAIN_EXAMPLES)
@click.option(
    "--task",
    help=(
        f"The task: {', '.join(TASKS)}; or pairs.tsv, data.json, hub:user/dataset. "
        "[default: reverse]"
    ),
)
@dataset_options
@click.option(
    "--length", "max_length", type=int, help="Maximum length. [default: 10; brackets: 16]"
)
@click.option("--min-length", type=int, help="Minimum length. [default: the same as --length]")
@click.option(
    "--architecture",
    type=click.Choice(tuple(ARCHITECTURES)),
    help="The architecture of the model. [default: transformer]",
)
@click.option(
    "--preset",
    type=click.Choice(tuple(PRESETS)),
    help="A preset of settings. [default: fast, or the architecture's]",
)
@output_option("Output folder of the checkpoint. [default: in checkpoints/runs]", required=False)
@click.option("--overwrite", is_flag=True, help="Replace the checkpoint that --out already holds.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    help="Continue from this checkpoint; --max-steps is the total number.",
)
@click.option(
    "--weights-only", is_flag=True, help="Save no state for resuming: a third of the size."
)
@json_option
@setting_options
def train(
    task: str | None,
    preset: str | None,
    out: Path | None,
    overwrite: bool,
    resume: Path | None,
    weights_only: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Train a model and save its checkpoint.

    Defaults of settings are in brackets; a preset or an architecture may have others.
    """
    reading = {name: settings.pop(name) for name in READING_OPTIONS}
    settings["task"] = task
    options = {name: value for name, value in settings.items() if value is not None}
    if resume is None and task is not None and is_dataset_argument(task):
        options = read_dataset(task, **reading).task_settings() | options | {"task": LOOKUP}
    else:
        reject_options(reading, "without a dataset; name the dataset with --task")
    if resume is not None and weights_only and out in (None, resume):
        exit_with_error(
            "--weights-only would replace the checkpoint by one that cannot be resumed; "
            "name another folder with --out"
        )
    if resume is None:
        config = build_config(options, preset)
    else:
        config = resume_config(resume, options, preset)
    # Random, because a loop over seeds starts several runs in one second.
    name = f"{config.task.task}-seed{config.training.seed}-{secrets.token_hex(2)}"
    new_folder = checkpoints_root() / "runs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"
    out = out or resume or new_folder
    replaces = overwrite or out == resume
    click.get_current_context().with_resource(
        reserve_output_dir(out, lambda: check_output_dir(out, keeps_existing=not replaces))
    )
    trainer, metrics = _build_trainer(config, resume, options)
    failure, exit_code = train_with_progress(trainer, metrics)
    scores = None if failure else trainer.evaluate()
    problems = [failure] if failure else []
    problems += _save(trainer, metrics, scores, out, is_resumable=not weights_only)
    if problems or scores is None:
        click.echo(f"playground: {'; '.join(problems)}", err=True)
        raise SystemExit(exit_code or 1)
    _print_result(trainer, scores, out, as_json)


def _build_trainer(
    config: RunConfig, resume: Path | None, options: dict[str, Any]
) -> tuple[Trainer, list[Any]]:
    """Return the trainer of a new run or of a checkpoint, and the metrics so far."""
    from playground.checkpoints.checkpoint import resume_trainer
    from playground.training.trainer import Trainer

    try:
        trainer, metrics = (
            resume_trainer(resume, **options) if resume is not None else (Trainer(config), [])
        )
        trainer.task.check_lengths(trainer.config.task.min_length, trainer.config.task.max_length)
    except ConfigError as error:
        exit_with_error(translating_option_names(error))
    except ValueError as error:
        exit_with_error(str(error))
    return trainer, metrics


def _save(
    trainer: Trainer, metrics: list[Any], scores: EvalResult | None, out: Path, is_resumable: bool
) -> list[str]:
    """Save the checkpoint, and return what the user must know if the run did not end as planned.

    Without `scores` the training ended early.
    """
    from playground.checkpoints.checkpoint import save_checkpoint

    try:
        save_checkpoint(out, trainer, metrics, scores, resumable=is_resumable)
    except CheckpointError as error:
        return [str(error)]
    return [] if scores else [f"saved to {out}, continue with --resume {out}"]


def _print_result(trainer: Trainer, scores: EvalResult, out: Path, as_json: bool) -> None:
    result = {
        "exact_match": scores.exact_match,
        "token_accuracy": scores.token_accuracy,
        "steps": trainer.step_count,
        "seconds": round(trainer.seconds, 3),
        "parameters": parameter_count(trainer.config.model),
        "optimizer_groups": optimizer_groups(trainer.config),
        "device": trainer.device.type,
        "checkpoint": str(out),
    }
    if as_json:
        click.echo(json.dumps(result))
    else:
        click.echo(messages.scores_summary(scores.exact_match, scores.token_accuracy, scores.n))
        click.echo(
            f"{trainer.step_count} steps in {trainer.seconds:.1f} s on {trainer.device.type} "
            f"({describe_optimizer_groups(trainer.config)}); checkpoint {out}"
        )


def build_config(options: dict[str, Any], preset: str | None) -> RunConfig:
    """Return the run that the options describe, after a check that it fits this machine."""
    flags = {} if "min_length" in options else {"min_length": "--length"}
    options.setdefault(
        "min_length", options.get("max_length", default_max_length(options.get("task")))
    )
    try:
        config = requested_config(preset or "", options)
        ensure_memory_available(config)
    except ConfigError as error:
        exit_with_error(translating_option_names(error, **flags))
    return config


def resume_config(checkpoint: Path, options: dict[str, Any], preset: str | None) -> RunConfig:
    """Return the checkpoint's configuration with the changes that resuming allows."""
    fixed = sorted(set(options) - set(RESUMABLE_SETTINGS)) + (["preset"] if preset else [])
    if fixed:
        allowed = ", ".join(map(option_name, RESUMABLE_SETTINGS))
        name = option_name(fixed[0])
        exit_with_error(f"{name} cannot change on --resume, which accepts {allowed}; leave it out")
    manifest = read_manifest(checkpoint)
    active = config_at_step(manifest.config.training, manifest.changes, manifest.step)
    if options.get("max_steps", active.max_steps) <= manifest.step:
        exit_with_error(
            f"{checkpoint} is at step {manifest.step} already; give the total number of steps "
            "with --max-steps"
        )
    try:
        config = manifest.config.replace(**options)
        ensure_memory_available(config)
    except ConfigError as error:
        exit_with_error(translating_option_names(error))
    return config


def train_with_progress(trainer: Trainer, metrics: list[Any]) -> tuple[str, int]:
    """Train to the end with a progress bar; return the reason if it ended early, and the exit code.

    Signals are handled between two steps, as weights and generators are inconsistent within one.
    """
    from playground.training.step import TrainingDivergedError

    interrupted = record_signals()
    total = trainer.active_config.max_steps
    with progress_bar(total=total, initial=trainer.step_count, unit="step") as bar:
        try:
            while trainer.should_continue():
                step = trainer.train_step()
                metrics.append(step)
                bar.update()
                if step.exact_match is not None:
                    bar.set_postfix(loss=f"{step.loss:.4f}", exact_match=f"{step.exact_match:.2%}")
                if interrupted:
                    stopped = f"stopped by a signal at step {trainer.step_count}"
                    return stopped, 128 + max(interrupted)
        except TrainingDivergedError as error:
            return str(error), 1
    return "", 0
