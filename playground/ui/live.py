"""The live view of one model (live.html, and the .css and .js files beside this one) and what the server tells those who watch.

The page polls; the server holds no connection and keeps no state of a page. Arguments come from anybody's browser and are
read with care. What is on show is a subject: `run:ID` for the run's owner, `watch:ID` for those who have the link to watch it,
`checkpoint:NAME` for everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr

from playground.runs.eyes import passing
from playground.runs.history import read_lines
from playground.runs.points import Points
from playground.runs.registry import Registry
from playground.training.manifest import CheckpointError, read_manifest

from .acts import act, details, rows
from .asked import Answerer
from .subject import checkpoint_folder, run_on_show, whole
from .view import view

SCRIPTS = ("common.js", "words.js", "paint.js", "draw.js", "live.js", "rewind.js", "runs.js", "share.js")  # one program, in this order
ANSWER_WITHIN = 15  # seconds
MOST_CURVES = 8
CURVE_COLUMNS = 400  # stretches of a curve that is laid over another
NO_POINTS: dict[str, Any] = {"whole": True, "count": 0, "steps": [], "loss": [], "learning_rate": [], "gradient_norm": [], "scored": []}
GONE: dict[str, Any] = {"status": "gone", "message": "", "epoch": 0, "points": NO_POINTS, "recorded": [], "step": 0}


def live_view() -> gr.HTML:
    """The view. Its value is {"owner": whose page it is, "subject": what to show first}."""
    return view("live", ("common.css", "live.css"), SCRIPTS)


async def told(registry: Registry, request: object) -> dict[str, Any]:
    """What a page with so many points and snapshots does not know yet about its subject."""
    run, own = run_on_show(registry, request)
    if run and isinstance(request, dict):
        if run.points is None:
            await asyncio.to_thread(run.load)  # from disk
        told = registry.poll(run, whole(request.get("known")), whole(request.get("epoch"), -1), whole(request.get("looks")))
        return told | {"own": own}
    folder = checkpoint_folder(registry, request)
    if folder is None:
        return GONE
    view = await answer_of(await asyncio.to_thread(registry.eyes.ask, "look", folder))
    try:
        if "error" in view:
            return GONE | {"message": view["error"], "again": view.get("again", False)}
        manifest = await asyncio.to_thread(read_manifest, folder)
        points = await asyncio.to_thread(points_of, folder, (folder / "config.json").stat().st_mtime_ns)
    except (CheckpointError, OSError) as error:
        return GONE | {"message": str(error)}
    return view | {
        "status": "checkpoint", "message": "", "own": False, "name": folder.name, "step": manifest.step, "steps": manifest.step,
        "parameters": manifest.config.model.parameter_count(), "device": "", "epoch": 0, "points": points.since(0),
        "latest": points.latest(), "recorded": [], "looks": 1, "scores": manifest.scores, "changes": [], "saved": 0, "live": False,
        "speed": 0.0, "learning_rate": manifest.config.training.learning_rate,
    }  # fmt: skip


@lru_cache(maxsize=32)
def points_of(folder: Path, written: int) -> Points:
    """The points of a checkpoint that was `written` then."""
    try:
        return Points(read_lines(folder))
    except ValueError:  # lines of something else: a checkpoint is worth showing without its curves
        return Points()


async def looked(registry: Registry, request: object) -> dict[str, Any]:
    """What a run's model looked like at an earlier step."""
    run, _ = run_on_show(registry, request)
    if run is None or not isinstance(request, dict):
        return {"error": "this run is no longer on the server"}
    return await answer_of(registry.look(run, whole(request.get("step"))))


async def answered(registry: Registry, request: object) -> dict[str, Any]:
    """The subject's answer to what a visitor typed, now or with the weights of an earlier step."""
    request = request if isinstance(request, dict) else {}
    text, step = request.get("text"), request.get("step")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    run, _ = run_on_show(registry, request)
    if run:
        return await answer_of(registry.ask(run, text, None if step is None else whole(step)))
    folder = checkpoint_folder(registry, request)
    if folder is None:
        return {"error": "no model is open; train one, or choose a checkpoint above"}
    return await answer_of(await asyncio.to_thread(registry.eyes.ask, "ask", folder, text))


async def drawn(registry: Registry, request: object) -> dict[str, Any]:
    """The curves of some runs, to be laid over another's."""
    return {"curves": await asyncio.to_thread(_curves, registry, request if isinstance(request, dict) else {})}


def _curves(registry: Registry, request: dict[str, Any]) -> list[dict[str, Any]]:
    subjects, curves = request.get("subjects"), []
    for subject in subjects[:MOST_CURVES] if isinstance(subjects, list) else []:
        run, _ = run_on_show(registry, {"subject": subject, "owner": request.get("owner")})
        if run:
            about = {"subject": subject, "name": run.name, "status": run.status, "steps_in_all": run.steps}
            curves.append(run.load().curve(CURVE_COLUMNS) | about)
    return curves


async def answer_of(future: Future[dict[str, Any]], within: float = ANSWER_WITHIN) -> dict[str, Any]:
    """What a process answers, or that it is taking too long."""
    try:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), within)
    except TimeoutError:
        told = passing(f"no answer within {within:g} s; the machine is busy, try again")
        return told if within <= ANSWER_WITHIN else {"error": told["error"]}  # minutes are not waited again without being asked


ANSWERERS = {"poll": told, "look": looked, "try": answered, "curves": drawn, "runs": rows, "do": act, "about": details}


def live_answerers(registry: Registry) -> dict[str, Answerer]:
    """What the page's script may ask (asked.py), by the names it uses."""

    def of(answer: Callable[[Registry, object], Awaitable[dict[str, Any]]]) -> Answerer:
        return lambda what, _: answer(registry, what)

    return {name: of(answer) for name, answer in ANSWERERS.items()}
