"""Serve the run list, and the actions of an owner on their runs.

A share link grants nothing here: without the owner key, no run is found. Arguments are untrusted.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request

from playground.checkpoints.manifest import CheckpointError, cached_manifest
from playground.common.atomic_write import remove_dir
from playground.common.storage import directory_size
from playground.errors import UserError
from playground.runs.commands import COMMANDS
from playground.runs.model_ref import (
    CHECKPOINT_PREFIX,
    RUN_PREFIX,
    public_fields,
    resolve_checkpoint,
    resolve_run,
)
from playground.runs.owner_keys import OWNER_KEY_PATTERN
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.summary import architecture_suffix, task_label
from playground.runs.worker_protocol import PINNED_SUFFIX
from playground.training.config import RunConfig

from .routes import respond_with_errors

MAX_TEXT_LENGTH = 400


async def list_runs(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return the runs of the owner, and the public checkpoints."""
    owner = payload.get("owner") if isinstance(payload, dict) else None
    return await asyncio.to_thread(
        _list_runs,
        registry,
        owner if isinstance(owner, str) and OWNER_KEY_PATTERN.fullmatch(owner) else "",
    )


def _list_runs(registry: Registry, owner: str) -> dict[str, Any]:
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
                    "parameters": manifest.config.model.parameter_count(),
                    "best": manifest.scores["exact_match"] if manifest.scores else None,
                }
            )
        except (CheckpointError, OSError):
            # An incomplete or damaged folder: opening it by name reports the error.
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


@respond_with_errors
async def run_action(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Apply an action of the owner to a run.

    The response may have a `subject` to open next, or an `error`.
    """
    payload = payload if isinstance(payload, dict) else {}
    run, is_owner = resolve_run(registry, payload)
    if run is None or not is_owner:
        return {"error": "this run is not yours, or no longer on the server"}
    return await asyncio.to_thread(_run_action, registry, run, payload) or {}


def _run_action(registry: Registry, run: Run, payload: dict[str, Any]) -> dict[str, Any] | None:
    action, owner = payload.get("do"), payload["owner"]
    if action in COMMANDS:
        registry.control(run, action)
    elif action == "change":
        registry.change_setting(run, _validate_text(payload.get("setting")), payload.get("value"))
    elif action == "extend":
        registry.commands.ensure_trainable(run)
        registry.change_setting(
            run, "max_steps", min(1_000_000, run.step + run.config.training.max_steps)
        )
        if run.config.training.stop_at_exact_match:
            registry.change_setting(
                run, "stop_at_exact_match", 0.0
            )  # otherwise the run stops again at once
        registry.control(run, "resume")
    elif action == "rename":
        registry.update_metadata(run, name=_validate_text(payload.get("name")))
    elif action in ("hide", "show"):
        registry.update_metadata(run, hidden=action == "hide")
    elif action == "delete":
        registry.delete(run)
    elif action == "undelete":
        registry.restore(run)
    elif action == "again":
        return {"subject": RUN_PREFIX + registry.rerun(run, owner).id}
    elif action == "branch":
        step = payload.get("step")
        if type(step) is not int:
            raise UserError("choose the step at which the new run starts")
        return {"subject": RUN_PREFIX + registry.branch(run, step, owner).id}
    elif action in ("download", "remove"):
        return _checkpoint_action(registry, run, _validate_text(payload.get("checkpoint")), action)
    else:
        raise UserError(f"{str(action)[:40]!r} is nothing that can be done with a run")
    return None


def _checkpoint_action(registry: Registry, run: Run, name: str, action: str) -> dict[str, Any]:
    path_by_name = {path.name: path for path, _ in run.checkpoints()}
    if name not in path_by_name:
        raise UserError("this checkpoint is no longer there")
    if action == "download":
        return {"ticket": registry.download_tokens.issue(path_by_name[name], run)}
    if len(path_by_name) == 1:
        raise UserError(
            "this is the run's only checkpoint, and without it the run could not go on; delete the "
            "run instead"
        )
    remove_dir(path_by_name[name])
    run.count_checkpoint_change()
    return {}


async def run_details(
    registry: Registry, payload: object, request: Request | None = None
) -> dict[str, Any]:
    """Return all settings of a model; for its owner also checkpoints and share link."""
    run, is_owner = resolve_run(registry, payload)
    if run is None:
        folder = resolve_checkpoint(registry, payload)
        try:
            return (
                {"settings": settings_for_viewer(cached_manifest(folder).config)}
                if folder
                else {"error": "this model is no longer there"}
            )
        except (CheckpointError, OSError) as error:
            return {"error": str(error)}
    response: dict[str, Any] = {
        "settings": settings_for_viewer(run.config, is_owner),
        "changes": [change.to_list() for change in run.changes],
    }
    response |= {
        "name": run.name,
        "created": run.created,
        "branched_from": run.branched_from[1] if run.branched_from else None,
    }
    if is_owner:
        response |= {
            "share_id": run.share_id,
            "checkpoints": await asyncio.to_thread(list_run_checkpoints, run),
        }
    return response


def list_run_checkpoints(run: Run) -> list[dict[str, Any]]:
    """Return the checkpoints of a run as rows, newest first."""
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
            continue  # replaced by a newer one meanwhile
    return summaries


def settings_for_viewer(config: RunConfig, is_owner: bool = True) -> dict[str, Any]:
    """Return the settings of a run by name, without derived ones.

    Only the owner gets the name of a dataset.
    """
    fields = public_fields(config, is_owner)
    derived = ("source_vocab_size", "target_vocab_size", "max_positions")
    return {name: value for name, value in fields.items() if name not in derived}


def describe_config(config: RunConfig) -> str:
    """Describe a run briefly: task, lengths and shape."""
    model = config.model
    return (
        f"{task_label(config)}{architecture_suffix(config)}, {_count(model.n_layers, 'layer')} × "
        f"{_count(model.attention_heads, 'head')}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _validate_text(value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT_LENGTH:
        raise UserError(f"a text of at most {MAX_TEXT_LENGTH} characters is expected")
    return value
