"""Who may ask, who waits, and what a visitor is told: nothing before it was measured, and nothing that they are to find out."""

import os
import shutil
import signal
import time

import pytest

from playground.lessons import classroom as classrooms
from playground.lessons.classroom import Classroom
from playground.lessons.mistakes import MISTAKES, MYSTERY, chosen
from playground.lessons.work import work
from playground.models.config import SettingError
from playground.runs.room import all_weights
from playground.runs.run import EMPTIED, Refused
from tests.support.app_server import wait_for

OWNER, OTHER = "o" * 32, "x" * 32
SMALL = {
    "max_length": 3, "d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 32, "batch_size": 32, "steps": 60, "eval_n": 32, "eval_every": 10,
}  # fmt: skip
SLOW = {**SMALL, "steps": 100_000}


@pytest.fixture
def room(registry):
    room = Classroom(registry, SMALL)
    yield room
    room.close()


def over(room, question, owner=OWNER):
    return wait_for(lambda: (told := room.poll(question, owner))["status"] not in classrooms.UNDER_WAY and told, what="an answer")


def begin_and_train(room, registry):
    """Begin a question whose run trains, and return both once it has done some steps."""
    question = room.begin_stop("stop-1", 10, {}, OWNER)
    (run,) = registry.of_owner(OWNER)
    wait_for(lambda: run.step > 3, what="some steps")
    return question, run


def test_a_stop_trains_a_run_of_the_owner_s_and_measures_it(room, registry):
    question = room.begin_stop("stop-1", 10, {}, OWNER)
    told = over(room, question)
    assert told["status"] == "done"
    (run,) = registry.of_owner(OWNER)
    assert told["runs"] == [
        {"label": "the default model", "run": f"run:{run.id}", "status": "done", "step": 60, "steps": 60, "place": None}
    ]
    scored = [[step, exact] for step, exact, *_ in run.load().scored]
    series = told["result"]["pictures"][0]["series"][0]
    assert [series["xs"], series["ys"]] == [[step for step, _ in scored], [exact for _, exact in scored]]
    crossing = next((step for step, exact in scored if exact >= 0.5), None)
    assert told["result"]["answer"] == crossing
    assert told["result"]["right"] == (crossing is not None and abs(crossing - 10) <= 20)

    again = over(room, room.begin_stop("stop-2", 1, {"text": "3 1"}, OWNER))  # the same model: nothing is trained again
    assert again["result"]["answer"] in (1, 2, 3)
    assert registry.of_owner(OWNER) == [run]
    other = over(room, room.begin_stop("stop-1", 10, {"seed": 1}, OWNER))
    assert other["runs"][0]["run"] != told["runs"][0]["run"]
    with pytest.raises(Refused, match="no longer exists"):
        room.poll(question, OTHER)


def test_cancelling_stops_what_was_begun(registry):
    room = Classroom(registry, SLOW)
    question = room.begin_stop("stop-4", "same", {}, OWNER)
    wait_for(lambda: any(run["step"] for run in room.poll(question, OWNER)["runs"]), what="a step")
    room.cancel(question, OWNER)
    assert room.poll(question, OWNER)["status"] == "cancelled"
    wait_for(lambda: all(run.status == "stopped" for run in registry.of_owner(OWNER)), what="the runs to stop")
    with pytest.raises(Refused):
        room.cancel(question, OTHER)
    room.close()


def test_run_stopped_elsewhere_fails_measurement_and_next_resumes_it(registry):
    room = Classroom(registry, SLOW)
    question, run = begin_and_train(room, registry)
    registry.control(run, "stop")
    told = over(room, question)
    assert (told["status"], "measure again" in told["sentence"]) == ("failed", True)
    wait_for(lambda: not run.live, what="its process to end")
    again = room.begin_stop("stop-1", 10, {}, OWNER)
    wait_for(lambda: run.status == "training", what="the same run to go on")
    room.cancel(again, OWNER)
    room.close()


