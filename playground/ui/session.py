"""The owner key that a browser stores, which gives access to its runs. It is untrusted input.

The page stores the key in local storage. A browser may deny local storage to a page in a frame of
another site, such as a Space. Then a cookie stores the key:

- it is HttpOnly, so no script can read it, neither of the page nor of the surrounding site;
- it is Partitioned, so it exists only in frames of the site on which it was set;
- it is read only when a page loads, and only from a request of a page of this server, because a
  frame of another Space shares the partition, and its requests contain the cookie, too.

No URL contains the key, so neither a Referer nor an access log contains it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request

from .origin import is_own_origin

OWNER_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{32}")
COOKIE = "__Host-playground-owner"  # with this prefix no other host of the domain can set it
COOKIE_MAX_AGE_S = 180 * 86400


def session_value(owner: str) -> str:
    """Return the value that a browser stores for an owner."""
    return json.dumps({"owner": owner})


def new_owner_key() -> str:
    """Return a new random owner key, which gives access to the runs started with it."""
    return secrets.token_urlsafe(24)


def machine_owner_key(root: Path) -> str:
    """Return the single owner key of a local instance; empty if it cannot be stored.

    Every browser gets the same key, so each has access to every run.
    """
    path = root / "runs" / ".owner"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            suppress(FileExistsError),
            open(
                path, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)
            ) as file,
        ):
            file.write(new_owner_key())
        owner = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return owner if OWNER_KEY_PATTERN.fullmatch(owner) else ""


def owner_from_session(session_json: Any) -> str:
    """Return the owner key in the value that a browser stores; empty if it is not valid."""
    try:
        owner = json.loads(session_json)["owner"]
        if OWNER_KEY_PATTERN.fullmatch(owner):
            return owner
    except (TypeError, ValueError, KeyError, RecursionError):
        pass  # a first visit, or an invalid value
    return ""


def owner_cookie(owner: str) -> str:
    """Return the Set-Cookie header that stores an owner key."""
    return (
        f"{COOKIE}={owner}; Max-Age={COOKIE_MAX_AGE_S}; Path=/; Secure; HttpOnly; SameSite=None; "
        "Partitioned"
    )


def owner_from_cookie(request: Request) -> str:
    """Return the owner key in the cookie of a request; empty for a page of another site."""
    if not request.headers.get("origin") or not is_own_origin(request.headers):
        return ""
    owner = request.cookies.get(COOKIE, "")
    return owner if OWNER_KEY_PATTERN.fullmatch(owner) else ""


def session_handlers(
    local_owner: str,
) -> dict[str, Callable[[object, Request], Awaitable[dict[str, Any]]]]:
    """Return the request handlers for a page without local storage.

    Args:
        local_owner: the owner key of a local instance, which needs no cookie.
    """

    async def store_owner(payload: object, request: Request) -> dict[str, Any]:
        owner = payload.get("owner") if isinstance(payload, dict) else None
        if not isinstance(owner, str) or not OWNER_KEY_PATTERN.fullmatch(owner):
            return {"error": "the request has no valid owner key; reload the page and try again"}
        if not local_owner and request.headers.get("origin"):
            request.state.response_headers = {
                "set-cookie": owner_cookie(owner),
                "cache-control": "no-store",
            }
        return {}

    async def is_session_stored(payload: object, request: Request) -> dict[str, Any]:
        owner = payload.get("owner") if isinstance(payload, dict) else None
        return {
            "is_stored": bool(local_owner) or (bool(owner) and owner_from_cookie(request) == owner)
        }

    return {"session/store": store_owner, "session/is-stored": is_session_stored}
