"""Read the owner key that a browser stores, or store it in a cookie.

The page stores the key in its local storage, and sends it when it loads. An embedded view has none.

A browser may deny local storage to a page in a frame of another site, such as a Space. Then a
cookie stores the key:

- it is HttpOnly, so scripts of the page and of the embedding site cannot read it;
- it is Partitioned, so it exists only in frames of the site on which it was set;
- the server reads it only when a page of its own loads, because frames of other Spaces share the
  partition, and their requests contain the cookie, too.

No URL contains the key, so neither a Referer nor an access log contains it.
"""

from typing import Annotated, Any, TypedDict

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from playground.runs.owner_keys import new_owner_key, owner_from_session, valid_owner_key

from .routes import HandlerGroup, handler
from .schemas.base import OwnerRequest, RequestBody
from .schemas.responses import Done

COOKIE = "__Host-playground-owner"  # with this prefix no other host of the domain can set it
COOKIE_MAX_AGE_S = 180 * 86400


def owner_from_cookie(request: Request) -> str:
    """Return the owner key in the cookie of a request; "" if no page has sent it."""
    if not request.headers.get("origin"):
        return ""
    return valid_owner_key(request.cookies.get(COOKIE))


class OpenSession(RequestBody):
    """The text that the browser stores; any text may be there."""

    stored: Annotated[str, Field(max_length=1000)] = ""


class OpenedSession(TypedDict):
    owner: str


class SessionHandlers(HandlerGroup):
    """The handlers of the owner key of a browser. A local instance has one, and no cookie."""

    @handler("session/open", OpenSession, OpenedSession)
    async def open(self, request: OpenSession, http_request: Request) -> dict[str, Any]:
        """Return the owner key that the browser stores, or a new one."""
        stored = owner_from_session(request.stored) or owner_from_cookie(http_request)
        return {"owner": self.registry.single_owner or stored or new_owner_key()}

    @handler("session/store", OwnerRequest, Done)
    async def store(self, request: OwnerRequest, http_request: Request) -> Any:
        """Store the owner key in a cookie; `session/open` then shows if it is there."""
        if self.registry.single_owner or not http_request.headers.get("origin"):
            return {}
        cookie = (
            f"{COOKIE}={request.owner}; Max-Age={COOKIE_MAX_AGE_S}; Path=/; Secure; HttpOnly; "
            "SameSite=None; Partitioned"
        )
        return JSONResponse({}, headers={"set-cookie": cookie, "cache-control": "no-store"})
