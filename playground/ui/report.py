"""Serve the report of a model (plots/report.py), written in a separate process, one at a time."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from starlette.requests import Request

from playground.runs.eyes import resolve
from playground.runs.processes import Child, describe_end
from playground.runs.registry import Registry
from playground.runs.run import Refused, Run

from .asked import Answerer
from .limits import FairPlaces
from .live import answer_of
from .subject import checkpoint_folder, run_on_show

WRITTEN_WITHIN = 100  # seconds
MAX_WAITING = 4  # queued reports


def report_answerers(registry: Registry) -> dict[str, Answerer]:
    """Return the handler of the Share dialog.

    It responds with {"html": file content, "name": file name} or {"error": message}.
    """
    writing = FairPlaces(1, MAX_WAITING)  # each takes some seconds of one core

    async def report(what: object, request: Request | None) -> dict[str, Any]:
        run, own = run_on_show(registry, what)
        found = await asyncio.to_thread(run.checkpoints) if run else []
        folder = found[0][0] if found else None if run else checkpoint_folder(registry, what)
        if folder is None:
            why = "this run has no checkpoint yet; pause it, or wait for the first one"
            return {
                "error": why
                if run
                else "this model is not on this server, or not yours; select another one"
            }
        name = run.name if run else folder.name
        try:
            told = await write(run, own, folder, name, request)
        except Refused as error:
            return {"error": str(error), "again": True}
        return (
            told
            if "error" in told
            else told
            | {"name": f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-') or 'model'}-report.html"}
        )

    async def write(
        run: Run | None, own: bool, folder: Path, name: str, request: Request | None
    ) -> dict[str, Any]:
        async with writing.one():
            future = Future[dict[str, Any]]()
            child = Child(
                "playground.plots.report:work",
                "report",
                str(folder),
                str(run.folder) if run else "",
                name,
                bool(run) and not own,
                on_message=lambda answer: resolve(future, answer),
                on_end=lambda code: resolve(
                    future,
                    {"error": f"{describe_end('the process that writes it', code)}; try again"},
                ),
            )
            try:
                return await answer_of(future, WRITTEN_WITHIN, request)
            finally:
                child.kill()

    return {"report": report}
