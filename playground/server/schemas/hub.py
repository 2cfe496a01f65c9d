"""Requests of the Hub tab."""

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator

from playground.hub.repo_ids import LICENSES

from .base import Name, OptionalOwner, OwnedModelRequest, Request

TaskKind = Literal["account", "gallery", "repo_info", "reproduce", "pull", "plan", "push"]


def _token(value: object) -> str:
    """Return an entered token, or "" for another value, which no message may repeat."""
    return value.strip() if isinstance(value, str) else ""


def _known_kind(value: object) -> object:
    if value not in get_args(TaskKind):
        raise ValueError(f"{str(value)[:40]!r} is not a Hub job; reload the page and try again")
    return value


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


class SubmitHubTask(OwnedModelRequest):
    """A job on the Hub."""

    kind: Annotated[TaskKind, BeforeValidator(_known_kind)]
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


class HubJob(Request):
    """A job of the owner."""

    owner: OptionalOwner = ""
    job: str = ""


class SessionInfo(Request):
    """Request the signed-in account, which the session stores."""
