"""Wait for the responses of other processes, for request handlers."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from starlette.requests import Request

from playground.errors import UserError, raise_for_error
from playground.jobs.admission import Policy
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job
from playground.jobs.queue import JobQueue

from .routes import ROUTE_PREFIX

RESPONSE_TIMEOUT_S = 15  # seconds


def process_queue(
    functions: Mapping[str, str], on_done: Callable[[Job], None] = lambda job: None, **limits: Any
) -> JobQueue:
    """Return a queue of jobs that call the function of their kind, each in its own process."""
    return JobQueue(ProcessPerJob(functions), Policy(**limits), on_done=on_done)


async def await_result(
    future: Future[dict[str, Any]],
    timeout_s: float | None = RESPONSE_TIMEOUT_S,
    request: Request | None = None,
) -> dict[str, Any]:
    """Return the response of a process; `timeout_s` None is no time limit.

    After the time limit, and when the client disconnects, a queued request leaves the queue of the
    process. Raises UserError if the process reports an error, or does not respond in time.
    """
    result = asyncio.wrap_future(future)
    # only a route of the page has read its request body
    disconnected = (
        asyncio.ensure_future(_wait_for_disconnect(request))
        if request and ROUTE_PREFIX in request.scope["path"]
        else None
    )
    try:
        pending: set[asyncio.Future[Any]] = {result, disconnected} if disconnected else {result}
        await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return raise_for_error(result.result())
        if timeout_s is None:
            raise UserError("the client has disconnected; send the request again")
        raise UserError(
            f"no answer within {timeout_s:g} s; the machine is busy, try again",
            # the client decides whether to wait for minutes again
            retryable=timeout_s <= RESPONSE_TIMEOUT_S,
        )
    finally:
        result.cancel()
        if disconnected:
            disconnected.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client, whose body must have been read, has disconnected."""
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    except Exception:  # there is no connection, or a limit has closed it
        await asyncio.get_running_loop().create_future()


async def run_job(
    queue: JobQueue, kind: str, *arguments: Any, request: Request | None = None
) -> dict[str, Any]:
    """Return the response of a job.

    The job is cancelled when the client of `request` disconnects, and when the caller is cancelled.
    Raises UserError if the job fails or cannot be queued.
    """
    job = queue.submit(kind, *arguments)
    try:
        return await await_result(job.future, None, request)
    finally:
        queue.cancel(job)
