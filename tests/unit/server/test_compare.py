"""The routes of the Compare tab; no job and no run starts a process."""

import shutil
from types import SimpleNamespace

import pytest

from playground.hub.jobs import HubJobs
from playground.pretrained.jobs import KINDS, PretrainedJobs
from playground.runs.access import RUN_PREFIX
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.server.jobs_api import RIGHTS_BY_KIND, JobHandlers
from playground.server.live_api import live_handlers
from tests.support.app_server import ROOT
from tests.support.coroutines import run_in_thread
from tests.support.fake_jobs import no_lessons

OWNER, OTHER = "o" * 32, "x" * 32


@pytest.fixture
def registry(tmp_path):
    (tmp_path / "reverse").symlink_to(ROOT / "checkpoints" / "reverse")
    registry = Registry(tmp_path)
    registry.scheduler.schedule = lambda: None  # nothing trains
    yield registry
    registry.shutdown()


@pytest.fixture
def compare_handlers(registry, monkeypatch):
    """Create handlers whose jobs start no process."""
    compare_handlers = JobHandlers(registry, PretrainedJobs(), HubJobs(), no_lessons(registry))
    for queue in (compare_handlers.pretrained, compare_handlers.hub):
        monkeypatch.setattr(queue.executor, "start", lambda job: True)
    yield compare_handlers
    compare_handlers.pretrained.close()
    compare_handlers.hub.close()


def send(compare_handlers, route, fields):
    registry = compare_handlers.registry
    handlers = compare_handlers.handlers() | live_handlers(registry)
    return run_in_thread(
        handlers[route](fields, SimpleNamespace(scope={}, state=SimpleNamespace()))
    )


def find_job(compare_handlers, result):
    return compare_handlers.pretrained._jobs[result["job"]]


def test_job_checkpoint_folder_comes_from_server_never_from_browser(compare_handlers, registry):
    job_fields = {"models": ["gpt2"], "n": 4, "checkpoint": "/etc", "destination": "/tmp/x"}
    result = send(
        compare_handlers,
        "jobs/submit",
        {
            "owner": OWNER,
            "kind": "benchmark",
            "subject": "checkpoint:reverse",
            "request": job_fields,
        },
    )
    assert find_job(compare_handlers, result).arguments[0] == {
        "models": ["gpt2"],
        "n": 4,
        "checkpoint": str(registry.root / "reverse"),
        "name": "reverse",
    }
    result = send(
        compare_handlers,
        "jobs/submit",
        {"owner": OWNER, "kind": "benchmark", "request": job_fields},
    )
    assert find_job(compare_handlers, result).arguments[0] == {"models": ["gpt2"], "n": 4}


@pytest.fixture
def run(registry, trained_checkpoint):
    folder = shutil.copytree(trained_checkpoint, registry.root / ".sent")
    return registry.import_checkpoint(folder, OWNER, "my run")


def test_only_the_owner_compares_a_run_by_its_latest_checkpoint(compare_handlers, run):
    fields = {"kind": "benchmark", "subject": RUN_PREFIX + run.id, "request": {}}
    result = send(compare_handlers, "jobs/submit", fields | {"owner": OWNER})
    assert find_job(compare_handlers, result).arguments[0] == {
        "checkpoint": str(run.checkpoints()[0][0]),
        "name": "my run",
    }
    assert "not yours" in send(compare_handlers, "jobs/submit", fields | {"owner": OTHER})["error"]


@pytest.mark.parametrize("kind", ["cached-models", "account"])
def test_job_is_visible_to_its_owner_only(compare_handlers, kind):
    own = {"owner": OWNER}
    own["job"] = send(compare_handlers, "jobs/submit", own | {"kind": kind})["job"]
    assert send(compare_handlers, "jobs/poll", own)["status"] == "working"
    for route in ("jobs/poll", "jobs/cancel"):
        assert "no longer stored" in send(compare_handlers, route, own | {"owner": OTHER})["error"]
    assert send(compare_handlers, "jobs/cancel", own) == {}
    assert send(compare_handlers, "jobs/poll", own)["status"] == "cancelled"


def test_a_shared_gallery_is_not_cancelled(compare_handlers):
    jobs = [{"owner": owner} for owner in (OWNER, OTHER)]
    for each in jobs:
        each |= send(compare_handlers, "jobs/submit", each | {"kind": "gallery"})
    assert jobs[0]["job"] == jobs[1]["job"]
    assert send(compare_handlers, "jobs/cancel", jobs[0]) == {}
    assert send(compare_handlers, "jobs/poll", jobs[1])["status"] == "working"


def test_an_unknown_kind_of_job_is_rejected(compare_handlers):
    for kind in ("no such kind", "preview", ""):
        error = send(compare_handlers, "jobs/submit", {"owner": OWNER, "kind": kind})["error"]
        assert "is not a kind of job" in error
    assert set(KINDS) < set(RIGHTS_BY_KIND)


def test_fine_tuned_model_belongs_to_the_owner_of_the_request(compare_handlers):
    for owner in (OWNER, OTHER):
        fields = {
            "owner": owner,
            "kind": "finetune",
            "subject": "checkpoint:reverse",
            "request": {"model": "gpt2", "owner": "another"},
        }
        assert find_job(compare_handlers, send(compare_handlers, "jobs/submit", fields)).arguments[
            0
        ]["owner"] == owner_id(owner)
