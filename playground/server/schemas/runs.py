"""Requests of the run list, the live view, the Inspect tab and the report."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from playground.models.config_fields import ConfigError

from .base import (
    MAX_INT,
    Index,
    JsonObject,
    ModelRequest,
    Name,
    OptionalOwner,
    Request,
    Sequence,
)
from .base import ShortText as Text

MAX_CURVES = 8
RunAction = Literal[
    "pause",
    "resume",
    "step",
    "stop",
    "keep",
    "change",
    "extend",
    "rename",
    "hide",
    "show",
    "delete",
    "undelete",
    "again",
    "branch",
    "download",
    "remove",
]
# The field that an action needs besides the run.
FIELD_OF_ACTION = {
    "change": "setting",
    "rename": "name",
    "branch": "step",
    "download": "checkpoint",
    "remove": "checkpoint",
}


def _cursor(value: object) -> int:
    """Return what a page has already; a value that is no number of it counts as nothing."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INT:
        return value
    return 0


def _version(value: object) -> int:
    return _cursor(value) if isinstance(value, int) and value >= 0 else -1


Cursor = Annotated[int, BeforeValidator(_cursor)]
Version = Annotated[int, BeforeValidator(_version)]  # -1: the page has none


class PollModel(ModelRequest):
    """What the page has already; the response has what changed since."""

    n_points: Cursor = 0
    series_id: Version = -1
    snapshot_version: Cursor = 0
    changes: Version = -1


class ModelAtStep(ModelRequest):
    """A model, of a run also at an earlier step."""

    step: Index | None = None


class Predict(ModelAtStep):
    """A sequence to predict."""

    text: Sequence


class ExportFigures(Predict):
    """A sequence to draw figures of."""


class LoadView(ModelAtStep):
    """A view of the Inspect tab; the inspection process validates the options."""

    view: Name
    options: JsonObject = Field(default_factory=dict)
    text: Sequence | None = None


def _known_subjects(value: object) -> object:
    """Return the first subjects of a list, without values that are no text."""
    if not isinstance(value, list):
        return value
    return [each for each in value if isinstance(each, str)][:MAX_CURVES]


class Curves(Request):
    """The models whose curves are requested; further ones are ignored."""

    subjects: Annotated[list[str], BeforeValidator(_known_subjects)] = Field([])
    owner: OptionalOwner = ""

    def refs(self) -> list[ModelRequest]:
        """Return a reference for each subject."""
        return [ModelRequest(subject=each, owner=self.owner) for each in self.subjects]


class ListRuns(Request):
    """The owner whose runs are requested; without a key, there are only checkpoints."""

    owner: OptionalOwner = ""


class ActOnRun(ModelRequest):
    """An action of the owner on a run."""

    action: RunAction = Field(alias="do")
    setting: Text | None = None
    value: Any = None
    name: Text | None = None
    step: Index | None = None
    checkpoint: Text | None = None

    @model_validator(mode="after")
    def _require_field(self) -> Self:
        field = FIELD_OF_ACTION.get(self.action)
        if field and getattr(self, field) is None:
            raise ConfigError(field, f"{field} is missing; the action {self.action} needs it")
        return self
