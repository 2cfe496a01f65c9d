"""A lesson with its real processes: a run is trained and then measured."""

import pytest

from playground.experiments.service import ExperimentService
from playground.lessons.measurement import LessonResult
from playground.lessons.service import LessonJobs
from tests.support.app_server import wait_for
from tests.support.response_types import problems

OWNER = "o" * 32
SMALL = {
    "max_length": 3,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
    "batch_size": 32,
    "max_steps": 40,
    "eval_size": 32,
    "eval_every": 10,
}


@pytest.mark.smoke
def test_a_lesson_trains_a_run_and_measures_it(registry):
    experiments = ExperimentService(registry)
    service = LessonJobs(experiments, SMALL)
    job = service.submit_lesson("learning", 10, {}, OWNER)
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
