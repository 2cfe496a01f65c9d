"""What a browser remembers of its visits: whose runs it may see. It is the browser's, so it is read with care.

The page keeps the owner's key in its local storage. A browser may deny that to a page in a frame of
another site, as a Space is. Then a cookie keeps the key:

- HttpOnly, so no script reads it, neither the page's own nor one of the site around the frame;
- Partitioned, so it exists only in frames of the site on which it was set;
- read only when a page loads, and only for a request that a page of this server sends: a frame
  of another Space shares the partition, and its requests carry the cookie, too.

The key is in no address, so it is in no Referer and in no access log.
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

OWNER = re.compile(r"[A-Za-z0-9_-]{32}")
COOKIE = "__Host-playground-owner"  # the prefix: no other host of the domain can set it
COOKIE_SECONDS = 180 * 86400


def visited(owner: str) -> str:
    return json.dumps({"owner": owner})


def new_owner() -> str:
    """A secret that nobody can guess; whoever has it owns the runs that were started with it."""
    return secrets.token_urlsafe(24)


def owner_of_this_machine(root: Path) -> str:
    """The one owner of everything on a machine that serves nobody else: another browser, or a browser that has forgotten, still
    finds every run."""
    path = root / "runs" / ".owner"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            suppress(FileExistsError),
            open(
                path, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)
            ) as file,
        ):
            file.write(new_owner())
        owner = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return owner if OWNER.fullmatch(owner) else ""


def known(visit_value: Any) -> str:
    """The owner out of a browser's memory; empty where there is nothing sensible."""
    try:
        owner = json.loads(visit_value)["owner"]
        if OWNER.fullmatch(owner):
            return owner
    except (TypeError, ValueError, KeyError, RecursionError):
        pass  # a first visit, or a memory of something else
    return ""


def cookie_of(owner: str) -> str:
    """Return the Set-Cookie header that keeps an owner's key."""
    return f"{COOKIE}={owner}; Max-Age={COOKIE_SECONDS}; Path=/; Secure; HttpOnly; SameSite=None; Partitioned"


def owner_of_cookie(request: Request) -> str:
    """Return the owner's key in a request's cookie; empty where a page of another site sent the request."""
    if not request.headers.get("origin") or not is_own_origin(request.headers):
        return ""
    owner = request.cookies.get(COOKIE, "")
    return owner if OWNER.fullmatch(owner) else ""


def visit_answerers(
    local_owner: str,
) -> dict[str, Callable[[object, Request], Awaitable[dict[str, Any]]]]:
    """What a page asks whose browser denies it local storage.

    Args:
        local_owner: the owner of a server that has only one; such a page needs no cookie.
    """

    async def keep(what: object, request: Request) -> dict[str, Any]:
        owner = what.get("owner") if isinstance(what, dict) else None
        if not isinstance(owner, str) or not OWNER.fullmatch(owner):
            return {"error": "this page does not say whose it is; reload it and try again"}
        if not local_owner and request.headers.get("origin"):
            request.state.response_headers = {
                "set-cookie": cookie_of(owner),
                "cache-control": "no-store",
            }
        return {}

    async def is_kept(what: object, request: Request) -> dict[str, Any]:
        owner = what.get("owner") if isinstance(what, dict) else None
        return {"kept": bool(local_owner) or (bool(owner) and owner_of_cookie(request) == owner)}

    return {"visit-keep": keep, "visit-kept": is_kept}
