"""The inspection process: it computes snapshots, views and evaluations of models for all clients.

The server process therefore needs no torch, and inspection does not delay training: a worker only
saves its weights to disk, and this process loads them.

A request is (number, kind, what, text), and its response is (number, dict). `what` is
{"checkpoint": folder} or {"run": folder, "fields": settings, "step": step}. The kinds are:

    look      the description of the model (`stage`) and a snapshot
    ask       its prediction for `text`
    show      a view of the Inspect tab; `text` is the page's request as JSON (inspection/shown/)
    warm      nothing: the request only starts the process
    check     whether an uploaded checkpoint is valid and can be resumed
    lengths   the number of correct held-out sequences of each length; `text` is
              {"lengths": [...], "n": number of sequences} as JSON
    evaluate  its scores on held-out sequences of the trained lengths; `text` is their number
    loss      its loss on held-out sequences, measured as in The Annotated Transformer
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import signal
from collections import OrderedDict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from playground.evaluation import evaluate, right_at, symbol_loss
from playground.families.family import Family
from playground.models.transformer import Transformer
from playground.tasks.held_out import held_out_set
from playground.tasks.rows import RowsError
from playground.training.checkpoint import (
    METRICS,
    build_family,
    load_model,
    load_trainer,
    load_weights,
)
from playground.training.config import RunConfig
from playground.training.manifest import CheckpointError, is_number
from playground.training.trainer import CONFIRMING_N

from .history import kept_steps, nearest, read_lines, weights_path
from .points import COLUMNS
from .view import View

log = logging.getLogger(__name__)

LOADED = 8  # models kept loaded
SHOWN = 32  # cached views
NOT_FINITE = (
    "this model computes numbers that are not finite, because its weights are too large; "
    "train it again, or choose another one"
)


class Opened:
    """A loaded model with its view; a run has the weights of one step at a time."""

    def __init__(self, config: RunConfig, family: Family, step: int) -> None:
        self.config, self.family, self.step = config, family, step
        self.view = View(config.task.load(), config, torch.device("cpu"))


class Inspector:
    """The request handlers of the inspection process, with caches of models and views."""

    def __init__(self) -> None:
        self._opened: OrderedDict[tuple[str, int], Opened] = OrderedDict()
        self._shown: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()

    def handle(self, kind: str, what: dict[str, Any], text: str = "") -> dict[str, Any]:
        """Return the response to a request; it has `error` if the model or the text is invalid."""
        try:
            answer = self.compute(kind, what, text)
        except (CheckpointError, RowsError, OSError) as error:
            return {"error": str(error)}
        return answer if is_finite(answer) else {"error": NOT_FINITE}

    def compute(self, kind: str, what: dict[str, Any], text: str) -> dict[str, Any]:
        """Return the response to a request, which may contain numbers that are not finite.

        Raises:
            CheckpointError, RowsError, OSError: if the model or its dataset cannot be read.
        """
        if kind == "warm":
            return {}
        if kind == "check":
            return self.check(Path(what["checkpoint"]))
        opened = self.at_step(what) if "run" in what else self.checkpoint(Path(what["checkpoint"]))
        if kind == "show":
            return self.shown(opened, what, text)
        if kind == "lengths":
            return self.lengths(opened, json.loads(text))
        if kind == "evaluate":
            return self.evaluate(opened, int(text))
        if kind == "loss":
            return self.loss(opened)
        if kind == "ask":
            return opened.view.answer(opened.family, text) | {"step": opened.step}
        return {
            "stage": opened.view.stage(opened.family),
            "snapshot": opened.view.snapshot(opened.family, opened.step),
        }

    def shown(self, opened: Opened, what: dict[str, Any], text: str) -> dict[str, Any]:
        """Return a view of a model, cached by its request."""
        from playground.inspection.shown import NEEDS_HISTORY, show
        from playground.inspection.subject import Subject

        request = json.loads(text)
        run = what.get("run")
        kept = kept_steps(Path(run)) if run and request.get("view") in NEEDS_HISTORY else []
        key = (json.dumps(what, sort_keys=True), opened.step, len(kept), text)
        if key not in self._shown:
            subject = Subject.of(opened.config, opened.family)
            request["history"] = (
                {step: weights_path(Path(run), step) for step in kept} if run else {}
            )
            answer = show(subject, request.get("view"), request)
            if "error" in answer:
                return answer | {"question": opened.view.question()}
            self._shown[key] = answer | {"step": opened.step, "question": opened.view.question()}
            while len(self._shown) > SHOWN:
                self._shown.popitem(last=False)
        self._shown.move_to_end(key)
        return self._shown[key]

    def lengths(self, opened: Opened, request: dict[str, Any]) -> dict[str, Any]:
        """Return the number of correct held-out sequences of each requested length."""
        try:
            counted = [
                (length, *right_at(opened.family, opened.view.task, length, request["n"]))
                for length in request["lengths"]
            ]
        except ValueError as error:
            return {"error": str(error)}
        return {
            "scores": [{"length": length, "right": right, "n": n} for length, right, n in counted],
            "step": opened.step,
        }

    def evaluate(self, opened: Opened, n: int) -> dict[str, Any]:
        """Return the scores on `n` held-out sequences of the trained lengths."""
        task = opened.config.task
        scores = evaluate(
            opened.family, held_out_set(opened.view.task, n, task.min_length, task.max_length)
        )
        return dataclasses.asdict(scores) | {"step": opened.step}

    def loss(self, opened: Opened) -> dict[str, Any]:
        """Return the loss on held-out sequences; only for the architecture `transformer`."""
        if not isinstance(opened.family, Transformer):
            return {
                "error": "this loss is defined for the architecture transformer, "
                f"not for {opened.config.family}"
            }
        task = opened.config.task
        held_out = held_out_set(opened.view.task, CONFIRMING_N, task.min_length, task.max_length)
        return {
            "loss": symbol_loss(opened.family, held_out),
            "n": len(held_out.lengths_B),
            "step": opened.step,
        }

    def checkpoint(self, folder: Path) -> Opened:
        """Load the model of a checkpoint, unless it is cached."""
        path = folder / "config.json"
        key = (str(folder), path.stat().st_mtime_ns if path.is_file() else 0)
        if key not in self._opened:
            manifest, family = load_model(folder)
            self._opened[key] = Opened(manifest.config, family, manifest.step)
        return self._recent(key)

    def at_step(self, what: dict[str, Any]) -> Opened:
        """Load the model of a run with the stored weights nearest to the step.

        Raises:
            CheckpointError: if no weights are stored or they are invalid.
        """
        folder, key = Path(what["run"]), (what["run"], -1)
        step = what["step"]
        if not weights_path(folder, step).is_file():
            step = nearest(kept_steps(folder), step)
            if step is None:
                raise CheckpointError("this run has no stored weights yet; try again in a moment")
        if key not in self._opened:
            config = RunConfig.from_fields(what["fields"])
            self._opened[key] = Opened(config, build_family(config).eval(), -1)
        opened = self._recent(key)
        if opened.step != step:
            opened.step = -1  # in case the weights are invalid
            load_weights(opened.family, weights_path(folder, step))
            opened.step = step
        return opened

    def check(self, folder: Path) -> dict[str, Any]:
        """Validate an uploaded checkpoint.

        Returns:
            its step, and whether it can be resumed.

        Raises:
            CheckpointError: if a file is invalid.
        """
        manifest, _ = load_model(folder)
        steps = 0
        for steps, line in enumerate(read_lines(folder), start=1):
            if line["step"] != steps or steps > manifest.step:
                raise CheckpointError(
                    "metrics.jsonl does not hold a line for each step; remove it and try again"
                )
            if not set(COLUMNS) <= set(line) <= METRICS or not all(
                is_number(v) and abs(v) < 1e30 for v in line.values()
            ):
                raise CheckpointError(
                    f"metrics.jsonl, line {steps}: these are not the metrics of a step; "
                    "remove it and try again"
                )
            if not all(0 <= line.get(score, 0) <= 1 for score in ("exact_match", "token_accuracy")):
                raise CheckpointError(
                    f"metrics.jsonl, line {steps}: a score must be from 0 to 1; "
                    "remove it and try again"
                )
        if (folder / "metrics.jsonl").is_file() and steps != manifest.step:
            raise CheckpointError(
                "metrics.jsonl does not hold a line for each step; remove it and try again"
            )
        resumable = (folder / "training.safetensors").is_file()
        if resumable:
            load_trainer(folder, device="cpu", threads=1)
        return {"step": manifest.step, "resumable": resumable}

    def _recent(self, key: tuple[str, int]) -> Opened:
        """Return a cached model as the most recent one, and evict the oldest."""
        self._opened.move_to_end(key)
        while len(self._opened) > LOADED:
            self._opened.popitem(last=False)
        return self._opened[key]


def is_finite(value: object) -> bool:
    """Return whether all numbers in a response are finite, as JSON requires."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(is_finite, value))


def inspect(pipe: Connection) -> None:
    """Handle requests until the server closes the pipe: the entry point of the process."""
    if hasattr(os, "nice"):
        os.nice(5)  # priority: the server, then inspection, then training
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    inspector = Inspector()
    while True:
        try:
            number, kind, what, text = pipe.recv()
            try:
                answer = inspector.handle(kind, what, text)
            except Exception as error:  # one model must not stop the process for all clients
                log.exception("A request of the kind %r failed", kind)
                answer = {"error": f"{type(error).__name__}: {error}"}
            pipe.send((number, answer))
        except (EOFError, OSError):
            return
