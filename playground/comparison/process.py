"""The process of the pretrained models, so that neither the page nor a run waits for them.

A kind of job is a function `(request, progress) -> result`. `request` is untrusted input from a
browser; rows and results are plain JSON. The queue (job_queue.py) decides which jobs may run
concurrently.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from playground.common import messages
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter, to_json_safe, to_user_error

ENTRY_POINTS = {
    "model-info": "playground.pretrained.resolver:describe_models",
    "cached-models": "playground.pretrained.resolver:list_cached",
    "benchmark": "playground.comparison.benchmark:run_benchmark",
    "finetune": "playground.finetuning.job:finetune",
    "finetune-plan": "playground.finetuning.job:plan",
    "inference": "playground.pretrained.inference:run_inference",
    "attention": "playground.probing.attention:attention",
    "translate": "playground.probing.translation:translate",
}
CONCURRENT_KINDS = {
    "model-info",
    "cached-models",
    "finetune-plan",
}  # queries that may run during a heavy job
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


def run(kind: str, request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run one job in this process.

    Raises:
        UserError: with a message, for every failure.
        JobCancelled: if the job was cancelled.
    """
    if kind not in ENTRY_POINTS:
        raise UserError(messages.unknown_job(kind, ENTRY_POINTS))
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


def create_handler() -> Callable[[str, dict[str, Any], ProgressReporter], dict[str, Any]]:
    """Return the function that runs the jobs of the process."""
    return run
