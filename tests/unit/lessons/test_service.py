"""Lessons: runs, permissions, limits, and responses that reveal no bug before its guess.

The test controls the training processes, the measurement processes and the translations.
"""

import pytest

from playground.errors import UserError
from playground.experiments.runner import ExperimentRunner
from playground.experiments.service import ExperimentService
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.lessons import service as lesson_service
from playground.lessons.bug_injection import load_source
from playground.lessons.bugs import BUGS, RANDOM_BUG, resolve_bug
from playground.lessons.service import LessonService
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
    service = LessonService(experiments, SMALL, pretrained)
    yield service
    service.close()
    pretrained.close()


def start(service, owner=OWNER, **options):
    """Start the lesson whose result is the step of half accuracy."""
    return service.start_lesson("learning", 10, options, owner)


def runs_of(service, measurement_id, owner=OWNER):
    return [entry["run"] for entry in service.poll(measurement_id, owner)["runs"]]


def test_a_lesson_is_measured_when_its_run_has_ended(service, registry, workers, started):
    measurement_id = start(service)
    (run,) = registry.list_for_owner(OWNER)
    assert (run.hidden, run.record.started_by) == (True, "lesson")
    workers[0].train_to(run.config.training.eval_every, exact_match=0.25)
    response = service.poll(measurement_id, OWNER)
    assert (response["status"], response["done"], response["total"]) == ("training", run.step, 60)
    assert response["curves"][0]["evaluations"] == [(run.step, 0.25)]
    workers[0].finish()
    assert service.poll(measurement_id, OWNER)["status"] == "measuring"
    _, arguments, _ = started[0].arguments
    checkpoint = run.folder / "checkpoints" / "0000060"
    run_files = ["preset Adam", str(run.folder), str(checkpoint)]
    assert arguments == ("half_accuracy_step", {"seed": 0}, [run_files])
    started[0].finish(value=40)
    response = service.poll(measurement_id, OWNER)
    assert (response["status"], response["result"]) == ("done", {"value": 40, "is_correct": False})
    assert runs_of(service, measurement_id) == [f"run:{run.id}"]
    for owner in (OTHER, ""):
        with pytest.raises(UserError, match="no longer exists"):
            service.poll(measurement_id, owner)


def test_a_prediction_near_the_value_is_correct(service, workers, started):
    measurement_id = start(service)
    workers[0].finish()
    service.poll(measurement_id, OWNER)
    started[0].finish(value=30)
    assert service.poll(measurement_id, OWNER)["result"]["is_correct"]


def test_only_a_run_of_the_same_settings_is_reused(service, registry, workers):
    first = start(service)
    workers[0].finish()
    service.poll(first, OWNER)
    second = service.start_lesson("attention", 1, {"text": "3 1"}, OWNER)
    assert runs_of(service, first) == runs_of(service, second)
    assert len(workers) == 1
    service.cancel(second, OWNER)
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
    service.cancel(first, OWNER)
    (run,) = registry.list_for_owner(OWNER)
    change(run)
    assert runs_of(service, start(service)) != [f"run:{run.id}"]


def test_a_run_without_stored_weights_is_trained_again(service, registry, workers):
    first = start(service)
    workers[0].train_to(4)
    service.cancel(first, OWNER)
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
    assert service.poll(second, OWNER)["status"] == "training"


def test_a_run_that_is_still_saving_continues_then(service, experiments, registry, workers):
    service.cancel(start(service), OWNER)
    second = start(service)
    workers.deliver()
    experiments.runner._advance_all()
    assert workers[1].folder == workers[0].folder
    assert service.poll(second, OWNER)["status"] == "training"
    assert len(registry.list_for_owner(OWNER)) == 1


def test_a_run_that_two_lessons_need_continues_without_one_of_them(service, registry, workers):
    first, second = start(service), service.start_lesson("attention", 1, {}, OWNER)
    service.cancel(first, OWNER)
    assert list(workers[0].commands) == []
    assert service.poll(second, OWNER)["status"] == "training"
    service.cancel(second, OWNER)
    assert list(workers[0].commands) == [("stop",)]


