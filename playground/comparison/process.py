"""The process of the pretrained models, so that neither the page nor a run waits for them.

It receives ("begin", job, kind, what) and ("cancel", job) through a pipe. It sends messages
that begin with their kind and their job:

    ("message", job, sentence)   ("share", job, done, total, unit)   ("row", job, dictionary)
    ("result", job, dictionary)   ("failed", job, sentence, can retry)   ("cancelled", job)

A kind of job is a function `(request, progress) -> result`. `request` is untrusted input from a
browser; rows and results are plain JSON. The sender (job_queue.py) decides which jobs may run
concurrently: this process starts every job at once.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from playground.errors import UserError
from playground.jobs.entry import prepare_process
from playground.models.config_fields import ConfigError

log = logging.getLogger(__name__)

ENTRY_POINTS = {
    "model-info": "playground.comparison.pretrained:describe_models",
    "cached-models": "playground.comparison.pretrained:list_cached",
    "benchmark": "playground.comparison.benchmark:run_benchmark",
    "finetune": "playground.comparison.finetune:finetune",
    "finetune-plan": "playground.comparison.finetune:plan",
    "inference": "playground.comparison.inference:run_inference",
    "classify": "playground.comparison.classifier:classify",
    "train-classifier": "playground.comparison.classifier:train_classifier",
    "tokenizer-mismatch": "playground.comparison.tokenizer_mismatch:compare_tokenizers",
    "attention": "playground.comparison.attention_probe:attention",
    "analogy": "playground.comparison.embeddings:analogy",
    "word-in-context": "playground.comparison.embeddings:word_in_context",
    "model-sizes": "playground.comparison.model_facts:model_sizes",
}
CONCURRENT_KINDS = {
    "model-info",
    "cached-models",
    "finetune-plan",
}  # queries that may run beside a heavy job
# The environment of a process that uses pretrained models; set before huggingface_hub and
# transformers are imported.
QUIET_ENV = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}
_import_lock = threading.Lock()
SAVE_TIMEOUT_S = 120.0  # seconds for fine-tuning to save the model after the playground has ended
PROGRESS_INTERVAL_S = 0.1  # seconds between two progress messages


class JobCancelled(Exception):
    """The job was cancelled."""


class JobError(UserError):
    """The request cannot be fulfilled."""


class ProgressReporter:
    """Reports the progress of a job, and checks whether it was cancelled.

    Args:
        send: called with "message", "share" or "row" and the content; from any thread.
        cancelled: set to cancel the job.
    """

    def __init__(
        self, send: Callable[..., None] = lambda *_: None, cancelled: threading.Event | None = None
    ) -> None:
        self._send = send
        self.cancelled = cancelled or threading.Event()
        self._reported_at = 0.0

    def message(self, text: str) -> None:
        """Report the current activity in one line."""
        self.raise_if_cancelled()
        self._send("message", text)

    def progress(self, done: float, total: float, unit: str = "") -> None:
        """Report the progress; messages in quick succession are dropped, except the last one."""
        self.raise_if_cancelled()
        now = time.monotonic()
        if done >= total or now - self._reported_at >= PROGRESS_INTERVAL_S:
            self._reported_at = now
            self._send("share", done, total, unit)

    def row(self, row: dict[str, Any]) -> None:
        """Report a partial result, which the page displays at once."""
        self.raise_if_cancelled()
        self._send("row", to_json_safe(row))

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelled` if the job is cancelled.

        Call it between examples, and every 0.2 s in a loop.
        """
        if self.cancelled.is_set():
            raise JobCancelled


def to_json_safe(value: Any) -> Any:
    """Convert a value to plain JSON values; numbers that are not finite become None.

    Raises:
        TypeError: for a type that JSON cannot represent.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): to_json_safe(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_safe(each) for each in value]
    json.dumps(value)
    return value


def run(kind: str, request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run one job in this process.

    Raises:
        JobError: with a message, for every failure.
        JobCancelled: if the job was cancelled.
    """
    if kind not in ENTRY_POINTS:
        raise JobError(
            f"{str(kind)[:40]!r} is not a kind of job; choose one of {', '.join(ENTRY_POINTS)}"
        )
    module, function = ENTRY_POINTS[kind].split(":")
    try:
        if kind not in CONCURRENT_KINDS - {"finetune-plan"}:
            _import_transformers()
        result: dict[str, Any] = to_json_safe(
            getattr(import_module(module), function)(request, progress)
        )
        return result
    except (JobCancelled, JobError):
        raise
    except Exception as error:
        raise to_job_error(error) from error


def _import_transformers() -> None:
    """Import transformers under a lock, because two threads must not import it at once."""
    with _import_lock:
        from transformers import AutoConfig, AutoTokenizer, pipeline

        del AutoConfig, AutoTokenizer, pipeline


def to_job_error(error: Exception, model: str = "") -> JobError:
    """Convert any exception to an error message that names the model."""
    where = f"{model}: " if model else ""
    if isinstance(error, JobError):
        return error
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "not enough memory" in str(error)
    ):
        return JobError(
            f"{where}there is not enough memory now; choose a smaller model, or end a run first",
            retryable=True,
        )
    if isinstance(error, UserError | ConfigError):
        return JobError(f"{where}{error}", retryable=getattr(error, "retryable", False))
    if isinstance(error, OSError) and error.strerror:
        return JobError(
            f"{where}the system reported an error: {error.strerror}; free disk space and try again",
            retryable=True,
        )
    # %r: a name comes from a browser, and a line break in it must not forge a line of the log.
    log.error("Unexpected error in a comparison job (%r)", model, exc_info=error)
    return JobError(
        f"{where}an unexpected error occurred ({type(error).__name__}: {str(error)[:160]}); try "
        "again, and report it if it persists",
        retryable=True,
    )


def main(connection: Connection, settings: dict[str, str]) -> None:
    """Run the process; `settings` enter its environment before any heavy import."""
    prepare_process(nice=10)  # the page must respond even if this process uses every core
    os.environ.update(settings)
    sending = threading.Lock()
    jobs: dict[str, threading.Event] = {}
    threads: dict[str, threading.Thread] = {}

    def send(*message: Any) -> None:
        with sending, suppress(OSError):
            connection.send(message)

    def run_job(job: str, kind: str, what: dict[str, Any], cancelled: threading.Event) -> None:
        progress = ProgressReporter(lambda word, *content: send(word, job, *content), cancelled)
        try:
            message: tuple[Any, ...] = ("result", job, run(kind, what, progress))
        except JobCancelled:
            message = ("cancelled", job)
        except JobError as error:
            message = ("failed", job, str(error), error.retryable)
        jobs.pop(job, None)
        threads.pop(job, None)
        send(*message)

    try:
        while True:
            message_type, job, *content = connection.recv()
            if message_type == "begin":
                jobs[job] = threading.Event()
                name = f"{content[0]} {job}"
                threads[job] = threading.Thread(
                    target=run_job, args=(job, *content, jobs[job]), name=name, daemon=True
                )
                threads[job].start()
            elif message_type == "cancel" and job in jobs:
                jobs[job].set()
    except (EOFError, OSError):
        # the parent has ended, so no result can be sent; a fine-tuned model is still saved
        for cancelled in list(jobs.values()):
            cancelled.set()
        for thread in list(threads.values()):
            if thread.name.startswith("finetune "):
                thread.join(SAVE_TIMEOUT_S)
        os._exit(0)
