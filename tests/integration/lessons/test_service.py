"""Lessons: permissions, the queue, and responses that reveal no result before its measurement."""

import shutil

import pytest

from playground.comparison.job_queue import ComparisonQueue
from playground.errors import UserError
from playground.lessons import service as lesson_service
from playground.lessons.bugs import BUGS, RANDOM_BUG, resolve_bug
from playground.lessons.measurement import ACTIVE_STATUSES
from playground.lessons.service import LessonService
from playground.models.config_fields import ConfigError
from playground.runs.record import WEIGHTS_EVICTED
from playground.runs.storage_quota import all_weights
from tests.support.app_server import wait_for
from tests.support.fake_jobs import fake_processes

OWNER, OTHER = "o" * 32, "x" * 32
SMALL = {
    "max_length": 3,
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 32,
    "batch_size": 32,
    "max_steps": 60,
    "eval_size": 32,
    "eval_every": 10,
}
SLOW = {**SMALL, "max_steps": 100_000}


@pytest.fixture
def service(registry):
    service = LessonService(registry, SMALL)
    yield service
    service.close()


def wait_for_result(service, measurement_id, owner=OWNER):
    return wait_for(
        lambda: (
            (result := service.poll(measurement_id, owner))["status"] not in ACTIVE_STATUSES
            and result
        ),
        description="the end of the measurement",
    )


def start_and_train(service, registry):
    """Start a measurement; return its id and its run once the run has trained some steps."""
    measurement_id = service.start_lesson("learning", 10, {}, OWNER)
    (run,) = registry.list_for_owner(OWNER)
    wait_for(lambda: run.step > 3, description="some steps")
    return measurement_id, run


def test_lesson_trains_a_run_of_the_owner_and_measures_it(service, registry):
    measurement_id = service.start_lesson("learning", 10, {}, OWNER)
    result = wait_for_result(service, measurement_id)
    assert result["status"] == "done"
    (run,) = registry.list_for_owner(OWNER)
    assert (run.hidden, run.record.started_by) == (True, "lesson")
    assert result["runs"] == [
        {
            "label": "preset Adam",
            "run": f"run:{run.id}",
            "status": "done",
            "step": 60,
            "steps": 60,
            "queue_position": None,
        }
    ]
    scored = [[step, exact] for step, exact, *_ in run.load_points().evaluations]
    series = result["result"]["figures"][0]["series"][0]
    assert [series["xs"], series["ys"]] == [
        [step for step, _ in scored],
        [exact for _, exact in scored],
    ]
    crossing = next((step for step, exact in scored if exact >= 0.5), None)
    assert result["result"]["value"] == crossing
    assert result["result"]["is_correct"] == (crossing is not None and abs(crossing - 10) <= 20)

    # the same model: the run is reused
    second_result = wait_for_result(
        service, service.start_lesson("attention", 1, {"text": "3 1"}, OWNER)
    )
    assert second_result["result"]["value"] in (1, 2, 3)
    assert registry.list_for_owner(OWNER) == [run]
    result_of_other_seed = wait_for_result(
        service, service.start_lesson("learning", 10, {"seed": 1}, OWNER)
    )
    assert result_of_other_seed["runs"][0]["run"] != result["runs"][0]["run"]
    with pytest.raises(UserError, match="no longer exists"):
        service.poll(measurement_id, OTHER)


def test_run_stopped_elsewhere_fails_measurement_and_next_resumes_it(registry):
    service = LessonService(registry, SLOW)
    measurement_id, run = start_and_train(service, registry)
    registry.control(run, "stop")
    result = wait_for_result(service, measurement_id)
    assert (result["status"], "measure again" in result["message"]) == ("failed", True)
    wait_for(lambda: not run.has_worker, description="its process to end")
    second_id = service.start_lesson("learning", 10, {}, OWNER)
    wait_for(lambda: run.status == "training", description="the same run to resume")
    service.cancel(second_id, OWNER)
    service.close()


def test_imported_checkpoint_is_not_reused_as_a_run(service, registry, tmp_path):
    measurement_id = service.start_lesson("learning", 10, {}, OWNER)
    wait_for_result(service, measurement_id)
    (run,) = registry.list_for_owner(OWNER)
    wait_for(lambda: not run.has_worker, description="its process to end")
    imported = registry.import_checkpoint(
        shutil.copytree(run.checkpoints()[0][0], tmp_path / "sent"), OTHER, "sent"
    )
    assert (imported.config, imported.status) == (run.config, "done")
    measurement_id = service.start_lesson("learning", 10, {}, OTHER)
    assert f"run:{imported.id}" not in [
        entry["run"] for entry in service.poll(measurement_id, OTHER)["runs"]
    ]
    service.cancel(measurement_id, OTHER)


