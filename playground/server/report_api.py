"""Serve what shows a model elsewhere: its report, the page that runs it, and its picture.

    GET playground/card?model=watch:ID

Each file is written in a separate process (playground/reports). Crawlers of other sites have no
owner key, so `run:ID` has no picture. A picture shows what any viewer may see: without the owner's
consent, it has no tokens.
"""

import asyncio
import re
from typing import Any, TypedDict
from urllib.parse import quote, urlsplit

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from playground.errors import UserError
from playground.jobs.admission import limit
from playground.runs.access import CHECKPOINT_PREFIX, SHARE_PREFIX, Access, ModelRef, Right, require
from playground.runs.registry import Registry

from .asgi import json_error, root_url
from .client import resolve_client
from .live_api import for_right
from .process_calls import await_result, process_queue, run_job
from .routes import HandlerGroup, handler
from .runs_api import describe_result, load_points

WRITE_TIMEOUT_S = 100  # seconds
CARD_PATH = "/playground/card"
MAX_STORED = 64  # pictures, of about 50 KB
DRAWING_TIMEOUT_S = 30
TAGS = Markup(
    '<meta property="og:type" content="website">'
    '<meta property="og:title" content="{name} · Transformer Playground">'
    '<meta property="og:description" content="{result}">'
    '<meta property="og:image" content="{image}">'
    '<meta property="og:image:width" content="1200">'
    '<meta property="og:image:height" content="630">'
    '<meta name="twitter:card" content="summary_large_image">'
)


class HtmlFile(TypedDict):
    html: str
    name: str


class ReportHandlers(HandlerGroup):
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

    @handler("runs/report", ModelRef, HtmlFile, Right.REUSE)
    async def export_report(
        self, request: ModelRef, model: Access, http_request: Request | None
    ) -> Response:
        return await self._write("report", model, "-report.html", http_request)

    @handler("runs/page", ModelRef, HtmlFile, Right.OWN)
    async def export_page(
        self, request: ModelRef, model: Access, http_request: Request | None
    ) -> Response:
        """Return the page that runs a model; it contains the weights and rows of the dataset."""
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


def linked_model(request: Request) -> ModelRef:
    """Return the reference in a link, as the page reads it (ui/static/shared/links.js)."""
    params = request.query_params
    model = params.get("model") or SHARE_PREFIX + params.get("watch", "")
    return ModelRef(subject=(model if ":" in model else CHECKPOINT_PREFIX + model)[:400])


class Cards:
    """The pictures of models, each drawn in its own process and then stored in memory."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._queue = process_queue(
            {"card": "playground.reports.card:render_card"},
            process="the process that draws the picture",
            admission=limit("pictures"),
            run_timeout_s=DRAWING_TIMEOUT_S,
        )
        self._stored: dict[tuple[str, ...], bytes] = {}

    def route(self) -> Route:
        return Route(CARD_PATH, self.respond, methods=["GET"])

    async def tags(self, request: Request) -> str:
        """Return the tags of a link to a model; empty for another link."""
        ref = linked_model(request)
        try:
            name, result = await asyncio.to_thread(self._describe, ref)
        except (ValueError, OSError):
            return ""
        image = f"{root_url(request)}{CARD_PATH[1:]}?model={quote(ref.subject)}"
        return str(TAGS.format(name=name, result=result, image=image))

    async def respond(self, request: Request) -> Response:
        ref = linked_model(request)
        try:
            png = await self._draw(ref, request)
        except (ValueError, OSError) as error:
            return json_error(error, 404)
        # the owner may take back the consent
        return Response(png, media_type="image/png", headers={"Cache-Control": "no-cache"})

    def _describe(self, ref: ModelRef) -> tuple[str, str]:
        model: Access = require(self.registry, ref, Right.WATCH)
        return model.name, describe_result(model)

    async def _draw(self, ref: ModelRef, request: Request) -> bytes:
        model: Access = await asyncio.to_thread(require, self.registry, ref, Right.WATCH)
        result = await asyncio.to_thread(describe_result, model)
        url = urlsplit(root_url(request))
        texts = {"name": model.name, "result": result, "address": url.netloc + url.path[:-1]}
        key = (ref.subject, model.right.name, *texts.values())
        if key not in self._stored:
            points = await asyncio.to_thread(load_points, model)
            example = await self._example(ref, model)
            card = texts | {"evaluations": points.evaluations} | example
            reply = await run_job(self._queue, "card", card, request=request)
            self._stored[key] = reply["png"]
            while len(self._stored) > MAX_STORED:
                del self._stored[next(iter(self._stored))]
        return self._stored[key]

    async def _example(self, ref: ModelRef, model: Access) -> dict[str, Any]:
        """Return the latest snapshot with its labels as a viewer sees it; empty without weights."""
        client = resolve_client(ref)
        future = self.registry.snapshots.request("snapshot", model.source, client=client)
        try:
            return for_right(model.right, await await_result(future))
        except UserError:
            return {}
