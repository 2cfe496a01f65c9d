"""Serve the live view of one model (ui/static/train), and the views of the Inspect tab.

The page polls; the server holds no connection and no state of a page. Separate inspection processes
compute the numbers; this process never does.
"""

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from starlette.requests import Request

from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import Manifest, cached_manifest
from playground.common.storage import file_version
from playground.errors import UserError, error_text
from playground.jobs.admission import Client
from playground.runs.access import (
    CHECKPOINT_PREFIX,
    PRIVATE_EXAMPLES,
    Access,
    ModelRef,
    Right,
    find_access,
)
from playground.runs.metric_series import MetricSeries
from playground.runs.registry import Registry
from playground.runs.replay import load_replay
from playground.runs.state import Run
from playground.runs.weight_history import nearest_step

from . import runs_api
from .client import resolve_client
from .process_calls import RESPONSE_TIMEOUT_S, await_result
from .routes import Handler, bind_handlers, handler
from .runs_api import load_metric_series
from .schemas.base import (
    Index,
    JsonObject,
    Name,
    OptionalOwner,
    RequestBody,
    Sequence,
)
from .schemas.responses import (
    CurveList,
    ModelDescription,
    ModelPoll,
    NotFoundPoll,
    Prediction,
    RunPoll,
    SnapshotAtStep,
)
from .schemas.views import View

SLOW_VIEWS = ("heads", "ablation")
# Views that need less than `Right.USE`: they show no tokens.
RIGHTS_BY_VIEW = {"heads": Right.WATCH}
SLOW_VIEW_TIMEOUT_S = 280  # seconds
MAX_REQUEST_LENGTH = 8000  # characters of the request of a view
MAX_CURVES = 8
Version = Annotated[int, Field(ge=-1, le=2**32 - 1)]  # a checksum; -1: the page has none
MAX_CURVE_POINTS = 400  # points of an overlaid curve
NOT_FOUND_RESPONSE: dict[str, Any] = {
    "status": "not-found",
    "message": "",
    "series_id": 0,
    "points": MetricSeries().delta_since(0),
    "weight_steps": [],
    "step": 0,
}


class PollModel(ModelRef):
    """The data that the page has already; the response contains only newer data."""

    n_points: Index = 0
    series_id: Version = -1
    snapshot_version: Index = 0
    changes: Version = -1


class ModelAtStep(ModelRef):
    """A model; `step` selects an earlier step of a run."""

    step: Index | None = None


class Predict(ModelAtStep):
    """A model and the source sequence of a prediction."""

    text: Sequence
    with_forward_pass: bool = False  # what the diagram draws


class LoadView(ModelAtStep):
    """A view of the Inspect tab; the inspection process validates the options."""

    view: Name
    options: JsonObject = Field(default_factory=dict)
    text: Sequence | None = None


def _filter_subjects(value: object) -> object:
    """Return the first MAX_CURVES different strings of a list."""
    if not isinstance(value, list):
        return value
    return [*dict.fromkeys(each for each in value if isinstance(each, str))][:MAX_CURVES]


class Curves(RequestBody):
    """The models whose curves are requested, at most MAX_CURVES."""

    subjects: Annotated[list[str], BeforeValidator(_filter_subjects)] = Field([])
    owner: OptionalOwner = ""

    @property
    def reads_disk(self) -> bool:
        return any(subject.startswith(CHECKPOINT_PREFIX) for subject in self.subjects)

    def require(self, registry: Registry, right: Right) -> list[tuple[str, Access]]:
        """Return each subject with its model, without those that the requester may not see."""
        refs = [ModelRef(subject=each, owner=self.owner) for each in self.subjects]
        models = [(ref.subject, find_access(registry, ref)) for ref in refs]
        return [(subject, model) for subject, model in models if model and model.right >= right]


@handler(
    "runs/poll",
    PollModel,
    RunPoll | ModelPoll | NotFoundPoll,
    Right.WATCH,
    missing=NOT_FOUND_RESPONSE,
)
async def poll_model(
    registry: Registry, request: PollModel, model: Access, http_request: Request | None
) -> dict[str, Any]:
    """Return what changed since the points and the snapshot that the page has."""
    client = resolve_client(request)
    if run := model.run:
        await _read_from_disk(run)
        page_state = (request.n_points, request.series_id, request.snapshot_version)
        start = time.thread_time()
        response = registry.poll(run, *page_state, client, request.changes)
        if http_request is not None:
            http_request.state.handler_cpu_s = time.thread_time() - start
    else:
        response = await _poll_checkpoint(registry, model, client, http_request)
    return for_right(model.right, response) | {
        "name": model.name,
        "right": model.right.name.lower(),
        "private": PRIVATE_EXAMPLES if model.right < Right.USE else "",
        "is_owner": bool(run) and model.right == Right.OWN,
    }


