"""Timeouts of connections, and the choice of the one to close at the limit."""

import asyncio
import os

import pytest
import uvicorn
from uvicorn.server import ServerState

from playground.server import connections
from playground.server.connections import BoundedConfig, BoundedProtocol, max_connections
from tests.support.coroutines import run_in_thread, until

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer(scope, receive, send):
    """Respond with 20 MB to /large, never to /wait, else with "ok" after the body."""
    while scope["path"] == "/wait":
        if (await receive())["type"] == "http.disconnect":
            return
    while scope["method"] == "POST":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        if not message["more_body"]:
            break
    body = b"x" * 20_000_000 if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def serve(monkeypatch):
    """Run a coroutine against a local server with this protocol."""
    monkeypatch.setattr(BoundedProtocol, "open_connections", set())

    def run(scenario):
        async def run_scene():
            config, state = uvicorn.Config(answer, lifespan="off", log_config=None), ServerState()
            loop = asyncio.get_running_loop()
            server = await loop.create_server(
                lambda: BoundedProtocol(config, state, {}), "127.0.0.1", 0
            )
            port = server.sockets[0].getsockname()[1]
            opened = []

            async def connect(source="127.0.0.1"):
                opened.append(
                    await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
                )
                return opened[-1]

            try:
                return await asyncio.wait_for(scenario(connect), 30)
            finally:
                for _, writer in opened:
                    writer.transport.abort()
                server.close()
                await until(lambda: not BoundedProtocol.open_connections)

        return run_in_thread(run_scene())

    return run


async def closed(reader):
    """Wait until the server closes the connection; return the received bytes."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def send_request(reader, writer):
    writer.write(REQUEST)
    return (await reader.readuntil(b"ok"))[-2:]


def test_a_closed_connection_ends_though_a_forked_process_holds_its_socket(serve):
    async def scenario(connect):
        reader, _ = await connect()
        await until(lambda: BoundedProtocol.open_connections)
        (protocol,) = BoundedProtocol.open_connections
        copy = os.dup(protocol.transport.get_extra_info("socket").fileno())
        try:
            protocol.transport.close()
            return await closed(reader)
        finally:
            os.close(copy)

    assert serve(scenario) == b""


@pytest.mark.parametrize("request_start", [b"", b"GET / HT", REQUEST[:-2]])
def test_headers_have_a_deadline(serve, monkeypatch, request_start):
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.2)

    async def scenario(connect):
        reader, writer = await connect()
        writer.write(request_start)
        return await closed(reader)

    assert serve(scenario) == b""


def test_the_deadline_holds_for_each_request_of_a_connection(serve, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_TIMEOUT_S", 0.4)

    async def scenario(connect):
        reader, writer = await connect()
        answers = [await send_request(reader, writer) for _ in range(2)]
        writer.write(REQUEST[:10])
        return answers, await closed(reader)

    assert serve(scenario) == ([b"ok", b"ok"], b"")


BODY = b"POST /wait HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "first",
    [b"", REQUEST.replace(b"/ ", b"/wait ", 1), BODY + b"1\r\na\r\n0\r\n"],
    ids=["first", "behind a request", "trailer"],
)
@pytest.mark.parametrize("size", [100, 2_000_000], ids=["many", "one"])
def test_headers_have_a_size(serve, first, size):
    async def scenario(connect):
        reader, writer = await connect()
        writer.write(first)
        served = BoundedProtocol.open_connections
        await until(lambda: any(each.cycle for each in served) or not first)
        n_sent = 0
        writer.write(b"GET / HTTP/1.1\r\n" * (b"POST" not in first))
        while n_sent < 2_000_000 and not writer.transport.is_closing():
            writer.write(b"X: " + b"y" * size + b"\r\n")
            n_sent += size
            await asyncio.sleep(0)
        return await closed(reader)

    assert serve(scenario) == b""


def test_a_large_body_is_no_header(serve):
    async def scenario(connect):
        reader, writer = await connect()
        writer.write(
            REQUEST.replace(b"GET", b"POST")[:-2]
            + b"Content-Length: 900000\r\n\r\n"
            + b"x" * 900_000
        )
        assert await reader.readuntil(b"ok")
        return await send_request(reader, writer)

    assert serve(scenario) == b"ok"


class WebSocketProtocol(asyncio.Protocol):
    """A protocol that rejects connections, as a websocket library does."""

    def __init__(self, config, server_state, app_state):
        pass

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        self.transport.close()


def test_websockets_hold_no_connection(serve, monkeypatch, caplog):
    monkeypatch.setitem(uvicorn.config.WS_PROTOCOLS, "auto", f"{__name__}:WebSocketProtocol")
    monkeypatch.setattr(BoundedProtocol, "max_open", 6)

    async def scenario(connect):
        for number in range(20):
            reader, writer = await connect(f"127.0.0.{2 + number % 4}")
            writer.write(REQUEST[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            await reader.readline()
            writer.close()
        return await send_request(*await connect())

    assert serve(scenario) == b"ok"
    assert not caplog.records


def test_a_response_that_is_not_read_ends(serve, monkeypatch):
    monkeypatch.setattr(connections, "WRITE_TIMEOUT_S", 0.3)

    async def scenario(connect):
        _, writer = await connect()
        writer.transport.pause_reading()
        writer.write(REQUEST.replace(b"/ ", b"/large ", 1))
        await until(lambda: BoundedProtocol.open_connections)
        await until(lambda: not BoundedProtocol.open_connections)
        return True

    assert serve(scenario)


def test_new_connection_closes_longest_idle_of_busiest_address(serve, monkeypatch):
    monkeypatch.setattr(BoundedProtocol, "max_open", 6)

    async def scenario(connect):
        other_client = await connect("127.0.0.2")
        assert await send_request(*other_client) == b"ok"
        crowd = [await connect() for _ in range(20)]
        opened = len(BoundedProtocol.open_connections)
        late = await connect("127.0.0.3")
        answers = [
            await send_request(*other_client),
            await send_request(*late),
            await send_request(*crowd[-1]),
        ]
        return opened, answers, [await closed(reader) for reader, _ in crowd[:16]]

    opened, answers, ended = serve(scenario)
    assert opened <= 6
    assert answers == [b"ok"] * 3
    assert ended == [b""] * 16


def test_connections_leave_descriptors_for_files_and_processes():
    assert 8 <= max_connections(128) <= 64
    assert max_connections(10**6) == connections.MAX_CONNECTIONS
    assert max_connections(16) == 8


def test_forwarding_headers_change_no_client():
    clients = []

    async def app(scope, receive, send):
        clients.append(scope["client"])

    config = BoundedConfig(app)
    config.load()
    forged = [(b"x-forwarded-for", b"192.0.2.1")]
    scope = {"type": "http", "client": ("127.0.0.1", 1), "headers": forged}
    run_in_thread(config.loaded_app(scope, None, None))
    assert clients == [("127.0.0.1", 1)]
