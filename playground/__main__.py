"""The command line: python -m playground COMMAND; --help lists them."""

import os
import signal
import sys
from io import TextIOWrapper

# The imports below take seconds, in which Ctrl-C would end this process by the signal itself.
if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(128 + number))

import click

from playground import __version__
from playground.cli.app import app, limits
from playground.cli.benchmark import compare, finetune
from playground.cli.common import Group, exit_with_error
from playground.cli.datasets import add_dataset
from playground.cli.evaluate import evaluate, predict
from playground.cli.experiments import experiment
from playground.cli.hub import gallery, pull, push, reproduce
from playground.cli.inspect import export_page, inspect, report
from playground.cli.shards import collect, run_shard
from playground.cli.train import train
from playground.common.env import normalize_hub_endpoint, validate_env
from playground.errors import UserError
from playground.models.config_fields import ConfigError

EXAMPLES = """\
python -m playground app
python -m playground train --task reverse --length 10 --out my-model
python -m playground predict my-model "3 1 4"
python -m playground inspect my-model "3 1 4" --out figures
python -m playground train --help"""


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXAMPLES,
)
@click.version_option(__version__, prog_name="playground")
def main() -> None:
    """Train, evaluate, inspect, compare and publish a small transformer."""


for command, summary in (
    (app, "Open the playground in a web page."),
    (train, "Train a model and save its checkpoint."),
    (add_dataset, "Check and store a dataset of your own."),
    (evaluate, "Score a checkpoint on held-out sequences."),
    (predict, "Print a checkpoint's predictions for sequences."),
    (inspect, "Export figures of attention and ablations."),
    (report, "Write a checkpoint's report as one HTML file."),
    (export_page, "Write a model as one page that runs it."),
    (compare, "Compare a checkpoint with pretrained models."),
    (finetune, "Fine-tune a pretrained model on a task."),
    (experiment, "Vary settings over several seeds."),
    (collect, "Show an experiment that trains elsewhere."),
    (run_shard, "Train a part of an experiment."),
    (push, "Publish a checkpoint on the Hugging Face Hub."),
    (pull, "Download a published model as a checkpoint."),
    (reproduce, "Compare a published model with its card."),
    (gallery, "List published models."),
    (limits, "List the limits of a server."),
):
    command.short_help = summary
    main.add_command(command)


def run(
    arguments: list[str] | None = None,
    name: str = "python -m playground",
    command: click.Command = main,
) -> None:
    """Run a command; report every error that a user can correct in one line, with exit code 2."""
    _prepare_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        validate_env()
        normalize_hub_endpoint()
        command.main(
            arguments or ["--help"] * (command is main), prog_name=name, standalone_mode=False
        )
    except click.ClickException as error:
        exit_with_error(error.format_message())
    except (UserError, ConfigError) as error:
        exit_with_error(str(error))
    except click.exceptions.Abort:
        raise SystemExit(130) from None
    except OSError as error:
        sys.stdout = None  # a full disk must not fail again at exit
        place = f"{error.filename}: " if error.filename else "the output cannot be written: "
        exit_with_error(f"{place if error.strerror else ''}{error.strerror or error}")


def _prepare_streams() -> None:
    """Connect closed streams to the null device; the next file would get their descriptor.

    A console that lacks a character, such as one with cp1252, gets an escape, as on stderr.
    """
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, mode))  # noqa: SIM115 (open until the end)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    try:
        run()
    finally:
        # the interpreter restores the default action of every other handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
