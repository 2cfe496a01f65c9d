"""The base class of the ASGI middleware."""

from starlette.types import ASGIApp, Receive, Scope, Send


class HttpMiddleware:
    """Middleware for HTTP requests; all other connections pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.handle if scope["type"] == "http" else self.app)(scope, receive, send)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        raise NotImplementedError
