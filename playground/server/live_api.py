"""Serve the live view of one model (ui/static/train).

The page polls; the server holds no connection and no state of a page.
"""

import asyncio
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.checkpoints.manifest import Manifest, read_manifest
from playground.errors import UserError
from playground.runs.metric_series import MetricSeries
from playground.runs.model_ref import resolve_checkpoint, resolve_run
from playground.runs.registry import Registry
from playground.runs.replay import load_replay
from playground.runs.state import Run
from playground.runs.weight_history import nearest_step, read_lines

from .client import resolve_client
from .process_calls import await_result
from .routes import Handler, bind_handlers, handler
from .runs_api import list_runs, run_action, run_details
from .schemas.runs import Curves, ModelAtStep, PollModel, Predict

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


@handler("runs/poll", PollModel)
async def poll_model(
    registry: Registry, request: PollModel, http_request: Request | None
) -> dict[str, Any]:
    """Return what changed since the points and the snapshot that the page has."""
    run, is_owner = resolve_run(registry, request)
    client = resolve_client(request, is_owner, http_request)
    if run:
        await _read_from_disk(run)
        page_state = (request.n_points, request.series_id, request.snapshot_version)
        return registry.poll(run, *page_state, client, request.changes) | {"is_owner": is_owner}
    folder = await asyncio.to_thread(resolve_checkpoint, registry, request)
    if folder is None:
        return NOT_FOUND_RESPONSE
    try:
        snapshot_fields = await await_result(
            registry.snapshots.inspector.request("snapshot", folder, client=client),
            request=http_request,
        )
        manifest, points, recorded_steps = await asyncio.to_thread(_read_checkpoint, folder)
    except (UserError, OSError) as error:
        return NOT_FOUND_RESPONSE | {
            "message": str(error),
            "retryable": getattr(error, "retryable", False),
        }
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


def _read_checkpoint(folder: Path) -> tuple[Manifest, MetricSeries, list[int]]:
    modified_ns = (folder / "config.json").stat().st_mtime_ns
    points = load_metric_series(folder, modified_ns)
    return read_manifest(folder), points, list(load_replay(folder))


@lru_cache(maxsize=32)
def load_metric_series(folder: Path, modified_ns: int) -> MetricSeries:
    """Return the points of a checkpoint; `modified_ns` keys the cache."""
    try:
        return MetricSeries(read_lines(folder))
    except ValueError:  # other lines: the checkpoint opens without curves
        return MetricSeries()


@handler("runs/snapshot", ModelAtStep)
async def snapshot(
    registry: Registry, request: ModelAtStep, http_request: Request | None
) -> dict[str, Any]:
    """Return the snapshot of a run, or of a recorded checkpoint, at an earlier step."""
    run, is_owner = resolve_run(registry, request)
    if run is None:
        return await asyncio.to_thread(_recorded_snapshot, registry, request)
    await _read_from_disk(run)
    client = resolve_client(request, is_owner, http_request)
    return await await_result(
        registry.snapshots.snapshot_at(run, request.step or 0, client), request=http_request
    )


def _recorded_snapshot(registry: Registry, request: ModelAtStep) -> dict[str, Any]:
    """Return the recorded snapshot of a checkpoint that is nearest to a step."""
    folder = resolve_checkpoint(registry, request)
    if folder is None:
        raise UserError("this run is no longer on the server")
    replay = load_replay(folder)
    nearest = nearest_step(list(replay), request.step or 0)
    if nearest is None:
        raise UserError("this checkpoint has no history")
    return {"snapshot": replay[nearest]}


@handler("runs/predict", Predict)
async def predict(
    registry: Registry, request: Predict, http_request: Request | None
) -> dict[str, Any]:
    """Return the prediction for a typed sequence, now or at an earlier step."""
    run, is_owner = resolve_run(registry, request)
    client = resolve_client(request, is_owner, http_request)
    if run:
        await _read_from_disk(run)
        future = registry.snapshots.predict(run, request.text, request.step, client)
    else:
        folder = await asyncio.to_thread(resolve_checkpoint, registry, request)
        if folder is None:
            raise UserError("no model is open; train one, or choose a checkpoint above")
        # A replay has no weights, so the prediction is that of the last step, which `step` names.
        future = registry.snapshots.inspector.request(
            "predict", folder, request.text, client=client
        )
    response = await await_result(future, request=http_request)
    if not request.with_forward_pass:
        response.pop("forward_pass", None)
    return response


@handler("runs/curves", Curves)
def overlay_curves(registry: Registry, request: Curves) -> dict[str, Any]:
    """Return the curves of other runs, to overlay on a chart."""
    curves = []
    for ref in request.refs():
        run, _ = resolve_run(registry, ref)
        if run:
            metadata = {
                "subject": ref.subject,
                "name": run.name,
                "status": run.status,
                "steps_in_all": run.steps,
            }
            curves.append(run.load_points().downsampled(MAX_CURVE_POINTS) | metadata)
    return {"curves": curves}


def live_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handlers of the live view, by route name."""
    return bind_handlers(
        registry,
        (poll_model, snapshot, predict, overlay_curves, list_runs, run_action, run_details),
    )
