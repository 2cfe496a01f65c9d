"""Requests of the Lab tab."""

from typing import Annotated, Any, Literal

from pydantic import Field

from playground.experiments.spec import GRID

from .base import MAX_TEXT_LENGTH, JsonObject, Name, OwnerRequest, Request

MAX_FORM_TEXT = 20_000  # characters
FormText = Annotated[str, Field(max_length=MAX_FORM_TEXT)]
Pair = Annotated[list[FormText], Field(min_length=2, max_length=2)]


class ExperimentForm(Request):
    """The form of a new experiment; `grid` has pairs of a setting and its values as text."""

    grid: list[Pair] = Field(
        json_schema_extra={"accepts": "a list of settings to vary, each with its values"}
    )
    seeds: FormText
    name: FormText = ""
    base: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = ""  # a model
    kind: Any = GRID  # the experiment validates it, and the two fields below
    times: Any = None
    n: Any = None


class PlanExperiment(OwnerRequest):
    """A prepared experiment by name, or the form of a new one."""

    question: Name | None = None
    form: JsonObject | None = None


class PollExperiments(OwnerRequest):
    """The open experiment, and the version of its results that the page has."""

    open: str | None = None
    version: Any = None


class ExperimentRequest(OwnerRequest):
    """An experiment of the owner."""

    experiment: str = ""


class ActOnExperiment(ExperimentRequest):
    """An action of the owner on an experiment."""

    action: Literal["pause", "cancel", "resume", "delete"]


class ClaimRequest(OwnerRequest):
    """A published claim, by name."""

    name: Name
