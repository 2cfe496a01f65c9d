"""The live view of one model (live.html, live.css, live.js beside this file) and what the server tells it.

The page polls; the server holds no connection and keeps no state of a page. Arguments come from anybody's browser and are
read with care.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import gradio as gr

from playground.runs.registry import Registry
from playground.training.manifest import CheckpointError, read_manifest

HERE = Path(__file__).parent
CHECKPOINT = "checkpoint:"
ANSWER_WITHIN = 15  # seconds
GONE = {"status": "gone", "message": "", "points": [], "more": False}


def live_view(registry: Registry) -> gr.HTML:
    """The view of one subject: a run's id or `checkpoint:NAME`."""

    async def poll(request: dict) -> dict:
        return await told(registry, request)

    async def ask(request: dict) -> dict:
        return await answered(registry, request)

    return gr.HTML(
        value=None,
        html_template=(HERE / "live.html").read_text(encoding="utf-8"),
        css_template=(HERE / "live.css").read_text(encoding="utf-8"),
        js_on_load=(HERE / "live.js").read_text(encoding="utf-8"),
        server_functions=[poll, ask],
        elem_id="live",
        padding=False,
    )


def whole(value: object) -> int:
    """A count from a page, which may send anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else 0


async def told(registry: Registry, request: object) -> dict[str, Any]:
    """What a page with so many points and snapshots does not know yet about its subject."""
    request = request if isinstance(request, dict) else {}
    subject = request.get("subject")
    if run := registry.find(subject):
        return registry.poll(run, whole(request.get("cursor")), whole(request.get("looks")))
    folder = checkpoint_folder(registry, subject)
    if folder is None:
        return GONE
    view = await answer_of(await asyncio.to_thread(registry.inspect, "view", folder))
    if "error" in view:
        return GONE | {"message": view["error"]}
    try:
        manifest = read_manifest(folder)
    except CheckpointError as error:
        return GONE | {"message": str(error)}
    shown = {"status": "checkpoint", "name": folder.name, "steps": manifest.step, "scores": manifest.scores}
    return view | shown | {"looks": 1, "more": False}


async def answered(registry: Registry, request: object) -> dict[str, Any]:
    """The subject's answer to what a visitor typed."""
    request = request if isinstance(request, dict) else {}
    subject, text = request.get("subject"), request.get("text")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    if run := registry.find(subject):
        if not run.live and not (run.folder / "config.json").exists():
            return {"error": "this run ended before it could save its weights"}
        return await answer_of(await asyncio.to_thread(registry.ask, run, text))
    folder = checkpoint_folder(registry, subject)
    if folder is None:
        return {"error": "no model is open; train one, or choose a checkpoint above"}
    return await answer_of(await asyncio.to_thread(registry.inspect, "ask", folder, text))


async def answer_of(future: Future[dict[str, Any]]) -> dict[str, Any]:
    """What a process answers, or that it is taking too long."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), ANSWER_WITHIN)
    except TimeoutError:
        return {"error": f"no answer within {ANSWER_WITHIN} s; the machine is busy, try again"}


def checkpoint_folder(registry: Registry, subject: object) -> Path | None:
    """The folder that `checkpoint:NAME` means, if NAME is one of those on offer."""
    if not isinstance(subject, str) or not subject.startswith(CHECKPOINT):
        return None
    return registry.checkpoints().get(subject.removeprefix(CHECKPOINT))
