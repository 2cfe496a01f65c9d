"""The files of the Share dialog, written in their own process."""

import json
import shutil

import pytest

from playground.runs.owner_keys import new_owner_key
from playground.runs.registry import Registry
from playground.server.report_api import ReportHandlers
from tests.support.coroutines import run_in_thread


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = Registry(tmp_path_factory.mktemp("reports"), idle_timeout_s=0, release_after_s=0)
    yield registry
    registry.shutdown()


def request_file(registry, route, **fields):
    response = run_in_thread(ReportHandlers(registry).handlers()[route](fields, None))
    return response if isinstance(response, dict) else json.loads(response.body)


@pytest.mark.smoke
def test_a_report_exists_for_viewers_and_the_owner_of_a_run_only(registry, trained_checkpoint):
    owner = new_owner_key()
    sent = shutil.copytree(trained_checkpoint, registry.root / ".sent")
    run = registry.import_checkpoint(sent, owner, "<b>my run")
    report = request_file(registry, "runs/report", subject=f"watch:{run.share_id}", owner="")
    assert report["name"] == "b-my-run-report.html"
    assert "<h1>&lt;b&gt;my run</h1>" in report["html"]
    assert str(registry.root) not in report["html"]
    assert run.id not in report["html"]
    for owner in (new_owner_key(), "", None):
        response = request_file(registry, "runs/report", subject=f"run:{run.id}", owner=owner)
        assert "not yours" in response["error"]


def test_the_page_of_a_run_exists_for_its_owner_only(registry, trained_checkpoint):
    owner = new_owner_key()
    sent = shutil.copytree(trained_checkpoint, registry.root / ".copy")
    run = registry.import_checkpoint(sent, owner, "<b>my run")
    page = request_file(registry, "runs/page", subject=f"run:{run.id}", owner=owner)
    assert page["name"] == "b-my-run.html"
    assert "<title>&lt;b&gt;my run: break this transformer</title>" in page["html"]
    assert str(registry.root) not in page["html"]
    assert run.id not in page["html"]
    viewer = {"subject": f"watch:{run.share_id}", "owner": new_owner_key()}
    assert "not yours" in request_file(registry, "runs/page", **viewer)["error"]
