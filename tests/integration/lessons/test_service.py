"""A lesson with its real processes: a run is trained and then measured."""

import pytest

from playground.experiments.runner import ExperimentRunner
from playground.experiments.service import ExperimentService
from playground.lessons.service import LessonJobs, LessonResult
from playground.runs.registry import Registry
from tests.support.app_server import wait_for
from tests.support.fake_jobs import FakeClock
from tests.support.response_types import problems
from tests.support.small_runs import SMALL_SETTINGS

OWNER = "o" * 32
SMALL = SMALL_SETTINGS | {"max_steps": 40, "eval_every": 10}


@pytest.mark.smoke
def test_a_lesson_trains_a_run_and_measures_it(registry):
    experiments = ExperimentService(registry)
    service = LessonJobs(experiments, SMALL)
    job = service.submit_lesson("learning", {}, OWNER)
    wait_for(
        lambda: service.poll(job.id, OWNER)["status"] not in ("waiting", "working"),
        description="the end of the measurement",
    )
    response = service.poll(job.id, OWNER)
    service.close()
    experiments.close()
    assert response["status"] == "done", response["message"]
    assert problems(response["result"], LessonResult, "result") == []
    (run,) = registry.list_for_owner(OWNER)
    evaluations = run.load_points().evaluations
    series = response["result"]["figures"][0]["series"][0]
    assert series["xs"] == [10, 20, 30, 40]
    assert series["ys"] == [exact for _, exact, *_ in evaluations]


def test_two_hundred_pupils_behind_one_address_are_measured(
    workers, started, tmp_path, monkeypatch, client_address
):
    """With one slot for runs and one for measurements, and processes that the test controls."""
    monkeypatch.setattr(ExperimentRunner, "start", lambda self: None)
    registry = Registry(tmp_path, slots=1)
    service = LessonJobs(ExperimentService(registry), SMALL)
    service._clock = FakeClock()
    client_address.set("192.0.2.1")
    pupils = [f"{number:032d}" for number in range(200)]
    jobs = {owner: service.submit_lesson("learning", {}, owner).id for owner in pupils}
    workers.finish_all()
    for owner, job_id in jobs.items():
        service.poll(job_id, owner)
    for process in started:  # the end of each starts the next one
        process.finish(value=10)
    states = [service.poll(job_id, owner)["status"] for owner, job_id in jobs.items()]
    assert states == ["done"] * 200
    service.close()
    registry.shutdown(0)
