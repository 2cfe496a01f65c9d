"""Calls in a process of their own, for request handlers."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from playground.jobs.call import ProcessCall

from .live_api import await_result


async def call_in_process(
    target: str,
    *arguments: Any,
    name: str,
    description: str,
    timeout_s: float,
    request: Request | None = None,
) -> dict[str, Any]:
    """Return the response of `module:function(*arguments)`, called in a process of its own.

    The process ends after `timeout_s` seconds, and when the client of `request` disconnects.
    `description` names it in errors, for example "the process that draws".
    """
    call = ProcessCall(target, *arguments, name=name, description=description)
    try:
        return await await_result(call.future, timeout_s, request)
    finally:
        call.kill()
