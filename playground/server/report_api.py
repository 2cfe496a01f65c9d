"""Serve the report of a model (reports/report.py), written in a separate process, one at a time."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.requests import Request

from playground.jobs.executors import ProcessPerJob
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.runs.model_ref import resolve_checkpoint, resolve_run
from playground.runs.registry import Registry

from .process_calls import run_job
from .routes import Handler

REPORT_TIMEOUT_S = 100  # seconds
MAX_ACTIVE, MAX_ACTIVE_PER_ADDRESS = 5, 3  # queued or running; each takes seconds of one core


def report_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handler of the Share dialog.

    It responds with {"html": file content, "name": file name} or {"error": message}.
    """
    queue = JobQueue(
        ProcessPerJob({"report": "playground.reports.report:render_report"}),
        Policy(
            process="the process that writes the report",
            nouns="reports",
            max_active=MAX_ACTIVE,
            max_active_per_address=MAX_ACTIVE_PER_ADDRESS,
            run_timeout_s=REPORT_TIMEOUT_S,
            timeout_advice="try again, or choose a run with fewer steps",
        ),
    )

    async def report_handler(payload: object, request: Request | None) -> dict[str, Any]:
        run, is_owner = resolve_run(registry, payload)
        checkpoints = await asyncio.to_thread(run.checkpoints) if run else []
        folder = (
            checkpoints[0][0]
            if checkpoints
            else None
            if run
            else resolve_checkpoint(registry, payload)
        )
        if folder is None:
            reason = "this run has no checkpoint yet; pause it, or wait for the first one"
            return {
                "error": reason
                if run
                else "this model is not on this server, or not yours; select another one"
            }
        name = run.name if run else folder.name
        response = await run_job(
            queue,
            "report",
            str(folder),
            str(run.folder) if run else "",
            name,
            bool(run) and not is_owner,
            request=request,
        )
        return (
            response
            if "error" in response
            else response
            | {"name": f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-') or 'model'}-report.html"}
        )

    return {"runs/report": report_handler}
