"""The command line: python -m playground COMMAND; --help lists them."""

import signal
import sys

# The imports below take seconds, in which Ctrl-C would end this process by the signal itself.
if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(128 + number))

import click

from playground import __version__
from playground.cli.app import app
from playground.cli.benchmark import compare, finetune
from playground.cli.common import Group, exit_with_error
from playground.cli.evaluate import evaluate, predict
from playground.cli.experiments import experiment
from playground.cli.hub import gallery, pull, push, reproduce
from playground.cli.inspect import inspect
from playground.cli.report import report
from playground.cli.train import add_dataset, train
from playground.common.env import EnvError, validate_env

EXAMPLES = """\
python -m playground app
python -m playground train --task reverse --length 10 --out my-model
python -m playground predict my-model "3 1 4"
python -m playground inspect my-model "3 1 4" --out figures
python -m playground train --help"""


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
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
    (compare, "Compare a checkpoint with pretrained models."),
    (finetune, "Fine-tune a pretrained model on a task."),
    (experiment, "Vary settings over several seeds."),
    (push, "Publish a checkpoint on the Hugging Face Hub."),
    (pull, "Download a published model as a checkpoint."),
    (reproduce, "Compare a published model with its card."),
    (gallery, "List published models."),
):
    command.short_help = summary
    main.add_command(command)


def run(arguments: list[str] | None = None, name: str = "python -m playground") -> None:
    """Run a command; report the errors of Click in one line too, with exit code 2."""
    try:
        validate_env()
        main.main(arguments, prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        raise SystemExit(2) from None
    except EnvError as error:
        exit_with_error(str(error))
    except click.UsageError as error:
        exit_with_error(error.format_message())
    except click.exceptions.Abort:
        raise SystemExit(130) from None


if __name__ == "__main__":
    try:
        run()
    finally:
        # the interpreter restores the default action of every other handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
