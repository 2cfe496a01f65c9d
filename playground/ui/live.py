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
from starlette.requests import Request

from playground.runs.eyes import passing
from playground.runs.history import read_lines
from playground.runs.points import Points
from playground.runs.registry import Registry
from playground.runs.run import Run
from playground.training.manifest import CheckpointError, read_manifest

from .acts import act, details, rows
from .asked import PATH, Answerer
from .subject import checkpoint_folder, client_on_show, run_on_show, whole
from .view import view

SCRIPTS = (
    "common.js",
    "words.js",
    "paint.js",
    "draw.js",
    "live.js",
    "rewind.js",
    "runs.js",
    "share.js",
)  # one program, in this order
ANSWER_WITHIN = 15  # seconds
MOST_CURVES = 8
CURVE_COLUMNS = 400  # stretches of a curve that is laid over another
NO_POINTS: dict[str, Any] = {
    "whole": True,
    "count": 0,
    "steps": [],
    "loss": [],
    "learning_rate": [],
    "gradient_norm": [],
    "scored": [],
}
GONE: dict[str, Any] = {
    "status": "gone",
    "message": "",
    "epoch": 0,
    "points": NO_POINTS,
    "recorded": [],
    "step": 0,
}


def live_view() -> gr.HTML:
    """The view. Its value is {"owner": whose page it is, "subject": what to show first}."""
    return view("live", ("common.css", "live.css"), SCRIPTS)


async def told(registry: Registry, request: object, http: Request | None = None) -> dict[str, Any]:
    """What a page with so many points and snapshots does not know yet about its subject."""
    run, own = run_on_show(registry, request)
    client = client_on_show(request, own, http)
    if run and isinstance(request, dict):
        await _read_from_disk(run)
        known = (
            whole(request.get("known")),
            whole(request.get("epoch"), -1),
            whole(request.get("looks")),
        )
        return registry.poll(run, *known, client, whole(request.get("changes"), -1)) | {"own": own}
    folder = await asyncio.to_thread(checkpoint_folder, registry, request)
    if folder is None:
        return GONE
    view = await answer_of(registry.eyes.ask("look", folder, client=client), request=http)
    try:
        if "error" in view:
            return GONE | {"message": view["error"], "again": view.get("again", False)}
        manifest = await asyncio.to_thread(read_manifest, folder)
        points = await asyncio.to_thread(
            points_of, folder, (folder / "config.json").stat().st_mtime_ns
        )
    except (CheckpointError, OSError) as error:
        return GONE | {"message": str(error)}
    return view | {
        "status": "checkpoint", "message": "", "own": False, "name": folder.name, "step": manifest.step, "steps": manifest.step,
        "parameters": manifest.config.model.parameter_count(), "device": "", "epoch": 0, "points": points.since(0),
        "latest": points.latest(), "recorded": [], "looks": 1, "scores": manifest.scores, "changes": [], "saved": 0, "live": False,
        "speed": 0.0, "learning_rate": manifest.config.training.learning_rate,
    }  # fmt: skip


async def _read_from_disk(run: Run) -> None:
    """Read what a run keeps on disk only, so that the event loop need not."""
    if run.points is None or run.recorded is None:
        await asyncio.to_thread(lambda: (run.load(), run.records()))


@lru_cache(maxsize=32)
def points_of(folder: Path, written: int) -> Points:
    """The points of a checkpoint that was `written` then."""
    try:
        return Points(read_lines(folder))
    except ValueError:  # lines of something else: a checkpoint is worth showing without its curves
        return Points()


async def looked(
    registry: Registry, request: object, http: Request | None = None
) -> dict[str, Any]:
    """What a run's model looked like at an earlier step."""
    run, own = run_on_show(registry, request)
    if run is None or not isinstance(request, dict):
        return {"error": "this run is no longer on the server"}
    await _read_from_disk(run)
    return await answer_of(
        registry.look(run, whole(request.get("step")), client_on_show(request, own, http)),
        request=http,
    )


async def answered(
    registry: Registry, request: object, http: Request | None = None
) -> dict[str, Any]:
    """The subject's answer to what a visitor typed, now or with the weights of an earlier step."""
    request = request if isinstance(request, dict) else {}
    text, step = request.get("text"), request.get("step")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    run, own = run_on_show(registry, request)
    client = client_on_show(request, own, http)
    if run:
        await _read_from_disk(run)
        return await answer_of(
            registry.ask(run, text, None if step is None else whole(step), client), request=http
        )
    folder = await asyncio.to_thread(checkpoint_folder, registry, request)
    if folder is None:
        return {"error": "no model is open; train one, or choose a checkpoint above"}
    return await answer_of(registry.eyes.ask("ask", folder, text, client=client), request=http)


async def drawn(registry: Registry, request: object, http: Request | None = None) -> dict[str, Any]:
    """The curves of some runs, to be laid over another's."""
    return {
        "curves": await asyncio.to_thread(
            _curves, registry, request if isinstance(request, dict) else {}
        )
    }


def _curves(registry: Registry, request: dict[str, Any]) -> list[dict[str, Any]]:
    subjects, curves = request.get("subjects"), []
    for subject in subjects[:MOST_CURVES] if isinstance(subjects, list) else []:
        run, _ = run_on_show(registry, {"subject": subject, "owner": request.get("owner")})
        if run:
            about = {
                "subject": subject,
                "name": run.name,
                "status": run.status,
                "steps_in_all": run.steps,
            }
            curves.append(run.load().curve(CURVE_COLUMNS) | about)
    return curves


async def answer_of(
    future: Future[dict[str, Any]], within: float = ANSWER_WITHIN, request: Request | None = None
) -> dict[str, Any]:
    """What a process answers, or that it is taking too long.

    Whatever ends the wait, a request that is still in the queue of the process leaves it: the
    answer, the time limit, or a client that disconnects.
    """
    answer = asyncio.wrap_future(future)
    gone = (
        asyncio.ensure_future(_disconnect(request))
        if request and PATH in request.scope["path"]
        else None
    )
    try:
        waits: set[asyncio.Future[Any]] = {answer, gone} if gone else {answer}
        await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        told = passing(f"no answer within {within:g} s; the machine is busy, try again")
        return (
            told if within <= ANSWER_WITHIN else {"error": told["error"]}
        )  # minutes are not waited again without being asked
    finally:
        answer.cancel()
        if gone:
            gone.cancel()


async def _disconnect(request: Request) -> None:
    """Return when the client has disconnected. The body must have been read before."""
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    except Exception:  # no connection is there to watch, or the server's guards have ended it
        await asyncio.get_running_loop().create_future()


ANSWERERS = {
    "poll": told,
    "look": looked,
    "try": answered,
    "curves": drawn,
    "runs": rows,
    "do": act,
    "about": details,
}


def live_answerers(registry: Registry) -> dict[str, Answerer]:
    """What the page's script may ask (asked.py), by the names it uses."""

    def of(answer: Callable[..., Awaitable[dict[str, Any]]]) -> Answerer:
        return lambda what, http: answer(registry, what, http)

    return {name: of(answer) for name, answer in ANSWERERS.items()}
