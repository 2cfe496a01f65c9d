"""The common part of the requests of jobs: types, limits of a shared instance, and their errors."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from playground.common.validation import parse
from playground.models.config_fields import format_number

from .loading.model_names import local_paths_allowed

MAX_TEXT_LENGTH = 4000  # characters
MAX_SEED = 2**31 - 1


class JobRequest(BaseModel):
    """An untrusted request of a job. Unknown fields are ignored, and a null is the default.

    `shared_limits` has the maximum of a field on a shared instance, where it is lower.
    """

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)
    shared_limits: ClassVar[Mapping[str, int]] = {}

    @classmethod
    def parse(cls, values: object) -> Self:
        """Validate a request. Raises UserError for the first invalid field."""
        return parse(cls, values)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {name: value for name, value in values.items() if value is not None}

    @field_validator("*")
    @classmethod
    def _apply_shared_limit(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.field_name or ""
        limit = cls.shared_limits.get(name)
        if limit is not None and not local_paths_allowed() and value is not None and value > limit:
            bounds = cls.model_fields[name].metadata
            low = next((each.ge for each in bounds if hasattr(each, "ge")), 0)
            raise ValueError(
                f"{name} is {format_number(value)}; give a whole number from {low} to "
                f"{format_number(limit)}"
            )
        return value


def _replace_unencodable(text: object) -> object:
    """Remove NUL, and replace unpaired surrogates, which tokenizers reject."""
    if not isinstance(text, str):
        return text
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


def _reject_blank(text: str, info: ValidationInfo) -> str:
    if not text.strip():
        raise ValueError(f"{info.field_name} is empty; type some text")
    return text


Text = Annotated[
    str,
    BeforeValidator(_replace_unencodable),
    AfterValidator(_reject_blank),
    Field(max_length=MAX_TEXT_LENGTH),
]
ModelName = Annotated[
    str,
    BeforeValidator(_replace_unencodable),
    Field(json_schema_extra={"accepts": "the name of a model on the Hub, such as gpt2"}),
]
Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
