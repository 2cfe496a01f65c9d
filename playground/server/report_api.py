"""Serve the report of a model (reports/report.py), written in a separate process, one at a time."""

import asyncio
import re
from typing import Any

from starlette.requests import Request

from playground.runs.access import Access, Right
from playground.runs.registry import Registry

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

    @handler("runs/report", ModelRequest, Right.REUSE)
    async def export_report(
        self, request: ModelRequest, model: Access, http_request: Request | None
    ) -> dict[str, Any]:
        """Return a report: {"html": file content, "name": file name}."""
        response = await run_job(
            self._queue,
            "report",
            str(await asyncio.to_thread(model.newest_checkpoint)),
            str(model.run.folder) if model.run else "",
            model.name,
            request=http_request,
        )
        file_stem = re.sub(r"[^A-Za-z0-9]+", "-", model.name).strip("-") or "model"
        return response | {"name": f"{file_stem}-report.html"}
