import os
import signal
import time

import pytest

from playground.models.config import SettingError
from playground.runs.registry import Registry, Run, SlotsBusy
from playground.training.config import RunConfig
from playground.training.manifest import read_manifest
from tests.servers import wait_for

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16, "batch_size": 8, "max_length": 5, "eval_n": 32, "eval_every": 50}


@pytest.fixture
def registry(tmp_path):
    registry = Registry(tmp_path, slots=3)
    yield registry
    registry.shutdown()


def start(registry: Registry, owner: str = "ada", **fields) -> Run:
    return registry.start(RunConfig.from_fields(SMALL | fields), owner)


def wait_for_status(run: Run, *statuses: str) -> None:
    wait_for(lambda: run.status in statuses, 60, f"one of {statuses} (now {run.status}: {run.message})")


def steps_of(run: Run) -> list[int]:
    return [point["step"] for point in run.points]


def test_a_run_trains_to_its_end_in_a_process_of_its_own_and_leaves_a_scored_checkpoint(registry):
    run = start(registry, steps=60)
    wait_for_status(run, "done")
    assert run.worker.process.pid != os.getpid()
    assert steps_of(run) == list(range(1, 61))
    assert run.scores["n"] == 2000
    manifest = read_manifest(run.folder)
    assert (manifest.step, manifest.scores["exact_match"]) == (60, run.scores["exact_match"])
    assert run.snapshot["step"] == 60


def test_pause_holds_the_run_step_moves_it_by_one_and_resume_lets_it_go(registry):
    run = start(registry, steps=100_000)
    wait_for(lambda: run.points, what="the first points")
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    held_at = steps_of(run)[-1]
    assert read_manifest(run.folder).step == held_at
    registry.control(run, "step")
    wait_for(lambda: steps_of(run)[-1] == held_at + 1, what="a single step")
    registry.control(run, "step")
    wait_for(lambda: steps_of(run)[-1] == held_at + 2, what="another step")
    assert registry.ask(run, "3 1 4").result(20)["answer"] == ["4", "1", "3"]
    assert steps_of(run)[-1] == held_at + 2
    registry.control(run, "resume")
    wait_for(lambda: steps_of(run)[-1] > held_at + 5, what="more steps")
    assert steps_of(run) == list(range(1, steps_of(run)[-1] + 1))


def test_stop_saves_and_the_checkpoint_answers_afterwards(registry):
    run = start(registry, steps=100_000)
    wait_for(lambda: run.points, what="the first points")
    registry.control(run, "stop")
    wait_for_status(run, "stopped")
    assert read_manifest(run.folder).step == steps_of(run)[-1]
    reply = registry.ask(run, "1 2").result(60)
    assert reply["answer"] == ["2", "1"]
    run.worker.process.join(5)
    assert not run.worker.process.is_alive()


def test_commands_to_a_run_that_has_ended_do_nothing(registry):
    run = start(registry, steps=5)
    wait_for_status(run, "done")
    for action in ("pause", "resume", "step", "stop"):
        registry.control(run, action)
    assert run.status == "done"
    with pytest.raises(ValueError, match="action is 'explode'"):
        registry.control(run, "explode")


def test_a_poll_gives_every_point_once(registry):
    run = start(registry, steps=120)
    seen, looks = [], 0
    while run.live or len(seen) < 120:
        told = registry.poll(run, len(seen), looks)
        seen += told["points"]
        looks = told["looks"]
        assert told["snapshot"] is None or told["snapshot"]["step"] <= 120
        time.sleep(0.01)
    assert [point["step"] for point in seen] == list(range(1, 121))
    assert registry.poll(run, 120, looks)["snapshot"] is None
    assert registry.poll(run, -5, 0)["points"][0]["step"] == 1


def test_diverging_training_is_reported_with_a_way_out_and_keeps_the_last_weights(registry):
    run = start(registry, steps=500, learning_rate=100.0, warmup=0, schedule="constant", clip=0, n_layers=4)
    wait_for_status(run, "failed")
    assert "lower learning_rate" in run.message
    assert read_manifest(run.folder).step == steps_of(run)[-1]


