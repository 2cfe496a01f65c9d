"""Serve the report of a model (figures/report.py), written in a separate process, one at a time."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.errors import UserError
from playground.runs.model_ref import resolve_checkpoint, resolve_run
from playground.runs.registry import Registry
from playground.runs.run import Run

from .process_calls import call_in_process
from .rate_limit import FairSemaphoreQueue
from .routes import Handler

REPORT_TIMEOUT_S = 100  # seconds
MAX_WAITING = 4  # queued reports


def report_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handler of the Share dialog.

    It responds with {"html": file content, "name": file name} or {"error": message}.
    """
    report_slots = FairSemaphoreQueue(1, MAX_WAITING)  # each takes some seconds of one core

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
        try:
            response = await write_report(run, is_owner, folder, name, request)
        except UserError as error:
            return {"error": str(error), "again": True}
        return (
            response
            if "error" in response
            else response
            | {"name": f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-') or 'model'}-report.html"}
        )

    async def write_report(
        run: Run | None, is_owner: bool, folder: Path, name: str, request: Request | None
    ) -> dict[str, Any]:
        async with report_slots.slot():
            return await call_in_process(
                "playground.figures.report:render_report",
                str(folder),
                str(run.folder) if run else "",
                name,
                bool(run) and not is_owner,
                name="report",
                description="the process that writes the report",
                timeout_s=REPORT_TIMEOUT_S,
                request=request,
            )

    return {"runs/report": report_handler}
