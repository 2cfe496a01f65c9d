"""The routes of the Compare tab; no job and no run starts a process."""

import shutil
from types import SimpleNamespace

import pytest

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.checkpoints.manifest import read_manifest
from playground.hub.jobs import HubJobs
from playground.pretrained.jobs import KINDS, PretrainedJobs
from playground.runs.access import RUN_PREFIX
from playground.runs.metric_series import MetricSeries
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.server import architectures_api
from playground.server.architectures_api import ArchitectureHandlers
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
    handlers = compare_handlers.handlers() | ArchitectureHandlers(registry).handlers()
    handlers |= live_handlers(registry)
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


def test_publishing_needs_a_model(compare_handlers):
    fields = {"owner": OWNER, "kind": "push", "request": {"repo": "ada/x", "token": "hf_x"}}
    assert "select another one" in send(compare_handlers, "jobs/submit", fields)["error"]


# Architectures


def test_architectures_are_matched_to_the_selected_model_and_lengths(compare_handlers, monkeypatch):
    monkeypatch.setattr(architectures_api, "match_parameters", lambda config, *_: config)
    result = send(
        compare_handlers, "architectures/matched", {"owner": OWNER, "subject": "checkpoint:reverse"}
    )
    config = read_manifest(ROOT / "checkpoints" / "reverse").config
    assert {entry["architecture"] for entry in result["architectures"]} == set(ARCHITECTURES)
    assert [entry["architecture"] for entry in result["architectures"] if entry["is_current"]] == [
        config.architecture
    ]
    assert result["parameters"] == parameter_count(config.model)
    assert (result["task"], result["min_length"], result["max_length"]) == ("reverse 1–10", 1, 10)
    longer_result = send(
        compare_handlers,
        "architectures/matched",
        {"owner": OWNER, "subject": "checkpoint:reverse", "min_length": 6, "max_length": 12},
    )
    assert longer_result["task"] == "reverse 6–12"
    for lengths in (
        {"min_length": 7, "max_length": 6},
        {"max_length": "6"},
        {"max_length": 10_000},
    ):
        assert (
            "length"
            in send(
                compare_handlers,
                "architectures/matched",
                {"owner": OWNER, "subject": "checkpoint:reverse", **lengths},
            )["error"]
        )


def test_an_architecture_trains_until_its_target_score(compare_handlers, registry, monkeypatch):
    monkeypatch.setattr(
        architectures_api, "match_parameters", lambda config, *_: config.replace(max_steps=9)
    )
    fields = {"owner": OWNER, "subject": "checkpoint:reverse", "max_length": 3}
    result = send(
        compare_handlers, "architectures/train", fields | {"architectures": ["transformer"]}
    )
    assert not result["error"]
    (started,) = result["runs"]
    run = registry.find(started["subject"].removeprefix(RUN_PREFIX), OWNER)
    assert (run.status, run.config.task.max_length) == ("waiting", 3)
    assert run.config.training.stop_at_exact_match == architectures_api.TARGET_SCORE
    request = {"owner": OWNER, "subjects": [started["subject"]]}
    (curve,) = send(compare_handlers, "runs/curves", request)["curves"]
    assert (curve["status"], curve["reached"]) == ("waiting", None)
    other = send(compare_handlers, "runs/curves", request | {"owner": OTHER})
    assert other == {"curves": []}


def test_a_curve_names_the_first_step_and_time_at_the_target_score(compare_handlers, run):
    target = architectures_api.TARGET_SCORE
    scores = {2: target - 0.01, 4: target, 5: 1.0}
    points = MetricSeries(
        {"step": step, "loss": 1 / step, "seconds": step / 4, "exact_match": scores.get(step)}
        for step in range(1, 7)
    )
    run.update_live(points=points)
    request = {"owner": OWNER, "subjects": [RUN_PREFIX + run.id]}
    (curve,) = send(compare_handlers, "runs/curves", request)["curves"]
    assert curve["reached"] == (4, 1.0)
    assert curve["steps"] == [*range(1, 7)]


def test_all_architectures_can_have_the_optimizer_of_the_selected_model(compare_handlers):
    fields = {"owner": OWNER, "subject": "checkpoint:reverse"}

    def optimizers(**more):
        result = send(compare_handlers, "architectures/matched", fields | more)
        return {row["architecture"]: row["optimizer"] for row in result["architectures"]}

    own, same = optimizers(), optimizers(same_optimizer=True)
    assert own["transformer"] == "Muon, 0.003, averaged weights"
    assert own["bert"] == "Adam, 0.002"
    assert set(same.values()) == {own["transformer"]}
    assert optimizers(same_optimizer=False) == own


def test_unknown_architectures_are_rejected(compare_handlers):
    for architectures in ([], ["nothing"], "bert", [3], None):
        result = send(
            compare_handlers,
            "architectures/train",
            {"owner": OWNER, "subject": "checkpoint:reverse", "architectures": architectures},
        )
        assert "select architectures" in result["error"]


def test_transformers_architectures_match_the_parameter_budget(compare_handlers):
    result = send(
        compare_handlers,
        "architectures/matched",
        {"owner": OWNER, "subject": "checkpoint:reverse", "min_length": 6, "max_length": 6},
    )
    for row in result["architectures"][:3]:
        assert row["parameters"] == pytest.approx(result["parameters"], rel=0.05)
    assert [row["architecture"] for row in result["architectures"][:3]] == list(
        architectures_api.TRANSFORMERS_ARCHITECTURES
    )


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
