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
def send(registry, monkeypatch):
    """Send a request; no job starts a process."""
    jobs = JobHandlers(registry, PretrainedJobs(), HubJobs(), no_lessons(registry))
    for queue in (jobs.pretrained, jobs.hub):
        monkeypatch.setattr(queue.executor, "start", lambda job: True)

    def send(name, owner=OWNER, **fields):
        request = SimpleNamespace(scope={}, state=SimpleNamespace())
        return run_in_thread(jobs.handlers()[f"jobs/{name}"](fields | {"owner": owner}, request))

    send.request_of = lambda response: jobs.pretrained._jobs[response["job"]].arguments[0]
    yield send
    jobs.pretrained.close()
    jobs.hub.close()


def test_job_checkpoint_folder_comes_from_server_never_from_browser(send, registry):
    sent = {"models": ["gpt2"], "n": 4}
    job = {"kind": "benchmark", "request": sent | {"checkpoint": "/etc", "destination": "/tmp/x"}}
    response = send("submit", **job, subject="checkpoint:reverse")
    own = {"checkpoint": str(registry.root / "reverse"), "name": "reverse"}
    assert send.request_of(response) == sent | own
    assert send.request_of(send("submit", **job)) == sent


def test_only_the_owner_compares_a_run_by_its_latest_checkpoint(send, registry, trained_checkpoint):
    folder = shutil.copytree(trained_checkpoint, registry.root / ".sent")
    run = registry.import_checkpoint(folder, OWNER, "my run")
    job = {"kind": "benchmark", "subject": RUN_PREFIX + run.id, "request": {}}
    expected = {"checkpoint": str(run.checkpoints()[0][0]), "name": "my run"}
    assert send.request_of(send("submit", **job)) == expected
    assert "not yours" in send("submit", OTHER, **job)["error"]


def test_a_shared_gallery_is_not_cancelled(send):
    first, second = (send("submit", owner, kind="gallery") for owner in (OWNER, OTHER))
    assert first == second
    assert send("cancel", **first) == {}
    assert send("poll", OTHER, **second)["status"] == "working"


def test_an_unknown_kind_of_job_is_rejected(send):
    for kind in ("no such kind", "preview", ""):
        assert "is not a kind of job" in send("submit", kind=kind)["error"]
    assert set(KINDS) < set(RIGHTS_BY_KIND)


def test_fine_tuned_model_belongs_to_the_owner_of_the_request(send):
    sent = {"model": "gpt2", "owner": "another"}
    for owner in (OWNER, OTHER):
        job = send("submit", owner, kind="finetune", subject="checkpoint:reverse", request=sent)
        assert send.request_of(job)["owner"] == owner_id(owner)
