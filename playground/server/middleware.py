"""ASGI middleware in front of the app: which hosts, origins, routes and bodies it accepts.

Gradio registers some fifty routes, of which the page and the API use fewer than twenty. The others
fetch foreign URLs, write files, or run code, so every path that is not listed answers 404.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from brotli_asgi import BrotliMiddleware
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playground.jobs.admission import CLIENT_ADDRESS
from playground.ui.page import EMBED_VIEWS, page_policy

from .api import ENDPOINTS
from .api_page import API_PAGE
from .asgi import HttpMiddleware, accepted_encoding, json_error
from .checkpoint_transfer import CHECKPOINT_PATH as CHECKPOINT_PATH
from .checkpoint_transfer import MAX_UPLOAD_BYTES
from .client import configured_hosts, is_own_origin, public_hosts, resolve_client_address
from .datasets_api import UPLOAD_PATH as DATASETS_PATH
from .event_streams import EventStreamMiddleware
from .hub_token import narrow_sign_in
from .rate_limit import LoadLimits
from .routes import ROUTE_PREFIX, load_ms_of, parse_body

LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
MAX_BODY_BYTES = 64_000  # the requests of the page have about 5,000
BODY_TIMEOUT_S = 20.0  # timeout of a body; transfers have other timeouts
MIN_COMPRESSED_BYTES = 1000
PAGE_PATH = "/runs/page$"  # up to 27 MB of weights, of which compression saves a fourth in 0.4 s
BROTLI_QUALITY = 5  # 2 ms for the page; 9 takes 30 ms and saves 2 % more
MAX_UNREAD_MESSAGES = 200  # of one session in Gradio's queue
OTHER_SITE_MESSAGE = "this request comes from another site; open the playground itself"
NO_ENDPOINT = "There is no such endpoint; the API page lists them."
BYTES_PER_MS = 4000  # of nested JSON that the event loop parses in a millisecond

TRANSFER_PATHS = (CHECKPOINT_PATH, DATASETS_PATH)
LINKED_PAGES = ("/", API_PAGE.path)  # also by other sites
FILE_PATH = "/playground/static/"

# All served routes: (methods, pattern of the path, load). The load is an estimate of the
# milliseconds that a request costs the event loop; routes.py has the loads of its routes.
PAGE_METHODS = "GET HEAD"
SERVED_ROUTES: tuple[tuple[str, str, float], ...] = (
    (PAGE_METHODS, r"/", 5),
    (PAGE_METHODS, r"/config/?", 40),
    (PAGE_METHODS, r"/favicon\.ico|/manifest\.json|/robots\.txt|/pwa_icon", 1),
    (PAGE_METHODS, API_PAGE.path, 10),
    (PAGE_METHODS, r"/gradio_api/info/?", 30),
    (PAGE_METHODS, r"/gradio_api/startup-events", 1),
    ("POST", r"/gradio_api/queue/join", 40),
    ("GET", r"/gradio_api/queue/data", 5),
    ("POST", r"/gradio_api/(run|api|call|call/v2)/\w{1,60}/?", 25),
    ("GET", r"/gradio_api/call/(v2/)?\w{1,60}/\w{1,60}", 5),
    ("GET HEAD POST DELETE", r"/gradio_api/mcp/?(schema)?", 40),
    (PAGE_METHODS, r"/playground/static/[\w.+-]{1,60}/(?!.*\.\.)[\w./-]{1,100}", 1),
    (PAGE_METHODS, r"/playground/files/(?!.*\.\.)[\w./-]{1,200}", 2),
    ("POST", r"/playground/api/[a-z]{1,20}/[a-z-]{1,20}", 0),
    (PAGE_METHODS, r"/playground/weights", 5),
    (PAGE_METHODS, r"/playground/card", 50),
    ("GET", r"/playground/checkpoints/[\w-]{1,60}", 50),
    ("POST", r"/playground/(checkpoints|datasets)", 100),
)
SIGN_IN_ROUTE = ("GET", r"/login/(huggingface|callback)|/logout", 20)


class RouteFilterMiddleware:
    """Responds with 404 to every path that is not served, and limits the load of an address."""

    def __init__(self, app: ASGIApp, can_sign_in: bool, load: LoadLimits) -> None:
        self.app, self.load = app, load
        served = (*SERVED_ROUTES, SIGN_IN_ROUTE) if can_sign_in else SERVED_ROUTES
        self.served = [
            (set(methods.split()), re.compile(path, re.ASCII), ms) for methods, path, ms in served
        ]

    def find_load(self, method: str, path: str) -> float | None:
        """Return the load of a request in milliseconds, or None where nothing is served."""
        for methods, pattern, milliseconds in self.served:
            if method in methods and pattern.fullmatch(path):
                return milliseconds or load_ms_of(path.removeprefix(ROUTE_PREFIX))
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        load = self.find_load(scope["method"], scope["path"]) if scope["type"] == "http" else None
        if load is None:
            await send_error(404, "Not found.", scope, receive, send)
            return
        address = resolve_client_address(Request(scope))
        CLIENT_ADDRESS.set(address)
        if seconds := self.load.take_address(address, load + body_load(scope)):
            await (await self.load.reject(address, seconds))(scope, receive, send)
            return
        await self.app(scope, receive, send)


def max_body_bytes(path: str) -> int:
    return MAX_UPLOAD_BYTES if path in TRANSFER_PATHS else MAX_BODY_BYTES


def body_load(scope: Scope) -> float:
    """Return the load of reading a request's JSON; a body of unknown size counts as the largest."""
    if scope["method"] != "POST" or scope["path"] in TRANSFER_PATHS:
        return 0.0
    max_bytes = max_body_bytes(scope["path"])
    declared = Headers(scope=scope).get("content-length", "")
    return min(int(declared) if declared.isdecimal() else max_bytes, max_bytes) / BYTES_PER_MS


