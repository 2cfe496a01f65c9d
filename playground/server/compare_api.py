"""Serve the jobs of the Compare tab, on the user's model and pretrained models.

The front end is in ui/static/compare. Everything that needs
transformers is a job (pretrained/jobs.py) in a process that starts with the first job; the
page polls it. This module loads neither torch nor transformers.
"""

import json
from functools import partial
from typing import Any

from starlette.requests import Request

from playground.errors import UserError
from playground.pretrained.jobs import PretrainedJobs
from playground.runs.access import Access, Right, find_access
from playground.runs.record import owner_id
from playground.runs.registry import Registry

from .routes import HandlerGroup, handler
from .schemas.jobs import CancelJob, PollJob, SubmitJob

MAX_REQUEST_LENGTH = 20_000  # characters of a job request
# Fields that only the server sets: local folders, the owner of the result, and the address.
SERVER_FIELDS = ("checkpoint", "destination", "owner", "address")
# By kind: the right that the job needs on the selected model; None for one that uses none.
RIGHTS_BY_KIND: dict[str, Right | None] = {
    "benchmark": Right.REUSE,
    "finetune": Right.REUSE,
    "finetune-plan": Right.REUSE,
    "model-info": None,
    "cached-models": None,
    "inference": None,
    "attention": None,
    "translate": None,
}
SHARED_MAX_EXAMPLES = 40  # benchmark examples per request on a shared instance


class CompareHandlers(HandlerGroup):
    def __init__(self, registry: Registry, job_queue: PretrainedJobs) -> None:
        self.registry, self.job_queue = registry, job_queue

    @handler("jobs/submit", SubmitJob, lambda request: RIGHTS_BY_KIND.get(request.kind))
    def submit(self, request: SubmitJob, model: Access | None) -> dict[str, Any]:
        """Queue a job; return its id as `job`."""
        job_request = self._job_request(request, model)
        may_read = partial(self._may_read, request) if model else None
        return {"job": self.job_queue.submit(request.kind, job_request, request.owner, may_read)}

    def _may_read(self, request: SubmitJob) -> bool:
        """Return whether the requester still holds the right that the job needs."""
        model = find_access(self.registry, request)
        return bool(model and model.right >= (RIGHTS_BY_KIND[request.kind] or 0))

    def _job_request(self, request: SubmitJob, model: Access | None) -> dict[str, Any]:
        """Return the job request: the user's fields and the folder of the selected model.

        Raises:
            UserError: for a request above the limits, or a run without a checkpoint.
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
        if model:
            job_request |= {"checkpoint": str(model.newest_checkpoint()), "name": model.name}
        if request.kind == "finetune":
            job_request["owner"] = owner_id(request.owner)
            job_request["address"] = self.registry.client_address()
        return job_request

    @handler("jobs/poll", PollJob)
    async def poll(self, request: PollJob, _: Request | None) -> dict[str, Any]:
        """Return the status of a job with its rows from `cursor` on."""
        return self.job_queue.poll(request.job, request.owner, request.cursor)

    @handler("jobs/cancel", CancelJob)
    def cancel(self, request: CancelJob) -> dict[str, Any]:
        self.job_queue.cancel(request.job, request.owner)
        return {}
