"""Serve the Compare tab: the user's model beside pretrained models and other architectures.

The front end is compare.html, .css and the scripts in this folder. Everything that needs
transformers is a job (comparison/jobs.py) in a process that starts with the first job; the page
polls it. This module loads neither torch nor transformers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.requests import Request

from playground.comparison.jobs import Comparer
from playground.comparison.work import Refused
from playground.runs.registry import Registry
from playground.runs.run import fingerprint
from playground.training.manifest import CheckpointError

from . import same_budget
from .asked import Answerer
from .subject import checkpoint_folder, run_on_show, whole
from .view import view
from .visit import OWNER

SHELL = ("common.js", "elements.js", "paint.js", "matrix.js", "compare.js")
VIEWS = (
    "compare_table.js",
    "compare_families.js",
    "compare_finetune.js",
    "compare_free.js",
    "compare_attention.js",
    "compare_meaning.js",
)
SCRIPTS = (*SHELL, *VIEWS, "compare_begin.js")
STYLES = ("common.css", "compare.css")
LONGEST_REQUEST = 20_000  # characters of a job request
LONGEST_WITH_ROWS = 1_000_000  # characters of a request with a table
BRINGS_ROWS = ("train-classifier",)
# Fields that only the server sets: local folders and the owner of the result.
OURS = ("checkpoint", "into", "owner")
HOSTED_ITEMS = 40  # benchmark examples per request on a shared instance


def compare_view() -> gr.HTML:
    """Return the view. Its value is {"owner": owner key}."""
    return view("compare", STYLES, SCRIPTS)


class ComparePage:
    """Handlers of the tab\'s requests."""

    def __init__(self, registry: Registry, comparer: Comparer) -> None:
        self.registry, self.comparer = registry, comparer

    def answerers(self) -> dict[str, Answerer]:
        return {
            "compare-begin": self.begin,
            "compare-poll": self.poll,
            "compare-cancel": self.cancel,
            "compare-known": self.known,
            "compare-budget": self.budget,
            "compare-train": self.train,
            "compare-curves": self.curves,
        }

    async def begin(self, what: object, _: Request) -> dict[str, Any]:
        """Queue a job; return its id as `job`, or an `error` and whether to try `again`."""
        what = what if isinstance(what, dict) else {}
        try:
            owner, kind = owner_of(what), what.get("kind")
            if not isinstance(kind, str):
                raise Refused("the request names no job type; reload the page and try again")
            asked = await asyncio.to_thread(self._asked, what, kind)
            return {"job": await asyncio.to_thread(self.comparer.begin, kind, asked, owner)}
        except Refused as error:
            return {"error": str(error), "again": error.again}
        except (CheckpointError, OSError) as error:
            return {"error": str(error), "again": True}

    def _asked(self, what: dict[str, Any], kind: str) -> dict[str, Any]:
        """Return the job request: the user's fields and the folder of the selected model.

        Raises:
            Refused: for more than is asked for here, or a model that is not the visitor's.
        """
        wished = what.get("what")
        asked = (
            {key: value for key, value in wished.items() if key not in OURS}
            if isinstance(wished, dict)
            else {}
        )
        if len(json.dumps(asked)) > (LONGEST_WITH_ROWS if kind in BRINGS_ROWS else LONGEST_REQUEST):
            raise Refused("the request is too long; shorten the text")
        if self.comparer.hosted and kind == "table" and whole(asked.get("n")) > HOSTED_ITEMS:
            raise Refused(
                f"{asked['n']:,} examples are too many on a shared instance; "
                f"use at most {HOSTED_ITEMS}"
            )
        if "subject" in what:
            name, folder = self._checkpoint(what)
            asked |= {"checkpoint": str(folder), "name": name}
        if kind == "finetune":
            asked["owner"] = fingerprint(owner_of(what))
        return asked

    def _checkpoint(self, what: dict[str, Any]) -> tuple[str, Path]:
        """Return the name of the compared model and the folder of its newest checkpoint."""
        run, _ = run_on_show(self.registry, what)
        if run:
            found = run.checkpoints()
            if not found:
                raise Refused(
                    f"{run.name} has no checkpoint yet; pause it, or wait for the first one",
                    again=True,
                )
            return run.name, found[0][0]
        folder = checkpoint_folder(self.registry, what)
        if folder is None:
            raise Refused(
                "this model is not on this server, or not yours; select another one above"
            )
        return folder.name, folder

    async def poll(self, what: object, _: Request) -> dict[str, Any]:
        """Return the status of a job with its rows from `cursor` on.

        The response has an `error` if the owner has no such job.
        """
        what = what if isinstance(what, dict) else {}
        try:
            return self.comparer.poll(
                str(what.get("job")), owner_of(what), whole(what.get("cursor"))
            )
        except Refused as error:
            return {"error": str(error)}

    async def cancel(self, what: object, _: Request) -> dict[str, Any]:
        what = what if isinstance(what, dict) else {}
        try:
            await asyncio.to_thread(self.comparer.cancel, str(what.get("job")), owner_of(what))
            return {}
        except Refused as error:
            return {"error": str(error)}

    async def known(self, what: object, _: Request) -> dict[str, Any]:
        return same_budget.known()

    async def budget(self, what: object, _: Request) -> dict[str, Any]:
        """Return the architectures at the size of the selected model, or an `error`."""
        what = what if isinstance(what, dict) else {}
        try:
            return await asyncio.to_thread(same_budget.offered, self.registry, what)
        except (ValueError, OSError) as error:
            return {"error": str(error)}

    async def train(self, what: object, _: Request) -> dict[str, Any]:
        """Start runs of these architectures; return them as `runs`, and problems as `error`."""
        what = what if isinstance(what, dict) else {}
        try:
            return await asyncio.to_thread(same_budget.train, self.registry, owner_of(what), what)
        except (ValueError, OSError) as error:
            return {"error": str(error)}

    async def curves(self, what: object, _: Request) -> dict[str, Any]:
        return await asyncio.to_thread(
            same_budget.curves, self.registry, what if isinstance(what, dict) else {}
        )


def owner_of(what: Mapping[str, Any]) -> str:
    """Return the owner key of a request.

    Raises:
        Refused: when it does not say.
    """
    owner = what.get("owner")
    if not isinstance(owner, str) or not OWNER.fullmatch(owner):
        raise Refused("the request has no owner key; reload the page and try again")
    return owner
