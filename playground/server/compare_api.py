"""Serve the jobs of the Compare tab, on the user's model and pretrained models.

The front end is in ui/static/compare. Everything that needs
transformers is a job (comparison/job_queue.py) in a process that starts with the first job; the
page polls it. This module loads neither torch nor transformers.
"""

import json
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.comparison.job_queue import ComparisonQueue
from playground.errors import UserError
from playground.runs.model_ref import require_checkpoint, resolve_run
from playground.runs.record import owner_id
from playground.runs.registry import Registry

from .routes import HandlerGroup, handler
from .schemas.jobs import CancelJob, PollJob, SubmitJob

MAX_REQUEST_LENGTH = 20_000  # characters of a job request
# Fields that only the server sets: local folders and the owner of the result.
SERVER_FIELDS = ("checkpoint", "destination", "owner")
SHARED_MAX_EXAMPLES = 40  # benchmark examples per request on a shared instance


class CompareHandlers(HandlerGroup):
    def __init__(self, registry: Registry, job_queue: ComparisonQueue) -> None:
        self.registry, self.job_queue = registry, job_queue

    @handler("jobs/submit", SubmitJob)
    def submit(self, request: SubmitJob) -> dict[str, Any]:
        """Queue a job; return its id as `job`."""
        try:
            job_request = self._job_request(request)
        except OSError as error:
            raise UserError(str(error), retryable=True) from None
        return {"job": self.job_queue.submit(request.kind, job_request, request.owner)}

    def _job_request(self, request: SubmitJob) -> dict[str, Any]:
        """Return the job request: the user's fields and the folder of the selected model.

        Raises:
            UserError: for a request above the limits, or for a model of another owner.
        """
        job_request = {
            key: value for key, value in request.request.items() if key not in SERVER_FIELDS
        }
        if len(json.dumps(job_request)) > MAX_REQUEST_LENGTH:
            raise UserError("the request is too long; shorten the text")
        n_examples = job_request.get("n")
        if (
            self.job_queue.hosted
            and request.kind == "benchmark"
            and isinstance(n_examples, int)
            and n_examples > SHARED_MAX_EXAMPLES
        ):
            raise UserError(
                f"{n_examples:,} examples are too many on a shared instance; "
                f"use at most {SHARED_MAX_EXAMPLES}"
            )
        if request.subject:
            name, folder = self._checkpoint(request)
            job_request |= {"checkpoint": str(folder), "name": name}
        if request.kind == "finetune":
            job_request["owner"] = owner_id(request.owner)
        return job_request

    def _checkpoint(self, request: SubmitJob) -> tuple[str, Path]:
        """Return the name of the compared model and the folder of its newest checkpoint."""
        run, _ = resolve_run(self.registry, request)
        if run is None:
            folder = require_checkpoint(self.registry, request)
            return folder.name, folder
        checkpoints = run.checkpoints()
        if not checkpoints:
            raise UserError(
                f"{run.name} has no checkpoint yet; pause it, or wait for the first one",
                retryable=True,
            )
        return run.name, checkpoints[0][0]

    @handler("jobs/poll", PollJob)
    async def poll(self, request: PollJob, _: Request | None) -> dict[str, Any]:
        """Return the status of a job with its rows from `cursor` on."""
        return self.job_queue.poll(request.job, request.owner, request.cursor)

    @handler("jobs/cancel", CancelJob)
    def cancel(self, request: CancelJob) -> dict[str, Any]:
        self.job_queue.cancel(request.job, request.owner)
        return {}
