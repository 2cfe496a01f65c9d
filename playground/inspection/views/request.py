"""The requests of views, which are untrusted input, and numbers as JSON."""

import math
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from playground.common import messages
from playground.inspection.inspected_model import Example, InspectedModel

MAX_ROWS, MAX_COLUMNS = 80, 128  # of a displayed tensor
MAX_TEXT_LENGTH = 2000  # characters

Name = Annotated[str, Field(max_length=100)]
LayerOrHead = Annotated[int, Field(ge=0, le=63)]
Index = Annotated[int, Field(ge=0, le=1_000_000)]


class ViewRequest(BaseModel):
    """The options of a view; unknown ones are ignored, because pages of other versions send them.

    Layers, heads and positions count from 0.
    """

    model_config = ConfigDict(strict=True, frozen=True)


class SequenceRequest(ViewRequest):
    """A request about a sequence that the user entered."""

    text: Annotated[
        str,
        Field(
            max_length=MAX_TEXT_LENGTH,
            json_schema_extra={"accepts": messages.sequence_accepts(MAX_TEXT_LENGTH)},
        ),
    ]

    def example(self, subject: InspectedModel) -> Example:
        """Return the sequence with its target; the views of a sequence share its activations."""
        return _encode_text(subject, self.text)


@lru_cache(maxsize=1)
def _encode_text(subject: InspectedModel, text: str) -> Example:
    return subject.encode_text(text)


def json_number(number: float | None, digits: int = 6) -> float | None:
    """Round a number for JSON; None if it is None, infinite or NaN, which JSON does not have."""
    if number is None or not math.isfinite(number):
        return None
    return float(f"{number:.{digits}g}")


def json_array(values: Tensor, digits: int = 6) -> Any:
    """Convert a tensor to nested lists of such numbers."""
    if values.dim() > 1:
        return [json_array(row, digits) for row in values]
    return [json_number(value, digits) for value in values.tolist()]
