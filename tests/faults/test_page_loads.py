"""A visit leaves nothing in the server's memory."""

import psutil
import pytest

from playground.ui.visit import new_owner
from tests.support.app_server import AppServer
from tests.support.faults import counts
from tests.support.page_client import Page

KEPT = 20e6  # bytes; the allocator alone may hold 12 MB more after 100 visits


@pytest.mark.timeout(600)
@counts(150, 2000)
def test_page_loads_leave_the_server_as_it_was(tmp_path, count, record_property):
    app = AppServer(tmp_path, GRADIO_SERVER_NAME="0.0.0.0", PLAYGROUND_ADDRESS_MS="0")
    try:

        def visit() -> None:
            page = Page(app, new_owner())
            assert page.get("/")
            assert page.load()
            page.call("runs")

        for _ in range(60):  # what is loaded late, and the allocator's own reserve
            visit()
        server = psutil.Process(app.process.pid)
        before = server.memory_info().rss
        for _ in range(count):
            visit()
        kept = server.memory_info().rss - before
        record_property("kept_mb", round(kept / 1e6, 1))
        print(f"{count} page loads: {kept / 1e6:+.1f} MB")
        assert kept <= KEPT
    finally:
        app.stop()
