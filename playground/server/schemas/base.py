"""The fields that many requests share."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from playground.common import messages
from playground.runs.access import Access, ModelRef, Right
from playground.runs.access import OptionalOwner as OptionalOwner
from playground.runs.owner_keys import valid_owner_key
from playground.runs.registry import Registry

MAX_INT = 2**31 - 1
MAX_NAME_LENGTH = 200  # characters of a name
MAX_TEXT_LENGTH = 400  # characters of a text field
MAX_SEQUENCE_LENGTH = 2000  # characters of a typed sequence


def require_owner_key(value: object) -> str:
    """Return an owner key; raise ValueError for another value, which no message repeats."""
    if key := valid_owner_key(value):
        return key
    raise ValueError("the request has no owner key; reload the page and try again")


def whole_number(value: object) -> object:
    """Return 20.0 as 20: JSON of other languages has one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _token(value: object) -> str:
    """Return an entered token, or "" for another value, which no message may repeat."""
    return value.strip() if isinstance(value, str) else ""


OwnerKey = Annotated[
    str, BeforeValidator(require_owner_key), Field(default="", validate_default=True)
]
Index = Annotated[int, BeforeValidator(whole_number), Field(ge=0, le=MAX_INT)]
ShortText = Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
Token = Annotated[str, BeforeValidator(_token)]
Sequence = Annotated[
    str,
    Field(
        max_length=MAX_SEQUENCE_LENGTH,
        json_schema_extra={"accepts": messages.sequence_accepts(MAX_SEQUENCE_LENGTH)},
    ),
]
JsonObject = dict[str, Any]


class RequestBody(BaseModel):
    """A request; unknown fields are ignored, because pages of other versions send them."""

    model_config = ConfigDict(strict=True, frozen=True)


class OwnerRequest(RequestBody):
    """A request of an owner."""

    owner: OwnerKey


class SubmitJob(ModelRef):
    """The kind of a job, and its request, which the job validates."""

    owner: OwnerKey
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
