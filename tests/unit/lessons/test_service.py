"""Lessons: runs, permissions, limits, and responses that reveal no bug before its guess.

The test controls the training processes, the measurement processes and the translations.
"""

import pytest

from playground.errors import UserError
from playground.experiments.runner import ExperimentRunner
from playground.experiments.service import ExperimentService
from playground.jobs.admission import Policy
from playground.jobs.queue import JobQueue
from playground.lessons import service as lesson_service
from playground.lessons.bug_injection import load_source
from playground.lessons.bugs import BUGS, RANDOM_BUG, resolve_bug
from playground.lessons.service import LessonJobs
from playground.models.config_fields import ConfigError
from playground.runs.record import WEIGHTS_EVICTED
from playground.runs.registry import Registry
from playground.runs.storage_quota import all_weights
from tests.support.fake_jobs import FakeExecutor

OWNER, OTHER = "o" * 32, "x" * 32
SMALL = {"max_length": 3, "d_model": 8, "n_heads": 1, "n_layers": 1, "d_ff": 8, "max_steps": 60}


@pytest.fixture
def registry(workers, tmp_path):
    registry = Registry(tmp_path, slots=2)
    yield registry
    registry.shutdown(0)


@pytest.fixture
def translations():
    """The executor of the jobs with pretrained models."""
    return FakeExecutor()


@pytest.fixture
def experiments(registry, monkeypatch):
    """The experiments of the server; the test advances them."""
    monkeypatch.setattr(ExperimentRunner, "start", lambda self: None)
    return ExperimentService(registry)


@pytest.fixture
def service(experiments, started, translations):
    pretrained = JobQueue(translations, Policy(result_ttl_s=60.0))
    service = LessonJobs(experiments, SMALL, pretrained)
    yield service
    service.close()
    pretrained.close()


def start(service, owner=OWNER, **options):
    """Start the lesson whose result is the step of half accuracy."""
    return service.submit_lesson("learning", options, owner).id


def start_bug(service, name, seed=0, steps=20, owner=OWNER, **options):
    return service.submit_bug(name, seed, steps, owner, **options).id


def cancel(service, job_id):
    service.cancel(service.get(job_id, OWNER))


def runs_of(service, job_id):
    return [entry["run"] for entry in service.poll(job_id, OWNER)["partial"]["runs"]]


def test_a_lesson_is_measured_when_its_run_has_ended(service, registry, workers, started):
    measurement_id = start(service)
    (run,) = registry.list_for_owner(OWNER)
    assert (run.hidden, run.record.started_by) == (True, "lesson")
    workers[0].train_to(run.config.training.eval_every, exact_match=0.25)
    response = service.poll(measurement_id, OWNER)
    assert (response["status"], response["message"]) == ("working", "Training")
    assert [response[name] for name in ("done", "total", "unit")] == [run.step, 60, "steps"]
    assert response["partial"]["curves"][0]["evaluations"] == [(run.step, 0.25)]
    assert started == []
    workers[0].finish()
    assert service.poll(measurement_id, OWNER)["status"] == "working"
    _, arguments, *_ = started[0].arguments
    checkpoint = run.folder / "checkpoints" / "0000060"
    run_files = ["preset Adam", str(run.folder), str(checkpoint)]
    assert arguments == ("half_accuracy_step", {"seed": 0}, [run_files])
    started[0].finish(value=40)
    response = service.poll(measurement_id, OWNER)
    assert response["status"] == "done"
    assert response["result"] == {
        "value": 40,
        "options": {"seed": 0},
        "runs": [{"label": "preset Adam", "run": f"run:{run.id}", "steps": 60}],
    }
    for owner in (OTHER, ""):
        with pytest.raises(UserError, match="no longer stored"):
            service.poll(measurement_id, owner)


def test_only_a_run_of_the_same_settings_is_reused(service, registry, workers):
    first = start(service)
    workers[0].finish()
    service.poll(first, OWNER)
    second = service.submit_lesson("attention", {"text": "3 1"}, OWNER).id
    assert runs_of(service, first) == runs_of(service, second)
    assert len(workers) == 1
    cancel(service, second)
    other_seed = start(service, seed=1)
    assert runs_of(service, other_seed) != runs_of(service, first)


def imported(run):
    run.update(imported=True)


def failed(run):
    run.update(status="failed")


@pytest.mark.parametrize("change", [imported, failed])
def test_a_run_of_unknown_or_incomplete_training_is_not_reused(service, registry, workers, change):
    first = start(service)
    workers[0].finish()
    cancel(service, first)
    (run,) = registry.list_for_owner(OWNER)
    change(run)
    assert runs_of(service, start(service)) != [f"run:{run.id}"]


