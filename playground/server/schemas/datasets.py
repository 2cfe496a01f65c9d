"""Requests of the dataset panel."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from playground.datasets.pairs import SHA256_PATTERN

from .base import OwnerRequest


def _sha256_or_empty(value: object) -> str:
    """Return a SHA-256; empty for any other value."""
    return value if isinstance(value, str) and SHA256_PATTERN.fullmatch(value) else ""


class ActOnDataset(OwnerRequest):
    """An action on a dataset, which its SHA-256 identifies."""

    action: Literal["use", "show", "list", "remove"]
    sha256: Annotated[str, BeforeValidator(_sha256_or_empty)] = ""

    @model_validator(mode="after")
    def _require_sha256(self) -> Self:
        if self.action != "list" and not self.sha256:
            raise ValueError("the request names no dataset; upload one first")
        return self


class UploadDataset(OwnerRequest):
    """The headers of an upload; the body has the pairs."""

    name: str
    columns: list[str] = Field([])
    # None: the reader decides
    split_on_spaces: bool | None = None
    has_names: bool | None = None
    # of a dataset on the Hub; empty if there is one
    config: str = ""
    split: str = ""
