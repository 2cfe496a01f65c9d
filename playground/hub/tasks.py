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
from typing import Any

from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter

from .task_runner import HUB_ENV, HubTask

log = logging.getLogger(__name__)
WRITING_KINDS = ("preview", "plan", "push")
TASK_KINDS = ("account", "gallery", "repo_info", *WRITING_KINDS, "pull", "reproduce")


def run_task(task: HubTask, reporter: ProgressReporter) -> dict[str, Any]:
    """Run a job: the function of its process.

    Raises:
        UserError: with the reason of the failure, without the token or a path of this machine.
    """
    os.environ.update(HUB_ENV | ({"HF_ENDPOINT": task.endpoint} if task.endpoint else {}))
    from .client import Hub
    from .download_tasks import DownloadTasks
    from .errors import HubError
    from .transport import configure_process
    from .upload_tasks import UploadTasks

    scratch = reporter.scratch
    try:
        configure_process()
        if task.kind not in TASK_KINDS:
            raise HubError(f"{task.kind!r} is not a Hub job; use one of {', '.join(TASK_KINDS)}")
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
            reason,
            retryable=getattr(error, "retryable", False),
            code=getattr(error, "code", ""),
        ) from None
    except Exception as error:  # the message may contain a token; the traceback lines do not
        frame = "".join(traceback.format_tb(error.__traceback__))
        log.error("the Hub job %s failed with %s at:\n%s", task.kind, type(error).__name__, frame)
        raise UserError(
            f"unexpected error ({type(error).__name__}); try again", retryable=True
        ) from None
