"""The inspection process: it computes snapshots, views and evaluations of models for all clients.

The server therefore needs no torch, and inspection does not delay training: a worker only saves its
weights to disk.

A request has a method, a model and an argument. The model is {"checkpoint": folder} or
{"run": folder, "fields": settings, "step": step}. Its `right` is that of the requester
(runs/access.py), by default that of the owner. The methods are:

    snapshot  the description of the model (`probe_info`) and a snapshot
    predict   its prediction for `text`
    show      a view of the Inspect tab; `text` is the page's request as JSON (inspection/views/)
    warm      nothing: the request only starts the process
    lengths   the number of correct held-out sequences of each length; `text` is
              {"lengths": [...], "n": number of sequences} as JSON
    describe  what the engine of the page needs beside the weights (browser_model.py)
    evaluate  its scores on held-out sequences of the trained lengths; `text` is their number
    loss      its loss on held-out sequences, measured as in The Annotated Transformer
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.checkpoints.checkpoint import (
    build_model,
    load_model,
    load_weights,
    resume_trainer,
)
from playground.checkpoints.manifest import CheckpointError
from playground.checkpoints.metrics import read_metrics
from playground.common.storage import file_version
from playground.errors import UserError, error_text
from playground.evaluation import annotated_transformer_loss, evaluate, exact_match_at_length
from playground.jobs.progress import ProgressReporter
from playground.models.transformer import Transformer
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.training.run_config import RunConfig
from playground.training.trainer import FINAL_EVAL_SIZE, Metrics

from .access import Right
from .browser_model import describe_model
from .metric_series import METRIC_COLUMNS, SCORE_NAMES
from .snapshot import SnapshotBuilder
from .weight_history import NO_WEIGHTS, find_weights, weights_path

if TYPE_CHECKING:
    from playground.inspection.inspected_model import InspectedModel

log = logging.getLogger(__name__)

METRIC_NAMES = {each.name for each in dataclasses.fields(Metrics)}
MODEL_CACHE_SIZE = 8  # models that stay loaded
VIEW_CACHE_SIZE = 32  # cached views
MISSING_METRICS = "metrics.jsonl does not hold a line for each step; remove it and try again"
NOT_FINITE_MESSAGE = (
    "this model computes numbers that are not finite, because its weights are too large; "
    "train it again, or choose another one"
)


class LoadedModel:
    """A loaded model; a run has the weights of one step at a time."""

    def __init__(self, config: RunConfig, model: Seq2SeqModel, step: int) -> None:
        self.config, self.model, self.step = config, model, step
        self.snapshots = SnapshotBuilder(config)
        self._subject: tuple[tuple[int, bool], InspectedModel] | None = None

    def held_out(self, n: int) -> HeldOutSet:
        """Return `n` held-out sequences of the trained lengths."""
        task = self.config.task
        return build_held_out_set(self.snapshots.task, n, task.min_length, task.max_length)

    def subject(self, hides_targets: bool) -> InspectedModel:
        """Return the model for views, the same object until the step changes."""
        from playground.inspection.inspected_model import InspectedModel

        key = self.step, hides_targets
        if self._subject is None or self._subject[0] != key:
            self._subject = key, InspectedModel.from_model(self.config, self.model, hides_targets)
        return self._subject[1]


class Inspector:
    """The request handlers of the inspection process, with caches of models and views."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[str, tuple[int, ...]], LoadedModel] = OrderedDict()
        self._views: OrderedDict[tuple[Any, ...], dict[str, Any]] = OrderedDict()

    def dispatch(
        self, method: str, model_ref: dict[str, Any], argument: str = ""
    ) -> dict[str, Any]:
        """Return the response. Raises UserError if the model or the text is invalid."""
        try:
            answer = self.compute(method, model_ref, argument)
        except OSError as error:
            raise UserError(error_text(error)) from error
        except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
            raise UserError(NOT_FINITE_MESSAGE) from error
        if not is_finite(answer):
            raise UserError(NOT_FINITE_MESSAGE)
        return answer

    def compute(self, method: str, model_ref: dict[str, Any], argument: str) -> dict[str, Any]:
        if method == "warm":
            return {}
        loaded = (
            self.load_at_step(model_ref)
            if "run" in model_ref
            else self.checkpoint(Path(model_ref["checkpoint"]))
        )
        if method == "show":
            return self.view(loaded, model_ref, argument)
        if method == "lengths":
            return self.accuracy_by_length(loaded, json.loads(argument))
        if method == "evaluate":
            return self.evaluate(loaded, int(argument))
        if method == "loss":
            return self.loss(loaded)
        if method == "describe":
            from playground.inspection.inspected_model import InspectedModel

            subject = InspectedModel.from_model(loaded.config, loaded.model)
            return describe_model(subject, with_examples=not hides_targets(model_ref))
        if method == "predict":
            answer = loaded.snapshots.predict(loaded.model, argument, hides_targets(model_ref))
            return answer | {"step": loaded.step}
        return {
            "probe_info": loaded.snapshots.describe(loaded.model),
            "snapshot": loaded.snapshots.snapshot(loaded.model, loaded.step),
        }

    def view(self, loaded: LoadedModel, model_ref: dict[str, Any], argument: str) -> dict[str, Any]:
        """Return a view of a model, cached by its request."""
        from playground.inspection.views import render_view

        request = json.loads(argument)
        key = (json.dumps(model_ref, sort_keys=True), loaded.step, argument)
        default = {}
        if model_ref.get("right", Right.OWN) >= Right.USE:
            default["default_input"] = loaded.snapshots.default_input
        if key not in self._views:
            subject = loaded.subject(hides_targets(model_ref))
            try:
                answer = render_view(subject, request.get("view"), request)
            except UserError as error:
                error.details |= default
                raise
            self._views[key] = answer | {"step": loaded.step} | default
            while len(self._views) > VIEW_CACHE_SIZE:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return self._views[key]

    def accuracy_by_length(self, loaded: LoadedModel, request: dict[str, Any]) -> dict[str, Any]:
        """Return the number of correct held-out sequences of each requested length."""
        model, task, scores = loaded.model, loaded.snapshots.task, []
        for length in request["lengths"]:
            n_correct, n = exact_match_at_length(model, task, length, request["n"])
            scores.append({"length": length, "right": n_correct, "n": n})
        return {"scores": scores, "step": loaded.step}

    def evaluate(self, loaded: LoadedModel, n: int) -> dict[str, Any]:
        """Return the scores on `n` held-out sequences of the trained lengths."""
        scores = evaluate(loaded.model, loaded.held_out(n))
        return dataclasses.asdict(scores) | {"step": loaded.step}

    def loss(self, loaded: LoadedModel) -> dict[str, Any]:
        """Return the loss on held-out sequences; only for the architecture `transformer`."""
        if not isinstance(loaded.model, Transformer):
            raise UserError(
                "this loss is defined for the architecture transformer, "
                f"not for {loaded.config.architecture}"
            )
        held_out = loaded.held_out(FINAL_EVAL_SIZE)
        return {
            "loss": annotated_transformer_loss(loaded.model, held_out),
            "n": len(held_out.lengths_B),
            "step": loaded.step,
        }

    def checkpoint(self, folder: Path) -> LoadedModel:
        """Load the model of a checkpoint, unless it is cached."""
        key = (str(folder), file_version(folder / "config.json"))
        if key not in self._models:
            manifest, model = load_model(folder)
            self._models[key] = LoadedModel(manifest.config, model, manifest.step)
        return self._touch(key)

    def load_at_step(self, model_ref: dict[str, Any]) -> LoadedModel:
        """Load the model of a run with the stored weights nearest to the step."""
        folder, key = Path(model_ref["run"]), (model_ref["run"], ())
        step = find_weights(folder, model_ref["step"])
        if step is None:
            raise CheckpointError(f"{NO_WEIGHTS}; try again in a moment")
        if key not in self._models:
            config = RunConfig.from_flat(model_ref["fields"])
            self._models[key] = LoadedModel(config, build_model(config).eval(), -1)
        loaded = self._touch(key)
        if loaded.step != step:
            loaded.step = -1  # in case the weights are invalid
            load_weights(loaded.model, weights_path(folder, step))
            loaded.step = step
        return loaded

    def _touch(self, key: tuple[str, tuple[int, ...]]) -> LoadedModel:
        self._models.move_to_end(key)
        while len(self._models) > MODEL_CACHE_SIZE:
            self._models.popitem(last=False)
        return self._models[key]