def test_a_run_that_its_owner_has_paused_goes_on_for_the_question(registry):
    room = Classroom(registry, SLOW)
    room.cancel(room.begin_stop("stop-1", 10, {}, OWNER), OWNER)
    (run,) = registry.of_owner(OWNER)
    wait_for(lambda: run.status == "stopped" and not run.live, what="the run to be saved")
    registry.control(run, "resume")
    wait_for(lambda: run.status == "training", what="the run to go on")
    registry.control(run, "pause")
    wait_for(lambda: run.status == "paused", what="the pause")
    assert run.live  # its process waits to be told, and takes a moment to answer
    question = room.begin_stop("stop-1", 10, {}, OWNER)
    assert room.poll(question, OWNER)["status"] == "training"
    wait_for(lambda: run.status == "training", what="the run to go on")
    assert room.poll(question, OWNER)["status"] == "training"
    assert registry.of_owner(OWNER) == [run]
    room.cancel(question, OWNER)
    room.close()


def test_imported_checkpoint_is_not_reused_as_a_run(room, registry, tmp_path):
    question = room.begin_stop("stop-1", 10, {}, OWNER)
    over(room, question)
    (run,) = registry.of_owner(OWNER)
    wait_for(lambda: not run.live, what="its process to end")
    sent = registry.adopt(shutil.copytree(run.checkpoints()[0][0], tmp_path / "sent"), OTHER, "sent")
    assert (sent.config, sent.status) == (run.config, "done")
    question = room.begin_stop("stop-1", 10, {}, OTHER)
    assert f"run:{sent.id}" not in [each["run"] for each in room.poll(question, OTHER)["runs"]]
    room.cancel(question, OTHER)


def test_a_run_whose_weights_had_to_make_room_is_trained_anew(registry):
    room = Classroom(registry, SLOW)
    question = room.begin_stop("stop-1", 10, {}, OWNER)
    (lost,) = registry.of_owner(OWNER)
    wait_for(lambda: lost.step > 3, what="some steps")
    room.cancel(question, OWNER)
    wait_for(lambda: registry.room._cut(lost, all_weights, EMPTIED), what="room")
    assert (lost.status, lost.removed) == ("stopped", EMPTIED)
    question = room.begin_stop("stop-1", 10, {}, OWNER)
    _, anew = registry.of_owner(OWNER)
    assert [run["run"] for run in room.poll(question, OWNER)["runs"]] == [f"run:{anew.id}"]
    wait_for(lambda: anew.step, what="a step of the new run")
    room.cancel(question, OWNER)
    room.close()


def test_a_run_that_is_still_being_saved_is_not_taken_up(registry):
    room = Classroom(registry, SLOW)
    question, run = begin_and_train(room, registry)
    with registry.hold(), run.lock:  # its process cannot tell meanwhile that it has saved
        room.cancel(question, OWNER)
        assert run.status == "stopping"
        with pytest.raises(Refused, match="still being saved; try again in a moment"):
            room.begin_stop("stop-1", 10, {}, OWNER)
    wait_for(lambda: run.status == "stopped", what="the run to be saved")
    again = room.begin_stop("stop-1", 10, {}, OWNER)
    assert registry.of_owner(OWNER) == [run]
    room.cancel(again, OWNER)
    room.close()


@pytest.mark.smoke
def test_nothing_is_begun_for_what_cannot_be(room, registry):
    for ask in (
        lambda: room.begin_stop("stop-9", 1, {}, OWNER),
        lambda: room.begin_stop("stop-1", None, {}, OWNER),
        lambda: room.begin_stop("stop-7", 6, {"positions": "no"}, OWNER),
        lambda: room.begin_bug("typo", 0, 60, OWNER),
        lambda: room.begin_bug(MYSTERY, -1, 60, OWNER),
        lambda: room.begin_bug(MYSTERY, 0, 10**6, OWNER),
    ):
        with pytest.raises(SettingError):
            ask()
    assert registry.of_owner(OWNER) == []


