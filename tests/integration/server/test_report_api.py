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
@pytest.mark.parametrize(
    ("route", "model", "name", "title"),
    [
        ("runs/report", "watch:{run.share_id}", "b-my-run-report.html", "<h1>&lt;b&gt;my run</h1>"),
        ("runs/page", "run:{run.id}", "b-my-run.html", "&lt;b&gt;my run: break this transformer"),
    ],
)
def test_a_file_has_the_name_of_the_run_and_no_id(
    registry, trained_checkpoint, route, model, name, title
):
    owner = new_owner_key()
    sent = shutil.copytree(trained_checkpoint, registry.root / f".{name}")
    run = registry.import_checkpoint(sent, owner, "<b>my run")
    subject = model.format(run=run)
    file = request_file(registry, route, subject=subject, owner=owner)
    assert file["name"] == name
    assert title in file["html"]
    assert str(registry.root) not in file["html"]
    assert run.id not in file["html"]