def hides_targets(model_ref: dict[str, Any]) -> bool:
    """Return whether the requester may not see the targets that a dataset has for sources."""
    return bool(model_ref.get("right", Right.OWN) < Right.REUSE)


def is_finite(value: object) -> bool:
    """Return whether all numbers in a response are finite, as JSON requires."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return not isinstance(value, list | tuple) or all(map(is_finite, value))


def create_handler() -> Callable[[str, dict[str, Any], str, ProgressReporter], dict[str, Any]]:
    """Return the function that handles the requests of the inspection process."""
    torch.set_num_threads(1)
    inspector = Inspector()

    def handle(
        method: str, model_ref: dict[str, Any], argument: str, reporter: ProgressReporter
    ) -> dict[str, Any]:
        try:
            return inspector.dispatch(method, model_ref, argument)
        except UserError:
            raise
        except Exception as error:  # the page must not retry such a request automatically
            log.exception("A request of the kind %r failed", method)
            raise UserError(
                f"a fault of the program ended this request ({type(error).__name__}); the log has "
                "the details; try another view or sequence"
            ) from error

    return handle


def validate_checkpoint(path: str) -> dict[str, Any]:
    """Validate a checkpoint; return its step, and whether it can be resumed."""
    folder = Path(path)
    manifest, _ = load_model(folder)
    steps = 0
    for steps, line in enumerate(read_metrics(folder), start=1):
        if line["step"] != steps or steps > manifest.step:
            raise CheckpointError(MISSING_METRICS)
        if (
            not set(METRIC_COLUMNS) <= set(line) <= METRIC_NAMES
            or not all(abs(value) < 1e30 for value in line.values())
            or not all(0 <= line.get(score, 0) <= 1 for score in SCORE_NAMES)
        ):
            raise CheckpointError(
                f"metrics.jsonl, line {steps}: these are not the metrics of a step; "
                "remove it and try again"
            )
    if (folder / "metrics.jsonl").is_file() and steps != manifest.step:
        raise CheckpointError(MISSING_METRICS)
    resumable = (folder / "training.safetensors").is_file()
    if resumable:
        resume_trainer(folder, device="cpu", num_threads=1)
    return {"step": manifest.step, "resumable": resumable}
