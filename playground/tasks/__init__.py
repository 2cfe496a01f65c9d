"""Tasks to learn: vocabulary, batches, tasks and the held-out set."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .specs import TASKS, TaskSpec
from .vocabulary import EOS, PAD, SOS, UnknownSymbolError, Vocabulary

if TYPE_CHECKING:
    from .task import Task

LOOKUP = "dataset"  # the task of a user's dataset (datasets/lookup_task.py)


def load_task(name: str, n_symbols: int = 10) -> Task:
    """Return the task registered under `name`, with the first `n_symbols` of 0-9 a-z A-Z."""
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; choose one of {', '.join(TASKS)}")
    module, attribute = TASKS[name].class_path.split(":")
    return getattr(import_module(module), attribute)(n_symbols)


__all__ = [
    "EOS",
    "LOOKUP",
    "PAD",
    "SOS",
    "TASKS",
    "TaskSpec",
    "UnknownSymbolError",
    "Vocabulary",
    "load_task",
]
