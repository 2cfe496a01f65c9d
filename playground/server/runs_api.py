"""Serve the run list, and the actions of an owner on their runs.

A share link gives access to the settings of a run. All else requires the owner key.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import cached_manifest
from playground.common.atomic_write import remove_dir
from playground.common.format import format_count
from playground.common.storage import directory_size
from playground.errors import UserError, error_text
from playground.runs.access import CHECKPOINT_PREFIX, RUN_PREFIX, Access, Right
from playground.runs.commands import COMMANDS
from playground.runs.owner_keys import OWNER_KEY_PATTERN
from playground.runs.registry import MAX_STEPS, Registry
from playground.runs.state import Run
from playground.runs.summary import architecture_suffix, task_label
from playground.runs.worker_protocol import PINNED_SUFFIX
from playground.training.run_config import RunConfig

from .results import describe_result, find_command
from .routes import handler
from .schemas.base import ModelRequest
from .schemas.responses import ModelChange, RunDetails, RunList
from .schemas.runs import ActOnRun, ListRuns

CHECKPOINT_MISSING = "this checkpoint is no longer on the server; select another one"


@handler("runs/list", ListRuns, RunList)
def list_runs(registry: Registry, request: ListRuns) -> dict[str, Any]:
    """Return the runs of the owner, and the public checkpoints."""
    owner = request.owner if OWNER_KEY_PATTERN.fullmatch(request.owner) else ""
    checkpoints = []
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
        except (ValueError, OSError):  # damaged_api.py lists it
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
    """Apply an action of the owner to a run.

    The response may contain the `subject` that the page opens next.
    """
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
    return {"ticket": registry.download_tokens.issue(find_checkpoint(run, request.checkpoint), run)}


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


def find_checkpoint(run: Run, name: str | None) -> Path:
    """Return the checkpoint of a run with this name; raise UserError if there is none."""
    for path, _ in run.checkpoints():
        if path.name == name:
            return path
    raise UserError(CHECKPOINT_MISSING)


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


@handler("runs/details", ModelRequest, RunDetails, Right.WATCH)
def run_details(registry: Registry, request: ModelRequest, model: Access) -> dict[str, Any]:
    """Return the settings of a model; for its owner also the checkpoints and the share link."""
    response: dict[str, Any] = {
        "settings": displayed_settings(model),
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


def describe_config(config: RunConfig) -> str:
    """Describe a run briefly: task, lengths and shape."""
    model = config.model
    layers = format_count(model.n_layers, "layer")
    heads = format_count(model.attention_heads, "head")
    return f"{task_label(config)}{architecture_suffix(config)}, {layers} × {heads}"
