"""Serve the Compare tab: the user's model beside pretrained models and other architectures.

The front end is in ui/static/compare. Everything that needs
transformers is a job (comparison/job_queue.py) in a process that starts with the first job; the
page polls it. This module loads neither torch nor transformers.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.checkpoints.manifest import CheckpointError
from playground.comparison.job_queue import JobQueue
from playground.compat import job_kind
from playground.errors import UserError
from playground.runs.model_ref import non_negative_int, resolve_checkpoint, resolve_run
from playground.runs.record import owner_id
from playground.runs.registry import Registry

from . import matched_parameters
from .routes import Handler, require_owner, respond_with_errors

MAX_REQUEST_LENGTH = 20_000  # characters of a job request
MAX_REQUEST_LENGTH_WITH_DATA = 1_000_000  # characters of a request with a table
KINDS_WITH_UPLOAD = ("train-classifier",)
# Fields that only the server sets: local folders and the owner of the result.
SERVER_FIELDS = ("checkpoint", "destination", "owner")
SHARED_MAX_EXAMPLES = 40  # benchmark examples per request on a shared instance


class ComparePage:
    """Handlers of the tab's requests."""

    def __init__(self, registry: Registry, job_queue: JobQueue) -> None:
        self.registry, self.job_queue = registry, job_queue

    def handlers(self) -> dict[str, Handler]:
        return {
            "jobs/submit": self.submit,
            "jobs/poll": self.poll,
            "jobs/cancel": self.cancel,
            "models/facts": self.model_facts,
            "architectures/matched": self.matched_families,
            "architectures/train": self.train_families,
            "architectures/curves": self.family_curves,
        }

    @respond_with_errors
    async def submit(self, payload: object, _: Request) -> dict[str, Any]:
        """Queue a job; return its id as `job`, or an `error` and whether to try `again`."""
        payload = payload if isinstance(payload, dict) else {}
        owner, kind = require_owner(payload), payload.get("kind")
        if not isinstance(kind, str):
            raise UserError("the request names no job type; reload the page and try again")
        kind = job_kind(kind)
        try:
            job_request = await asyncio.to_thread(self._job_request, payload, kind)
        except (CheckpointError, OSError) as error:
            raise UserError(str(error), retryable=True) from None
        return {"job": await asyncio.to_thread(self.job_queue.submit, kind, job_request, owner)}

    def _job_request(self, payload: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the job request: the user's fields and the folder of the selected model.

        Raises:
            UserError: for a request above the limits, or for a model of another owner.
        """
        requested = payload.get("what")
        job_request = (
            {key: value for key, value in requested.items() if key not in SERVER_FIELDS}
            if isinstance(requested, dict)
            else {}
        )
        if len(json.dumps(job_request)) > (
            MAX_REQUEST_LENGTH_WITH_DATA if kind in KINDS_WITH_UPLOAD else MAX_REQUEST_LENGTH
        ):
            raise UserError("the request is too long; shorten the text")
        if (
            self.job_queue.hosted
            and kind == "benchmark"
            and non_negative_int(job_request.get("n")) > SHARED_MAX_EXAMPLES
        ):
            raise UserError(
                f"{job_request['n']:,} examples are too many on a shared instance; "
                f"use at most {SHARED_MAX_EXAMPLES}"
            )
        if "subject" in payload:
            name, folder = self._checkpoint(payload)
            job_request |= {"checkpoint": str(folder), "name": name}
        if kind == "finetune":
            job_request["owner"] = owner_id(require_owner(payload))
        return job_request

    def _checkpoint(self, payload: dict[str, Any]) -> tuple[str, Path]:
        """Return the name of the compared model and the folder of its newest checkpoint."""
        run, _ = resolve_run(self.registry, payload)
        if run:
            checkpoints = run.checkpoints()
            if not checkpoints:
                raise UserError(
                    f"{run.name} has no checkpoint yet; pause it, or wait for the first one",
                    retryable=True,
                )
            return run.name, checkpoints[0][0]
        folder = resolve_checkpoint(self.registry, payload)
        if folder is None:
            raise UserError(
                "this model is not on this server, or not yours; select another one above"
            )
        return folder.name, folder

    @respond_with_errors
    async def poll(self, payload: object, _: Request) -> dict[str, Any]:
        """Return the status of a job with its rows from `cursor` on.

        The response has an `error` if the owner has no such job.
        """
        payload = payload if isinstance(payload, dict) else {}
        cursor = non_negative_int(payload.get("cursor"))
        return self.job_queue.poll(str(payload.get("job")), require_owner(payload), cursor)

    @respond_with_errors
    async def cancel(self, payload: object, _: Request) -> dict[str, Any]:
        payload = payload if isinstance(payload, dict) else {}
        owner = require_owner(payload)
        await asyncio.to_thread(self.job_queue.cancel, str(payload.get("job")), owner)
        return {}

    async def model_facts(self, payload: object, _: Request) -> dict[str, Any]:
        return matched_parameters.family_facts()

    @respond_with_errors
    async def matched_families(self, payload: object, _: Request) -> dict[str, Any]:
        """Return the architectures at the size of the selected model, or an `error`."""
        payload = payload if isinstance(payload, dict) else {}
        return await asyncio.to_thread(
            matched_parameters.available_families, self.registry, payload
        )

    @respond_with_errors
    async def train_families(self, payload: object, _: Request) -> dict[str, Any]:
        """Start runs of these architectures; return them as `runs`, and problems as `error`."""
        payload = payload if isinstance(payload, dict) else {}
        return await asyncio.to_thread(
            matched_parameters.train_families, self.registry, require_owner(payload), payload
        )

    async def family_curves(self, payload: object, _: Request) -> dict[str, Any]:
        return await asyncio.to_thread(
            matched_parameters.family_curves,
            self.registry,
            payload if isinstance(payload, dict) else {},
        )