async def _poll_checkpoint(
    registry: Registry, model: Access, client: Client, http_request: Request | None
) -> dict[str, Any]:
    folder = model.folder
    try:
        snapshot_fields = await await_result(
            registry.snapshots.inspector.request("snapshot", folder, client=client),
            request=http_request,
        )
        manifest, points, recorded_steps, version = await asyncio.to_thread(
            _read_checkpoint, folder
        )
    except (UserError, OSError) as error:
        return NOT_FOUND_RESPONSE | {
            "message": error_text(error),
            "retryable": getattr(error, "retryable", False),
        }
    return snapshot_fields | {
        "status": "checkpoint",
        "message": "",
        "name": folder.name,
        "step": manifest.step,
        "max_steps": manifest.step,
        "parameters": parameter_count(manifest.config.model),
        "device": "",
        "series_id": version,
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


def for_right(right: Right, response: dict[str, Any]) -> dict[str, Any]:
    """Return a poll or a snapshot without what the requester may not see.

    Viewers without the owner's consent get the attention weights with the numbers of positions
    instead of tokens. A message may name a dataset.
    """
    response = dict(response)
    if right < Right.REUSE and response.get("message"):
        response["message"] = "its owner sees the reason"
    if right >= Right.USE:
        return response
    if snapshot := response.get("snapshot"):
        response["snapshot"] = snapshot | {"samples": [], "probe": None}
    if info := response.get("probe_info"):
        axes = {
            kind: [[str(position) for position, _ in enumerate(side, 1)] for side in sides]
            for kind, sides in info["axes"].items()
        }
        hidden = {"source": [], "accepts": "", "default_input": "", "in_browser": False}
        response["probe_info"] = info | hidden | {"axes": axes}
    return response


async def _read_from_disk(run: Run) -> None:
    if run.live.points is None or run.live.weight_steps is None:
        await asyncio.to_thread(lambda: (run.load_points(), run.load_weight_steps()))


def _read_checkpoint(folder: Path) -> tuple[Manifest, MetricSeries, list[int], int]:
    version = file_version(folder / "config.json")
    points = load_metric_series(folder, version)
    return cached_manifest(folder), points, list(load_replay(folder)), hash(version) % 2**31


@handler("runs/snapshot", ModelAtStep, SnapshotAtStep, Right.WATCH)
async def snapshot(
    registry: Registry, request: ModelAtStep, model: Access, http_request: Request | None
) -> dict[str, Any]:
    if (run := model.run) is None:
        return await asyncio.to_thread(_recorded_snapshot, model.folder, request.step or 0)
    await _read_from_disk(run)
    client = resolve_client(request)
    response = await await_result(
        registry.snapshots.request("snapshot", run, step=request.step or 0, client=client),
        request=http_request,
    )
    return for_right(model.right, response)


def _recorded_snapshot(folder: Path, step: int) -> dict[str, Any]:
    replay = load_replay(folder)
    nearest = nearest_step(list(replay), step)
    if nearest is None:
        raise UserError("this checkpoint has no history")
    return {"snapshot": replay[nearest]}


@handler("runs/predict", Predict, Prediction, Right.USE)
async def predict(
    registry: Registry, request: Predict, model: Access, http_request: Request | None
) -> dict[str, Any]:
    """Return the prediction for a typed sequence; a replay has only the last weights."""
    if model.run:
        await _read_from_disk(model.run)
    client = resolve_client(request)
    future = registry.snapshots.request(
        "predict", model.source, request.text, request.step, client=client, right=model.right
    )
    response = await await_result(future, request=http_request)
    if not request.with_forward_pass:
        response.pop("forward_pass", None)
    return response


@handler("runs/model", ModelRef, ModelDescription, Right.USE)
async def describe_model(
    registry: Registry, request: ModelRef, model: Access, http_request: Request | None
) -> dict[str, Any]:
    """Return what the engine needs beside the weights; no examples for viewers of private data."""
    if model.run:
        await _read_from_disk(model.run)
    client = resolve_client(request)
    future = registry.snapshots.request("describe", model.source, client=client, right=model.right)
    return await await_result(future, request=http_request)


@handler(
    "inspect/view", LoadView, View, lambda request: RIGHTS_BY_VIEW.get(request.view, Right.USE)
)
async def load_view(
    registry: Registry, request: LoadView, model: Access, http_request: Request | None
) -> dict[str, Any]:
    text = request.text if model.right >= Right.USE else None
    argument = json.dumps(request.options | {"view": request.view, "text": text}, sort_keys=True)
    if len(argument) > MAX_REQUEST_LENGTH:
        raise UserError("the request is too long; type a shorter sequence")
    is_slow, client = request.view in SLOW_VIEWS, resolve_client(request)
    view = partial(registry.snapshots.request, slow=is_slow, client=client, right=model.right)
    future = await asyncio.to_thread(view, "show", model.source, argument, request.step)
    timeout_s = SLOW_VIEW_TIMEOUT_S if is_slow else RESPONSE_TIMEOUT_S
    return await await_result(future, timeout_s, http_request)


@handler("runs/curves", Curves, CurveList, Right.WATCH)
def overlay_curves(
    registry: Registry, request: Curves, models: list[tuple[str, Access]]
) -> dict[str, Any]:
    return {
        "curves": [
            run.load_points().downsampled(MAX_CURVE_POINTS)
            | {"subject": subject, "name": model.name, "status": run.status, "step": run.step}
            for subject, model in models
            if (run := model.run) and not run.is_deleted
        ]
    }


def live_handlers(registry: Registry) -> dict[str, Handler]:
    """Return the handlers of this module and of runs_api.py, by route name."""
    return bind_handlers(registry, globals() | vars(runs_api))
