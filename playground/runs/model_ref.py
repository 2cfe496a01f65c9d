"""Parse the model reference of a request.

A reference is `run:ID` for the owner of a run, `watch:ID` for viewers with a share link, or
`checkpoint:NAME` for all users. Requests are untrusted input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playground.checkpoints.manifest import cached_manifest
from playground.tasks import LOOKUP
from playground.training.config import RunConfig

from .registry import Registry
from .state import Run

RUN_PREFIX, SHARE_PREFIX, CHECKPOINT_PREFIX = "run:", "watch:", "checkpoint:"


def non_negative_int(value: object, minimum: int = 0) -> int:
    """Return an untrusted value as a count, or `minimum` if it is invalid."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 2**31
        else minimum
    )


def resolve_run(registry: Registry, payload: object) -> tuple[Run | None, bool]:
    """Return the run of a request, and whether the caller owns it."""
    payload = payload if isinstance(payload, dict) else {}
    model_ref, owner = payload.get("subject"), payload.get("owner")
    if isinstance(model_ref, str) and model_ref.startswith(RUN_PREFIX) and isinstance(owner, str):
        return registry.find(model_ref.removeprefix(RUN_PREFIX), owner), True
    if isinstance(model_ref, str) and model_ref.startswith(SHARE_PREFIX):
        return registry.find_shared(model_ref.removeprefix(SHARE_PREFIX)), False
    return None, False


def resolve_checkpoint(registry: Registry, payload: object) -> Path | None:
    """Return the folder of `checkpoint:NAME`, or None for an unknown name."""
    model_ref = payload.get("subject") if isinstance(payload, dict) else None
    if not isinstance(model_ref, str) or not model_ref.startswith(CHECKPOINT_PREFIX):
        return None
    return registry.storage.list_checkpoints().get(model_ref.removeprefix(CHECKPOINT_PREFIX))


def public_fields(config: RunConfig, is_owner: bool) -> dict[str, Any]:
    """Return settings by name for display.

    Only the owner gets the name of a dataset, because the name is enough to use and publish it.
    """
    fields = config.to_flat()
    if not is_owner and config.task.task == LOOKUP:
        del fields["dataset_sha256"]
    return fields


def resolve_config(registry: Registry, payload: object) -> RunConfig:
    """Return the settings of a subject, for training with them.

    Raises:
        ValueError: when there is no such model, or it is made of a dataset of another owner.
    """
    run, is_owner = resolve_run(registry, payload)
    folder = None if run else resolve_checkpoint(registry, payload)
    if run is None and folder is None:
        raise ValueError("this model is not on this server, or not yours; select another one above")
    config = run.config if run else cached_manifest(folder).config  # type: ignore[arg-type]
    if run and not is_owner and config.task.task == LOOKUP:
        raise ValueError("this run uses a private dataset; only its owner may train on it")
    return config
