"""The errors of operations on the Hub; their messages state what to do, without the token."""

import os
import socket
from typing import Any

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

from playground.common import messages
from playground.common.format import format_duration
from playground.errors import UserError

from . import transport

# The codes of errors: there is no connection to the Hub, or it fails for some time.
HUB_UNREACHABLE = "hub_unreachable"
HUB_UNAVAILABLE = "hub_unavailable"


class HubError(UserError):
    """An error of an operation on the Hub."""


class NotFoundError(HubError):
    """An error for a repository, a revision or a file that does not exist."""


def to_hub_error(
    error: Exception, action: str, repo: str, *, endpoint: str, token: str
) -> HubError:
    """Convert an error to one for the user; `action` completes "could not ..."."""
    causes = _causes(error)

    def find(*kinds: type[BaseException]) -> Any:
        return next((cause for cause in causes if isinstance(cause, kinds)), None)

    def redact(text: str) -> str:
        return text.replace(token, "[token]") if token else text

    def temporary(problem: str) -> HubError:
        return HubError(f"could not {action}: {problem}", retryable=True)

    if rate_limited := find(transport.RateLimited):
        wait = format_duration(rate_limited.args[0])
        return temporary(f"the Hub requests a wait of {wait}; try again then")
    if find(GatedRepoError):
        steps = "request access" if token else "sign in, request access"
        return HubError(f"{repo} is gated: {steps} on its page, {endpoint}/{repo}, then try again")
    if find(RevisionNotFoundError):
        return NotFoundError(f"{repo} has no such revision; name a branch, a tag or a commit of it")
    if (missing := find(RepositoryNotFoundError)) and not (
        token and missing.response.status_code == 401
    ):
        scope = "that this token can read" if token else "that is public"
        return NotFoundError(
            f"there is no repository {repo} {scope}; check the spelling, user/name"
        )
    if find(OfflineModeIsEnabled):
        return HubError(messages.HUB_OFFLINE, retryable=True, code=HUB_UNREACHABLE)
    if find(httpx.ConnectError, httpx.ConnectTimeout):
        cause = "no internet connection, or an unknown host name"
        if not find(socket.gaierror):
            cause = getattr(find(OSError), "strerror", None) or "no response"
        return HubError(
            f"the Hub ({endpoint}) cannot be reached: {cause}; check the network and try again",
            retryable=True,
            code=HUB_UNREACHABLE,
        )
    if http_error := find(HfHubHTTPError):
        message = redact((http_error.server_message or "").split("\n")[0])[:200]
        return _status_error(
            http_error.response.status_code,
            action,
            f" (message of the Hub: {message})" if message else "",
        )
    if find(httpx.TimeoutException):
        limit = f"{transport.READ_TIMEOUT_S:g} s"
        return temporary(f"no response from the Hub within {limit}; try again")
    if find(httpx.HTTPError, ConnectionError):
        return temporary("the connection to the Hub broke; try again")
    if (problem := find(OSError)) and not isinstance(error, ValueError):
        reason = problem.strerror or redact(str(problem))
        return temporary(f"{reason}; free disk space and try again")
    root = f"{type(causes[-1]).__name__}: {redact(str(causes[-1]))}"
    return temporary(f"the Hub sent an invalid response; try again ({root.splitlines()[0][:200]})")


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error and its causes."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    return causes


def _status_error(status: int, action: str, remark: str) -> HubError:
    """Return the error for a status of the Hub; `remark` is its own message in parentheses."""
    if status == 404:
        return NotFoundError(f"could not {action}: the Hub has no such file{remark}")
    access, restriction = "read", ""
    if not action.startswith(("read", "list", "download", "fetch")):
        access = "write"
        if "SPACE_ID" in os.environ:  # users of a Space sign in with the scope contribute-repos
            restriction = (
                "; a sign-in on a Space has write access to repositories created from it only: "
                "choose a new name"
            )
    problem = f"the Hub rejected it (status {status}){remark}"
    if status >= 500:
        problem = f"the Hub has a server error (status {status}); try again later"
    texts = {
        401: "the Hub rejected this token, which may have expired: create a new one and sign in "
        f"again{remark}",
        403: f"this token has no permission to {action}: it needs {access} access there"
        f"{restriction}{remark}",
        409: f"could not {action}: another operation is in progress; try again{remark}",
        412: "another commit was pushed in the meantime, and nothing was overwritten; check the "
        "repository and try again",
        429: f"could not {action}: the Hub received too many requests from this address; try again "
        "in some minutes",
    }
    retryable = status in (409, 412, 429) or status >= 500
    return HubError(texts.get(status, f"could not {action}: {problem}"), retryable=retryable)
