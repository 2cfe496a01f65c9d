"""Limits of silent connections and of headers, on a local server."""

import asyncio
import socket
from types import SimpleNamespace

import pytest
import uvicorn

from playground.server import connections
from playground.server.connections import MAX_ACCEPTED, configure_uvicorn, sweep_connections
from playground.server.datasets_api import UPLOAD_PATH
from tests.support.coroutines import run_in_thread, until

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


async def answer(scope, receive, send):
    """Respond with 20 MB to /large, never to /wait, else with "ok" after the body."""
    while scope["path"] == "/wait":
        if (await receive())["type"] == "http.disconnect":
            return
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.disconnect":
        return
    body = b"x" * 20_000_000 if scope["path"] == "/large" else b"ok"
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def serve(monkeypatch):
    """Run a coroutine against a local server that sweeps its connections often."""
    monkeypatch.setattr(uvicorn, "Config", uvicorn.Config)  # configure_uvicorn replaces it
    monkeypatch.setattr(connections, "SWEEP_INTERVAL_S", 0.05)
    monkeypatch.setattr(connections, "SILENCE_TIMEOUT_S", 0.3)
    configure_uvicorn()

    def run(scenario, max_open=1000):
        monkeypatch.setattr(connections, "raise_descriptor_limit", lambda: 2 * max_open)

        async def run_scene():
            config = uvicorn.Config(answer, lifespan="off", log_config=None)
            config.load()
            state = uvicorn.server.ServerState()
            server = await asyncio.get_running_loop().create_server(
                lambda: config.http_protocol_class(config, state, {}),
                "127.0.0.1",
                0,
                backlog=config.backlog,
            )
            blocks = SimpleNamespace()  # Gradio sets its server after the lifespan has begun
            app = SimpleNamespace(get_blocks=lambda: blocks)
            opened = []

            async def connect(request=b""):
                address = server.sockets[0].getsockname()
                reader, writer = await asyncio.open_connection(*address, limit=2**22)
                opened.append(writer)
                writer.write(request)
                return reader, writer

            try:
                async with sweep_connections(app):
                    await asyncio.sleep(0)
                    blocks.server = SimpleNamespace(server_state=state, servers=[server])
                    return await asyncio.wait_for(scenario(connect, state), 30)
            finally:
                for writer in opened:
                    writer.transport.abort()
                server.close()
                await until(lambda: not state.connections)

        return run_in_thread(run_scene())

    return run


SILENT = {
    "nothing": b"",
    "half a line": b"GET / HT",
    "no end of headers": REQUEST[:-2],
    "half a body": BODY % b"/",
    "unread response": REQUEST.replace(b"/ ", b"/large ", 1),
}


@pytest.mark.parametrize("start", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("max_open", [1000, 0], ids=["quiet", "crowded"])
def test_a_silent_client_is_disconnected(serve, monkeypatch, start, max_open):
    silence, crowded = (0.3, 60) if max_open else (60, 0.3)
    monkeypatch.setattr(connections, "SILENCE_TIMEOUT_S", silence)
    monkeypatch.setattr(connections, "CROWDED_TIMEOUT_S", crowded)

    async def scenario(connect, state):
        _, writer = await connect(start)
        writer.transport.pause_reading()
        await until(lambda: state.connections)
        await until(lambda: not state.connections)

    serve(scenario, max_open)


def test_connections_wait_for_a_turn_and_are_not_refused(serve):
    """No turn runs while they are opened; each turn accepts fewer than there are."""

    async def scenario(connect, state):
        _, first = await connect()
        await until(lambda: not state.connections)  # swept, so the sweep has begun
        address = first.get_extra_info("peername")
        opened = [socket.create_connection(address, timeout=5) for _ in range(4 * MAX_ACCEPTED)]
        await until(lambda: len(state.connections) == len(opened))
        for each in opened:
            each.close()

    serve(scenario)


def test_a_long_response_and_an_upload_are_no_silence(serve):
    async def scenario(connect, state):
        await connect(REQUEST.replace(b"/ ", b"/wait ", 1))
        reader, writer = await connect(BODY % UPLOAD_PATH.encode())
        await until(lambda: len(state.connections) == 2)
        for _ in range(2):  # each is closed later than a silent connection opened before
            await connect()
            await until(lambda: len(state.connections) == 3)
            await until(lambda: len(state.connections) == 2)
        writer.write(b"12345678")
        return (await reader.readuntil(b"ok"))[-2:], len(state.connections)

    assert serve(scenario) == (b"ok", 2)


def test_a_client_that_reads_slowly_is_served(serve):
    async def scenario(connect, state):
        reader, _ = await connect(REQUEST.replace(b"/ ", b"/large ", 1))
        await reader.readuntil(b"\r\n\r\n")
        received = 0
        while received < 20_000_000:
            received += len(await reader.read(2**20))
            await asyncio.sleep(0.03)
        return received

    assert serve(scenario) == 20_000_000


@pytest.mark.parametrize("size", [100, 2_000_000], ids=["many", "one"])
@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\n",
        BODY.partition(b"Content")[0] % b"/" + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
    ],
    ids=["headers", "trailer"],
)
def test_headers_have_a_size(serve, monkeypatch, start, size):
    monkeypatch.setattr(connections, "SILENCE_TIMEOUT_S", 60)

    async def scenario(connect, state):
        _, writer = await connect(start)
        await until(lambda: state.connections)
        while state.connections:
            writer.write(b"X: " + b"y" * size + b"\r\n")
            await asyncio.sleep(0)

    serve(scenario)


def test_a_websocket_is_answered_as_a_request_and_logs_once(serve, caplog):
    async def scenario(connect, state):
        answers = []
        for _ in range(5):
            reader, _ = await connect(
                REQUEST[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            answers.append((await reader.readuntil(b"ok"))[-2:])
        return answers

    assert serve(scenario) == [b"ok"] * 5
    assert len(caplog.records) <= 2


def test_forwarding_headers_change_no_client(monkeypatch):
    monkeypatch.setattr(uvicorn, "Config", uvicorn.Config)  # configure_uvicorn replaces it
    configure_uvicorn()
    clients = []

    async def app(scope, receive, send):
        clients.append(scope["client"])

    config = uvicorn.Config(app)
    config.load()
    forged = [(b"x-forwarded-for", b"192.0.2.1")]
    scope = {"type": "http", "client": ("127.0.0.1", 1), "headers": forged}
    run_in_thread(config.loaded_app(scope, None, None))
    assert clients == [("127.0.0.1", 1)]
