"""Serve the architectures of the Compare tab, each at the parameter count of the user's model.

It lists architectures at the size of the user's model, and starts them as runs.
"""

import threading
from functools import lru_cache
from typing import Any, NotRequired, TypedDict

from pydantic import field_validator

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.errors import UserError
from playground.experiments.analysis import TARGET_SCORE
from playground.models.config_fields import ConfigError
from playground.runs.access import RUN_PREFIX, Access, Right
from playground.runs.summary import task_label
from playground.training.matched_size import match_parameter_count
from playground.training.run_config import RunConfig
from playground.training.train_config import TrainConfig
from playground.ui.setting_groups import CHOICE_LABELS

from .routes import HandlerGroup, handler
from .schemas.base import ModelRequest, OwnedModelRequest

TRANSFORMERS_ARCHITECTURES = ("bert", "gpt2", "bart")  # of transformers, one of each type


class MatchArchitectures(ModelRequest):
    """A model, and the sequence lengths on which other architectures train.

    With `same_optimizer`, all have the optimizer settings of the model.
    """

    min_length: int | None = None
    max_length: int | None = None
    same_optimizer: bool = False

    def lengths(self) -> dict[str, Any]:
        """Return the lengths that the request contains."""
        return self.model_dump(include={"min_length", "max_length"}, exclude_none=True)


class TrainArchitectures(MatchArchitectures, OwnedModelRequest):
    """The architectures to train."""

    architectures: list[str]

    @field_validator("architectures", mode="before")
    @classmethod
    def _require_known(cls, value: object) -> object:
        names = value if isinstance(value, list) else []
        if not names or not all(isinstance(v, str) and v in ARCHITECTURES for v in names):
            raise ValueError(f"select architectures to train, from {', '.join(ARCHITECTURES)}")
        return value


class MatchedArchitecture(TypedDict):
    """An architecture at the size of the user's model, or the `error` why it has none."""

    architecture: str
    title: str
    description: str
    is_current: bool
    parameters: NotRequired[int]
    optimizer: NotRequired[str]
    error: NotRequired[str]


class MatchedArchitectures(TypedDict):
    """The response of `architectures/matched`."""

    architectures: list[MatchedArchitecture]
    task: str
    parameters: int
    optimizer: str
    min_length: int
    max_length: int


class StartedArchitecture(TypedDict):
    """A run that started."""

    architecture: str
    title: str
    parameters: int
    optimizer: str
    subject: str


class StartedArchitectures(TypedDict):
    """The response of `architectures/train`; `error` lists failed starts."""

    runs: list[StartedArchitecture]
    error: str


def describe_optimizer(training: TrainConfig) -> str:
    """Return the optimizer, the learning rate and weight averaging as text."""
    averaged = ", averaged weights" if training.weight_averaging else ""
    return f"{CHOICE_LABELS[training.optimizer]}, {training.learning_rate:g}{averaged}"


def requested_config(model: Access, request: MatchArchitectures) -> RunConfig:
    """Return the settings of the selected model with the selected lengths and the stop criterion.

    Raises:
        ValueError: when the lengths do not fit.
    """
    config, lengths = model.config, request.lengths()
    max_positions = max(config.model.max_positions, lengths.get("max_length", 0) + 1)
    return config.replace(**lengths, max_positions=max_positions, stop_at_exact_match=TARGET_SCORE)


_match_parameters = lru_cache(maxsize=64)(match_parameter_count)
_search_lock = threading.Lock()  # so that a search does not run twice at a time


def match_parameters(config: RunConfig, family: str, same_optimizer: bool) -> RunConfig:
    """Return the settings of an architecture with a matched parameter count.

    Raises:
        ConfigError: when no size is close enough.
    """
    with _search_lock:
        return _match_parameters(config, family, same_optimizer)


class ArchitectureHandlers(HandlerGroup):
    @handler("architectures/matched", MatchArchitectures, MatchedArchitectures, Right.REUSE)
    def matched(self, request: MatchArchitectures, model: Access) -> dict[str, Any]:
        """Return all architectures at the size of the selected model, or an `error` for each."""
        config = requested_config(model, request)
        rows = []
        for name in sorted(ARCHITECTURES, key=lambda name: name not in TRANSFORMERS_ARCHITECTURES):
            family = ARCHITECTURES[name]
            row: dict[str, Any] = {
                "architecture": name,
                "title": family.title,
                "description": family.description,
                "is_current": name == config.architecture,
            }
            try:
                other = match_parameters(config, name, request.same_optimizer)
                row["parameters"] = parameter_count(other.model)
                row["optimizer"] = describe_optimizer(other.training)
            except ConfigError as error:
                row["error"] = str(error)
            rows.append(row)
        lengths = {"min_length": config.task.min_length, "max_length": config.task.max_length}
        return {
            "architectures": rows,
            "task": task_label(config),
            "parameters": parameter_count(config.model),
            "optimizer": describe_optimizer(config.training),
            **lengths,
        }

    @handler("architectures/train", TrainArchitectures, StartedArchitectures, Right.REUSE)
    def train(self, request: TrainArchitectures, model: Access) -> dict[str, Any]:
        """Start a run of each selected architecture; `error` lists failed starts."""
        config = requested_config(model, request)
        started_runs, errors = [], []
        for name in dict.fromkeys(request.architectures):
            try:
                other = match_parameters(config, name, request.same_optimizer)
                title = f"{ARCHITECTURES[name].title}: {task_label(config)}"
                run = self.registry.start(other, request.owner, name=title)
                started_runs.append(
                    {
                        "architecture": name,
                        "title": ARCHITECTURES[name].title,
                        "parameters": parameter_count(other.model),
                        "optimizer": describe_optimizer(other.training),
                        "subject": RUN_PREFIX + run.id,
                    }
                )
            except (UserError, ConfigError) as error:
                errors.append(f"{ARCHITECTURES[name].title}: {error}")
        return {"runs": started_runs, "error": "; ".join(errors)}
