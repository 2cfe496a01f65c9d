"""Requests of the run list, the live view, the Inspect tab and the report."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from playground.models.config_fields import ConfigError
from playground.runs.access import CHECKPOINT_PREFIX, Access, Right, find_access
from playground.runs.registry import Registry

from .base import (
    MAX_INT,
    Index,
    JsonObject,
    ModelRequest,
    Name,
    OptionalOwner,
    RequestBody,
    Sequence,
    ShortText,
)

MAX_CURVES = 8
RunAction = Literal[
    "pause",
    "resume",
    "step",
    "stop",
    "save",
    "change",
    "extend",
    "rename",
    "share",
    "delete",
    "undelete",
    "rerun",
    "branch",
    "download",
    "remove",
]
# By action: the field that it requires.
REQUIRED_FIELDS = {
    "change": "setting",
    "rename": "name",
    "share": "viewers_may_use",
    "branch": "step",
    "download": "checkpoint",
    "remove": "checkpoint",
}


def _parse_cursor(value: object) -> int:
    """Return the number of items that the page has already, or 0 for an invalid value."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT:
        return value
    return 0


def _parse_version(value: object) -> int:
    """Return the version that the page has already, or -1 for an invalid value."""
    return _parse_cursor(value) if isinstance(value, int) and value >= 0 else -1


Cursor = Annotated[int, BeforeValidator(_parse_cursor)]
Version = Annotated[int, BeforeValidator(_parse_version)]  # -1: the page has none


class PollModel(ModelRequest):
    """The data that the page has already; the response contains only newer data."""

    n_points: Cursor = 0
    series_id: Version = -1
    snapshot_version: Cursor = 0
    changes: Version = -1


class ModelAtStep(ModelRequest):
    """A model; `step` selects an earlier step of a run."""

    step: Index | None = None


def _parse_number(value: object) -> object:
    """Return a number of a URL; any other value as it is."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,15}", value) else value


class LoadWeights(ModelRequest):
    """A model and the step of its weights, from a URL."""

    step: Annotated[Index, BeforeValidator(_parse_number)]


class Predict(ModelAtStep):
    """A model and the source sequence of a prediction."""

    text: Sequence
    with_forward_pass: bool = False  # what the diagram draws


class LoadView(ModelAtStep):
    """A view of the Inspect tab; the inspection process validates the options."""

    view: Name
    options: JsonObject = Field(default_factory=dict)
    text: Sequence | None = None


def _filter_subjects(value: object) -> object:
    """Return the first MAX_CURVES different strings of a list."""
    if not isinstance(value, list):
        return value
    return [*dict.fromkeys(each for each in value if isinstance(each, str))][:MAX_CURVES]


class Curves(RequestBody):
    """The models whose curves are requested, at most MAX_CURVES."""

    subjects: Annotated[list[str], BeforeValidator(_filter_subjects)] = Field([])
    owner: OptionalOwner = ""

    @property
    def reads_disk(self) -> bool:
        return any(subject.startswith(CHECKPOINT_PREFIX) for subject in self.subjects)

    def require(self, registry: Registry, right: Right) -> list[tuple[str, Access]]:
        """Return each subject with its model, without those that the requester may not see."""
        refs = [ModelRequest(subject=each, owner=self.owner) for each in self.subjects]
        models = [(ref.subject, find_access(registry, ref)) for ref in refs]
        return [(subject, model) for subject, model in models if model and model.right >= right]


class ListRuns(RequestBody):
    """The owner whose runs are requested; without a key, the response lists only checkpoints."""

    owner: OptionalOwner = ""


class ActOnRun(ModelRequest):
    """An action of the owner on a run."""

    action: RunAction
    setting: ShortText | None = None
    value: Any = None
    name: ShortText | None = None
    viewers_may_use: bool | None = None
    step: Index | None = None
    checkpoint: ShortText | None = None

    @model_validator(mode="after")
    def _require_field(self) -> Self:
        field = REQUIRED_FIELDS.get(self.action)
        if field and getattr(self, field) is None:
            raise ConfigError(field, f"{field} is missing; the action {self.action} requires it")
        return self
