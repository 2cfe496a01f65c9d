"""Requests of the Lab tab."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from playground.common.validation import parse
from playground.errors import UserError
from playground.experiments.spec import GRID
from playground.models.config_fields import ConfigError
from playground.runs.access import Access, ModelRef, Right, require
from playground.runs.registry import Registry

from .base import MAX_TEXT_LENGTH, JsonObject, Name, OwnerRequest, RequestBody

MAX_FORM_TEXT = 20_000  # characters
FormText = Annotated[str, Field(max_length=MAX_FORM_TEXT)]
Pair = Annotated[list[FormText], Field(min_length=2, max_length=2)]


class ExperimentForm(RequestBody):
    """The form of a new experiment; `grid` has pairs of a setting and its values as text."""

    grid: list[Pair] = Field(
        json_schema_extra={"accepts": "a list of settings to vary, each with its values"}
    )
    seeds: FormText
    name: FormText = ""
    base: Annotated[str, Field(max_length=MAX_TEXT_LENGTH)] | None = ""  # see PlanExperiment
    kind: Any = GRID  # the experiment validates it, and the two fields below
    times: Any = None
    n: Any = None


class PlanExperiment(OwnerRequest):
    """A prepared experiment by name, or the form of a new one."""

    question: Name | None = None
    form: JsonObject | None = None
    reads_disk: ClassVar = True

    def require(self, registry: Registry, right: Right) -> Access | None:
        """Return the model whose settings are the base of the form; None for the defaults.

        Raises:
            ConfigError: of the field `base`.
        """
        base = (self.form or {}).get("base")
        if not base:
            return None
        try:
            return require(registry, parse(ModelRef, {"subject": base, "owner": self.owner}), right)
        except UserError as error:
            raise ConfigError("base", str(error)) from None


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
