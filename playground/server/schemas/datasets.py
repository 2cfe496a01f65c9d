"""Requests of the dataset panel."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from playground.datasets.pairs import SHA256_PATTERN

from .base import OwnerRequest


def _content_hash(value: object) -> str:
    """Return a content hash; empty for any other value."""
    return value if isinstance(value, str) and SHA256_PATTERN.fullmatch(value) else ""


class ActOnDataset(OwnerRequest):
    """An action on a dataset, which its content hash names."""

    action: Literal["use", "show", "list", "remove"]
    content: Annotated[str, BeforeValidator(_content_hash)] = ""

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if self.action != "list" and not self.content:
            raise ValueError("the request names no dataset; upload one first")
        return self


class UploadDataset(OwnerRequest):
    """The headers of an upload; the body has the pairs."""

    name: str
    columns: list[str] = Field([])
    split_words: bool | None = None  # None: the reader decides
