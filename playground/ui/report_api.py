"""Serve the report of a model (figures/report.py), written in a separate process, one at a time."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.errors import UserError
from playground.runs.inspector_client import set_result_if_pending
from playground.runs.registry import Registry
from playground.runs.run import Run
from playground.runs.worker_process import WorkerProcess, describe_exit

from .live_api import await_result
from .model_ref import resolve_checkpoint, resolve_run
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
            future = Future[dict[str, Any]]()
            process = WorkerProcess(
                "playground.figures.report:main",
                "report",
                str(folder),
                str(run.folder) if run else "",
                name,
                bool(run) and not is_owner,
                on_message=lambda answer: set_result_if_pending(future, answer),
                on_exit=lambda code: set_result_if_pending(
                    future,
                    {"error": f"{describe_exit('the process that writes it', code)}; try again"},
                ),
            )
            try:
                return await await_result(future, REPORT_TIMEOUT_S, request)
            finally:
                process.kill()

    return {"runs/report": report_handler}
