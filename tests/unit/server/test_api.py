"""The endpoints of the API, called without a server."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.datastructures import Headers

from playground.errors import UserError
from playground.hub.jobs import HubJobs
from playground.pretrained.jobs import PretrainedJobs
from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.api import Endpoints
from playground.server.jobs_api import JobHandlers
from playground.server.live_api import live_handlers
from playground.server.rate_limit import LoadLimits
from tests.support.app_server import ROOT
from tests.support.coroutines import run_in_thread, until
from tests.support.fake_jobs import no_lessons
from tests.support.small_runs import TINY_SETTINGS


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("direct"), idle_timeout_s=0, release_after_s=0)
    registry.scheduler.schedule = lambda: None  # nothing trains
    (registry.root / "digits").symlink_to(ROOT / "checkpoints" / "reverse-one-head")
    handlers = live_handlers(registry)
    pretrained, lessons = PretrainedJobs(hosted=True), no_lessons(registry)
    handlers |= JobHandlers(registry, pretrained, HubJobs(), lessons).handlers()
    yield Endpoints(registry, handlers, LoadLimits(0, 0))
    registry.shutdown()


def fake_request(address="10.0.0.1", session=None, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(
        headers=Headers(headers),
        state=SimpleNamespace(),
        client=SimpleNamespace(host=address),
        scope={"session": session or {}},
    )


def call_endpoint(endpoints, endpoint, **values):
    return run_in_thread(endpoints.call(endpoint, fake_request(), values))


HOSTILE_VALUES = (None, -7, {}, "watch:", "checkpoint:../..", "\ud800", [["x"]])


@pytest.mark.parametrize("value", HOSTILE_VALUES, ids=lambda value: repr(value)[:20])
def test_hostile_arguments_get_an_error_message(endpoints, value):
    calls = [
        ("status", {"model": value}),
        ("pause", {"run": value}),
        ("predict", {"model": value, "sequence": "1"}),
        ("attention", {"model": value, "sequence": value}),
        ("evaluate", {"model": value}),
        ("compare", {"model": value, "models": value}),
        ("push", {"model": value, "repo": value, "token": value}),
        ("job", {"job": value, "owner": value}),
        ("cancel", {"job": value, "owner": value}),
        ("job", {"job": "x", "owner": new_owner_key(), "wait": value}),
    ]
    calls += [] if value in (None, {}) else [("start", {"settings": value})]
    calls += [] if value in ("",) else [("start", {"settings": {"task": value}})]
    calls += [
        ("start", {"settings": {"max_steps": value}}),
        ("start", {"preset": value}) if value else ("start", {"name": value or 7}),
    ]
    if value not in (None, ""):
        calls += [("start", {"owner": value}), ("models", {"owner": value})]
    for name, values in calls:
        with pytest.raises((UserError, ValueError)) as error:
            call_endpoint(endpoints, name, **values)
        assert len(str(error.value)) < 1000, name
    assert endpoints.registry.list_for_owner(endpoints.registry.single_owner) == []


@pytest.mark.parametrize("name", ["compare", "push"])
@pytest.mark.parametrize("wait", [300, -1])
def test_an_impossible_wait_is_rejected_before_the_start(endpoints, monkeypatch, name, wait):
    monkeypatch.delitem(endpoints.handlers, "jobs/submit")
    repo = {"repo": "ada/never"} if name == "push" else {}
    with pytest.raises(UserError, match="give a number from 0 to 240"):
        call_endpoint(endpoints, name, model="checkpoint:digits", wait=wait, **repo)


@pytest.mark.parametrize(
    ("name", "field", "accepted"),
    [
        ("evaluate", "n", "1 to 2,000"),
        ("compare", "n", "1 to 500"),
        ("compare", "shots", "0 to 32"),
    ],
)
def test_a_number_outside_of_its_range_gets_the_range(endpoints, name, field, accepted):
    with pytest.raises(UserError, match=f"{field} is -1; give a whole number from {accepted}"):
        call_endpoint(endpoints, name, model="checkpoint:digits", **{field: -1})


def test_an_address_starts_little_work_at_once(endpoints, monkeypatch):
    monkeypatch.setattr(endpoints, "load", LoadLimits(50, 0))  # one call in ten seconds
    for message in ("there is no model", r"too many requests at once; try again in \d+ s"):
        with pytest.raises(UserError, match=message):
            call_endpoint(endpoints, "evaluate", model="unknown")
    call_endpoint(endpoints, "settings")


def test_missing_owner_key_on_local_machine_means_local_owner(endpoints, monkeypatch):
    monkeypatch.setattr(endpoints.registry, "single_owner", "l" * 32)
    started = call_endpoint(endpoints, "start", settings=TINY_SETTINGS | {"max_steps": 1})
    assert started["owner"] == "l" * 32
    assert call_endpoint(endpoints, "status", model=started["run"])["name"] == started["name"]
    with pytest.raises(UserError, match="there is no model"):
        call_endpoint(endpoints, "status", model=started["run"], owner=new_owner_key())


def test_contradicting_preset_and_architecture_are_rejected(endpoints):
    with pytest.raises(
        UserError,
        match="preset gpt2 is of the architecture gpt2, but architecture is 'bert'; leave one of "
        "them out",
    ):
        call_endpoint(endpoints, "start", settings={"architecture": "bert"}, preset="gpt2")


def test_on_a_space_only_signed_in_users_publish(endpoints, monkeypatch):
    monkeypatch.setenv("SPACE_ID", "owner/space")
    monkeypatch.setenv("HF_TOKEN", "hf_owner")
    with pytest.raises(UserError, match="needs a sign-in"):
        call_endpoint(endpoints, "push", model="checkpoint:digits", repo="a/b", token="hf_typed")


def test_waiting_job_calls_are_bounded_and_others_return_at_once(endpoints, monkeypatch):
    polls = []

    async def poll(fields, request):
        polls.append(request.client.host)
        return {"kind": "push", "status": "working", "message": "", "retryable": False} | {
            "result": None
        }

    monkeypatch.setitem(endpoints.handlers, "jobs/poll", poll)

    async def send_many():
        calls = [
            asyncio.create_task(
                endpoints.call(
                    "job",
                    fake_request(f"10.0.0.{n % 2}"),
                    {"job": "x", "owner": new_owner_key(), "wait": 240},
                )
            )
            for n in range(100)
        ]
        await until(lambda: sum(call.done() for call in calls) == 84)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return len(set(polls)), len(endpoints.waiting_calls)

    assert run_in_thread(asyncio.wait_for(send_many(), 60)) == (2, 0)
