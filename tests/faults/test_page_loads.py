"""Page loads and abandoned streams leave no memory and no asyncio task in the server."""

import json
import socket
from contextlib import ExitStack

import psutil
import pytest

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer, wait_for
from tests.support.attacks import JSON_HEADERS
from tests.support.page_client import PageClient
from tests.support.small_runs import repeat_counts

MAX_GROWTH_BYTES = 20e6  # the allocator alone may hold 12 MB after 100 page loads

# Prints the number of running heartbeat tasks of Gradio.
COUNT_HEARTBEATS = """
import asyncio, os, pathlib, sys, threading, time

def count():
    path = pathlib.Path(os.environ["HEARTBEATS"])
    while True:
        time.sleep(0.2)
        is_older = hasattr(asyncio.tasks, "_all_tasks")
        known = asyncio.tasks._all_tasks if is_older else asyncio.tasks._scheduled_tasks
        tasks = [task for task in list(known) if not task.done()]
        names = [task.get_coro().__qualname__ for task in tasks]
        path.with_suffix(".new").write_text(str(sum(name.endswith(".heartbeat") for name in names)))
        path.with_suffix(".new").replace(path)

if "app.py" in sys.orig_argv:  # not in its worker processes
    threading.Thread(target=count, daemon=True).start()
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("app")
    (folder / "sitecustomize.py").write_text(COUNT_HEARTBEATS)
    environment = {"PYTHONPATH": str(folder), "HEARTBEATS": str(folder / "heartbeats.txt")}
    app = AppServer(folder, **environment, GRADIO_SERVER_NAME="0.0.0.0", PLAYGROUND_ADDRESS_MS="0")
    yield app
    app.stop()


def test_abandoned_streams_leave_no_task_and_no_traceback(app):
    running, page = app.log.parent / "heartbeats.txt", PageClient(app)
    call = json.dumps({"data": ["checkpoint:reverse", 2000, "", -1]}).encode()
    with ExitStack() as streams:
        for _ in range(2):
            event = page.post("/gradio_api/call/evaluate", call, JSON_HEADERS)["event_id"]
            stream = socket.create_connection(("127.0.0.1", app.port), timeout=30)
            streams.enter_context(stream)
            target = f"/gradio_api/call/evaluate/{event}"
            stream.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        wait_for(lambda: running.read_text() == "2", 120, "a heartbeat of each stream")
    wait_for(lambda: running.read_text() == "0", 120, "the end of every heartbeat")
    assert "Traceback" not in app.log.read_text()


@pytest.mark.timeout(600)
@repeat_counts(60, 2000)
def test_page_loads_leave_no_resources_on_the_server(app, count, record_property):
    def load_page() -> None:
        page = PageClient(app, new_owner_key())
        assert page.get("/")
        assert page.load()
        page.call("runs/list")

    for _ in range(60):  # lazy imports, and the reserve of the allocator
        load_page()
    server = psutil.Process(app.process.pid)
    before = server.memory_info().rss
    for _ in range(count):
        load_page()
    growth = server.memory_info().rss - before
    record_property("growth_mb", round(growth / 1e6, 1))
    print(f"{count} page loads: {growth / 1e6:+.1f} MB")
    assert growth <= MAX_GROWTH_BYTES
