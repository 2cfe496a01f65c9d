"""The routes of the Learn tab."""

import json
from types import SimpleNamespace

import pytest

from playground.experiments.service import ExperimentService
from playground.lessons.bugs import BUGS, FIRST_SEED
from playground.lessons.lessons import LESSONS
from playground.lessons.service import LessonJobs
from playground.runs.registry import Registry
from playground.server.lessons_api import LessonHandlers, start_lesson_job
from playground.server.schemas.base import SubmitJob
from playground.training.presets import preset_config
from tests.support.coroutines import run_in_thread

OWNER = "o" * 32


@pytest.fixture
def lesson_handlers(tmp_path):
    registry = Registry(tmp_path, slots=3)
    experiments = ExperimentService(registry)
    yield LessonHandlers(registry, LessonJobs(experiments))
    experiments.close()
    registry.shutdown()


def send(lesson_handlers, name, **fields):
    return run_in_thread(lesson_handlers.handlers()[name](fields, None))


@pytest.mark.smoke
def test_catalog_contains_every_exercise_without_its_solution(lesson_handlers):
    response = send(lesson_handlers, "lessons/catalog", owner=OWNER)
    assert [lesson["name"] for lesson in response["lessons"]] == list(LESSONS)
    assert [bug["name"] for bug in response["bugs"]] == list(BUGS)
    assert response["seed"] == FIRST_SEED
    text = json.dumps(response)
    for bug in BUGS.values():
        assert json.dumps(bug.buggy_line)[1:-1] not in text
        assert json.dumps(bug.explanation)[1:-1] not in text
    assert response["machine"] == {
        "slots": 3,
        "slots_per_owner": 3,
        "max_measurements": 1,
        "timeout_s": 180.0,
        "is_shared": True,
    }


def test_training_times_are_estimated_and_then_measured(lesson_handlers):
    response = send(lesson_handlers, "lessons/catalog", owner=OWNER)
    lessons = {lesson["name"]: lesson for lesson in response["lessons"]}
    assert {name for name, lesson in lessons.items() if not lesson["reuses_runs"]} == {
        "learning",
        "lengths",
        "one-vector",
        "induction",
        "grokking",
    }
    assert not any(lesson["estimate"]["is_measured"] for lesson in lessons.values())
    one, two = (lessons[name]["estimate"]["seconds"] for name in ("learning", "heads"))
    assert 0 < one == pytest.approx(two)  # both runs of lesson 4 train at the same time
    assert response["bug_seconds"] > 0
    assert response["docs"] == "playground/files/docs"
    assert response["sources"] == "playground/files/docs/notebooks/sources.ipynb"
    assert lessons["no-positions"]["sources_anchor"] == "word-order"


def test_the_speed_of_earlier_runs_is_the_estimate(lesson_handlers, monkeypatch):
    run = SimpleNamespace(config=preset_config("adam", {"seed": 3}), step=100, seconds=4.0)
    monkeypatch.setattr(lesson_handlers.registry, "all_runs", lambda: [run])
    first, *_, last = send(lesson_handlers, "lessons/catalog", owner=OWNER)["lessons"]
    for lesson in (first, last):
        estimate = lesson["estimate"]
        assert (estimate["seconds"], estimate["is_measured"]) == (8.0, True)


@pytest.mark.parametrize(
    ("kind", "fields", "field", "expected_message"),
    [
        ("lesson", {"lesson": ["x"]}, "lesson", "choose one of learning"),
        ("bug", {"bug": "random", "seed": 0.5, "steps": 60}, "seed", "a whole number"),
        ("bug", {"bug": "random", "seed": 0, "steps": 5}, "steps", "from 20 to 1,000"),
    ],
)
def test_invalid_requests_get_one_message(lesson_handlers, kind, fields, field, expected_message):
    submitted = SubmitJob(owner=OWNER, kind=kind, request=fields)
    with pytest.raises(ValueError, match=expected_message) as error:
        start_lesson_job(lesson_handlers.jobs, submitted)
    assert error.value.field == field
