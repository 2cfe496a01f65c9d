"""The jobs with pretrained models: one heavy job at a time, and parallel light jobs.

They run in a process of their own, which starts with the first job, so that neither the page nor
a run waits for them. If a cancelled job does not end in time, or the process dies, a new process
runs the waiting jobs. A kind of job is a function `(request, progress) -> result`. `request` is
untrusted input from a browser; rows and results are plain JSON. Imports neither torch nor
transformers before the first job.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from playground.common import messages
from playground.common.env import is_env_set
from playground.common.storage import checkpoints_root
from playground.errors import UserError
from playground.hub.tasks import HUB_ENV
from playground.jobs.admission import Policy, limit
from playground.jobs.entry import ResidentOptions, load_target
from playground.jobs.executors import ResidentProcess
from playground.jobs.progress import JobCancelled, ProgressReporter, to_json_safe, to_user_error
from playground.jobs.queue import JobQueue
from playground.runs.access import Right


class JobKind(NamedTuple):
    """A kind of job, and the right that it needs on the selected model, if it uses one."""

    entry_point: str  # "module:function"
    needs: Right | None = None
    is_query: bool = False  # it may run during a heavy job
    saves: bool = False  # its result, when it is cancelled


KINDS = {
    "model-info": JobKind("playground.pretrained.loading.resolver:describe_models", is_query=True),
    "cached-models": JobKind("playground.pretrained.loading.resolver:list_cached", is_query=True),
    "race": JobKind("playground.pretrained.race:race", Right.REUSE),
    "benchmark": JobKind("playground.pretrained.benchmark.job:run_benchmark", Right.REUSE),
    "finetune": JobKind("playground.pretrained.finetuning.job:finetune", Right.REUSE, saves=True),
    "finetune-plan": JobKind(
        "playground.pretrained.finetuning.job:plan", Right.REUSE, is_query=True
    ),
    "inference": JobKind("playground.pretrained.inference:run_inference"),
    "next-token": JobKind("playground.pretrained.next_token:next_token"),
    "attention": JobKind("playground.pretrained.attention.prompt:attention"),
    "translate": JobKind("playground.pretrained.attention.translation:translate"),
}
# The environment of a process that uses pretrained models; set before huggingface_hub and
# transformers are imported.
QUIET_ENV = HUB_ENV | {"TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error"}
SAVING_KINDS = frozenset(name for name, kind in KINDS.items() if kind.saves)
SAVE_TIMEOUT_S = 120.0  # seconds for that after the server has ended
MAX_TURN_S = 300.0  # seconds of a heavy job on a shared instance while others wait
IDLE_TIMEOUT_S = 1200.0  # seconds without a job after which the process ends and frees its memory
# passed on explicitly, because the fork server may have started with other values
FORWARDED_ENV = ("HF_", "PLAYGROUND_", "TRANSFORMERS_", "OMP_", "SPACE_ID")
_import_lock = threading.Lock()


class PretrainedJobs(JobQueue):
    """The queue of a server. A `hosted` one is shared: no local folders, smaller downloads,
    and a time limit while others wait.
    """

    def __init__(self, hosted: bool = False) -> None:
        self.hosted = hosted
        executor = ResidentProcess(
            "playground.pretrained.jobs:create_handler",
            name="pretrained",
            options=self._process_options,
            idle_timeout_s=IDLE_TIMEOUT_S,
        )
        heavy = Policy(
            process="the process",
            advice="the rows so far are available; try again, or use a smaller model",
            admission=limit("pretrained-jobs"),
            cancel_message="cancelled; the results so far are available",
            cancel_grace_s=20.0,
            saving_kinds=SAVING_KINDS,
            save_grace_s=300.0,  # it ends its step and writes the model
            max_turn_s=MAX_TURN_S if hosted else None,
            unpolled_timeout_s=180.0,
            result_ttl_s=900.0,
            max_results=64,
        )
        queries = limit("pretrained-queries")
        light = replace(heavy, admission=queries, max_running=queries.total or 1, max_turn_s=None)
        super().__init__(
            executor, heavy, {name: light for name, kind in KINDS.items() if kind.is_query}
        )

    def _process_options(self) -> ResidentOptions:
        """Return the options of a process that is about to start."""
        local = {"PLAYGROUND_LOCAL_MODELS": "0" if self.hosted else "1"}
        if self.hosted:  # the model cache of the machine's owner is private
            home = os.environ.get("PLAYGROUND_MODELS") or checkpoints_root() / "models"
            home = str(Path(home).absolute())
            local |= {"PLAYGROUND_MODELS": home, "HF_HUB_CACHE": home}
        is_default = self.hosted and not is_env_set("MAX_MODEL_MB")
        environment = {"PLAYGROUND_MAX_MODEL_MB": "600"} if is_default else {}
        inherited = {
            name: value for name, value in os.environ.items() if name.startswith(FORWARDED_ENV)
        }
        return ResidentOptions(
            nice=10,  # the page must respond even if this process uses every core
            environment=environment | inherited | local | QUIET_ENV | {"HF_TOKEN": ""},
            concurrent=True,
            saving_kinds=SAVING_KINDS,
            save_timeout_s=SAVE_TIMEOUT_S,
        )


def label_of(kind: str, request: dict[str, Any]) -> str:
    """Return the names in a request, for a message about the end of its job."""
    named = request.get("models", request.get("model", request.get("name", "")))
    names = [
        each
        for each in (named if isinstance(named, list) else [named])
        if isinstance(each, str) and each
    ]
    return ", ".join(name[:80] for name in names[:4]) or kind


def run(kind: str, request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Run one job in this process. Every failure is a UserError or JobCancelled."""
    if kind not in KINDS:
        raise UserError(messages.unknown_job(kind, KINDS))
    try:
        if not KINDS[kind].is_query or kind == "finetune-plan":
            _import_transformers()
        result: dict[str, Any] = to_json_safe(
            load_target(KINDS[kind].entry_point)(request, progress)
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
