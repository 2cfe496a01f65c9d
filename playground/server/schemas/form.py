"""Requests of the form of a run."""

from .base import JsonObject, OptionalOwner, OwnerRequest, RequestBody


class CheckForm(RequestBody):
    """The values of the form by field; a missing field has its default."""

    values: JsonObject
    owner: OptionalOwner = ""


class FillForm(RequestBody):
    """The settings of a link or of a run as JSON text."""

    settings: str


class StartRun(OwnerRequest):
    """The values of the form by field, and the speed of the new run in steps per second."""

    values: JsonObject
    speed: float = 0.0