def test_a_killed_worker_is_reported_and_leaves_other_runs_alone(registry):
    victim, other = start(registry, steps=100_000), start(registry, steps=100_000)
    wait_for(lambda: victim.points and other.points, what="points of both")
    registry.control(victim, "pause")
    wait_for_status(victim, "paused")
    os.kill(victim.worker.process.pid, signal.SIGKILL)
    wait_for_status(victim, "failed")
    assert "exit code -9" in victim.message
    assert f"checkpoint of step {steps_of(victim)[-1]} is kept" in victim.message
    before = steps_of(other)[-1]
    wait_for(lambda: steps_of(other)[-1] > before, what="the other run going on")


def test_when_all_slots_are_taken_a_start_says_so(registry):
    runs = [start(registry, steps=100_000) for _ in range(3)]
    with pytest.raises(SlotsBusy, match="all 3 training workers are busy"):
        start(registry)
    registry.control(runs[0], "stop")
    wait_for_status(runs[0], "stopped")
    assert start(registry, steps=1).live


def test_owners_see_their_own_runs_only(registry):
    mine, theirs = start(registry, "ada", steps=5), start(registry, "bob", steps=5)
    assert registry.of_owner("ada") == [mine]
    assert registry.of_owner("bob") == [theirs]
    assert registry.of_owner("") == []
    assert registry.find(mine.id) is mine
    for guess in ("", None, 7, mine.folder.name, mine.id[:-1], {"id": mine.id}):
        assert registry.find(guess) is None
    assert mine.id not in str(mine.folder)


def test_shutdown_lets_every_run_save_and_leaves_no_process(registry):
    runs = [start(registry, steps=100_000) for _ in range(3)]
    wait_for(lambda: all(run.points for run in runs), what="points of all")
    assert registry.shutdown() == 3
    for run in runs:
        assert read_manifest(run.folder).step >= steps_of(run)[-1] > 0
        assert not run.worker.process.is_alive()


def test_a_run_that_does_not_fit_into_memory_is_refused_with_the_number(registry):
    config = RunConfig.from_fields({"d_model": 4096, "n_layers": 48, "d_ff": 16384, "batch_size": 65536, "max_length": 512})
    with pytest.raises(SettingError, match=r"needs about [\d,.]+ GB and [\d.]+ GB are free") as caught:
        registry.start(config, "ada")
    assert caught.value.field == "batch_size"
    assert registry.of_owner("ada") == []


def test_two_runs_with_one_seed_tell_the_same_losses(registry):
    first, second = start(registry, steps=30, seed=7, dropout=0.2), start(registry, steps=30, seed=7, dropout=0.2)
    third = start(registry, steps=30, seed=8, dropout=0.2)
    for run in (first, second, third):
        wait_for_status(run, "done")
    losses = [[point["loss"] for point in run.points] for run in (first, second, third)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_a_checkpoint_can_be_viewed_and_asked_and_a_broken_one_says_why(registry, tmp_path):
    run = start(registry, steps=20)
    wait_for_status(run, "done")
    view = registry.inspect("view", run.folder).result(60)
    assert len(view["points"]) == 20
    assert view["snapshot"]["step"] == 20
    source, written = len(view["stage"]["source"]), len(view["stage"]["written"])
    heads = view["snapshot"]["attention"]["cross"]
    assert [len(heads), len(heads[0]), len(heads[0][0])] == [1, 2, source * written]
    for row in range(written):
        assert abs(sum(heads[0][0][row * source : (row + 1) * source]) - 1000) <= source
    (run.folder / "model.safetensors").write_bytes(b"12345678")
    os.utime(run.folder / "config.json")
    assert "model.safetensors" in registry.inspect("view", run.folder).result(20)["error"]
    assert "no config.json" in registry.inspect("view", tmp_path / "nothing").result(20)["error"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("3 x 4", "'x' is not a symbol"), ("", "type a sequence"), ("1 2 3 4 5 6", "this model has positions for 5"), ("<b>", "'<' is not")],
)
def test_what_cannot_be_asked_is_explained(registry, text, says):
    run = start(registry, steps=100_000)
    assert says in registry.ask(run, text).result(60)["error"]
