"""The options of the Lab command, and an experiment with a progress bar."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from playground.common import messages
from playground.models.config_fields import ConfigError
from playground.runs.memory import ensure_memory_available
from playground.runs.worker_protocol import DIVERGED_MESSAGE

from .common import (
    MultiValueOption,
    create_output_dir,
    exit_with_error,
    json_option,
    output_option,
    progress_bar,
    record_signals,
)

if TYPE_CHECKING:
    from playground.experiments.service import ExperimentService
    from playground.experiments.spec import Experiment

OWNER = "the command line"


def experiment_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that are common to every experiment."""
    command = click.option(
        "--csv",
        "table",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the results as a table.",
    )(json_option(command))
    return click.option(
        "--set",
        "settings",
        cls=MultiValueOption,
        multiple=True,
        metavar="NAME=VALUE ...",
        help="Settings of every run: max_steps=500 norm_placement=post.",
    )(command)


experiments_folder_option = output_option(
    "Folder of the runs; finished runs are not repeated. [default: in checkpoints/runs]",
    required=False,
)


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


def run_experiment(spec: dict[str, Any], out: Path) -> dict[str, Any]:
    """Run an experiment, and return its report.

    Results of the same experiment in `out` are reused. A signal saves the runs and ends the
    command.
    """
    from playground.errors import UserError
    from playground.experiments.service import ExperimentService
    from playground.experiments.spec import parse_experiment
    from playground.runs.record import owner_id
    from playground.runs.registry import Registry
    from playground.runs.storage_folder import locked_storage

    registry, service, locks = None, None, ExitStack()
    try:
        requested = parse_experiment(spec, owner_id(OWNER))
        # Without this check, a run would wait forever for memory that the machine does not have.
        for variant in requested.variants:
            ensure_memory_available(variant.config(requested.seeds[0]))
        create_output_dir(out)
        locks.enter_context(locked_storage(out))
        registry = Registry(out, idle_timeout_s=0, release_after_s=0, has_count_limits=False)
        registry.single_owner = OWNER  # who owns every dataset of this machine
        service = ExperimentService(registry)
        matching = (each for each in service.list_for_owner(OWNER) if each.is_equivalent(requested))
        experiment = next(matching, None) or service.start(spec, OWNER)
        service.resume(experiment, OWNER)
        signals = _wait_with_progress(service, experiment)
        state, report = service.state(experiment, OWNER), service.details(experiment, OWNER)
    except ConfigError as error:
        exit_with_error(str(error))
    except UserError as error:
        exit_with_error(str(error))
    except OSError as error:
        exit_with_error(messages.output_folder_not_writable(out, error))
    finally:
        if service:
            service.close()
        if registry:
            registry.shutdown(20)
        locks.close()
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