class OriginGuardMiddleware(HttpMiddleware):
    """Rejects requests from pages of other sites, except page loads and sign-in.

    On a local instance, other sites may only link to the page.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._is_navigation(scope) and not is_own_origin(Headers(scope=scope)):
            await send_error(403, OTHER_SITE_MESSAGE, scope, receive, send)
            return
        await self.app(scope, receive, send)

    @staticmethod
    def _is_navigation(scope: Scope) -> bool:
        is_page = scope["path"] in LINKED_PAGES or scope["path"].startswith("/login/")
        return (
            is_page and scope["method"] in ("GET", "HEAD") and "origin" not in Headers(scope=scope)
        )


class RequestSizeLimitMiddleware(HttpMiddleware):
    """Rejects request bodies that are too large or arrive too slowly."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_transfer, limit = scope["path"] in TRANSFER_PATHS, max_body_bytes(scope["path"])
        too_large = f"A request to this address may have {limit:,} bytes."
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit:
            await send_error(413, too_large, scope, receive, send)
            return
        received = 0
        deadline = asyncio.get_running_loop().time() + BODY_TIMEOUT_S
        is_complete = False

        async def limited_receive() -> Message:
            nonlocal received, is_complete
            if is_transfer or is_complete:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                timeout_message = (
                    f"The request did not arrive within {BODY_TIMEOUT_S:g} s; send it again."
                )
                raise HTTPException(408, timeout_message) from None
            received += len(message.get("body", b""))
            is_complete = not message.get("more_body", False)
            if received > limit:
                raise HTTPException(413, too_large)
            return message

        with suppress(ClientDisconnect):  # the client disconnected before the end of its body
            await self.app(scope, receive if is_transfer else limited_receive, send)


