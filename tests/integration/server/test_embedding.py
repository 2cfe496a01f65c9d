"""Frames: other sites may embed one view without an owner, and nothing else."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.responses import HTMLResponse, JSONResponse

from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.live_api import live_handlers
from playground.server.middleware import SecurityHeadersMiddleware
from playground.server.report_api import ReportHandlers
from playground.ui.embedding import EMBED_VIEWS, is_embedded
from tests.support.app_server import ROOT, wait_for
from tests.support.coroutines import run_in_thread


def policy(query, answer=None):
    """Return the frame headers of the response to a request with this query."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": query.encode(),
        "headers": [],
    }
    run_in_thread(SecurityHeadersMiddleware(answer or HTMLResponse("page"))(scope, receive, send))
    return dict(sent[0]["headers"]).get(b"content-security-policy", b"").decode()


FRAMES = "frame-ancestors 'self' https://huggingface.co"


@pytest.mark.smoke
@pytest.mark.parametrize(
    "query",
    [
        "",
        "watch=x",
        "embed=",
        "embed=all",
        "embed=Learning",
        "embeds=try",
        "embed=try&embed=all",
        "embed=all&embed=try&embed=",
        "embed=try&embed=try",
    ],
)
def test_the_whole_page_may_be_framed_by_itself_and_the_hub_only(query):
    assert FRAMES in policy(query)


@pytest.mark.parametrize("view", EMBED_VIEWS)
def test_an_embedded_view_may_be_framed_by_anybody(view):
    assert "frame-ancestors" not in policy(f"model=reverse&embed={view}")
    assert "script-src 'self'" in policy(f"model=reverse&embed={view}")


def test_only_the_page_may_run_actions():
    assert policy("", JSONResponse({})) == "default-src 'none'; sandbox"


@pytest.mark.parametrize("query", [{}, {"embed": "x"}, {"embed": None}, {"embed": "learning "}])
def test_only_existing_views_are_embedded(query):
    assert not is_embedded(query)


# The report, which the Share dialog requests


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    import shutil

    registry = Registry(tmp_path_factory.mktemp("reports"), idle_timeout_s=0, release_after_s=0)
    shutil.copytree(ROOT / "checkpoints/reverse-one-head", registry.root / "digits")
    yield registry
    registry.shutdown()


def response(registry, **what):
    return run_in_thread(ReportHandlers(registry).handlers()["runs/report"](what, None))


def test_reports_exist_for_checkpoints_and_own_runs_only(registry):
    from tests.support.small_runs import tiny_config

    actual = response(registry, subject="checkpoint:digits", owner="")
    assert actual["name"] == "digits-report.html"
    assert "<h1>digits</h1>" in actual["html"]
    owner = new_owner_key()
    run = registry.start(tiny_config(max_steps=3), owner, name="<b>mine")
    wait_for(lambda: run.status == "done", 60, "the end of the run")
    mine = response(registry, subject=f"run:{run.id}", owner=owner)
    assert mine["name"] == "b-mine-report.html"
    assert "<h1>&lt;b&gt;mine</h1>" in mine["html"]
    assert str(registry.root) not in mine["html"]
    assert run.id not in mine["html"]
    assert response(registry, subject=f"watch:{run.share_id}", owner="")["html"] == mine["html"]
    for owner in (new_owner_key(), "", None):
        assert "not yours" in response(registry, subject=f"run:{run.id}", owner=owner)["error"]


@pytest.mark.parametrize(
    "what",
    [{}, {"subject": None}, {"subject": "checkpoint:../x"}, {"subject": "watch:", "owner": 3}],
)
def test_hostile_requests_for_a_report_reach_nothing(registry, what):
    assert "error" in response(registry, **what)


def test_an_embedded_page_which_knows_no_owner_can_do_nothing_to_a_run(registry):
    from tests.support.small_runs import start_run

    run = start_run(registry, new_owner_key())
    with ThreadPoolExecutor(1) as thread:
        for subject in (f"watch:{run.share_id}", f"run:{run.id}"):
            answer = thread.submit(
                asyncio.run,
                live_handlers(registry)["runs/action"](
                    {"owner": "", "subject": subject, "action": "stop"}, None
                ),
            ).result()
            assert "not yours" in answer["error"]
    registry.control(run, "stop")