def test_the_experiment_of_a_lesson_is_in_no_list_and_on_no_disk(service, experiments, workers):
    measurement_id = start(service)
    (experiment_id,) = experiments.store.states
    assert experiments.list_for_owner(OWNER) == []
    workers[0].finish()
    experiments.runner._advance_all()
    assert not experiments.store.folder.exists()
    service._delete(measurement_id)
    assert experiment_id not in experiments.store.states


def test_a_lesson_whose_run_cannot_start_reports_why(service, registry, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "runs.per-owner=1")
    with pytest.raises(UserError, match="you have 1 runs, which is the maximum"):
        service.start_lesson("no-positions", "order", {}, OWNER)
    assert [run.status for run in registry.list_for_owner(OWNER)] == ["stopping"]


def test_an_impossible_request_starts_no_job(service, registry, started):
    for call in (
        lambda: service.start_lesson("no such lesson", 1, {}, OWNER),
        lambda: service.start_lesson("learning", None, {}, OWNER),
        lambda: service.start_lesson("lengths", 6, {"positions": "no"}, OWNER),
        lambda: service.start_bug("typo", 0, 60, OWNER),
    ):
        with pytest.raises(ConfigError):
            call()
    assert registry.list_for_owner(OWNER) == started == []


def test_an_owner_has_two_measurements_besides_abandoned_ones(service, monkeypatch):
    for seed in (0, 1):
        start(service, seed=seed)
    with pytest.raises(UserError, match="you have 2 measurements, which is the maximum"):
        start(service, seed=2)
    monkeypatch.setattr(lesson_service, "UNPOLLED_TIMEOUT_S", -1.0)
    start(service, seed=2)


def abandon(service, measurement_id, seconds):
    """Let the last poll of a measurement be this long ago, beyond the timeout."""
    age = lesson_service.UNPOLLED_TIMEOUT_S + seconds
    service._measurements[measurement_id].polled_at -= age


def test_a_full_service_evicts_the_longest_abandoned_waiting_one(service, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "measurements.total=3")
    measuring = service.start_bug("last-layer", 0, 1000, OWNER)
    waiting = [service.start_bug("transpose", seed, 20, OTHER) for seed in (0, 1)]
    with pytest.raises(UserError, match="this server has 3 measurements, which is the maximum"):
        service.start_bug("transpose", 0, 20, "z" * 32)
    for measurement_id, seconds in ((measuring, 100), (waiting[0], 60), (waiting[1], 80)):
        abandon(service, measurement_id, seconds)
    latest = service.start_bug("transpose", 0, 20, "z" * 32)
    assert set(service._measurements) == {measuring, waiting[0], latest}
    with pytest.raises(UserError, match="no longer exists"):
        service.poll(waiting[1], OTHER)


def test_one_address_has_at_most_half_of_the_measurements(service, monkeypatch, client_address):
    monkeypatch.setenv("PLAYGROUND_LIMITS", "measurements.total=8")
    client_address.set("192.0.2.1")
    own = [service.start_bug("transpose", 0, 20, f"{number:032d}") for number in range(4)]
    with pytest.raises(UserError, match="your address has 4 measurements, which is the maximum"):
        service.start_bug("transpose", 0, 20, f"{4:032d}")
    client_address.set("192.0.2.2")
    other = service.start_bug("transpose", 0, 20, OWNER)
    client_address.set("192.0.2.1")
    abandon(service, own[2], 60)
    abandon(service, other, 120)  # the oldest abandoned one belongs to another address
    latest = service.start_bug("transpose", 0, 20, f"{5:032d}")
    assert set(service._measurements) == {own[0], own[1], own[3], other, latest}


def bug_result(name):
    """Return the source of a result, without the scores of both copies."""
    source = load_source(BUGS[name])
    return {
        "source": {"lines": list(source.lines)},
        "changed_line": source.changed_line,
        "diff": list(source.diff),
        "silent_variant": None,
    }