class GradioRequestMiddleware(HttpMiddleware):
    """Validates the JSON of calls before Gradio does.

    Gradio downloads the URL of any `gradio.FileData` in a request, and no component here takes
    files. For a wrong number of values Gradio logs all of them, secrets included.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not scope["path"].startswith("/gradio_api/"):
            await self.app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
            content = check_json(body)
            if not scope["path"].startswith("/gradio_api/mcp"):
                self._check_values(scope, content)
        except ValueError as error:
            await json_error(error, 422)(scope, receive, send)
            return
        except HTTPException as error:
            await send_error(error.status_code, error.detail, scope, receive, send)
            return
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self.app(scope, replay, send)

    @staticmethod
    def _check_values(scope: Scope, content: Any) -> None:
        """Check a call, to which Gradio would answer 500; raise ValueError or HTTPException."""
        if not isinstance(content, dict):
            raise ValueError("a JSON object with a list `data` is expected")
        name = scope["path"].rstrip("/").rpartition("/")[2]
        blocks, index = scope["app"].get_blocks(), content.get("fn_index")
        if index is not None:
            function = blocks.fns.get(index) if type(index) is int else None
            name = function.api_name if function else ""
        if name not in ENDPOINTS:
            raise HTTPException(404, NO_ENDPOINT)
        fields = ENDPOINTS[name].model_fields
        if "/call/v2/" in scope["path"]:
            required = {each for each, field in fields.items() if field.is_required()}
            if content.keys() - fields.keys() or required - content.keys():
                raise ValueError(
                    f"{name} takes the arguments {', '.join(fields) or 'none'}, and needs "
                    f"{', '.join(sorted(required)) or 'none'} of them; the API page describes them"
                )
            return
        values = content.get("data")
        if not isinstance(values, list):
            raise ValueError(
                "`data` must be a list with the values of the endpoint, in their order"
            )
        if len(values) != len(fields):
            raise ValueError(
                f"{name} takes {len(fields)} values and {len(values)} were given; the API page "
                "lists them with their defaults"
            )
        session = content.get("session_hash")
        if session is not None and (not isinstance(session, str) or len(session) > 60):
            raise ValueError("`session_hash` must be a text of at most 60 characters")
        messages = blocks._queue.pending_messages_per_session
        if session not in messages:
            return
        messages.move_to_end(session)  # the sessions that are dropped first are at the start
        if messages[session].qsize() > MAX_UNREAD_MESSAGES:
            raise HTTPException(429, "This session does not read its messages; reload the page.")


def check_json(body: bytes) -> Any:
    """Parse a body; raise ValueError for invalid JSON, too many brackets, or a file."""
    content = parse_body(body)
    pending = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            pending += value
        elif value == "gradio.FileData":
            raise ValueError("files are not accepted here; send text, numbers and lists")
    return content


class SecurityHeadersMiddleware(HttpMiddleware):
    """Adds a content security policy and related headers to every response.

    Only the page at "/" may run scripts. Any other document is sandboxed; those of ProjectFiles
    have a sandbox of their own. Scripts and stylesheets are no documents.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        _drop_forwarded_host(scope)

        async def add_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-content-type-options"] = "nosniff"
                if not scope["path"].startswith(FILE_PATH):
                    headers["referrer-policy"] = "same-origin"
                    policy = "default-src 'none'; sandbox"
                    if scope["path"] == "/":
                        views = _query(scope).get("embed", [])
                        is_embedded_view = len(views) == 1 and views[0] in EMBED_VIEWS
                        policy = page_policy(is_frameable=is_embedded_view)
                    headers.setdefault("content-security-policy", policy)
                if scope["path"] == "/login/huggingface" and "location" in headers:
                    headers["location"] = narrow_sign_in(headers["location"], _query(scope))
            await send(message)

        await self.app(scope, receive, add_headers)


class CompressionMiddleware(HttpMiddleware):
    """Compresses large responses of routes; the page and its files are compressed already."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(app)
        self.compressed = BrotliMiddleware(
            app,
            quality=BROTLI_QUALITY,
            minimum_size=MIN_COMPRESSED_BYTES,
            excluded_handlers=[PAGE_PATH],
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_text = scope["path"] == API_PAGE.path or scope["path"].startswith(ROUTE_PREFIX)
        headers = MutableHeaders(scope=scope)  # BrotliMiddleware ignores the weights of encodings
        headers["accept-encoding"] = accepted_encoding(",".join(headers.getlist("accept-encoding")))
        await (self.compressed if is_text else self.app)(scope, receive, send)


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _drop_forwarded_host(scope: Scope) -> None:
    """Remove untrusted addresses of this server, because Gradio writes them into the page."""
    trusted = [name.encode() for name in public_hosts()]
    scope["headers"] = [
        (name, value)
        for name, value in scope["headers"]
        if name != b"x-gradio-server" and (name != b"x-forwarded-host" or value in trusted)
    ]


async def send_error(status: int, message: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a status with a message; close a websocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    await PlainTextResponse(message, status_code=status)(scope, receive, send)


def build_middleware(is_public: bool, can_sign_in: bool, load: LoadLimits) -> list[Any]:
    """Return the middleware of a public or of a local instance."""
    # health checks of a Space use other host names
    hosts = [host.partition(":")[0] for host in configured_hosts()]
    if not is_public or hosts:
        hosts = [*LOCAL_HOSTS, *hosts]
    checks = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)] if hosts else []
    return [
        Middleware(CompressionMiddleware),
        Middleware(SecurityHeadersMiddleware),
        *checks,
        Middleware(OriginGuardMiddleware),
        Middleware(RouteFilterMiddleware, can_sign_in=can_sign_in, load=load),
        Middleware(RequestSizeLimitMiddleware),
        Middleware(GradioRequestMiddleware),
        Middleware(EventStreamMiddleware),
    ]
