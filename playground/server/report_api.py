"""Serve the report of a model (reports/report.py), written in a separate process, one at a time."""

import asyncio
import re
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.errors import UserError
from playground.runs.model_ref import require_checkpoint, resolve_run
from playground.runs.registry import Registry
from playground.runs.state import Run

from .process_calls import process_queue, run_job
from .routes import HandlerGroup, handler
from .schemas.base import ModelRequest

REPORT_TIMEOUT_S = 100  # seconds


class ReportHandlers(HandlerGroup):
    """The handler of the Share dialog."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._queue = process_queue(
            "report",
            "playground.reports.report:render_report",
            nouns="reports",
            process="the process that writes the report",
            max_active=5,  # each takes some seconds of one core
            max_active_per_address=3,
            run_timeout_s=REPORT_TIMEOUT_S,
            timeout_advice="try again, or choose a run with fewer steps",
        )

    @handler("runs/report", ModelRequest)
    async def export_report(
        self, request: ModelRequest, http_request: Request | None
    ) -> dict[str, Any]:
        """Return a report: {"html": file content, "name": file name}."""
        run, is_owner = resolve_run(self.registry, request)
        folder = await asyncio.to_thread(self._find_folder, request, run)
        name = run.name if run else folder.name
        response = await run_job(
            self._queue,
            "report",
            str(folder),
            str(run.folder) if run else "",
            name,
            bool(run) and not is_owner,
            request=http_request,
        )
        file_stem = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "model"
        return response | {"name": f"{file_stem}-report.html"}

    def _find_folder(self, request: ModelRequest, run: Run | None) -> Path:
        """Return the checkpoint that the report is about."""
        if run is None:
            return require_checkpoint(self.registry, request)
        checkpoints = run.checkpoints()
        if not checkpoints:
            raise UserError("this run has no checkpoint yet; pause it, or wait for the first one")
        return checkpoints[0][0]
