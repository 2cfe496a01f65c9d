"""Read the owner key that a browser stores, or store it in a cookie.

The page stores the key in its local storage, and sends it when it loads.

A browser may deny local storage to a page in a frame of another site, such as a Space. Then a
cookie stores the key:

- it is HttpOnly, so scripts of the page and of the embedding site cannot read it;
- it is Partitioned, so it exists only in frames of the site on which it was set;
- the server reads it only when a page of its own loads, because frames of other Spaces share the
  partition, and their requests contain the cookie, too.

No URL contains the key, so neither a Referer nor an access log contains it.
"""

from typing import Any

from starlette.requests import Request

from playground.runs.owner_keys import OWNER_KEY_PATTERN

from .origin import is_own_origin
from .routes import HandlerGroup, handler
from .schemas.session import CheckSession, StoreSession

COOKIE = "__Host-playground-owner"  # with this prefix no other host of the domain can set it
COOKIE_MAX_AGE_S = 180 * 86400
SESSION_KEY = "transformer-playground"  # of the local storage; train/session.js writes it
# The browser may store any text. This one sends nothing that the checks of requests reject.
READ_SESSION_JS = f"""() => {{
  try {{
    const text = localStorage.getItem("{SESSION_KEY}") ?? "";
    return [/^[-\\w {{}}":]{{1,999}}$/.test(text) ? text : ""];
  }} catch {{
    return [""];
  }}
}}"""


def owner_cookie(owner: str) -> str:
    """Return the Set-Cookie header that stores an owner key."""
    return (
        f"{COOKIE}={owner}; Max-Age={COOKIE_MAX_AGE_S}; Path=/; Secure; HttpOnly; SameSite=None; "
        "Partitioned"
    )


def owner_from_cookie(request: Request) -> str:
    """Return the owner key in the cookie of a request, or "" for a page of another site."""
    if not request.headers.get("origin") or not is_own_origin(request.headers):
        return ""
    owner = request.cookies.get(COOKIE, "")
    return owner if OWNER_KEY_PATTERN.fullmatch(owner) else ""


class SessionHandlers(HandlerGroup):
    """The handlers for a page without local storage.

    Args:
        local_owner: the owner key of a local instance, which needs no cookie.
    """

    def __init__(self, local_owner: str) -> None:
        self.local_owner = local_owner

    @handler("session/store", StoreSession)
    async def store(self, request: StoreSession, http_request: Request) -> dict[str, Any]:
        """Store the owner key in a cookie."""
        if not self.local_owner and http_request.headers.get("origin"):
            http_request.state.response_headers = {
                "set-cookie": owner_cookie(request.owner),
                "cache-control": "no-store",
            }
        return {}

    @handler("session/is-stored", CheckSession)
    async def is_stored(self, request: CheckSession, http_request: Request) -> dict[str, Any]:
        """Return whether the browser has stored the owner key."""
        owner = request.owner
        is_in_cookie = bool(owner) and owner_from_cookie(http_request) == owner
        return {"is_stored": bool(self.local_owner) or is_in_cookie}
