"""Run commands, with their environment, streams and exit code.

A new interpreter imports torch for two to six CPU seconds. Therefore most tests run a command in
their own process, or fork one from the fork server that the app uses for its workers; at least one
test of each kind of end uses a new interpreter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from playground.jobs.process import WorkerProcess, _run_entry, context
from tests.support.app_server import ROOT

COMMAND = [sys.executable, "-W", "error::UserWarning", "-m", "playground"]
STREAMS = ("stdout", "stderr")
TIMEOUT_S = 250  # seconds


def run_in_interpreter(*args: object, **environment: str) -> subprocess.CompletedProcess:
    """Run a command in a new interpreter; `environment` extends that of the tests."""
    command = [*COMMAND, *map(str, args)]
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=os.environ | environment,
    )


def start_command(*args: object, **options: Any) -> subprocess.Popen[str]:
    """Start a command in a new interpreter, with pipes for its output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *map(str, args)], cwd=ROOT, **pipes | options)


def run_here(*args: object, **environment: str) -> subprocess.CompletedProcess:
    """Run a command in this process, which keeps its environment and its signal handlers."""
    from playground.__main__ import run

    argv, stdout, stderr, code = [*map(str, args)], StringIO(), StringIO(), 0
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        chdir(ROOT),
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            run(argv)
        except SystemExit as end:
            code = end.code or 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(argv, code, stdout.getvalue(), stderr.getvalue())


def run_command(*args: object, **environment: str) -> subprocess.CompletedProcess:
    """Run a command in a forked process that has imported torch."""
    if context().get_start_method() != "forkserver":
        return run_in_interpreter(*args, **environment)
    argv = [*map(str, args)]
    with tempfile.TemporaryDirectory() as folder:
        process = context().Process(
            target=_run_forked, args=(argv, os.environ | environment, folder)
        )
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(argv, TIMEOUT_S)
        return subprocess.CompletedProcess(
            argv, process.exitcode, *((Path(folder) / name).read_text() for name in STREAMS)
        )


def _run_forked(argv: list[str], environment: dict[str, str], folder: str) -> None:
    for descriptor, name in enumerate(STREAMS, start=1):
        os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(ROOT)
    _set_environment(environment)
    warnings.filterwarnings("error", category=UserWarning)
    from playground.__main__ import run
    from playground.jobs import executors

    executors.WorkerProcess = _ForkedProcess
    run(argv)


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # cached by the fork server for another environment


class _ForkedProcess(WorkerProcess):
    """A forked child with the environment of its command."""

    def __init__(self, entry: str, *args: Any, fresh: bool, **callbacks: Any) -> None:
        name, *entry_args = args
        super().__init__(
            "tests.support.command_runner:_run_entry_in_environment",
            name,
            entry,
            dict(os.environ),
            *entry_args,
            **callbacks,
        )


def _run_entry_in_environment(
    connection: Connection, entry: str, environment: dict[str, str], *args: Any
) -> None:
    _set_environment(environment)
    _run_entry(entry, connection, *args)
