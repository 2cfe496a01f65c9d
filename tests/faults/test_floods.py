"""Floods of connections, streams, calls and page loads: nothing is left, and others are served."""

import http.client
import json
import shutil
import signal
import socket
import statistics
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psutil
import pytest
from gradio_client import Client

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import PageClient, PollingThread
from tests.support.pooling_proxy import PoolingProxy
from tests.support.small_runs import repeat_counts

# On the signal, the server writes the number of the tasks of its event loops into a file.
COUNT_TASKS = """
import asyncio, gc, os, signal
def count_tasks(*_):
    loops = [each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop)]
    count = sum(len(asyncio.all_tasks(each)) for each in loops if each.is_running())
    with open(os.environ["TASK_COUNT_FILE"] + ".new", "w") as file:
        file.write(str(count))
    os.replace(file.name, os.environ["TASK_COUNT_FILE"])
signal.signal(signal.SIGUSR2, count_tasks)
"""
FEW, MANY = 50, 6000
HALF_REQUEST = b"POST /playground/api/runs/poll HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\n{"
MAX_GROWTH_BYTES = 20e6  # the allocator alone may hold 12 MB after 100 page loads


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """A shared instance without limits of addresses, behind a proxy."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "sitecustomize.py").write_text(COUNT_TASKS)
    app = AppServer(
        folder,
        GRADIO_SERVER_NAME="0.0.0.0",
        PYTHONPATH=str(folder),
        TASK_COUNT_FILE=str(folder / "tasks"),
        PLAYGROUND_ADDRESS_MS="0",
        PLAYGROUND_API_PROXIES="1",
    )
    PageClient(app, new_owner_key()).poll("checkpoint:reverse")  # waits for processes that start
    yield app
    app.stop()


def count_tasks(app):
    file = app.log.with_name("tasks")
    file.unlink(missing_ok=True)
    app.process.send_signal(signal.SIGUSR2)
    wait_for(file.exists, 30, "the number of tasks")
    return int(file.read_text())


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def send(port, method, path, body=None):
    """Send one request; return status and text."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            return response.status, response.read().decode()


def call(port, endpoint, *values):
    """Start a call of an endpoint; return its event, which is a session too."""
    body = json.dumps({"data": values})
    status, text = send(port, "POST", f"/gradio_api/call/{endpoint}", body)
    return json.loads(text)["event_id"] if status == 200 else status


def idle_and_closed(port, count, opened):
    """Hold a third of the connections, and open and close the others."""
    idle(port, count // 3, opened)
    for _ in range(count // 3):
        connect(port).close()


def idle(port, count, opened):
    for _ in range(count):
        opened.append(connect(port))


def slow_senders(port, count, opened):
    for _ in range(max(20, count // 30)):
        opened.append(connect(port))
        opened[-1].sendall(HALF_REQUEST)


def streams_of_one_session(port, count, opened):
    """Open the stream of one event repeatedly; all but one at a time are rejected."""
    event = call(port, "evaluate", "checkpoint:reverse", 2000, "", -1)
    assert isinstance(event, str), event
    statuses = Counter()
    for _ in range(count // 3):
        opened.append(connect(port))
        path = f"/gradio_api/queue/data?session_hash={event}"
        opened[-1].sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    for each in opened:
        statuses[each.recv(12)[9:]] += 1
    # the first may end meanwhile, and a second one begin
    assert statuses[b"429"] + statuses[b"404"] >= len(opened) - 2, statuses


def unread_joins(port, count, opened):
    """Start calls from many threads, and read no result."""
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: call(port, "models", ""), range(count * 13 // 30)))
    assert set(filter(lambda each: isinstance(each, int), answers)) <= {503}


FLOODS = [idle_and_closed, idle, slow_senders, streams_of_one_session, unread_joins]


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
@pytest.mark.parametrize("through_proxy", [False, True], ids=["direct", "proxy"])
@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_a_flood_delays_no_other_client_and_leaves_no_trace(
    app, flood, through_proxy, count, record_property
):
    server = psutil.Process(app.process.pid)
    watcher = PollingThread(
        PageClient(app, new_owner_key(), keeps_connection=True), "checkpoint:reverse", 10
    )
    wait_for(lambda: send(app.port, "GET", "/config")[0] == 200)
    tasks, sockets = count_tasks(app), len(server.net_connections())
    opened = []
    with ExitStack() as stack:
        port = stack.enter_context(PoolingProxy(app.port)).port if through_proxy else app.port
        watcher.start()
        try:
            flood(port, count, opened)
            n_polls = len(watcher.response_seconds)
            wait_for(lambda: len(watcher.response_seconds) >= n_polls + 8, 60, "polls of another")
        finally:
            watcher.stopping.set()
            watcher.join(60)
            for each in opened:
                each.close()
    assert watcher.errors == []
    client = Client(app.url, verbose=False)
    prediction = client.predict("checkpoint:reverse", "3 1 4", api_name="/predict")
    client.close()
    assert prediction["prediction"] == ["4", "1", "3"], prediction
    wait_for(lambda: count_tasks(app) <= tasks + 2, 60, "the end of every task of the flood")
    wait_for(
        lambda: len(server.net_connections()) <= sockets + 2, 60, "the end of every connection"
    )
    assert "Traceback" not in app.log.read_text()
    record_property("slowest poll, ms", round(1000 * max(watcher.response_seconds)))
    record_property("median poll, ms", round(1000 * statistics.median(watcher.response_seconds)))


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
    opened, without_host = [], HALF_REQUEST.replace(b"Host: x\r\n", b"")
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
                connection.sendall((b"", HALF_REQUEST[:40], without_host)[number % 3])
            except OSError:
                continue  # the server may refuse connections
        # each request has a timeout of a minute, which passes if the server accepts no connection
        for _ in range(3):
            assert app.get("/config")[0] == 200
            assert PageClient(app, new_owner_key()).call("runs/list")["runs"] == []
    finally:
        for connection in opened:
            connection.close()
        app.stop()
    assert app.log.stat().st_size < 1_000_000
    # many connections may reach the limit for a moment
    assert app.log.read_text().count("Too many open files") < 10
