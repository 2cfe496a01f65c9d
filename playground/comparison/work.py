"""The process of the pretrained models, so that neither the page nor a run waits for them.

It receives ("begin", job, kind, what) and ("cancel", job) through a pipe. It sends messages
that begin with their kind and their job:

    ("say", job, sentence)   ("share", job, done, total, unit)   ("row", job, dictionary)
    ("result", job, dictionary)   ("failed", job, sentence, can retry)   ("cancelled", job)

A kind of job is a function `(what, tell) -> result`. `what` is untrusted input from a browser;
rows and results are plain JSON. The sender (jobs.py) decides which jobs may run concurrently:
this process starts every job at once.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

log = logging.getLogger(__name__)

KINDS = {
    "about": "playground.comparison.pretrained:about",
    "cached": "playground.comparison.pretrained:cached",
    "table": "playground.comparison.table:table",
    "finetune": "playground.comparison.finetune:finetune",
    "finetune-plan": "playground.comparison.finetune:plan",
    "free": "playground.comparison.free:free",
    "classify": "playground.comparison.classifier:classify",
    "train-classifier": "playground.comparison.classifier:train_classifier",
    "mismatch": "playground.comparison.mismatch:mismatch",
    "attention": "playground.comparison.attention:attention",
    "analogy": "playground.comparison.meaning:analogy",
    "banks": "playground.comparison.meaning:banks",
    "sizes": "playground.comparison.known:sizes",
}
LIGHT = {"about", "cached", "finetune-plan"}  # queries that may run beside a heavy job
# The environment of a process that uses pretrained models; set before huggingface_hub and
# transformers are imported.
QUIET = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
IMPORTING = threading.Lock()
KEPT_WITHIN = 120.0  # seconds for fine-tuning to save the model after the playground has ended
SHARE_EVERY = 0.1  # seconds between two progress messages


class Cancelled(Exception):
    """The job was cancelled."""


class Refused(ValueError):
    """The request cannot be fulfilled; the message is for the user.

    `again`: a later attempt may succeed.
    """

    def __init__(self, sentence: str, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class Tell:
    """Reports the progress of a job, and checks whether it was cancelled.

    Args:
        send: called with "say", "share" or "row" and the content; from any thread.
        cancelled: set to cancel the job.
    """

    def __init__(
        self, send: Callable[..., None] = lambda *_: None, cancelled: threading.Event | None = None
    ) -> None:
        self._send = send
        self.cancelled = cancelled or threading.Event()
        self._shared_at = 0.0

    def say(self, sentence: str) -> None:
        """Report the current activity in one line."""
        self.check()
        self._send("say", sentence)

    def share(self, done: float, total: float, unit: str = "") -> None:
        """Report the progress; messages in quick succession are dropped, except the last one."""
        self.check()
        now = time.monotonic()
        if done >= total or now - self._shared_at >= SHARE_EVERY:
            self._shared_at = now
            self._send("share", done, total, unit)

    def row(self, row: dict[str, Any]) -> None:
        """Report a partial result, which the page displays at once."""
        self.check()
        self._send("row", plain(row))

    def check(self) -> None:
        """Raise `Cancelled` if the job is cancelled.

        Call it between examples, and every 0.2 s in a loop.
        """
        if self.cancelled.is_set():
            raise Cancelled


def plain(value: Any) -> Any:
    """Convert a value to plain JSON values; numbers that are not finite become None.

    Raises:
        TypeError: for a type that JSON cannot represent.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    json.dumps(value)
    return value


def run(kind: str, what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Run one job in this process.

    Raises:
        Refused: with a message, for every failure.
        Cancelled: if the job was cancelled.
    """
    if kind not in KINDS:
        raise Refused(f"{str(kind)[:40]!r} is not a kind of job; choose one of {', '.join(KINDS)}")
    module, function = KINDS[kind].split(":")
    try:
        if kind not in LIGHT - {"finetune-plan"}:
            _import_transformers()
        result: dict[str, Any] = plain(getattr(import_module(module), function)(what, tell))
        return result
    except (Cancelled, Refused):
        raise
    except Exception as error:
        raise in_words(error) from error


def _import_transformers() -> None:
    """Import transformers under a lock, because two threads must not import it at once."""
    with IMPORTING:
        from transformers import AutoConfig, AutoTokenizer, pipeline

        del AutoConfig, AutoTokenizer, pipeline


def in_words(error: Exception, model: str = "") -> Refused:
    """Convert any exception to an error message that names the model."""
    where = f"{model}: " if model else ""
    if isinstance(error, Refused):
        return error
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "not enough memory" in str(error)
    ):
        return Refused(
            f"{where}there is not enough memory now; choose a smaller model, or end a run first",
            again=True,
        )
    if type(error).__name__ in ("HubError", "Missing"):
        return Refused(f"{where}{error}", again=bool(getattr(error, "again", False)))
    if type(error).__name__ in ("CheckpointError", "SettingError", "UnknownSymbol"):
        return Refused(f"{where}{error}")
    if isinstance(error, OSError) and error.strerror:
        return Refused(
            f"{where}the system reported an error: {error.strerror}; free disk space and try again",
            again=True,
        )
    # %r: a name comes from a browser, and a line break in it must not forge a line of the log.
    log.error("Unexpected error in a comparison job (%r)", model, exc_info=error)
    return Refused(
        f"{where}an unexpected error occurred ({type(error).__name__}: {str(error)[:160]}); try "
        "again, and report it if it persists",
        again=True,
    )


def serve(pipe: Connection, settings: dict[str, str]) -> None:
    """Run the process; `settings` enter its environment before any heavy import."""
    # Ctrl-C reaches the whole process group; the parent decides when to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(settings)
    if hasattr(os, "nice"):
        os.nice(10)  # the page must respond even if this process uses every core
    sending = threading.Lock()
    jobs: dict[str, threading.Event] = {}
    at_work: dict[str, threading.Thread] = {}

    def send(*message: Any) -> None:
        with sending, suppress(OSError):
            pipe.send(message)

    def carry_out(job: str, kind: str, what: dict[str, Any], cancelled: threading.Event) -> None:
        tell = Tell(lambda word, *content: send(word, job, *content), cancelled)
        try:
            message: tuple[Any, ...] = ("result", job, run(kind, what, tell))
        except Cancelled:
            message = ("cancelled", job)
        except Refused as error:
            message = ("failed", job, str(error), error.again)
        jobs.pop(job, None)
        at_work.pop(job, None)
        send(*message)

    try:
        while True:
            word, job, *content = pipe.recv()
            if word == "begin":
                jobs[job] = threading.Event()
                name = f"{content[0]} {job}"
                at_work[job] = threading.Thread(
                    target=carry_out, args=(job, *content, jobs[job]), name=name, daemon=True
                )
                at_work[job].start()
            elif word == "cancel" and job in jobs:
                jobs[job].set()
    except (EOFError, OSError):
        # the parent is gone, so no result can be sent; a fine-tuned model is still saved
        for cancelled in list(jobs.values()):
            cancelled.set()
        for thread in list(at_work.values()):
            if thread.name.startswith("finetune "):
                thread.join(KEPT_WITHIN)
        os._exit(0)
