"""Serve the background jobs of the page: one protocol for every kind.

    jobs/submit   {kind, request, subject}: starts a job, on the selected model if it needs one
    jobs/poll     {job, cursor}: returns its state, with its rows from the cursor on
    jobs/cancel   {job}

Jobs on pretrained models (pretrained/jobs.py) run in a process that stays, those of the Hub
(hub/jobs.py) and of lessons (lessons/service.py) in a process each. This module loads neither torch
nor transformers.
"""

import asyncio
import json
from functools import partial
from typing import Any

from starlette.requests import Request

from playground.common import messages
from playground.errors import UserError
from playground.hub.jobs import HubJobs
from playground.jobs.job import Job
from playground.jobs.queue import JOB_MISSING, JobQueue
from playground.lessons.service import FUNCTIONS as LESSON_KINDS
from playground.lessons.service import LessonJobs
from playground.pretrained.jobs import KINDS, PretrainedJobs, label_of
from playground.runs.access import Access, find_access
from playground.runs.record import owner_id
from playground.runs.registry import Registry

from .hub_api import RIGHTS_BY_HUB_KIND, start_hub_job
from .lessons_api import start_lesson_job
from .routes import HandlerGroup, handler
from .schemas.base import CancelJob, PollJob, SubmitJob
from .schemas.responses import Done, JobPoll, SubmittedJob

MAX_REQUEST_LENGTH = 20_000  # characters of a job request
# Fields that only the server sets: local folders, the owner of the result, and the address.
SERVER_FIELDS = ("checkpoint", "destination", "owner", "address")
# By kind: the right that the job needs on the selected model; None for one that uses none.
RIGHTS_BY_KIND = (
    {name: kind.needs for name, kind in KINDS.items()}
    | RIGHTS_BY_HUB_KIND
    | dict.fromkeys(LESSON_KINDS)
)


class JobHandlers(HandlerGroup):
    def __init__(
        self, registry: Registry, pretrained: PretrainedJobs, hub: HubJobs, lessons: LessonJobs
    ) -> None:
        self.registry, self.pretrained, self.hub = registry, pretrained, hub
        self.lessons = lessons

    @handler(
        "jobs/submit", SubmitJob, SubmittedJob, lambda request: RIGHTS_BY_KIND.get(request.kind)
    )
    def start(
        self, request: SubmitJob, model: Access | None, http_request: Request
    ) -> dict[str, Any]:
        """Queue a job; return its id as `job`."""
        if request.kind not in RIGHTS_BY_KIND:
            raise UserError(messages.unknown_job(request.kind, RIGHTS_BY_KIND))
        if request.kind in LESSON_KINDS:
            job = start_lesson_job(self.lessons, request)
        elif request.kind in KINDS:
            job = self._start_pretrained(request, model)
        else:
            session = http_request.scope.get("session", {})
            job = start_hub_job(self.registry, self.hub, request, model, session)
        return {"job": job.id}

    def _start_pretrained(self, request: SubmitJob, model: Access | None) -> Job:
        fields = self._pretrained_request(request, model)
        return self.pretrained.submit(
            request.kind,
            fields,
            owner=request.owner,
            label=label_of(request.kind, fields),
            may_read=partial(self._may_read, request) if model else None,
        )

    def _may_read(self, request: SubmitJob) -> bool:
        """Return whether the requester still holds the right that the job needs."""
        model = find_access(self.registry, request)
        return bool(model and model.right >= (RIGHTS_BY_KIND[request.kind] or 0))

    def _pretrained_request(self, request: SubmitJob, model: Access | None) -> dict[str, Any]:
        """Return the user's fields and the folder of the selected model, or raise UserError."""
        fields = {key: value for key, value in request.request.items() if key not in SERVER_FIELDS}
        if len(json.dumps(fields)) > MAX_REQUEST_LENGTH:
            raise UserError("the request is too long; shorten the text")
        if model:
            fields |= {"checkpoint": str(model.newest_checkpoint()), "name": model.name}
        if request.kind == "finetune":
            fields["owner"] = owner_id(request.owner)
            fields["address"] = self.registry.client_address()
        return fields

    def _find(self, request: CancelJob) -> tuple[JobQueue, Job]:
        for queue in (self.pretrained, self.hub, self.lessons):
            if job := queue.find(request.job, request.owner):
                return queue, job
        raise UserError(JOB_MISSING, retryable=True)

    @handler("jobs/poll", PollJob, JobPoll)
    async def poll_job(self, request: PollJob) -> dict[str, Any]:
        """Return the status of a job with its rows from `cursor` on."""
        queue, job = self._find(request)
        poll = partial(queue.poll, job.id, request.owner, request.cursor)
        # Polling a lesson reads the metrics of its runs.
        return await asyncio.to_thread(poll) if queue is self.lessons else poll()

    @handler("jobs/cancel", CancelJob, Done)
    def cancel_job(self, request: CancelJob) -> dict[str, Any]:
        """Cancel a job of the owner; a shared one continues."""
        queue, job = self._find(request)
        if not job.shared:
            queue.cancel(job)
        return {}
