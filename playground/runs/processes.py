"""How worker processes start: from a fork server that has torch imported, so that a worker is there in hundredths of a second."""

from __future__ import annotations

import multiprocessing
import threading
from multiprocessing.connection import Connection
from typing import Any

# torch._dynamo is what the first optimizer of a process imports (1.6 s); see benchmarks/RESULTS.md for what warmth buys.
PRELOAD = ["torch", "torch._dynamo", "playground.runs.worker", "playground.runs.inspector"]


def context() -> Any:
    """The start method: a warm fork server where the system has one, else a fresh interpreter (Windows)."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


def warm_up() -> threading.Thread:
    """Start the fork server in the background and let it import torch. Safe to call again."""

    def start() -> None:
        if context().get_start_method() == "forkserver":
            from multiprocessing import forkserver

            context().set_forkserver_preload(PRELOAD)
            forkserver.ensure_running()

    thread = threading.Thread(target=start, name="warm-up", daemon=True)
    thread.start()
    return thread


def start_process(entry: str, name: str, *arguments: Any) -> tuple[Any, Connection]:
    """Start `module:function(pipe, *arguments)` in a process of its own. Returns the process and this end of its pipe."""
    here, there = context().Pipe()
    process = context().Process(target=_enter, args=(entry, there, *arguments), name=name, daemon=True)
    process.start()
    there.close()
    return process, here


def _enter(entry: str, pipe: Connection, *arguments: Any) -> None:
    from importlib import import_module

    module, function = entry.split(":")
    getattr(import_module(module), function)(pipe, *arguments)
