"""Requests of a page without local storage."""

from typing import Annotated

from pydantic import Field

from .base import OptionalOwner, OwnerRequest, RequestBody


class OpenSession(RequestBody):
    """The text that the browser stores; any text may be there."""

    stored: Annotated[str, Field(max_length=1000)] = ""


class StoreSession(OwnerRequest):
    """The owner key to store in a cookie."""


class CheckSession(RequestBody):
    """The owner key that the cookie should have."""

    owner: OptionalOwner = ""
