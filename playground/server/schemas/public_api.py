"""The arguments of the public API, one pydantic model per endpoint."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from playground.runs.owner_keys import OWNER_KEY_PATTERN

from .base import MAX_INT, JsonObject, Name, RequestBody, Sequence, whole_number
from .hub import Token

MAX_EVAL_SIZE = 2000  # held-out sequences
MAX_WAIT_S = 240.0  # of compare, push and job


def _parse_owner(value: object) -> object:
    """Return the owner key, or an empty string for none.

    The key is secret, so the error message does not contain the value.
    """
    if value in ("", None):
        return ""
    if not isinstance(value, str) or not OWNER_KEY_PATTERN.fullmatch(value):
        raise ValueError("owner is not an owner key; pass the key that start returned, or omit it")
    return value


Owner = Annotated[str, BeforeValidator(_parse_owner)]
WholeNumber = Annotated[int, BeforeValidator(whole_number)]
Step = Annotated[WholeNumber, Field(ge=-1, le=MAX_INT)]
JobId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        json_schema_extra={"accepts": "the job that compare or push returned"},
    ),
]
Seconds = Annotated[
    float,
    Field(
        ge=0,
        le=MAX_WAIT_S,
        json_schema_extra={"accepts": f"a number of seconds from 0 to {MAX_WAIT_S:g}"},
    ),
]


class Call(RequestBody):
    """The arguments of a call; an unknown argument is an error."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class OwnerCall(Call):
    owner: Owner = ""


class Start(OwnerCall):
    settings: Annotated[
        JsonObject | None,
        Field(json_schema_extra={"accepts": 'a JSON object of settings, such as {"task": "copy"}'}),
    ] = None
    preset: Name = ""
    name: Name = ""


class ModelCall(OwnerCall):
    model: Name

    @property
    def model_name(self) -> str:
        return self.model


class Status(ModelCall):
    curve: bool = False


class Control(OwnerCall):
    run: Name

    @property
    def model_name(self) -> str:
        return self.run


class Predict(ModelCall):
    sequence: Sequence
    step: Step = -1


class Attention(Predict):
    kind: Literal["cross", "encoder", "decoder"] = "cross"
    layer: Step = -1
    head: Step = -1


class Evaluate(ModelCall):
    n: WholeNumber = Field(500, ge=1, le=MAX_EVAL_SIZE)
    step: Step = -1


class Compare(ModelCall):
    models: list[Name] | None = None
    n: WholeNumber = Field(20, ge=1, le=500)
    shots: WholeNumber = Field(8, ge=0, le=32)
    wait: Seconds = 60.0


class Push(ModelCall):
    repo: Name
    token: Token = ""
    private: bool = False
    branch: Name = "main"
    wait: Seconds = 60.0


class Job(OwnerCall):
    job: JobId


class WaitForJob(Job):
    wait: Seconds = 0.0
