"""One process that looks into checkpoints for everybody, so that the page's process needs no torch and no visitor waits
for another's training.

Requests go in as (number, "view" or "ask", folder, text), answers come back as (number, dict).
"""

from __future__ import annotations

import signal
from collections import OrderedDict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from playground.families.family import Family
from playground.tasks import load_task
from playground.training.checkpoint import load_model, read_metrics
from playground.training.manifest import CheckpointError, Manifest

from .view import View

KEPT = 8  # models kept loaded


class Opened:
    """A checkpoint's model with what is needed to look at it."""

    def __init__(self, folder: Path) -> None:
        self.manifest: Manifest
        self.family: Family
        self.manifest, self.family = load_model(folder)
        config = self.manifest.config
        self.view = View(load_task(config.task.task, config.task.symbols), config, torch.device("cpu"))


class Inspector:
    def __init__(self) -> None:
        self._opened: OrderedDict[tuple[str, int], Opened] = OrderedDict()

    def handle(self, kind: str, folder: str, text: str) -> dict[str, Any]:
        """The answer to one request; problems with the checkpoint or the text come back as `error`."""
        try:
            opened = self._open(Path(folder))
            if kind == "ask":
                return opened.view.answer(opened.family, text)
            return {
                "stage": opened.view.stage(opened.family),
                "snapshot": opened.view.snapshot(opened.family, opened.manifest.step),
                "points": read_metrics(Path(folder)),
            }
        except (CheckpointError, OSError) as error:
            return {"error": str(error)}

    def _open(self, folder: Path) -> Opened:
        path = folder / "config.json"
        key = (str(folder), path.stat().st_mtime_ns if path.is_file() else 0)
        if key not in self._opened:
            self._opened[key] = Opened(folder)
        self._opened.move_to_end(key)
        while len(self._opened) > KEPT:
            self._opened.popitem(last=False)
        return self._opened[key]


def inspect(pipe: Connection) -> None:
    """The entry of the inspector's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    inspector = Inspector()
    while True:
        try:
            number, kind, folder, text = pipe.recv()
            pipe.send((number, inspector.handle(kind, folder, text)))
        except (EOFError, OSError):
            return
