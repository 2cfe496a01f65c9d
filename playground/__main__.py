"""The command line: python -m playground COMMAND; --help lists them."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":  # the imports below take seconds, in which Ctrl-C would end this process by the signal itself
    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(128 + number))

import click

from playground import __version__
from playground.commands.comparing import compare, finetune
from playground.commands.experiments import experiment, lengths, published
from playground.commands.inspecting import inspect
from playground.commands.publishing import deploy, gallery, pull, push, reproduce
from playground.commands.reporting import report
from playground.commands.terminal import refuse
from playground.commands.training import evaluate, predict, rows, train
from playground.training.environment import NumberError, check_numbers


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(__version__, prog_name="playground")
def main() -> None:
    """Train a small transformer, score it, ask it, look inside, hold it against others, publish it."""


for each in (
    train, rows, evaluate, predict, inspect, report, compare, finetune, lengths, experiment, published, push, pull, reproduce, gallery,
    deploy,
):  # fmt: skip
    main.add_command(each)


def run(arguments: list[str] | None = None) -> None:
    """Click's own errors in one line too, with exit code 2."""
    try:
        check_numbers()
        main.main(arguments, prog_name="playground", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        raise SystemExit(2) from None
    except NumberError as error:
        refuse(str(error))
    except click.UsageError as error:
        refuse(error.format_message())
    except click.exceptions.Abort:
        raise SystemExit(130) from None


if __name__ == "__main__":
    try:
        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter restores the default action of every other handler
