"""Idle and half-sent connections on a server with few file descriptors."""

import shutil
import socket

import pytest

from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import PageClient

HALF_REQUEST = (
    b"",
    b"GET / HTTP/1.1\r\nHost: 127",
    b"POST /playground/api/runs/poll HTTP/1.1\r\nContent-Length: 90\r\n\r\n{",
)


@pytest.mark.smoke
@pytest.mark.skipif(
    shutil.which("prlimit") is None, reason="prlimit sets the limit of file descriptors"
)
def test_idle_connections_block_no_client_and_fill_no_log(tmp_path):
    app = AppServer(
        tmp_path,
        command_prefix=("prlimit", "--nofile=160:160"),
        GRADIO_SERVER_NAME="0.0.0.0",
        PYTHONUNBUFFERED="1",
    )
    opened = []
    try:
        # before this line, Gradio's launch sends a request to its own server; the app ends if it
        # fails
        wait_for(lambda: "public link" in app.log.read_text(), 60, "the end of the launch")
        for number in range(400):
            connection = socket.socket()
            connection.settimeout(2)
            opened.append(connection)
            try:
                connection.connect(("127.0.0.1", app.port))
                connection.sendall(HALF_REQUEST[number % 3])
            except OSError:
                continue  # the server may refuse connections
        # each request has a timeout of a minute, which passes if the server accepts no connection
        for _ in range(3):
            assert app.get("/config")[0] == 200
            assert PageClient(app, "a" * 32).call("runs/list")["runs"] == []
    finally:
        for connection in opened:
            connection.close()
        app.stop()
    assert app.log.stat().st_size < 1_000_000
    # many connections may reach the limit for a moment
    assert app.log.read_text().count("Too many open files") < 10