def test_owner_has_two_measurements_and_abandoned_ones_do_not_count(registry, monkeypatch):
    room = Classroom(registry, SLOW)
    for seed in (0, 1):
        room.begin_stop("stop-1", 10, {"seed": seed}, OWNER)
    with pytest.raises(Refused, match="2 of your measurements"):
        room.begin_stop("stop-1", 10, {"seed": 2}, OWNER)
    monkeypatch.setattr(classrooms, "LEFT_AFTER", -1.0)
    room.begin_stop("stop-1", 10, {"seed": 2}, OWNER)
    room.close()


def test_full_service_evicts_longest_abandoned_waiting_measurement(room, monkeypatch):
    monkeypatch.setattr(classrooms, "IN_ALL", 3)
    measuring = room.begin_bug("last-layer", 0, 1000, OWNER)
    waiting = [room.begin_bug("no-return", seed, 20, OTHER) for seed in (0, 1)]
    room.poll(waiting[0], OTHER)
    with pytest.raises(Refused, match="reached its limit of measurements"):
        room.begin_bug("no-return", 0, 20, "z" * 32)
    for question, seconds in ((measuring, 100), (waiting[0], 60), (waiting[1], 80)):
        room._questions[question].polled_at -= classrooms.LEFT_AFTER + seconds
    latest = room.begin_bug("no-return", 0, 20, "z" * 32)
    assert set(room._questions) == {measuring, waiting[0], latest}
    with pytest.raises(Refused, match="no longer exists"):
        room.poll(waiting[1], OTHER)


def test_one_address_holds_at_most_half_of_the_measurements(room, monkeypatch, client_address):
    monkeypatch.setattr(classrooms, "IN_ALL", 8)
    monkeypatch.setattr(room, "_dispatch", lambda: None)  # no process is begun
    client_address.set("192.0.2.1")
    for number in range(4):
        room.begin_bug("no-return", 0, 20, f"{number:032d}")
    with pytest.raises(Refused, match="your address has 4 measurements, the maximum; try again in a minute"):
        room.begin_bug("no-return", 0, 20, f"{4:032d}")
    assert len(room._questions) == 4
    client_address.set("192.0.2.2")
    other = room.begin_bug("no-return", 0, 20, OWNER)
    client_address.set("192.0.2.1")
    left = list(room._questions)[2]
    for question in (left, other):
        room._questions[question].polled_at -= classrooms.LEFT_AFTER + 60
    room._questions[other].polled_at -= 60  # left longest ago of all, by a client of another address
    room.begin_bug("no-return", 0, 20, f"{5:032d}")
    assert other in room._questions
    assert left not in room._questions


@pytest.mark.smoke
def test_a_mystery_tells_nothing_that_is_to_be_found(room):
    seed = next(seed for seed in range(100) if chosen(MYSTERY, seed) == "causal-mask")
    question = room.begin_bug(MYSTERY, seed, 20, OWNER)
    with pytest.raises(Refused, match="there is no result yet"):
        room.guess(question, OWNER, mistake="causal-mask")
    told = over(room, question)
    mistake = MISTAKES["causal-mask"]
    assert told["name"] == MYSTERY
    assert not {"title", "why"} & set(told)
    assert not {"source", "changed", "diff", "unnoticed"} & set(told["result"])
    assert "causal" not in str(told)

    wrong = room.guess(question, OWNER, mistake="transpose")
    assert not wrong["right"]
    assert "It is not" in wrong["says"]
    assert not room.guess(question, OWNER, line=0)["right"]  # the mistake comes first
    assert room.guess(question, OWNER, mistake="causal-mask")["right"]
    told = room.poll(question, OWNER)
    assert (told["title"], "changed" in told["result"]) == (mistake.title, False)
    changed = next(at for at, line in enumerate(told["result"]["source"]["lines"]) if line.strip() == mistake.right)
    assert not room.guess(question, OWNER, line=changed - 1)["right"]
    assert room.guess(question, OWNER, line=changed)["right"]
    told = room.poll(question, OWNER)
    assert told["why"] == mistake.why
    assert any(line.strip("+ ") == mistake.wrong for line in told["result"]["diff"])
    with pytest.raises(Refused):
        room.guess(question, OTHER, line=changed)