def test_a_run_without_stored_weights_is_trained_again(service, registry, workers):
    first = start(service)
    workers[0].train_to(4)
    cancel(service, first)
    workers.deliver()
    (evicted,) = registry.list_for_owner(OWNER)
    assert registry.storage_quota._truncate(evicted, all_weights, WEIGHTS_EVICTED)
    second = start(service)
    _, retrained = registry.list_for_owner(OWNER)
    assert runs_of(service, second) == [f"run:{retrained.id}"]


def test_a_run_stopped_elsewhere_ends_the_measurement_and_is_resumed(service, registry, workers):
    first = start(service)
    (run,) = registry.list_for_owner(OWNER)
    registry.control(run, "stop")
    workers.deliver()
    response = service.poll(first, OWNER)
    assert (response["status"], "measure again" in response["message"]) == ("failed", True)
    second = start(service)
    assert workers[1].folder == run.folder
    assert service.poll(second, OWNER)["message"] == "Training"


def test_a_run_that_is_still_saving_continues_then(service, experiments, registry, workers):
    cancel(service, start(service))
    second = start(service)
    workers.deliver()
    experiments.runner._advance_all()
    assert workers[1].folder == workers[0].folder
    assert service.poll(second, OWNER)["message"] == "Training"
    assert len(registry.list_for_owner(OWNER)) == 1


def test_a_run_that_two_lessons_need_continues_without_one_of_them(service, registry, workers):
    first, second = start(service), service.submit_lesson("attention", {}, OWNER).id
    cancel(service, first)
    assert list(workers[0].commands) == []
    assert service.poll(second, OWNER)["message"] == "Training"
    cancel(service, second)
    assert list(workers[0].commands) == [("stop",)]


def test_the_experiment_of_a_lesson_is_in_no_list_and_on_no_disk(
    service, experiments, workers, started
):
    job_id = start(service)
    assert len(experiments.store.states) == 1
    assert experiments.store.list_for_owner(OWNER) == []
    workers[0].finish()
    experiments.runner._advance_all()
    assert not experiments.store.folder.exists()
    service.poll(job_id, OWNER)
    started[0].finish(value=40)
    assert experiments.store.states == {}


def test_a_lesson_whose_run_cannot_start_reports_why(service, registry, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "runs.per-owner=1")
    with pytest.raises(UserError, match="you have 1 runs, which is the maximum"):
        service.submit_lesson("no-positions", {}, OWNER)
    assert [run.status for run in registry.list_for_owner(OWNER)] == ["stopping"]


def test_an_impossible_request_starts_no_job(service, registry, started):
    for call in (
        lambda: service.submit_lesson("no such lesson", {}, OWNER),
        lambda: service.submit_lesson("learning", {"seed": -1}, OWNER),
        lambda: service.submit_lesson("lengths", {"positions": "no"}, OWNER),
        lambda: start_bug(service, "typo"),
    ):
        with pytest.raises((ConfigError, UserError)):
            call()
    assert registry.list_for_owner(OWNER) == started == []


def abandon(service, job_id, seconds):
    """Let the last poll of a measurement be this long ago, beyond the timeout."""
    service._jobs[job_id].polled_at -= lesson_service.UNPOLLED_TIMEOUT_S + seconds


def active(service):
    return {job.id for job in service._jobs.values() if job.is_active}


def test_an_owner_has_two_measurements_besides_abandoned_ones(service):
    first, _ = (start(service, seed=seed) for seed in (0, 1))
    with pytest.raises(UserError, match="you have 2 measurements, which is the maximum"):
        start(service, seed=2)
    abandon(service, first, 1)
    start(service, seed=2)
    assert len(active(service)) == 3


def test_an_abandoned_training_is_over_after_a_while(service, registry):
    job_id = start(service)
    abandon(service, job_id, lesson_service.RESULT_TTL_S)
    service.housekeep()
    assert not active(service)
    assert [run.status for run in registry.list_for_owner(OWNER)] == ["stopping"]


def test_a_full_service_evicts_the_longest_abandoned_waiting_one(experiments, started, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "measurements.total=3")
    service = LessonJobs(experiments, SMALL)
    measuring = start_bug(service, "last-layer", steps=1000)
    waiting = [start_bug(service, "transpose", seed, owner=OTHER) for seed in (0, 1)]
    with pytest.raises(UserError, match="this server has 3 measurements, which is the maximum"):
        start_bug(service, "transpose", owner="z" * 32)
    for job_id, seconds in ((measuring, 100), (waiting[0], 60), (waiting[1], 80)):
        abandon(service, job_id, seconds)
    latest = start_bug(service, "transpose", owner="z" * 32)
    assert active(service) == {measuring, waiting[0], latest}
    assert "no longer polls" in service.poll(waiting[1], OTHER)["message"]
    service.close()


def bug_result(name):
    """Return the source of a result, without the scores of both copies."""
    source = load_source(BUGS[name])
    return {
        "source": {"lines": list(source.lines)},
        "changed_line": source.changed_line,
        "diff": list(source.diff),
    }


