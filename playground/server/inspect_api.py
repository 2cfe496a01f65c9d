"""Serve the Inspect tab: any checkpoint, or a run at any step, on the user's sequence.

The front end is in ui/static/inspect. The page requests one view at a
time. Separate inspection processes compute the numbers; this process never does.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.jobs.executors import ProcessPerJob
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.runs.model_ref import non_negative_int, resolve_checkpoint, resolve_run
from playground.runs.registry import Registry
from playground.runs.state import Run

from .client import resolve_client
from .live_api import RESPONSE_TIMEOUT_S, await_result
from .process_calls import run_job
from .routes import Handler

SLOW_VIEWS = ("heads", "heads-over-training", "away")
SLOW_VIEW_TIMEOUT_S = 280  # seconds
FIGURE_SEQUENCES = 512  # held-out sequences of the ablations in the figures
MAX_REQUEST_LENGTH = 8000  # characters


def inspect_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handlers of the tab's requests."""

    async def view_handler(payload: object, request: Request) -> dict[str, Any]:
        return await load_view(registry, payload, request)

    figure_queue = JobQueue(
        ProcessPerJob({"figures": "playground.figures.export:export_model"}),
        Policy(
            process="the process that draws the figures",
            nouns="figures",
            max_active=1,  # each takes about 30 seconds of one core
            run_timeout_s=SLOW_VIEW_TIMEOUT_S,
            timeout_advice="use a smaller model",
        ),
    )

    async def figures_handler(payload: object, request: Request) -> dict[str, Any]:
        return await export_figures(registry, payload, figure_queue, request)

    return {"inspect/view": view_handler, "inspect/figures": figures_handler}


async def load_view(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return one view of the subject, or {"error": message}."""
    payload = payload if isinstance(payload, dict) else {}
    view, options = payload.get("view"), payload.get("options")
    argument = json.dumps(
        (options if isinstance(options, dict) else {})
        | {"view": view, "text": payload.get("text")},
        sort_keys=True,
    )
    if len(argument) > MAX_REQUEST_LENGTH:
        return {"error": "the request is too long; type a shorter sequence"}
    is_slow = view in SLOW_VIEWS
    run, is_owner = resolve_run(registry, payload)
    client, step = resolve_client(payload, is_owner, request), payload.get("step")
    model_source: Run | Path | None = run or await asyncio.to_thread(
        resolve_checkpoint, registry, payload
    )
    if model_source is None:
        return {"error": "this model is not on this server, or not yours; select another one above"}
    future = await asyncio.to_thread(
        registry.snapshots.inspect_view,
        model_source,
        argument,
        None if step is None else non_negative_int(step),
        is_slow,
        client,
    )
    return await await_result(
        future, SLOW_VIEW_TIMEOUT_S if is_slow else RESPONSE_TIMEOUT_S, request
    )


async def export_figures(
    registry: Registry, payload: object, queue: JobQueue, request: Request | None = None
) -> dict[str, Any]:
    """Return all figures of the subject for a sequence, for print: {"zip": base64}."""
    payload = payload if isinstance(payload, dict) else {}
    text, step = payload.get("text"), payload.get("step")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    run, _ = resolve_run(registry, payload)
    folder = None if run else resolve_checkpoint(registry, payload)
    if run:
        model_ref = await asyncio.to_thread(
            registry.snapshots.model_ref, run, None if step is None else non_negative_int(step)
        )
    else:
        model_ref = {"checkpoint": str(folder)} if folder else None
    if model_ref is None:
        return {"error": "this model has no weights yet; select another one above"}
    return await run_job(queue, "figures", model_ref, text, FIGURE_SEQUENCES, request=request)