def test_a_run_without_stored_weights_is_trained_again(registry):
    service = LessonService(registry, SLOW)
    measurement_id = service.start_lesson("learning", 10, {}, OWNER)
    (evicted,) = registry.list_for_owner(OWNER)
    wait_for(lambda: evicted.step > 3, description="some steps")
    service.cancel(measurement_id, OWNER)
    wait_for(
        lambda: registry.storage_quota._truncate(evicted, all_weights, WEIGHTS_EVICTED),
        description="a free slot",
    )
    assert (evicted.status, evicted.evicted) == ("stopped", WEIGHTS_EVICTED)
    measurement_id = service.start_lesson("learning", 10, {}, OWNER)
    _, retrained = registry.list_for_owner(OWNER)
    assert [run["run"] for run in service.poll(measurement_id, OWNER)["runs"]] == [
        f"run:{retrained.id}"
    ]
    wait_for(lambda: retrained.step, description="a step of the new run")
    service.cancel(measurement_id, OWNER)
    service.close()


def test_run_that_is_still_saving_is_not_reused(registry):
    service = LessonService(registry, SLOW)
    measurement_id, run = start_and_train(service, registry)
    # the locks keep the process from reporting that it has saved
    with registry._lock, run.lock:
        service.cancel(measurement_id, OWNER)
        assert run.status == "stopping"
        with pytest.raises(UserError, match="still being saved; try again in a moment"):
            service.start_lesson("learning", 10, {}, OWNER)
    wait_for(lambda: run.status == "stopped", description="the run to be saved")
    second_id = service.start_lesson("learning", 10, {}, OWNER)
    assert registry.list_for_owner(OWNER) == [run]
    service.cancel(second_id, OWNER)
    service.close()


@pytest.mark.smoke
def test_an_impossible_request_starts_no_job(service, registry):
    for call in (
        lambda: service.start_lesson("one-vector", 1, {}, OWNER),
        lambda: service.start_lesson("learning", None, {}, OWNER),
        lambda: service.start_lesson("lengths", 6, {"positions": "no"}, OWNER),
        lambda: service.start_bug("typo", 0, 60, OWNER),
        lambda: service.start_bug(RANDOM_BUG, -1, 60, OWNER),
        lambda: service.start_bug(RANDOM_BUG, 0, 10**6, OWNER),
    ):
        with pytest.raises(ConfigError):
            call()
    assert registry.list_for_owner(OWNER) == []


def test_owner_has_two_measurements_and_abandoned_ones_do_not_count(registry, monkeypatch):
    service = LessonService(registry, SLOW)
    for seed in (0, 1):
        service.start_lesson("learning", 10, {"seed": seed}, OWNER)
    with pytest.raises(UserError, match="2 of your measurements"):
        service.start_lesson("learning", 10, {"seed": 2}, OWNER)
    monkeypatch.setattr(lesson_service, "UNPOLLED_TIMEOUT_S", -1.0)
    service.start_lesson("learning", 10, {"seed": 2}, OWNER)
    service.close()


def test_full_service_evicts_longest_abandoned_waiting_measurement(service, monkeypatch):
    monkeypatch.setattr(lesson_service, "MAX_TOTAL", 3)
    measuring = service.start_bug("last-layer", 0, 1000, OWNER)
    waiting = [service.start_bug("transpose", seed, 20, OTHER) for seed in (0, 1)]
    service.poll(waiting[0], OTHER)
    with pytest.raises(UserError, match="reached its limit of measurements"):
        service.start_bug("transpose", 0, 20, "z" * 32)
    for measurement_id, seconds in ((measuring, 100), (waiting[0], 60), (waiting[1], 80)):
        service._measurements[measurement_id].polled_at -= (
            lesson_service.UNPOLLED_TIMEOUT_S + seconds
        )
    latest = service.start_bug("transpose", 0, 20, "z" * 32)
    assert set(service._measurements) == {measuring, waiting[0], latest}
    with pytest.raises(UserError, match="no longer exists"):
        service.poll(waiting[1], OTHER)


def test_one_address_has_at_most_half_of_the_measurements(service, monkeypatch, client_address):
    monkeypatch.setattr(lesson_service, "MAX_TOTAL", 8)
    fake_processes(monkeypatch)
    client_address.set("192.0.2.1")
    for number in range(4):
        service.start_bug("transpose", 0, 20, f"{number:032d}")
    with pytest.raises(
        UserError, match="your address has 4 measurements, the maximum; try again in a minute"
    ):
        service.start_bug("transpose", 0, 20, f"{4:032d}")
    assert len(service._measurements) == 4
    client_address.set("192.0.2.2")
    other_id = service.start_bug("transpose", 0, 20, OWNER)
    client_address.set("192.0.2.1")
    abandoned = list(service._measurements)[2]
    for measurement_id in (abandoned, other_id):
        service._measurements[measurement_id].polled_at -= lesson_service.UNPOLLED_TIMEOUT_S + 60
    # the oldest abandoned measurement belongs to another address
    service._measurements[other_id].polled_at -= 60
    service.start_bug("transpose", 0, 20, f"{5:032d}")
    assert other_id in service._measurements
    assert abandoned not in service._measurements


