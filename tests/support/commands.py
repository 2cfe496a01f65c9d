"""The command line as its users meet it: a process with an environment, two streams and an exit code of its own.

A new interpreter spends two to six seconds of a core on importing torch and what comes with it. So most tests fork the process from
the fork server that the app forks its workers from too; each command is also run at least once by an interpreter of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from playground.runs.processes import Child, _enter, context
from tests.support.app_server import ROOT

COMMAND = [sys.executable, "-W", "error::UserWarning", "-m", "playground"]
STREAMS = ("stdout", "stderr")
LONGEST = 250  # seconds


def interpreter(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    """A command in a new interpreter, to its end; what is given of the environment comes on top of that of the tests."""
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST, env=os.environ | environment)


def playground(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    """The same in a process that is forked with torch imported, and so is the process of an errand that the command begins."""
    if context().get_start_method() != "forkserver":
        return interpreter(*arguments, **environment)
    words = [*map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        process = context().Process(target=_command, args=(words, os.environ | environment, folder))
        process.start()
        process.join(LONGEST)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, LONGEST)
        return subprocess.CompletedProcess(words, process.exitcode, *((Path(folder) / name).read_text() for name in STREAMS))


def _command(words: list[str], environment: dict[str, str], folder: str) -> None:
    for number, name in enumerate(STREAMS, start=1):
        os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT), number)
    os.chdir(ROOT)
    _live_in(environment)
    warnings.filterwarnings("error", category=UserWarning)
    from playground.__main__ import run
    from playground.hub import jobs

    jobs.Child = _Forked
    run(words)


def _live_in(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # what the fork server had found is not this environment's


class _Forked(Child):
    """A child that does not start afresh, in the environment of the command that begins it."""

    def __init__(self, entry: str, *arguments: Any, fresh: bool, **told: Any) -> None:
        name, *others = arguments
        super().__init__("tests.support.commands:_errand", name, entry, dict(os.environ), *others, **told)


def _errand(pipe: Connection, entry: str, environment: dict[str, str], *arguments: Any) -> None:
    _live_in(environment)
    _enter(entry, pipe, *arguments)
