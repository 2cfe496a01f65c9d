"""Serve the live view of one model (ui/static/train).

The page polls; the server holds no connection and no state of a page. Arguments are untrusted. A
`subject` names the model: `run:ID` for the owner of a run, `watch:ID` for a share link,
`checkpoint:NAME` for a public checkpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.runs.inspector_client import retryable
from playground.runs.metric_series import MetricSeries
from playground.runs.model_ref import non_negative_int, resolve_checkpoint, resolve_run
from playground.runs.registry import Registry
from playground.runs.replay import load_replay
from playground.runs.state import Run
from playground.runs.weight_history import nearest_step, read_lines

from .client import resolve_client
from .routes import ROUTE_PREFIX, Handler
from .runs_api import list_runs, run_action, run_details

RESPONSE_TIMEOUT_S = 15  # seconds
MAX_CURVES = 8
MAX_CURVE_POINTS = 400  # points of an overlaid curve
NO_POINTS: dict[str, Any] = {
    "whole": True,
    "count": 0,
    "steps": [],
    "loss": [],
    "learning_rate": [],
    "grad_norm": [],
    "evaluations": [],
}
NOT_FOUND_RESPONSE: dict[str, Any] = {
    "status": "not-found",
    "message": "",
    "series_id": 0,
    "points": NO_POINTS,
    "weight_steps": [],
    "step": 0,
}


async def poll_model(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return what changed since the points and the snapshot that the page has."""
    run, is_owner = resolve_run(registry, payload)
    client = resolve_client(payload, is_owner, request)
    if run and isinstance(payload, dict):
        await _read_from_disk(run)
        page_state = (
            non_negative_int(payload.get("n_points")),
            non_negative_int(payload.get("series_id"), -1),
            non_negative_int(payload.get("snapshot_version")),
        )
        return registry.poll(
            run, *page_state, client, non_negative_int(payload.get("changes"), -1)
        ) | {"is_owner": is_owner}
    folder = await asyncio.to_thread(resolve_checkpoint, registry, payload)
    if folder is None:
        return NOT_FOUND_RESPONSE
    snapshot_fields = await await_result(
        registry.snapshots.inspector.request("snapshot", folder, client=client), request=request
    )
    try:
        if "error" in snapshot_fields:
            return NOT_FOUND_RESPONSE | {
                "message": snapshot_fields["error"],
                "again": snapshot_fields.get("again", False),
            }
        manifest = await asyncio.to_thread(read_manifest, folder)
        points = await asyncio.to_thread(
            load_metric_series, folder, (folder / "config.json").stat().st_mtime_ns
        )
        recorded_steps = list(await asyncio.to_thread(load_replay, folder))
    except (CheckpointError, OSError) as error:
        return NOT_FOUND_RESPONSE | {"message": str(error)}
    return snapshot_fields | {
        "status": "checkpoint",
        "message": "",
        "is_owner": False,
        "name": folder.name,
        "step": manifest.step,
        "max_steps": manifest.step,
        "parameters": manifest.config.model.parameter_count(),
        "device": "",
        "series_id": 0,
        "points": points.delta_since(0),
        "latest": points.latest(),
        "weight_steps": recorded_steps,
        "snapshot_version": 1,
        "scores": manifest.scores,
        "changes": [],
        "checkpoint_version": 0,
        "has_worker": False,
        "speed": 0.0,
        "learning_rate": manifest.config.training.learning_rate,
    }


async def _read_from_disk(run: Run) -> None:
    """Read the data of a run from disk in a thread, off the event loop."""
    if run.live.points is None or run.live.weight_steps is None:
        await asyncio.to_thread(lambda: (run.load_points(), run.load_weight_steps()))


@lru_cache(maxsize=32)
def load_metric_series(folder: Path, modified_ns: int) -> MetricSeries:
    """Return the points of a checkpoint; `modified_ns` keys the cache."""
    try:
        return MetricSeries(read_lines(folder))
    except ValueError:  # other lines: the checkpoint opens without curves
        return MetricSeries()


