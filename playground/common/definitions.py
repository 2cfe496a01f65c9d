"""Definitions of the package that are data: TOML files with a table of fields for each name."""

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict


class Definition(BaseModel):
    """One entry of a file of definitions."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Kind = TypeVar("Kind", bound=Definition)


def read_definitions(path: Path, kind: type[Kind]) -> dict[str, Kind]:
    """Return the definitions of a file, by name."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: kind.model_validate(fields) for name, fields in tables.items()}
