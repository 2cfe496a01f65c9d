"""Requests about damaged records."""

from typing import Literal

from .base import Name, OwnerRequest


class RemoveDamaged(OwnerRequest):
    """A damaged record of the owner."""

    kind: Literal["run", "checkpoint", "experiment"]
    name: Name
