"""Requests of a page without local storage."""

from .base import OptionalOwner, OwnerRequest, Request


class StoreSession(OwnerRequest):
    """The owner key to store in a cookie."""


class CheckSession(Request):
    """The owner key that the cookie should have."""

    owner: OptionalOwner = ""
