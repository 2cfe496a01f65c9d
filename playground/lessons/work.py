"""The entry of the process that measures for a lesson: one for each question, ended when nobody wants the answer any more.

Up the pipe go ("share", how far it is), and at the end ("result", dictionary) or ("failed", sentence).
"""

from __future__ import annotations

import logging
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from .broken import compare
from .measuring import MEASURES, Trained

log = logging.getLogger(__name__)


def work(pipe: Connection, kind: str, what: dict[str, Any]) -> None:
    """Answer one question. "bug": {"name", "seed", "steps"}; "stop": {"measure", "options", "runs": [[label, run, checkpoint]]}."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent decides what it means
    if hasattr(os, "nice"):
        os.nice(5)  # the page and its runs come first
    torch.set_num_threads(1)
    try:
        pipe.send(("result", _answer(pipe, kind, what)))
    except BrokenPipeError:  # whoever wanted this has gone
        return
    except Exception as error:  # in words, for a page
        log.exception("The measurement %r failed", kind)
        pipe.send(("failed", f"it could not be measured: {error or type(error).__name__}"))


def _answer(pipe: Connection, kind: str, what: dict[str, Any]) -> dict[str, Any]:
    if kind == "bug":
        return compare(
            what["name"], what["seed"], what["steps"], lambda share: pipe.send(("share", share))
        )
    runs = [
        Trained.of(label, Path(run), Path(checkpoint)) for label, run, checkpoint in what["runs"]
    ]
    return MEASURES[what["measure"]](runs, what["options"])
