"""Serve the run list, the actions of an owner on their runs, and damaged records.

A share link gives access to the settings of a run. All else requires the owner key. The owner of a
local instance gets all damaged records; others get those in which their fingerprint is legible.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict

from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import Manifest, cached_manifest, training_command
from playground.checkpoints.metrics import read_metrics
from playground.common.atomic_write import remove_dir
from playground.common.format import format_count, format_duration, format_percent
from playground.common.storage import directory_size, file_version
from playground.errors import UserError, error_text
from playground.experiments.results import first_step_reaching
from playground.experiments.service import ExperimentService
from playground.runs.access import (
    CHECKPOINT_PREFIX,
    RUN_PREFIX,
    Access,
    ModelRef,
    Right,
    is_single_owner,
)
from playground.runs.commands import COMMANDS
from playground.runs.metric_series import MetricSeries
from playground.runs.record import owner_id
from playground.runs.registry import MAX_STEPS, Registry
from playground.runs.state import Run
from playground.runs.storage_folder import Damaged, describe_damage
from playground.runs.summary import architecture_suffix, task_label
from playground.runs.worker_protocol import PINNED_SUFFIX
from playground.training.run_config import RunConfig, describe_optimizer_groups

from .routes import HandlerGroup, handler
from .schemas.base import (
    Index,
    Name,
    OptionalOwner,
    OwnerRequest,
    RequestBody,
    ShortText,
)
from .schemas.responses import DamagedRecord, Done, ModelChange, RunDetails, RunList

RunAction = Literal[
    "pause",
    "resume",
    "step",
    "stop",
    "save",
    "change",
    "extend",
    "rename",
    "share",
    "delete",
    "undelete",
    "rerun",
    "branch",
    "download",
    "remove",
]
CHECKPOINT_MISSING = "this checkpoint is no longer on the server; select another one"


class ListRuns(RequestBody):
    """The owner whose runs are requested; without a key, the response lists only checkpoints."""

    owner: OptionalOwner = ""


class ActOnRun(ModelRef):
    """An action of the owner on a run."""

    action: RunAction
    setting: ShortText | None = None
    value: Any = None
    name: ShortText | None = None
    viewers_may_use: bool | None = None
    step: Index | None = None
    checkpoint: ShortText | None = None


@handler("runs/list", ListRuns, RunList)
def list_runs(registry: Registry, request: ListRuns) -> dict[str, Any]:
    owner, checkpoints = request.owner, []
    for name, folder in registry.storage.list_checkpoints().items():
        try:
            manifest = cached_manifest(folder)
            checkpoints.append(
                {
                    "subject": CHECKPOINT_PREFIX + name,
                    "name": name,
                    "about": describe_config(manifest.config),
                    "task": task_label(manifest.config),
                    "parameters": parameter_count(manifest.config.model),
                    "best": manifest.scores["exact_match"] if manifest.scores else None,
                }
            )
        except (ValueError, OSError):  # `damaged/list` has it
            continue
    runs, storage_message = (
        (registry.summaries(owner), registry.storage_quota.eviction_message(owner))
        if owner
        else ([], "")
    )
    response = {
        "runs": runs,
        "storage_message": storage_message,
        "checkpoints": checkpoints,
        "now": time.time(),
        "slots": registry.settings.slots,
    }
    return response | {"device": registry.device_summary, "note": registry.storage_note}


@handler("runs/action", ActOnRun, ModelChange, Right.OWN)
def run_action(registry: Registry, request: ActOnRun, model: Access) -> dict[str, Any]:
    """Apply an action; the response may name the `subject` that the page opens next."""
    run = model.run
    if run is None:
        raise UserError("this is a checkpoint, which has no actions; select a run")
    if request.action in COMMANDS:
        registry.control(run, request.action)
        return {}
    return ACTIONS[request.action](registry, run, request) or {}


def _extend(registry: Registry, run: Run, request: ActOnRun) -> None:
    """Resume a finished run, with `max_steps` more steps."""
    registry.commands.ensure_trainable(run)
    if run.step >= MAX_STEPS:
        raise UserError(f"the run has {MAX_STEPS:,} steps, which is the maximum; start a new run")
    max_steps = min(MAX_STEPS, run.step + run.config.training.max_steps)
    registry.change_setting(run, "max_steps", max_steps)
    if run.config.training.stop_at_exact_match:  # otherwise the run stops again at once
        registry.change_setting(run, "stop_at_exact_match", 0.0)
    registry.control(run, "resume")


def _rerun(registry: Registry, run: Run, request: ActOnRun) -> dict[str, Any]:
    return {"subject": RUN_PREFIX + registry.rerun(run, request.owner).id}


def _branch(registry: Registry, run: Run, request: ActOnRun) -> dict[str, Any]:
    return {"subject": RUN_PREFIX + registry.branch(run, request.step or 0, request.owner).id}


def _download(registry: Registry, run: Run, request: ActOnRun) -> dict[str, Any]:
    for path, _ in run.checkpoints():
        if path.name == request.checkpoint:
            return {"ticket": registry.download_tokens.issue(path, run)}
    raise UserError(CHECKPOINT_MISSING)


def _remove_checkpoint(registry: Registry, run: Run, request: ActOnRun) -> None:
    path = next((p for p in run.checkpoint_folders() if p.name == request.checkpoint), None)
    if path is None:
        raise UserError(CHECKPOINT_MISSING)
    if [path] == [readable for readable, _ in run.checkpoints()]:
        raise UserError(
            "this is the only checkpoint of the run, which cannot resume without it; delete the "
            "run instead"
        )
    remove_dir(path)
    run.count_checkpoint_change()


# By action: its handler.
ACTIONS: dict[str, Callable[[Registry, Run, ActOnRun], dict[str, Any] | None]] = {
    "change": lambda registry, run, request: registry.change_setting(
        run, request.setting or "", request.value
    ),
    "extend": _extend,
    "rename": lambda registry, run, request: registry.update_metadata(run, name=request.name),
    "share": lambda registry, run, request: registry.update_metadata(
        run, viewers_may_use=request.viewers_may_use
    ),
    "delete": lambda registry, run, request: registry.delete(run),
    "undelete": lambda registry, run, request: registry.restore(run),
    "rerun": _rerun,
    "branch": _branch,
    "download": _download,
    "remove": _remove_checkpoint,
}


@handler("runs/details", ModelRef, RunDetails, Right.WATCH)
def run_details(registry: Registry, request: ModelRef, model: Access) -> dict[str, Any]:
    """Return the settings of a model; for its owner also the checkpoints and the share link."""
    response: dict[str, Any] = {
        "settings": displayed_settings(model),
        "optimizer_groups": describe_optimizer_groups(model.config),
        "result": describe_result(model),
        "command": find_command(model),
    }
    if (run := model.run) is None:
        return response
    response |= {
        "changes": [change.to_list() for change in run.changes],
        "name": model.name,
        "created": run.created,
        "branched_from": run.branched_from[1] if run.branched_from else None,
    }
    if model.right == Right.OWN:
        response |= {
            "share_id": run.share_id,
            "viewers_may_use": run.record.may_viewers_use,
            "checkpoints": list_run_checkpoints(run),
            "damaged": list_damaged_checkpoints(run),
        }
    return response


def list_run_checkpoints(run: Run) -> list[dict[str, Any]]:
    """Return the data of each checkpoint of a run, newest first."""
    summaries = []
    for path, manifest in run.checkpoints():
        try:
            summaries.append(
                {
                    "name": path.name,
                    "step": manifest.step,
                    "bytes": directory_size(path),
                    "written": (path / "config.json").stat().st_mtime,
                    "exact_match": manifest.scores["exact_match"]
                    if manifest.scores
                    else run.score_at(manifest.step),
                    "is_pinned": path.name.endswith(PINNED_SUFFIX),
                    "resumable": (path / "training.safetensors").is_file(),
                }
            )
        except OSError:
            continue  # A newer checkpoint has replaced it.
    return summaries


def list_damaged_checkpoints(run: Run) -> list[dict[str, Any]]:
    """Return the name, the size and the reason of each checkpoint that cannot be read."""
    damaged = []
    for path in run.checkpoint_folders():
        try:
            cached_manifest(path)
        except (ValueError, OSError) as error:
            row = {"kind": "checkpoint", "name": path.name, "reason": error_text(error)}
            damaged.append(row | {"bytes": directory_size(path)})
    return damaged


def displayed_settings(model: Access) -> dict[str, Any]:
    """Return the settings of a model by name, without derived ones."""
    derived = ("source_vocab_size", "target_vocab_size", "max_positions")
    return {name: value for name, value in model.settings().items() if name not in derived}


@lru_cache(maxsize=32)
def load_metric_series(folder: Path, version: tuple[int, ...]) -> MetricSeries:
    """Return the points of a checkpoint; `version` of its config.json keys the cache."""
    try:
        return MetricSeries(read_metrics(folder))
    except ValueError:  # other lines: the checkpoint opens without curves
        return MetricSeries()


def load_points(model: Access) -> MetricSeries:
    """Return the points of a run or a checkpoint. It reads the disk."""
    if model.run:
        return model.run.load_points()
    return load_metric_series(model.folder, file_version(model.folder / "config.json"))


def describe_result(model: Access) -> str:
    """Describe in one sentence what a model learned; empty before its first score."""
    points = load_points(model)
    scores = model.run.record.scores if model.run else cached_manifest(model.folder).scores
    if scores:
        score, count = scores["exact_match"], scores["n"]
    elif points.evaluations:
        _, score, _, count, _ = points.evaluations[-1]
    else:
        return ""
    task = task_label(model.config)
    start = f"{task} after {format_count(points.last, 'step')}"
    step = first_step_reaching([(step, exact) for step, exact, *_ in points.evaluations])
    if step is not None:
        seconds = points.columns["seconds"][step - points.first]
        start = f"Learned {task} in {format_count(step, 'step')}, {format_duration(seconds)}"
    unseen = format_count(count, "unseen sequence")
    return f"{start}: {format_percent(score)} of {unseen} right"


def find_command(model: Access) -> str | None:
    """Return the command that trains a model again, if there is one."""
    if run := model.run:
        config = run.config
        return training_command(Manifest(config, run.steps, 0.0, config.training.device))
    return training_command(cached_manifest(model.folder))


def describe_config(config: RunConfig) -> str:
    """Describe a run briefly: task, lengths and shape."""
    model = config.model
    layers = format_count(model.n_layers, "layer")
    heads = format_count(model.attention_heads, "head")
    return f"{task_label(config)}{architecture_suffix(config)}, {layers} × {heads}"


class RemoveDamaged(OwnerRequest):
    """A damaged record of the owner."""

    kind: Literal["run", "checkpoint", "experiment"]
    name: Name


class DamagedList(TypedDict):
    damaged: list[DamagedRecord]


class DamagedHandlers(HandlerGroup):
    def __init__(self, registry: Registry, experiments: ExperimentService) -> None:
        self.registry = registry
        self._listed_at_start = {"run": registry.damaged, "experiment": experiments.store.damaged}

    @handler("damaged/list", OwnerRequest, DamagedList)
    def list_damaged(self, request: OwnerRequest) -> dict[str, Any]:
        return {
            "damaged": [
                {"kind": kind, "name": name, "reason": each.reason, "bytes": each.n_bytes}
                for (kind, name), each in self._find(request.owner).items()
            ]
        }

    @handler("damaged/remove", RemoveDamaged, Done)
    def remove(self, request: RemoveDamaged) -> dict[str, Any]:
        damaged = self._find(request.owner).get((request.kind, request.name))
        if damaged is None:
            raise UserError("this record is no longer here, or not yours; reload the page")
        damaged.remove()
        self._listed_at_start.get(request.kind, {}).pop(request.name, None)
        return {}

    def _find(self, owner: str) -> dict[tuple[str, str], Damaged]:
        owns_machine, fingerprint = is_single_owner(self.registry, owner), owner_id(owner)
        kinds = dict(self._listed_at_start)
        if owns_machine:
            kinds["checkpoint"] = self._damaged_checkpoints()
        return {
            (kind, name): each
            for kind, records in kinds.items()
            for name, each in records.copy().items()
            if owns_machine or each.owner == fingerprint
        }

    def _damaged_checkpoints(self) -> dict[str, Damaged]:
        damaged = {}
        for name, folder in self.registry.storage.list_checkpoints().items():
            try:
                cached_manifest(folder)
            except (ValueError, OSError) as error:
                damaged[name] = describe_damage(folder, folder / "config.json", error)
        return damaged
