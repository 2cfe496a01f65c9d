"""Helpers of all commands: error messages, progress bars, option types and output folders."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NoReturn

import click
import filelock
from click.core import ParameterSource

from playground.checkpoints.manifest import Manifest, read_manifest
from playground.common import messages


def exit_with_error(message: str) -> NoReturn:
    """Exit with code 2 and a one-line error message."""
    click.echo(f"playground: {message}", err=True)
    raise SystemExit(2)


def progress_bar(**options: Any) -> Any:
    """Return a progress bar on stderr, drawn only on a terminal."""
    from tqdm import tqdm

    return tqdm(**{"disable": None, "file": sys.stderr, **options})


def record_signals(on_signal: Callable[[], object] = lambda: None) -> list[int]:
    """Return a list that gets each SIGINT and SIGTERM; these only call `on_signal`."""
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        received.append(number)
        on_signal()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, receive)
    return received


def reject_options(names: Iterable[str], reason: str) -> None:
    """Reject the first of these parameters that the command line sets."""
    context = click.get_current_context()
    parameters = {parameter.name: parameter for parameter in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            exit_with_error(f"{parameters[name].opts[0]} has no effect {reason}")


def option_name(setting: str) -> str:
    return "--" + setting.replace("_", "-")


def number_option(
    name: str, low: int, high: int, description: str, *, default: int | None = None
) -> Callable[[Any], Any]:
    """Return the decorator of an option that takes a whole number from `low` to `high`."""
    return click.option(
        name,
        type=click.IntRange(low, high),
        default=default,
        show_default=default is not None,
        help=description,
    )


def output_option(description: str, *, required: bool = True) -> Callable[[Any], Any]:
    """Return the decorator of the option --out, a folder."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path, file_okay=False),
        required=required,
        help=description,
    )


checkpoint_argument = click.argument("checkpoint", type=click.Path(path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")


class MultiValueOption(click.Option):
    """An option that accepts every word up to the next option: --schemes learned rope."""

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        option = next(
            parser_option for name in self.opts if (parser_option := parser._long_opt.get(name))
        )
        take = option.process

        def process(value: str, state: Any) -> None:
            if value.startswith("-"):
                raise click.BadOptionUsage(
                    self.opts[0], f"Option '{self.opts[0]}' requires an argument."
                )
            take(value, state)
            while state.rargs and not state.rargs[0].startswith("-"):
                take(state.rargs.pop(0), state)

        option.process = process


class CommandWithExamples(click.Command):
    """A command that prints its epilog, the examples, unchanged."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for line in (self.epilog or "").splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(CommandWithExamples, click.Group):
    """A command group that lists commands in order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def check_output_dir(out: Path, keeps_existing: bool) -> None:
    """Reject an output folder with other content, or without write access, before the training."""
    try:
        if keeps_existing and (out / "config.json").exists():
            exit_with_error(
                f"--out {out} already holds a checkpoint; choose another folder, continue it with "
                f"--resume {out}, or add --overwrite"
            )
        if out.exists() and any(out.iterdir()) and not (out / "config.json").exists():
            exit_with_error(messages.output_folder_not_empty(out))
        out.parent.mkdir(parents=True, exist_ok=True)
        check_writable(out)
    except OSError as error:
        exit_with_error(messages.output_folder_not_writable(out, error))


def create_output_dir(out: Path) -> None:
    """Create an output folder; reject one without write access before any work."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        check_writable(out / "file")
    except OSError as error:
        exit_with_error(messages.output_folder_not_writable(out, error))


def check_output_file(option: str, path: Path) -> None:
    """Reject a file that cannot be written, before any work; its content stays."""
    try:
        if path.is_file():
            open(path, "ab").close()
        elif path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        elif not path.exists():
            check_writable(path)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError)
        reason = "its folder does not exist" if is_missing else error.strerror
        exit_with_error(f"{option} {path} cannot be written: {reason}; choose another file")


def check_writable(path: Path) -> None:
    """Write a temporary file beside a path, with a name as long as that of an atomic write."""
    NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp").close()


@contextmanager
def reserve_output_dir(out: Path, check: Callable[[], object]) -> Iterator[None]:
    """Lock an output folder for the duration of a command, so that no second command writes it.

    `check` rejects unsuitable content of the folder, before and after the lock is taken.
    """
    check()
    lock = out.parent / f".{out.name}.lock"
    try:
        with filelock.FileLock(lock, timeout=0):
            try:
                check()
                yield
            finally:
                with suppress(OSError):
                    out.rmdir()  # only an empty folder, left by a command that saved nothing
                with suppress(OSError):
                    lock.unlink()
    except filelock.Timeout:
        exit_with_error(
            f"--out {out} is in use by another command; choose another folder, or wait until "
            "that command ends"
        )


def read_checkpoint(checkpoint: Path) -> Manifest:
    """Read a checkpoint whose dataset is here, or raise CheckpointError or DatasetNotFoundError."""
    from playground.datasets.storage import dataset_path

    manifest = read_manifest(checkpoint)
    if sha256 := manifest.config.task.dataset_sha256:
        dataset_path(sha256)
    return manifest