@pytest.mark.smoke
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_hidden_bug_reveals_nothing(service, is_linked):
    seed = next(seed for seed in range(100) if resolve_bug(RANDOM_BUG, seed) == "causal-mask")
    name = "causal-mask" if is_linked else RANDOM_BUG
    measurement_id = service.start_bug(name, seed, 20, OWNER, is_hidden=is_linked)
    with pytest.raises(UserError, match="there is no result yet"):
        service.submit_guess(measurement_id, OWNER, bug="causal-mask")
    result = wait_for_result(service, measurement_id)
    bug = BUGS["causal-mask"]
    assert result["name"] == RANDOM_BUG
    assert not {"title", "explanation"} & set(result)
    assert not {"source", "changed_line", "diff", "silent_variant"} & set(result["result"])
    assert "causal" not in str(result)

    wrong = service.submit_guess(measurement_id, OWNER, bug="transpose")
    assert not wrong["is_correct"]
    assert "It is not" in wrong["feedback"]
    assert not service.submit_guess(measurement_id, OWNER, line=0)[
        "is_correct"
    ]  # the bug must be named first
    assert service.submit_guess(measurement_id, OWNER, bug="causal-mask")["is_correct"]
    result = service.poll(measurement_id, OWNER)
    assert (result["title"], "changed_line" in result["result"]) == (bug.title, False)
    changed_line = next(
        index
        for index, line in enumerate(result["result"]["source"]["lines"])
        if line.strip() == bug.correct_line
    )
    assert not service.submit_guess(measurement_id, OWNER, line=changed_line - 1)["is_correct"]
    assert service.submit_guess(measurement_id, OWNER, line=changed_line)["is_correct"]
    result = service.poll(measurement_id, OWNER)
    assert result["explanation"] == bug.explanation
    assert any(line.strip("+ ") == bug.buggy_line for line in result["result"]["diff"])
    with pytest.raises(UserError):
        service.submit_guess(measurement_id, OTHER, line=changed_line)


def test_giving_up_reveals_the_bug(service):
    measurement_id = service.start_bug(RANDOM_BUG, 0, 20, OWNER)
    wait_for_result(service, measurement_id)
    service.submit_guess(measurement_id, OWNER, give_up=True)
    result = service.poll(measurement_id, OWNER)
    assert result["title"] == BUGS[resolve_bug(RANDOM_BUG, 0)].title
    assert result["result"]["diff"]


@pytest.fixture
def comparison():
    queue = ComparisonQueue()
    yield queue
    queue.close()


def test_a_pretrained_model_translates_while_the_run_trains(registry, comparison, tiny_t5):
    service = LessonService(registry, SMALL | {"max_length": 5}, comparison.queue)
    options = {"pretrained": tiny_t5, "sentence": "the dog saw the cat"}
    result = wait_for_result(service, service.start_lesson("pretrained", "aligned", options, OWNER))
    assert (result["status"], result["message"]) == ("done", "")
    measured = result["result"]
    assert measured["is_correct"] == (measured["value"] == "aligned")
    assert "der hund hat die katze gesehen" in measured["explanation"]
    pretrained = measured["figures"][2]
    assert pretrained["columns"] == ["the", "dog", "saw", "the", "cat", "</s>"]
    assert [sum(row) for row in pretrained["weights"]] == pytest.approx([1] * 7, abs=0.01)
    service.close()


def test_a_failed_translation_ends_the_measurement_and_its_run(registry, comparison, tiny_gpt2):
    service = LessonService(registry, SLOW, comparison.queue)
    options = {"pretrained": tiny_gpt2}
    result = wait_for_result(service, service.start_lesson("pretrained", "aligned", options, OWNER))
    assert result["status"] == "failed"
    assert "is not an encoder-decoder" in result["message"]
    (run,) = registry.list_for_owner(OWNER)
    wait_for(lambda: run.status == "stopped", description="the run to stop")
    service.close()


def test_cancelling_a_lesson_cancels_its_translation(registry, comparison, tiny_t5):
    service = LessonService(registry, SLOW, comparison.queue)
    measurement_id = service.start_lesson("pretrained", "last", {"pretrained": tiny_t5}, OWNER)
    job = service._measurements[measurement_id].translation
    service.cancel(measurement_id, OWNER)
    assert service.poll(measurement_id, OWNER)["status"] == "cancelled"
    wait_for(lambda: not job.is_active, description="the translation to end")
    service.close()


def test_a_translation_that_cannot_start_starts_no_run(registry):
    service = LessonService(registry, SMALL)
    with pytest.raises(UserError, match="no process for pretrained models"):
        service.start_lesson("pretrained", "aligned", {}, OWNER)
    assert registry.list_for_owner(OWNER) == []
    service.close()
