"""Parse the model reference of a request.

A reference is `run:ID` for the owner of a run, `watch:ID` for viewers with a share link, or
`checkpoint:NAME` for all users. Requests are untrusted input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.runs.inspection_queue import VIEWER, Client
from playground.runs.registry import Registry
from playground.runs.run import Run, cached_manifest, fingerprint
from playground.tasks import ROWS
from playground.training.config import RunConfig

from .limits import client_of

RUN, WATCH, CHECKPOINT = "run:", "watch:", "checkpoint:"


def whole(value: object, least: int = 0) -> int:
    """Return an untrusted value as a count, or `least` if it is invalid."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31
        else least
    )


def run_on_show(registry: Registry, request: object) -> tuple[Run | None, bool]:
    """Return the run of a request, and whether the caller owns it."""
    request = request if isinstance(request, dict) else {}
    subject, owner = request.get("subject"), request.get("owner")
    if isinstance(subject, str) and subject.startswith(RUN) and isinstance(owner, str):
        return registry.find(subject.removeprefix(RUN), owner), True
    if isinstance(subject, str) and subject.startswith(WATCH):
        return registry.find_watched(subject.removeprefix(WATCH)), False
    return None, False


def checkpoint_folder(registry: Registry, request: object) -> Path | None:
    """Return the folder of `checkpoint:NAME`, or None for an unknown name."""
    subject = request.get("subject") if isinstance(request, dict) else None
    if not isinstance(subject, str) or not subject.startswith(CHECKPOINT):
        return None
    return registry.checkpoints().get(subject.removeprefix(CHECKPOINT))


def public_fields(config: RunConfig, own: bool) -> dict[str, Any]:
    """Return settings by name as a page may show them.

    The name of a dataset is left out for all but its owner: whoever has it can use and publish the
    rows.
    """
    fields = config.to_fields()
    if not own and config.task.task == ROWS:
        del fields["rows"]
    return fields


def config_on_show(registry: Registry, request: object) -> RunConfig:
    """Return the settings of a subject, for training with them.

    Raises:
        ValueError: when there is no such model, or it is made of a dataset of another owner.
    """
    run, own = run_on_show(registry, request)
    folder = None if run else checkpoint_folder(registry, request)
    if run is None and folder is None:
        raise ValueError("this model is not on this server, or not yours; select another one above")
    config = run.config if run else cached_manifest(folder).config  # type: ignore[arg-type]
    if run and not own and config.task.task == ROWS:
        raise ValueError("this run uses a private dataset; only its owner may train on it")
    return config


def client_on_show(request: object, own: bool, http: Request | None) -> Client:
    """Return the client that a request to a process counts for.

    A viewer of a shared run has a quota apart from the run's owner, also at the same address.
    """
    owner = request.get("owner") if isinstance(request, dict) else None
    is_viewer = not own and str(
        request.get("subject") if isinstance(request, dict) else ""
    ).startswith(WATCH)
    name = VIEWER if is_viewer else fingerprint(owner) if isinstance(owner, str) and owner else ""
    return Client(client_of(http) if http else "", name)
