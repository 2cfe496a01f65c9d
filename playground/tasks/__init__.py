"""Floor 0: what is learned. Vocabulary, Batch, Task, the held-out set; importing this alone loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .about import TASKS, About
from .vocabulary import EOS, PAD, SOS, UnknownSymbol, Vocabulary

if TYPE_CHECKING:
    from .task import Task

ROWS = "rows"  # the task of rows that somebody brought: rows.py reads them, lookup.py is the task


def load_task(name: str, symbols: int = 10) -> Task:
    """The task registered under `name`, over the first `symbols` symbols of 0-9 a-z A-Z."""
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; choose one of {', '.join(TASKS)}")
    module, attribute = TASKS[name].origin.split(":")
    return getattr(import_module(module), attribute)(symbols)


__all__ = [
    "EOS",
    "PAD",
    "ROWS",
    "SOS",
    "TASKS",
    "About",
    "UnknownSymbol",
    "Vocabulary",
    "load_task",
]