async def snapshot(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return the snapshot of a run, or of a recorded checkpoint, at an earlier step."""
    run, is_owner = resolve_run(registry, payload)
    if not isinstance(payload, dict):
        return {"error": "this run is no longer on the server"}
    if run is None:
        folder = await asyncio.to_thread(resolve_checkpoint, registry, payload)
        return await asyncio.to_thread(
            _recorded_snapshot, folder, non_negative_int(payload.get("step"))
        )
    await _read_from_disk(run)
    return await await_result(
        registry.snapshots.snapshot_at(
            run, non_negative_int(payload.get("step")), resolve_client(payload, is_owner, request)
        ),
        request=request,
    )


def _recorded_snapshot(folder: Path | None, step: int) -> dict[str, Any]:
    """Return the recorded snapshot of a checkpoint that is nearest to `step`."""
    if folder is None:
        return {"error": "this run is no longer on the server"}
    try:
        replay = load_replay(folder)
    except (CheckpointError, OSError) as error:
        return {"error": str(error)}
    nearest = nearest_step(list(replay), step)
    if nearest is None:
        return {"error": "this checkpoint has no history"}
    return {"snapshot": replay[nearest]}


async def predict(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return the prediction for a typed sequence, now or at an earlier step."""
    payload = payload if isinstance(payload, dict) else {}
    text, step = payload.get("text"), payload.get("step")
    if not isinstance(text, str) or len(text) > 2000:
        return {"error": "type a sequence of at most 2,000 characters"}
    run, is_owner = resolve_run(registry, payload)
    client = resolve_client(payload, is_owner, request)
    if run:
        await _read_from_disk(run)
        return await await_result(
            registry.snapshots.predict(
                run, text, None if step is None else non_negative_int(step), client
            ),
            request=request,
        )
    folder = await asyncio.to_thread(resolve_checkpoint, registry, payload)
    if folder is None:
        return {"error": "no model is open; train one, or choose a checkpoint above"}
    # A replay has no weights, so the prediction is that of the last step, which `step` names.
    return await await_result(
        registry.snapshots.inspector.request("predict", folder, text, client=client),
        request=request,
    )


async def overlay_curves(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return the curves of other runs, to overlay on a chart."""
    return {
        "curves": await asyncio.to_thread(
            _overlay_curves, registry, payload if isinstance(payload, dict) else {}
        )
    }


def _overlay_curves(registry: Registry, payload: dict[str, Any]) -> list[dict[str, Any]]:
    model_refs, curves = payload.get("subjects"), []
    for model_ref in model_refs[:MAX_CURVES] if isinstance(model_refs, list) else []:
        run, _ = resolve_run(registry, {"subject": model_ref, "owner": payload.get("owner")})
        if run:
            metadata = {
                "subject": model_ref,
                "name": run.name,
                "status": run.status,
                "steps_in_all": run.steps,
            }
            curves.append(run.load_points().downsampled(MAX_CURVE_POINTS) | metadata)
    return curves


async def await_result(
    future: Future[dict[str, Any]],
    timeout_s: float | None = RESPONSE_TIMEOUT_S,
    request: Request | None = None,
) -> dict[str, Any]:
    """Return the response of a process, or an error after the time limit; None is no limit.

    After the time limit, and when the client disconnects, a queued request leaves the queue of the
    process.
    """
    result = asyncio.wrap_future(future)
    disconnected = (
        asyncio.ensure_future(_wait_for_disconnect(request))
        if request and ROUTE_PREFIX in request.scope["path"]
        else None
    )
    try:
        pending: set[asyncio.Future[Any]] = {result, disconnected} if disconnected else {result}
        await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        if timeout_s is None:
            return {"error": "the client has disconnected; send the request again"}
        timeout_response = retryable(
            f"no answer within {timeout_s:g} s; the machine is busy, try again"
        )
        # the client decides whether to wait for minutes again
        return (
            timeout_response
            if timeout_s <= RESPONSE_TIMEOUT_S
            else {"error": timeout_response["error"]}
        )
    finally:
        result.cancel()
        if disconnected:
            disconnected.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected.

    The request body must have been read.
    """
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    except Exception:  # there is no connection, or a limit has closed it
        await asyncio.get_running_loop().create_future()


HANDLERS = {
    "runs/poll": poll_model,
    "runs/snapshot": snapshot,
    "runs/predict": predict,
    "runs/curves": overlay_curves,
    "runs/list": list_runs,
    "runs/action": run_action,
    "runs/details": run_details,
}


def live_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handlers of the live view, by route name."""

    def bind(handler: Callable[..., Awaitable[dict[str, Any]]]) -> Handler:
        return lambda what, http: handler(registry, what, http)

    return {name: bind(handler) for name, handler in HANDLERS.items()}