def test_who_gives_up_is_told(room):
    question = room.begin_bug(MYSTERY, 0, 20, OWNER)
    over(room, question)
    room.guess(question, OWNER, give_up=True)
    told = room.poll(question, OWNER)
    assert told["title"] == MISTAKES[chosen(MYSTERY, 0)].title
    assert told["result"]["diff"]


def test_measuring_is_bounded_cancelled_and_survives_its_process(room, monkeypatch):
    question = room.begin_bug("last-layer", 0, 1000, OWNER)
    wait_for(lambda: room.poll(question, OWNER).get("done"), what="some steps")
    room.cancel(question, OWNER)
    assert room.poll(question, OWNER)["status"] == "cancelled"
    wait_for(lambda: room._questions[question].child is None, what="the process to end")

    question = room.begin_bug("last-layer", 0, 1000, OWNER)
    wait_for(lambda: room.poll(question, OWNER).get("done"), what="some steps")
    os.kill(room._questions[question].child.process.pid, signal.SIGTERM)
    assert "ended (exit code -15)" in over(room, question)["sentence"]

    question = room.begin_bug("last-layer", 0, 1000, OWNER)
    wait_for(lambda: room.poll(question, OWNER).get("done"), what="some steps")
    os.kill(room._questions[question].child.process.pid, signal.SIGKILL)  # as a machine does that has no memory left
    killed = over(room, question)["sentence"]
    assert "out of memory" in killed
    assert "exceeded" not in killed

    monkeypatch.setattr(classrooms, "LONGEST", 0.5)
    late = over(room, room.begin_bug("last-layer", 0, 1000, OWNER))
    assert (late["status"], "exceeded" in late["sentence"]) == ("failed", True)


def test_who_comes_later_waits_for_a_place(room):
    assert room.places == 1
    first, second = room.begin_bug("last-layer", 0, 1000, OWNER), room.begin_bug("no-return", 0, 20, OTHER)
    assert room.poll(second, OTHER)["status"] == "waiting"
    room.cancel(first, OWNER)
    assert over(room, second, OTHER)["status"] == "done"
    assert time.monotonic() - room._questions[second].polled_at < 5


def test_who_has_left_keeps_nobody_waiting_and_is_served_on_coming_back(room):
    first = room.begin_bug("last-layer", 0, 1000, OWNER)
    left, here = (room.begin_bug("no-return", 0, 20, owner) for owner in (OTHER, "z" * 32))
    room._questions[left].polled_at -= classrooms.LEFT_AFTER
    room.cancel(first, OWNER)
    assert over(room, here, "z" * 32)["status"] == "done"
    assert room._questions[left].status == "waiting"
    assert over(room, left, OTHER)["status"] == "done"


def test_a_measurement_that_fails_is_logged_with_its_traceback(monkeypatch, caplog):
    for name in ("os.nice", "signal.signal", "torch.set_num_threads"):  # this process stays as it is
        monkeypatch.setattr(f"playground.lessons.work.{name}", lambda *_: None)

    def fail(*_):
        raise KeyError("bug")

    monkeypatch.setattr("playground.lessons.work.compare", fail)
    sent = []
    work(type("Pipe", (), {"send": lambda _, message: sent.append(message)})(), "bug", {"name": MYSTERY, "seed": 0, "steps": 1})
    assert [word for word, _ in sent] == ["failed"]
    assert [record.exc_info[0] for record in caplog.records] == [KeyError]
