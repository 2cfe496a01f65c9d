"""Serve the Inspect tab: any checkpoint, or a run at any step, on the user's sequence.

The front end is in ui/static/inspect. The page requests one view at a time. Separate inspection
processes compute the numbers; this process never does.
"""

import asyncio
import json
from typing import Any

from starlette.requests import Request

from playground.errors import UserError
from playground.runs.access import Access, Right
from playground.runs.registry import Registry

from .client import resolve_client
from .process_calls import RESPONSE_TIMEOUT_S, await_result
from .routes import HandlerGroup, handler
from .schemas.runs import LoadView

SLOW_VIEWS = ("heads", "heads-over-training", "ablation")
# Views that need less than `Right.USE`: they show no tokens.
RIGHTS_BY_VIEW = {"heads": Right.WATCH, "heads-over-training": Right.WATCH}
SLOW_VIEW_TIMEOUT_S = 280  # seconds
MAX_REQUEST_LENGTH = 8000  # characters


class InspectHandlers(HandlerGroup):
    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    @handler("inspect/view", LoadView, lambda request: RIGHTS_BY_VIEW.get(request.view, Right.USE))
    async def load_view(
        self, request: LoadView, model: Access, http_request: Request | None
    ) -> dict[str, Any]:
        """Return one view of a model."""
        text = request.text if model.right >= Right.USE else None
        argument = json.dumps(
            request.options | {"view": request.view, "text": text}, sort_keys=True
        )
        if len(argument) > MAX_REQUEST_LENGTH:
            raise UserError("the request is too long; type a shorter sequence")
        is_slow = request.view in SLOW_VIEWS
        future = await asyncio.to_thread(
            self.registry.snapshots.inspect_view,
            model.source,
            argument,
            request.step,
            is_slow,
            resolve_client(request, http_request),
            model.right,
        )
        return await await_result(
            future, SLOW_VIEW_TIMEOUT_S if is_slow else RESPONSE_TIMEOUT_S, http_request
        )
