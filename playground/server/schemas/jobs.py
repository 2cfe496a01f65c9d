"""Requests of the Compare tab."""

from typing import Any

from pydantic import Field, field_validator

from playground.architectures import ARCHITECTURES
from playground.runs.access import Access, Right
from playground.runs.registry import Registry

from .base import Index, JsonObject, ModelRequest, Name, OwnedModelRequest, OwnerRequest


class SubmitJob(OwnedModelRequest):
    """The kind of a job, and its request, which the job validates."""

    kind: Name
    request: JsonObject = Field(default_factory=dict)

    def require(self, registry: Registry, right: Right) -> Access | None:
        """Return the model; None without one, which the job reports."""
        return super().require(registry, right) if self.subject else None


class CancelJob(OwnerRequest):
    """A job of the owner."""

    job: Name


class PollJob(CancelJob):
    """A job, and the number of rows that the page has already."""

    cursor: Index = 0


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
