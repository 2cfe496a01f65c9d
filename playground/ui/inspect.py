"""Serve the Inspect tab: any checkpoint, or a run at any step, on the user's sequence.

The front end is inspect.html, .css and the scripts in this folder. The page requests one view at a
time. Separate inspection processes compute the numbers; this process never does.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.runs.eyes import resolve
from playground.runs.processes import Child, describe_end
from playground.runs.registry import Registry
from playground.runs.run import Run

from .asked import Answerer
from .live import ANSWER_WITHIN, answer_of
from .subject import checkpoint_folder, client_on_show, run_on_show, whole
from .view import view

SHELL = ("common.js", "elements.js", "paint.js", "matrix.js", "inspect.js")
SCRIPTS = (*SHELL, "inspect_looking.js", "inspect_proof.js", "inspect_walk.js", "inspect_begin.js")
STYLES = ("common.css", "inspect.css", "inspect_proof.css", "inspect_walk.css")
SLOW = ("heads", "heads-over-training", "away")
SLOW_WITHIN = 280  # seconds
FIGURES_N = 512  # held-out sequences of the ablations in the figures
LONGEST_REQUEST = 8000  # characters


def inspect_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key, "wanted": state from a link}."""
    return view("inspect", STYLES, SCRIPTS)


def inspect_answerers(registry: Registry) -> dict[str, Answerer]:
    """Return the handlers of the tab's requests."""

    async def inspect(what: object, http: Request) -> dict[str, Any]:
        return await shown(registry, what, http)

    drawing = asyncio.Semaphore(1)  # each takes about 30 seconds of one core

    async def figures(what: object, _: Request) -> dict[str, Any]:
        if drawing.locked():
            return {"error": "the server is drawing other figures; try again in a moment"}
        async with drawing:
            return await drawn(registry, what)

    return {"inspect": inspect, "inspect-figures": figures}


async def shown(registry: Registry, what: object, http: Request | None = None) -> dict[str, Any]:
    """Return one view of the subject, or {"error": message}."""
    what = what if isinstance(what, dict) else {}
    view, options = what.get("view"), what.get("options")
    request = json.dumps(
        (options if isinstance(options, dict) else {}) | {"view": view, "text": what.get("text")},
        sort_keys=True,
    )
    if len(request) > LONGEST_REQUEST:
        return {"error": "the request is too long; type a shorter sequence"}
    slow = view in SLOW
    run, own = run_on_show(registry, what)
    client, step = client_on_show(what, own, http), what.get("step")
    subject: Run | Path | None = run or await asyncio.to_thread(checkpoint_folder, registry, what)
    if subject is None:
        return {"error": "this model is not on this server, or not yours; select another one above"}
    future = await asyncio.to_thread(
        registry.show, subject, request, None if step is None else whole(step), slow, client
    )
    return await answer_of(future, SLOW_WITHIN if slow else ANSWER_WITHIN, http)


async def drawn(registry: Registry, what: object) -> dict[str, Any]:
    """Return all figures of the subject for a sequence, for print: {"zip": base64}."""
    what = what if isinstance(what, dict) else {}
    text, step = what.get("text"), what.get("step")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    run, _ = run_on_show(registry, what)
    folder = None if run else checkpoint_folder(registry, what)
    if run:
        subject = await asyncio.to_thread(registry.what, run, None if step is None else whole(step))
    else:
        subject = {"checkpoint": str(folder)} if folder else None
    if subject is None:
        return {"error": "this model has no weights yet; select another one above"}
    future = Future[dict[str, Any]]()
    child = Child(
        "playground.plots.drawn:work",
        "figures",
        subject,
        text,
        FIGURES_N,
        on_message=lambda answer: resolve(future, answer),
        on_end=lambda code: resolve(
            future, {"error": f"{describe_end('the process that draws', code)}; try again"}
        ),
    )
    try:
        return await answer_of(future, SLOW_WITHIN)
    finally:
        child.kill()
