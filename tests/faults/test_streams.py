"""Streams of events whose clients leave in the middle."""

import json
import secrets
import socket
import time
from contextlib import ExitStack

import pytest

from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import Page

# Writes how many of Gradio's heartbeats run in the server.
COUNT_HEARTBEATS = """
import asyncio, os, pathlib, sys, threading, time

def count():
    path = pathlib.Path(os.environ["HEARTBEATS"])
    while True:
        time.sleep(0.2)
        known = asyncio.tasks._all_tasks if hasattr(asyncio.tasks, "_all_tasks") else asyncio.tasks._scheduled_tasks
        tasks = [task for task in list(known) if not task.done()]
        names = [task.get_coro().__qualname__ for task in tasks]
        path.with_suffix(".new").write_text(str(sum(name.endswith(".heartbeat") for name in names)))
        path.with_suffix(".new").replace(path)

if "app.py" in sys.orig_argv:  # not in its worker processes
    threading.Thread(target=count, daemon=True).start()
"""


@pytest.mark.timeout(300)
def test_abandoned_streams_leave_no_task_and_no_traceback(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(COUNT_HEARTBEATS)
    running = tmp_path / "heartbeats.txt"
    app = AppServer(tmp_path, PYTHONPATH=str(tmp_path), HEARTBEATS=str(running), GRADIO_SERVER_NAME="0.0.0.0", PLAYGROUND_ADDRESS_MS="0")
    try:
        page = Page(app)
        events = json.loads(page.get("/config"))["dependencies"]
        load = next(each["id"] for each in events if any(target[1] == "load" for target in each["targets"]))
        for _ in range(6):
            session = secrets.token_hex(6)
            body = {"data": [""], "fn_index": load, "session_hash": session}
            page.post("/gradio_api/queue/join", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with ExitStack() as streams:
                for _ in range(3):
                    stream = streams.enter_context(socket.create_connection(("127.0.0.1", app.port), timeout=30))
                    stream.sendall(f"GET /gradio_api/queue/data?session_hash={session} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                wait_for(lambda: int(running.read_text()), 30, "a heartbeat")
                time.sleep(0.3)
        wait_for(lambda: running.read_text() == "0", 30, "the end of every heartbeat")
    finally:
        app.stop()
    assert "Traceback" not in app.log.read_text()
