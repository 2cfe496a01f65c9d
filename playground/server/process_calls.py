"""Jobs in a process of their own whose result is the response to a request."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from playground.errors import UserError, error_response
from playground.jobs.queue import JobQueue

from .live_api import await_result


async def run_job(
    queue: JobQueue, kind: str, *arguments: Any, request: Request | None = None
) -> dict[str, Any]:
    """Return the response of a job; it has `error` if the job fails or cannot be queued.

    The job is cancelled when the client of `request` disconnects, and when the caller is cancelled.
    """
    try:
        job = queue.submit(kind, *arguments)
    except UserError as error:
        return error_response(error)
    try:
        return await await_result(job.future, None, request)
    finally:
        queue.cancel(job)
