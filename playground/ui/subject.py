"""What is on show, as a page names it: `run:ID` to the run's owner, `watch:ID` to those who have the link to watch it,
`checkpoint:NAME` to everybody. What a page sends comes from anybody's browser and is read with care."""

from __future__ import annotations

from pathlib import Path

from playground.runs.registry import Registry
from playground.runs.run import Run

RUN, WATCH, CHECKPOINT = "run:", "watch:", "checkpoint:"


def whole(value: object, least: int = 0) -> int:
    """A count from a page, which may send anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31 else least


def run_on_show(registry: Registry, request: object) -> tuple[Run | None, bool]:
    """The run that a request is about, and whether whoever asks owns it."""
    request = request if isinstance(request, dict) else {}
    subject, owner = request.get("subject"), request.get("owner")
    if isinstance(subject, str) and subject.startswith(RUN) and isinstance(owner, str):
        return registry.find(subject.removeprefix(RUN), owner), True
    if isinstance(subject, str) and subject.startswith(WATCH):
        return registry.find_watched(subject.removeprefix(WATCH)), False
    return None, False


def checkpoint_folder(registry: Registry, request: object) -> Path | None:
    """The folder that `checkpoint:NAME` means, if NAME is one of those on offer."""
    subject = request.get("subject") if isinstance(request, dict) else None
    if not isinstance(subject, str) or not subject.startswith(CHECKPOINT):
        return None
    return registry.checkpoints().get(subject.removeprefix(CHECKPOINT))