@pytest.fixture
def hidden_bug(service, started, monkeypatch):
    """Return the id of the measurement of a hidden bug, whose result is there."""
    monkeypatch.setattr(lesson_service, "hint", lambda result: "Compare the loss.")

    def start(name=RANDOM_BUG, seed=0, **options):
        measurement_id = service.start_bug(name, seed, 20, OWNER, **options)
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
    result = service.poll(measurement_id, OWNER)
    assert (result["status"], result["name"]) == ("done", RANDOM_BUG)
    assert not {"title", "explanation"} & set(result)
    assert not {"source", "changed_line", "diff", "silent_variant"} & set(result["result"])
    assert "causal" not in str(result)


def test_the_bug_is_revealed_before_its_line(service, hidden_bug):
    measurement_id = hidden_bug("causal-mask", is_hidden=True)
    bug, changed_line = BUGS["causal-mask"], load_source(BUGS["causal-mask"]).changed_line

    def is_right(**guess):
        return service.submit_guess(measurement_id, OWNER, **guess)["is_correct"]

    wrong = service.submit_guess(measurement_id, OWNER, bug="transpose")
    assert not wrong["is_correct"]
    assert wrong["feedback"].startswith("It is not “")
    assert not is_right(line=changed_line)  # the bug must be named first
    assert is_right(bug="causal-mask")
    result = service.poll(measurement_id, OWNER)
    assert (result["title"], "changed_line" in result["result"]) == (bug.title, False)
    assert result["result"]["source"]["lines"][changed_line].strip() == bug.correct_line
    assert not is_right(line=changed_line - 1)
    assert is_right(line=changed_line)
    result = service.poll(measurement_id, OWNER)
    assert result["explanation"] == bug.explanation
    assert any(line.strip("+ ") == bug.buggy_line for line in result["result"]["diff"])
    with pytest.raises(UserError):
        service.submit_guess(measurement_id, OTHER, line=changed_line)


def test_giving_up_reveals_the_bug(service, hidden_bug):
    measurement_id = hidden_bug()
    service.submit_guess(measurement_id, OWNER, give_up=True)
    result = service.poll(measurement_id, OWNER)
    assert result["title"] == BUGS[resolve_bug(RANDOM_BUG, 0)].title
    assert result["result"]["diff"]


@pytest.fixture
def translated(service, translations):
    """Return the id of a lesson with a translation, and the job of the translation."""
    options = {"pretrained": "ada/tiny", "sentence": "the dog"}
    measurement_id = service.start_lesson("pretrained", "aligned", options, OWNER)
    (job,) = translations.started
    assert job.arguments == ({"model": "ada/tiny", "text": "the dog"},)
    return measurement_id, job


def test_a_lesson_waits_for_its_translation(service, workers, started, translations, translated):
    measurement_id, job = translated
    workers[0].finish()
    assert service.poll(measurement_id, OWNER)["translation"]["status"] == "working"
    assert started == []
    translations.done(job, output="der hund")
    service.poll(measurement_id, OWNER)
    _, (_, options, _), _ = started[0].arguments
    assert options["translation"] == {"output": "der hund"}


def test_a_failed_translation_ends_the_measurement_and_its_run(
    service, registry, translations, translated
):
    measurement_id, job = translated
    translations.on_end(job, ("failed", "it is not an encoder-decoder", False), None)
    response = service.poll(measurement_id, OWNER)
    assert (response["status"], response["message"]) == ("failed", "it is not an encoder-decoder")
    assert [run.status for run in registry.list_for_owner(OWNER)] == ["stopping"]


def test_cancelling_a_lesson_cancels_its_run_and_its_translation(service, workers, translated):
    measurement_id, job = translated
    service.cancel(measurement_id, OWNER)
    assert service.poll(measurement_id, OWNER)["status"] == "cancelled"
    assert not job.is_active
    assert list(workers[0].commands) == [("stop",)]


def test_a_translation_that_cannot_start_starts_no_run(experiments, registry, started):
    service = LessonService(experiments, SMALL)
    with pytest.raises(UserError, match="no process for pretrained models"):
        service.start_lesson("pretrained", "aligned", {}, OWNER)
    assert registry.list_for_owner(OWNER) == []
    service.close()
