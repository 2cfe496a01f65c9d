"""Run one Hub job in its own process.

A hanging job cannot block the page, and a killed job leaves no partial state: a push is one commit,
and a pull moves a complete folder into place.

The kinds of job and their results:

    account        the account of the token
    gallery        the models with the playground's tag
    repo_info      the content of a repository, without loading it
    preview        the files that a push would send, without an account or the network
    plan, push     the changes of a push; plan only computes them
    pull           a checkpoint in `destination`
    reproduce      the score of a published model measured here, with the score of its card
"""

import logging
import os
import re
import traceback
from dataclasses import dataclass, field
from typing import Any

from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.runs.limits import Limits

log = logging.getLogger(__name__)
WRITING_KINDS = ("preview", "plan", "push")
MAX_PULL_BYTES = 200_000_000  # bytes
LOADING_TIMEOUT_S = 600.0  # seconds for imports on a busy machine at low priority
# The environment of a process that uses the Hub; set before huggingface_hub is imported.
HUB_ENV = {
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_XET": "1",
}


@dataclass(frozen=True)
class HubTask:
    """The specification of a job. Paths are strings; the repr, and so the log, omits the token."""

    kind: str
    repo: str = ""
    token: str = field(default="", repr=False)
    endpoint: str = ""
    revision: str = "main"
    private: bool = False
    license: str = ""  # of the published model; empty for that of `model_card.default_license`
    page: bool = False  # publish the interactive page too, as a Space
    checkpoint: str = ""
    run_folder: str = ""  # the folder of the run, which contains the metrics
    destination: str = ""
    # The commit that the owner has previewed, empty for none; None accepts any commit.
    expected_parent: str | None = None
    max_bytes: int = MAX_PULL_BYTES
    limits: Limits = field(default_factory=Limits)  # of the server, for downloaded models
    # The SHA-256 of the datasets that a downloaded model may use; None for all.
    datasets: frozenset[str] | None = None


class TaskRunner:
    """What the jobs share: the connection, the reports, and the folder for temporary files."""

    def __init__(self, hub: Any, task: HubTask, reporter: ProgressReporter) -> None:
        self.hub, self.task, self.scratch = hub, task, reporter.scratch
        self.report = reporter.message

    def report_loading(self) -> None:
        """Report that imports begin, which may take minutes; call it before the first import."""
        self.report("Loading PyTorch", LOADING_TIMEOUT_S)

    def account(self) -> dict[str, Any]:
        self.report("Connecting to the Hub")
        return dict(self.hub.account())


def run_task(task: HubTask, reporter: ProgressReporter) -> dict[str, Any]:
    """Run a job in its process. Raises UserError, without the token or a path of this machine."""
    os.environ.update(HUB_ENV | ({"HF_ENDPOINT": task.endpoint} if task.endpoint else {}))
    from .client import Hub
    from .download_tasks import DownloadTasks
    from .transport import configure_process
    from .upload_tasks import UploadTasks

    scratch = reporter.scratch
    try:
        configure_process()
        tasks = UploadTasks if task.kind in WRITING_KINDS else DownloadTasks
        runner = tasks(Hub(task.token, task.endpoint), task, reporter)
        result: dict[str, Any] = getattr(runner, task.kind)()
        return result
    except (OSError, MemoryError, JobCancelled):
        raise
    except ValueError as error:
        # The name of the manifest in the repository.
        reason = str(error).replace(f"{scratch}/inspected/config.json", "playground.json")
        reason = re.sub(rf"{re.escape(str(scratch))}/\w+/?", "", reason)
        raise UserError(
            reason, retryable=getattr(error, "retryable", False), code=getattr(error, "code", "")
        ) from None
    except Exception as error:  # the message may contain a token; the traceback lines do not
        frame = "".join(traceback.format_tb(error.__traceback__))
        log.error("the Hub job %s failed with %s at:\n%s", task.kind, type(error).__name__, frame)
        raise UserError(
            f"unexpected error ({type(error).__name__}); try again", retryable=True
        ) from None
