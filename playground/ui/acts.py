"""What an owner does with their runs, and what the page tells about them. Nothing here takes a link to watch: without the
owner's secret, no run is found. Arguments come from anybody's browser and are read with care."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request

from playground.runs.registry import COMMANDS, Registry
from playground.runs.run import (
    KEPT,
    Refused,
    Run,
    cached_manifest,
    of_family,
    size_of,
    task_in_words,
)
from playground.training.config import RunConfig
from playground.training.files import remove_folder
from playground.training.manifest import CheckpointError, parse_json

from .subject import CHECKPOINT, RUN, checkpoint_folder, public_fields, run_on_show
from .visit import OWNER

LONGEST_TEXT = 400
LONGEST_SETTINGS = 40_000  # characters; the vocabulary of rows may have half of them


async def rows(registry: Registry, request: object, http: Request | None = None) -> dict[str, Any]:
    """The owner's runs, and the checkpoints that everybody may open."""
    owner = request.get("owner") if isinstance(request, dict) else None
    return await asyncio.to_thread(
        _rows, registry, owner if isinstance(owner, str) and OWNER.fullmatch(owner) else ""
    )


def _rows(registry: Registry, owner: str) -> dict[str, Any]:
    shown = []
    for name, folder in registry.checkpoints().items():
        try:
            manifest = cached_manifest(folder)
            shown.append({
                "subject": CHECKPOINT + name, "name": name, "about": describe(manifest.config), "task": task_in_words(manifest.config),
                "parameters": manifest.config.model.parameter_count(),
                "best": manifest.scores["exact_match"] if manifest.scores else None,
            })  # fmt: skip
        except (CheckpointError, OSError):
            continue  # a folder in the making or a broken one: opening it by name says what is wrong
    mine, room = (registry.rows(owner), registry.room.told(owner)) if owner else ([], "")
    told = {
        "runs": mine,
        "room": room,
        "checkpoints": shown,
        "now": time.time(),
        "slots": registry.slots,
    }
    return told | {"device": registry.device_line, "note": registry.home_note}


async def act(registry: Registry, request: object, http: Request | None = None) -> dict[str, Any]:
    """Carry out what the owner wants of one of their runs. The answer may name a `subject` to go to, or an `error`."""
    request = request if isinstance(request, dict) else {}
    run, own = run_on_show(registry, request)
    if run is None or not own:
        return {"error": "this run is not yours, or no longer on the server"}
    try:
        return await asyncio.to_thread(_act, registry, run, request) or {}
    except (Refused, ValueError, OSError) as error:
        return {"error": str(error)}


def _act(registry: Registry, run: Run, request: dict[str, Any]) -> dict[str, Any] | None:
    do, owner = request.get("do"), request["owner"]
    if do in COMMANDS:
        registry.control(run, do)
    elif do == "change":
        registry.change(run, _text(request.get("setting")), request.get("value"))
    elif do == "extend":
        registry.check_may_train(run)
        registry.change(run, "steps", min(1_000_000, run.step + run.config.training.steps))
        if run.config.training.until:
            registry.change(run, "until", 0.0)  # it was reached
        registry.control(run, "resume")
    elif do == "rename":
        registry.edit(run, name=_text(request.get("name")))
    elif do in ("hide", "show"):
        registry.edit(run, hidden=do == "hide")
    elif do == "delete":
        registry.delete(run)
    elif do == "undelete":
        registry.undelete(run)
    elif do == "again":
        return {"subject": RUN + registry.again(run, owner).id}
    elif do == "branch":
        step = request.get("step")
        if type(step) is not int:
            raise Refused("say from which step the new run is to go on")
        return {"subject": RUN + registry.branch(run, step, owner).id}
    elif do in ("download", "remove"):
        return _with_checkpoint(registry, run, _text(request.get("checkpoint")), do)
    else:
        raise Refused(f"{str(do)[:40]!r} is nothing that can be done with a run")
    return None


def _with_checkpoint(registry: Registry, run: Run, name: str, do: str) -> dict[str, Any]:
    found = {path.name: path for path, _ in run.checkpoints()}
    if name not in found:
        raise Refused("this checkpoint is no longer there")
    if do == "download":
        return {"ticket": registry.tickets.issue(found[name], run)}
    if len(found) == 1:
        raise Refused(
            "this is the run's only checkpoint, and without it the run could not go on; delete the run instead"
        )
    remove_folder(found[name])
    run.saved, run.size = run.saved + 1, None
    return {}


async def details(
    registry: Registry, request: object, http: Request | None = None
) -> dict[str, Any]:
    """All there is to know of a subject's settings; for its owner also its checkpoints and the link to watch it."""
    run, own = run_on_show(registry, request)
    if run is None:
        folder = checkpoint_folder(registry, request)
        try:
            return (
                {"settings": settings_of(cached_manifest(folder).config)}
                if folder
                else {"error": "this model is no longer there"}
            )
        except (CheckpointError, OSError) as error:
            return {"error": str(error)}
    told: dict[str, Any] = {
        "settings": settings_of(run.config, own),
        "changes": [change.to_list() for change in run.changes],
    }
    told |= {
        "name": run.name,
        "created": run.created,
        "origin": run.origin[1] if run.origin else None,
    }
    if own:
        told |= {"watch": run.watch_id, "checkpoints": await asyncio.to_thread(checkpoints_of, run)}
    return told


def checkpoints_of(run: Run) -> list[dict[str, Any]]:
    """A run's checkpoints as rows, newest first."""
    listed = []
    for path, manifest in run.checkpoints():
        try:
            listed.append({
                "name": path.name, "step": manifest.step, "bytes": size_of(path), "written": (path / "config.json").stat().st_mtime,
                "exact_match": manifest.scores["exact_match"] if manifest.scores else run.score_at(manifest.step),
                "kept": path.name.endswith(KEPT), "resumable": (path / "training.safetensors").is_file(),
            })  # fmt: skip
        except OSError:
            continue  # replaced by a newer one just now
    return listed


def settings_of(config: RunConfig, own: bool = True) -> dict[str, Any]:
    """A run's settings by name, as its owner or somebody else may see them, without those that follow from the others."""
    fields = public_fields(config, own)
    fitted = ("source_vocabulary", "target_vocabulary", "max_positions")
    return {name: value for name, value in fields.items() if name not in fitted}


def settings_from(text: str) -> RunConfig:
    """The run that a link or a JSON text describes.

    Raises:
        ValueError: for anything else.
    """
    try:
        content = (
            parse_json(text.encode("utf-8", "replace")) if len(text) < LONGEST_SETTINGS else None
        )
    except ValueError as error:
        raise ValueError("they are no JSON; copy the whole of them") from error
    if not isinstance(content, dict):
        raise ValueError("these are no settings: a JSON object of names and values is expected")
    try:
        return RunConfig.from_fields(content)
    except TypeError:  # a list where a name belongs
        raise ValueError(
            "these are no settings: values must be numbers, texts, true or false"
        ) from None


def describe(config: RunConfig) -> str:
    """A run in a few words: task, lengths and shape."""
    model = config.model
    return f"{task_in_words(config)}{of_family(config)}, {_count(model.n_layers, 'layer')} × {_count(model.n_heads, 'head')}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise Refused(f"a text of at most {LONGEST_TEXT} characters is expected")
    return value
