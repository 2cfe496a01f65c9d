"""Requests of the Hub tab."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from playground.hub.repo_ids import LICENSES

from .base import Name, RequestBody


def _token(value: object) -> str:
    """Return an entered token, or "" for another value, which no message may repeat."""
    return value.strip() if isinstance(value, str) else ""


def _known_license(value: str) -> str:
    license_id = value.strip().lower()
    if license_id and license_id not in LICENSES:
        raise ValueError(
            f"the license {license_id[:60]!r} is not known to the Hub; "
            "enter one such as mit, apache-2.0 or cc-by-4.0"
        )
    return license_id


Stripped = Annotated[Name, AfterValidator(str.strip)]
Token = Annotated[str, BeforeValidator(_token)]
License = Annotated[Name, AfterValidator(_known_license)]


class HubRequest(RequestBody):
    """The request of a job of the Hub."""

    repo: Stripped = ""
    token: Token = ""
    private: bool = False
    license: License = ""
    page: bool = False  # publish the interactive page too
    revision: Stripped = ""
    checkpoint: Name = ""  # of the run; without it, the newest
    expected_parent: Name | None = None
    is_main: bool = False  # the revision is the main branch
    refresh: bool = False


class SessionInfo(RequestBody):
    """RequestBody the signed-in account, which the session stores."""