@pytest.fixture
def hidden_bug(service, started, monkeypatch):
    """Return the id of the measurement of a hidden bug, whose result is there."""
    monkeypatch.setattr(lesson_service, "hint", lambda result: "Compare the loss.")

    def start(name=RANDOM_BUG, seed=0, **options):
        measurement_id = start_bug(service, name, seed, **options)
        with pytest.raises(UserError, match="there is no result yet"):
            service.submit_guess(measurement_id, OWNER, bug="transpose")
        started[0].finish(**bug_result(resolve_bug(name, seed)))
        return measurement_id

    return start


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_hidden_bug_reveals_nothing_before_its_guess(service, hidden_bug, is_linked):
    seed = next(seed for seed in range(100) if resolve_bug(RANDOM_BUG, seed) == "causal-mask")
    name = "causal-mask" if is_linked else RANDOM_BUG
    measurement_id = hidden_bug(name, seed, is_hidden=is_linked)
    response = service.poll(measurement_id, OWNER)
    result = response["result"]
    assert (response["status"], result["name"]) == ("done", RANDOM_BUG)
    assert (result["title"], result["explanation"]) == ("", "")
    assert not {"source", "changed_line", "diff"} & set(result)
    assert "causal" not in str(response)


def test_the_bug_is_revealed_before_its_line(service, hidden_bug):
    measurement_id = hidden_bug("causal-mask", is_hidden=True)
    bug, changed_line = BUGS["causal-mask"], load_source(BUGS["causal-mask"]).changed_line

    def guess(**guess):
        return service.submit_guess(measurement_id, OWNER, **guess).values()

    feedback, result = guess(bug="transpose")
    assert feedback.startswith("It is not “")
    feedback, _ = guess(line=changed_line)  # the bug must be named first
    assert "another line differs" in feedback
    feedback, result = guess(bug="causal-mask")
    assert (feedback, result["title"], "changed_line" in result) == ("", bug.title, False)
    assert result["source"]["lines"][changed_line].strip() == bug.correct_line
    feedback, result = guess(line=changed_line - 1)
    assert ("another line differs" in feedback, result["explanation"]) == (True, "")
    feedback, result = guess(line=changed_line)
    assert (feedback, result["explanation"]) == ("", bug.explanation)
    assert any(line.strip("- ") == bug.buggy_line for line in result["diff"])
    assert service.poll(measurement_id, OWNER)["result"] == result
    with pytest.raises(UserError):
        service.submit_guess(measurement_id, OTHER, line=changed_line)


def test_giving_up_reveals_the_bug(service, hidden_bug):
    measurement_id = hidden_bug()
    service.submit_guess(measurement_id, OWNER, give_up=True)
    result = service.poll(measurement_id, OWNER)["result"]
    assert result["title"] == BUGS[resolve_bug(RANDOM_BUG, 0)].title
    assert result["diff"]


@pytest.fixture
def translated(service, translations):
    """Return the id of a lesson with a translation, and the job of the translation."""
    options = {"pretrained": "ada/tiny", "prompt": "the dog"}
    measurement_id = service.submit_lesson("pretrained", options, OWNER).id
    (job,) = translations.started
    assert job.arguments == ({"model": "ada/tiny", "text": "the dog"},)
    return measurement_id, job


def test_a_lesson_waits_for_its_translation(service, workers, started, translations, translated):
    measurement_id, job = translated
    workers[0].finish()
    message = service.poll(measurement_id, OWNER)["message"]
    assert message == "Waiting for the pretrained model"
    assert started == []
    translations.done(job, output="der hund")
    service.poll(measurement_id, OWNER)
    _, (_, options, _), *_ = started[0].arguments
    assert options["pretrained_result"] == {"output": "der hund"}


def test_a_failed_translation_ends_the_measurement_and_its_run(
    service, registry, translations, translated
):
    measurement_id, job = translated
    translations.on_end(job, ("failed", {"error": "it is not an encoder-decoder"}), None)
    response = service.poll(measurement_id, OWNER)
    assert (response["status"], response["message"]) == ("failed", "it is not an encoder-decoder")
    assert [run.status for run in registry.list_for_owner(OWNER)] == ["stopping"]


def test_cancelling_a_lesson_cancels_its_run_and_its_translation(service, workers, translated):
    measurement_id, job = translated
    cancel(service, measurement_id)
    assert service.poll(measurement_id, OWNER)["status"] == "cancelled"
    assert not job.is_active
    assert list(workers[0].commands) == [("stop",)]


def test_a_translation_that_cannot_start_starts_no_run(experiments, registry, started):
    service = LessonJobs(experiments, SMALL)
    with pytest.raises(UserError, match="no process for pretrained models"):
        service.submit_lesson("pretrained", {}, OWNER)
    assert registry.list_for_owner(OWNER) == []
    service.close()
