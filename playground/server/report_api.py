"""Serve a model as one HTML file: its report, or the page that runs it (playground/reports).

A separate process writes each file, one at a time.
"""

import asyncio
import re
from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from playground.jobs.admission import limit
from playground.runs.access import Access, Right
from playground.runs.registry import Registry

from .process_calls import process_queue, run_job
from .routes import HandlerGroup, handler
from .schemas.base import ModelRequest

WRITE_TIMEOUT_S = 100  # seconds


class HtmlFile(TypedDict):
    html: str
    name: str


class ReportHandlers(HandlerGroup):
    """The handlers of the files of the Share dialog."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._queue = process_queue(
            {
                "report": "playground.reports.report:render_report",
                "page": "playground.reports.interactive_page:render_page",
            },
            process="the process that writes the file",
            admission=limit("reports"),
            run_timeout_s=WRITE_TIMEOUT_S,
            timeout_advice="try again, or choose a run with fewer steps",
        )

    @handler("runs/report", ModelRequest, HtmlFile, Right.REUSE)
    async def export_report(
        self, request: ModelRequest, model: Access, http_request: Request | None
    ) -> Response:
        """Return a report."""
        return await self._write("report", model, "-report.html", http_request)

    @handler("runs/page", ModelRequest, HtmlFile, Right.OWN)
    async def export_page(
        self, request: ModelRequest, model: Access, http_request: Request | None
    ) -> Response:
        """Return the page that runs a model.

        It needs the right of a download: it contains the weights and rows of the dataset.
        """
        return await self._write("page", model, ".html", http_request)

    async def _write(
        self, kind: str, model: Access, suffix: str, http_request: Request | None
    ) -> Response:
        file_stem = re.sub(r"[^A-Za-z0-9]+", "-", model.name).strip("-") or "model"
        response = await run_job(
            self._queue,
            kind,
            str(await asyncio.to_thread(model.newest_checkpoint)),
            str(model.run.folder) if model.run else "",
            model.name,
            file_stem + suffix,
            request=http_request,
        )
        # A page has up to 27 MB, so its process has written the JSON.
        return Response(response["json"], media_type="application/json")
