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

import logging
import os
import threading
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from playground.errors import UserError
from playground.jobs.entry import prepare_process
from playground.jobs.progress import JobCancelled, ProgressReporter, to_json_safe, to_user_error

log = logging.getLogger(__name__)

ENTRY_POINTS = {
    "model-info": "playground.pretrained.resolver:describe_models",
    "cached-models": "playground.pretrained.resolver:list_cached",
    "benchmark": "playground.comparison.benchmark:run_benchmark",
    "finetune": "playground.finetuning.job:finetune",
    "finetune-plan": "playground.finetuning.job:plan",
    "inference": "playground.pretrained.inference:run_inference",
    "classify": "playground.pretrained.classification:classify",
    "train-classifier": "playground.finetuning.classifier:train_classifier",
    "tokenizer-mismatch": "playground.probing.tokenizer_mismatch:compare_tokenizers",
    "attention": "playground.probing.attention:attention",
    "analogy": "playground.probing.embeddings:analogy",
    "word-in-context": "playground.probing.embeddings:word_in_context",
    "model-sizes": "playground.pretrained.model_facts:model_sizes",
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


def run(kind: str, request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run one job in this process.

    Raises:
        UserError: with a message, for every failure.
        JobCancelled: if the job was cancelled.
    """
    if kind not in ENTRY_POINTS:
        raise UserError(
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
    except (JobCancelled, UserError):
        raise
    except Exception as error:
        raise to_user_error(error) from error


def _import_transformers() -> None:
    """Import transformers under a lock, because two threads must not import it at once."""
    with _import_lock:
        from transformers import AutoConfig, AutoTokenizer, pipeline

        del AutoConfig, AutoTokenizer, pipeline


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
        except UserError as error:
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
