"""Reports: one process at a time, and a bounded queue."""

import asyncio

import pytest

from playground.server import report_api
from tests.support.coroutines import run_in_thread
from tests.support.fake_jobs import fake_processes


@pytest.fixture
def answer(monkeypatch, tmp_path):
    """The started processes, and a function that requests a report."""
    going = fake_processes(monkeypatch)
    monkeypatch.setattr(report_api, "require_checkpoint", lambda *_: tmp_path)
    start = report_api.ReportHandlers(None).handlers()["runs/report"]
    return going, lambda page=None: start({"owner": "o" * 32}, page)


def test_busy_address_delays_another_address_by_one_turn(answer, client_address):
    going, start = answer

    async def until(count):
        for _ in range(200):
            if len(going) >= count:
                break
            await asyncio.sleep(0.01)
        assert len(going) == count

    async def scene():
        client_address.set("192.0.2.1")
        crowd = [asyncio.create_task(start()) for _ in range(10)]
        await until(1)
        client_address.set("192.0.2.2")
        other = asyncio.create_task(start())
        await asyncio.sleep(0.2)
        assert len(going) == 1
        assert not other.done()
        going[0].finish(zip="of the crowd")
        await until(2)
        going[1].finish(zip="of the other")
        result = await asyncio.wait_for(other, 10)
        for turn in (2, 3):
            await until(turn + 1)
            going[turn].finish(zip="of the crowd")
        return result, await asyncio.gather(*crowd)

    result, crowd = run_in_thread(scene())
    assert result["zip"] == "of the other"
    refused = [each for each in crowd if "error" in each]
    assert len(refused) == 7  # one runs and two wait
    assert all(
        each["retryable"] and "from your address are still queued or running" in each["error"]
        for each in refused
    )


class Removed:
    """A request of a client that has disconnected."""

    def __init__(self):
        self.scope = {"path": "/playground/api/runs/report"}

    async def receive(self):
        return {"type": "http.disconnect"}


def test_work_for_a_disconnected_client_ends(answer, client_address):
    going, start = answer
    client_address.set("192.0.2.1")

    async def scene():
        return await asyncio.wait_for(start(Removed()), 20)

    assert "error" in run_in_thread(scene())
    assert [process.is_killed for process in going] == [True]
