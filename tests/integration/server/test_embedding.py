"""Framing: other sites may embed one view, which has no owner key, and nothing else."""

import pytest
from starlette.responses import HTMLResponse, JSONResponse

from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.middleware import SecurityHeadersMiddleware
from playground.server.report_api import ReportHandlers
from playground.ui.embedding import EMBED_VIEWS, is_embedded
from tests.support.app_server import ROOT, wait_for
from tests.support.coroutines import run_in_thread


def content_security_policy(query, request_report=None):
    """Return the content security policy of the response to a query."""
    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": query.encode(),
        "headers": [],
    }
    run_in_thread(
        SecurityHeadersMiddleware(request_report or HTMLResponse("page"))(scope, receive, send)
    )
    return dict(messages[0]["headers"]).get(b"content-security-policy", b"").decode()


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
def test_full_page_is_framed_by_itself_and_the_hub_only(query):
    assert FRAMES in content_security_policy(query)


@pytest.mark.parametrize("view", EMBED_VIEWS)
def test_embedded_view_is_framed_by_any_site(view):
    assert "frame-ancestors" not in content_security_policy(f"model=reverse&embed={view}")
    assert "script-src 'self'" in content_security_policy(f"model=reverse&embed={view}")


def test_json_responses_are_sandboxed():
    assert content_security_policy("", JSONResponse({})) == "default-src 'none'; sandbox"


@pytest.mark.parametrize("query", [{}, {"embed": "x"}, {"embed": None}, {"embed": "learning "}])
def test_only_existing_views_are_embedded(query):
    assert not is_embedded(query)


# The report of the Share dialog


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    import shutil

    registry = Registry(tmp_path_factory.mktemp("reports"), idle_timeout_s=0, release_after_s=0)
    shutil.copytree(ROOT / "checkpoints/reverse-one-head", registry.root / "digits")
    yield registry
    registry.shutdown()


def request_report(registry, **fields):
    return run_in_thread(ReportHandlers(registry).handlers()["runs/report"](fields, None))


def test_reports_exist_for_checkpoints_and_own_runs_only(registry):
    from tests.support.small_runs import tiny_config

    actual = request_report(registry, subject="checkpoint:digits", owner="")
    assert actual["name"] == "digits-report.html"
    assert "<h1>digits</h1>" in actual["html"]
    owner = new_owner_key()
    run = registry.start(tiny_config(max_steps=3), owner, name="<b>my run")
    wait_for(lambda: run.status == "done", 60, "the end of the run")
    own_report = request_report(registry, subject=f"run:{run.id}", owner=owner)
    assert own_report["name"] == "b-my-run-report.html"
    assert "<h1>&lt;b&gt;my run</h1>" in own_report["html"]
    assert str(registry.root) not in own_report["html"]
    assert run.id not in own_report["html"]
    assert (
        request_report(registry, subject=f"watch:{run.share_id}", owner="")["html"]
        == own_report["html"]
    )
    for owner in (new_owner_key(), "", None):
        assert (
            "not yours" in request_report(registry, subject=f"run:{run.id}", owner=owner)["error"]
        )
