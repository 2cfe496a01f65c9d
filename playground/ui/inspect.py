"""The Inspect tab: any checkpoint, any run at any step, on a sequence of one's own (inspect.html, .css and the scripts beside it).
The page asks for one view at a time; the numbers come from the processes that look into models, never from this one."""

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
FIGURES_N = 512  # held-out sequences behind the ablations in them
LONGEST_REQUEST = 8000  # characters


def inspect_view() -> gr.HTML:
    """The view. Its value is {"owner": whose page it is, "wanted": what a link asks for}."""
    return view("inspect", STYLES, SCRIPTS)


def inspect_answerers(registry: Registry) -> dict[str, Answerer]:
    """What the tab's scripts may ask."""

    async def inspect(what: object, http: Request) -> dict[str, Any]:
        return await shown(registry, what, http)

    drawing = asyncio.Semaphore(1)  # half a minute of a core each

    async def figures(what: object, _: Request) -> dict[str, Any]:
        if drawing.locked():
            return {
                "error": "somebody else's figures are being drawn just now; try again in a moment"
            }
        async with drawing:
            return await drawn(registry, what)

    return {"inspect": inspect, "inspect-figures": figures}


async def shown(registry: Registry, what: object, http: Request | None = None) -> dict[str, Any]:
    """One view of the subject; {"error": sentence} where there is none."""
    what = what if isinstance(what, dict) else {}
    view, options = what.get("view"), what.get("options")
    request = json.dumps(
        (options if isinstance(options, dict) else {}) | {"view": view, "text": what.get("text")},
        sort_keys=True,
    )
    if len(request) > LONGEST_REQUEST:
        return {"error": "that is more than a view can ask for; type a shorter sequence"}
    slow = view in SLOW
    run, own = run_on_show(registry, what)
    client, step = client_on_show(what, own, http), what.get("step")
    subject: Run | Path | None = run or await asyncio.to_thread(checkpoint_folder, registry, what)
    if subject is None:
        return {"error": "this model is not on this server, or not yours; choose another one above"}
    future = await asyncio.to_thread(
        registry.show, subject, request, None if step is None else whole(step), slow, client
    )
    return await answer_of(future, SLOW_WITHIN if slow else ANSWER_WITHIN, http)


async def drawn(registry: Registry, what: object) -> dict[str, Any]:
    """Every figure of the subject on a sequence, for print: {"zip": base64}."""
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
        return {"error": "there is nothing to draw of this model yet; choose another one above"}
    future = Future[dict[str, Any]]()
    child = Child(
        "playground.plots.drawn:work", "figures", subject, text, FIGURES_N,
        on_message=lambda answer: resolve(future, answer),
        on_end=lambda code: resolve(future, {"error": f"{describe_end('the process that draws', code)}; try again"}),
    )  # fmt: skip
    try:
        return await answer_of(future, SLOW_WITHIN)
    finally:
        child.kill()
