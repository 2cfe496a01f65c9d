"""The connections of the fake Hub, and the faults that end or block them."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import struct
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from .faults import Fault
from .wire import Request, Response

if TYPE_CHECKING:
    from .hub import FakeHub


class ConnectionDropped(Exception):
    """Close this connection without another response."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, hub: FakeHub) -> None:
        self.hub = hub
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer.server_bind looks up the host name, which may take seconds
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionDropped, ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass

    def serve(self) -> None:
        hub, request = self.server.hub, self.read_head()
        with hub.lock:
            hub.requests.append(request)
        fault = hub.next_fault(request)
        kind = fault.kind if fault else None
        if kind == "reset":
            self.reset()
        request.body = self.read_body()
        if fault and kind == "silent":
            self.stall(fault)
        is_status = fault and isinstance(kind, int)
        response = fault.response(request) if is_status else hub.handle(request)
        request.status = response.status
        if kind == "lost":
            self.reset()
        head, body = self.format_head(response), response.body
        if self.command == "HEAD":
            body = b""
        if fault and kind in ("hang", "cut"):
            half = head + body[: len(body) // 2] if body else head[: len(head) // 2]
            self.connection.sendall(half)
            if kind == "hang":
                self.stall(fault)
            raise ConnectionDropped
        self.connection.sendall(head + body)

    do_GET = do_HEAD = do_POST = do_PUT = serve

    def read_head(self) -> Request:
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        # A quoted slash belongs to the name of a revision or a folder, so it stays quoted until the
        # path is split.
        path = unquote(address.path.replace("%2F", "%252F").replace("%2f", "%252F"))
        query = parse_qs(address.query, keep_blank_values=True)
        return Request(self.command, path, query, headers.get("host", ""), headers)

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def format_head(self, response: Response) -> bytes:
        headers = {
            "Date": self.date_time_string(),
            "Content-Length": str(len(response.body)),
            "X-Request-Id": "Root=1-stand-in",
        }
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in (headers | response.headers).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()
        raise ConnectionDropped

    def stall(self, fault: Fault) -> None:
        """Send nothing until the fault ends or the client disconnects."""
        while not fault.ended.wait(0.02):
            ready, _, _ = select.select([self.connection], [], [], 0)
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                break
        raise ConnectionDropped
