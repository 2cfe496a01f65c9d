"""A report for a client that has disconnected."""

import asyncio
from types import SimpleNamespace

from playground.runs import access
from playground.server import report_api
from tests.support.coroutines import run_in_thread
from tests.support.fake_jobs import fake_processes


def test_work_for_a_disconnected_client_ends(monkeypatch):
    async def receive():
        return {"type": "http.disconnect"}

    started = fake_processes(monkeypatch)
    monkeypatch.setattr(access, "find_access", lambda *_: access.Access(access.Right.OWN))
    request = SimpleNamespace(scope={"path": "/playground/api/runs/report"}, receive=receive)
    report = report_api.ReportHandlers(SimpleNamespace()).handlers()["runs/report"]
    response = run_in_thread(asyncio.wait_for(report({"owner": "o" * 32}, request), 20))
    assert "error" in response
    assert [process.is_killed for process in started] == [True]
