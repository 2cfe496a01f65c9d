"""Serve the Inspect tab: any checkpoint, or a run at any step, on the user's sequence.

The front end is in ui/static/inspect. The page requests one view at a time. Separate inspection
processes compute the numbers; this process never does.
"""

import asyncio
import json
from typing import Any

from starlette.requests import Request

from playground.common import messages
from playground.errors import UserError
from playground.runs.model_ref import require_checkpoint, resolve_run
from playground.runs.registry import Registry

from .client import resolve_client
from .process_calls import RESPONSE_TIMEOUT_S, await_result, process_queue, run_job
from .routes import HandlerGroup, handler
from .schemas.runs import ExportFigures, LoadView

SLOW_VIEWS = ("heads", "heads-over-training", "ablation")
SLOW_VIEW_TIMEOUT_S = 280  # seconds
FIGURE_SEQUENCES = 512  # held-out sequences of the ablations in the figures
MAX_REQUEST_LENGTH = 8000  # characters


class InspectHandlers(HandlerGroup):
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._figure_queue = process_queue(
            "figures",
            "playground.figures.export:export_model",
            nouns="figures",
            process=messages.FIGURES_PROCESS,
            max_active=1,  # each takes about 30 seconds of one core
            run_timeout_s=SLOW_VIEW_TIMEOUT_S,
            timeout_advice="use a smaller model",
        )

    @handler("inspect/view", LoadView)
    async def load_view(self, request: LoadView, http_request: Request | None) -> dict[str, Any]:
        """Return one view of a model."""
        argument = json.dumps(
            request.options | {"view": request.view, "text": request.text}, sort_keys=True
        )
        if len(argument) > MAX_REQUEST_LENGTH:
            raise UserError("the request is too long; type a shorter sequence")
        run, is_owner = resolve_run(self.registry, request)
        if run is None:
            folder = await asyncio.to_thread(require_checkpoint, self.registry, request)
        is_slow = request.view in SLOW_VIEWS
        future = await asyncio.to_thread(
            self.registry.snapshots.inspect_view,
            run or folder,
            argument,
            request.step,
            is_slow,
            resolve_client(request, is_owner, http_request),
        )
        return await await_result(
            future, SLOW_VIEW_TIMEOUT_S if is_slow else RESPONSE_TIMEOUT_S, http_request
        )

    @handler("inspect/figures", ExportFigures)
    async def export_figures(
        self, request: ExportFigures, http_request: Request | None
    ) -> dict[str, Any]:
        """Return all figures of a model for a sequence, for print: {"zip": base64}."""
        weights = await asyncio.to_thread(self._find_weights, request)
        return await run_job(
            self._figure_queue,
            "figures",
            weights,
            request.text,
            FIGURE_SEQUENCES,
            request=http_request,
        )

    def _find_weights(self, request: ExportFigures) -> dict[str, Any]:
        """Return which weights to load, for the process that draws.

        Raises:
            UserError: if there are none.
        """
        run, _ = resolve_run(self.registry, request)
        if run is None:
            return {"checkpoint": str(require_checkpoint(self.registry, request))}
        weights = self.registry.snapshots.model_ref(run, request.step)
        if weights is None:
            raise UserError("this model has no weights yet; select another one above")
        return weights
