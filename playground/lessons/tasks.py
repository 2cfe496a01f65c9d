"""Run one measurement of a lesson in a separate process.

The parent ends the process when its client cancels. The process sends ("share", progress) messages
through the pipe, and at the end ("result", dictionary) or ("failed", message).
"""

from __future__ import annotations

import logging
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from playground.jobs.entry import prepare_process

from .bug_comparison import compare
from .measurements import MEASURES
from .trained_run import TrainedRun

log = logging.getLogger(__name__)


def main(connection: Connection, kind: str, request: dict[str, Any]) -> None:
    """Run one measurement and send its result through the pipe.

    `request` depends on `kind`. "bug": {"name", "seed", "steps"};
    "stop": {"measure", "options", "runs": [[label, run, checkpoint]]}.
    """
    prepare_process(nice=5)  # the page and its runs have priority
    torch.set_num_threads(1)
    try:
        connection.send(("result", _compute(connection, kind, request)))
    except BrokenPipeError:  # the parent has ended
        return
    except Exception as error:  # the page displays the message
        log.exception("The measurement %r failed", kind)
        connection.send(("failed", f"the measurement failed: {error or type(error).__name__}"))


def _compute(connection: Connection, kind: str, request: dict[str, Any]) -> dict[str, Any]:
    if kind == "bug":
        return compare(
            request["name"],
            request["seed"],
            request["steps"],
            lambda share: connection.send(("share", share)),
        )
    runs = [
        TrainedRun.of(label, Path(run), Path(checkpoint))
        for label, run, checkpoint in request["runs"]
    ]
    return MEASURES[request["measure"]](runs, request["options"])
