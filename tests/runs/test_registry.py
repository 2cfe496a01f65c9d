import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from playground.models.config import SettingError
from playground.runs.registry import Registry, Run, SlotsBusy
from playground.training.config import RunConfig
from playground.training.manifest import read_manifest
from tests.servers import ROOT, wait_for

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
    wait_for(lambda: run.folder.exists(), what="the checkpoint of a paused run")
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
    wait_for(lambda: victim.folder.exists(), what="its checkpoint")
    os.kill(victim.worker.process.pid, signal.SIGKILL)
    wait_for_status(victim, "failed")
    assert "exit code -9" in victim.message
    assert f"checkpoint of step {steps_of(victim)[-1]} is kept" in victim.message
    before = steps_of(other)[-1]
    wait_for(lambda: steps_of(other)[-1] > before, what="the other run going on")


def test_when_all_slots_are_taken_a_start_says_so(registry):
    runs = [start(registry, steps=100_000) for _ in range(3)]
    with pytest.raises(SlotsBusy, match="you have 3 runs going, which is as many as fit"):
        start(registry)
    with pytest.raises(SlotsBusy, match="all 3 training places are taken, by other visitors"):
        start(registry, "bob")
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
    assert registry.shutdown(20) == (3, 0)
    for run in runs:
        assert read_manifest(run.folder).step >= steps_of(run)[-1] > 0
        assert not psutil.pid_exists(run.worker.process.pid)


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


def test_one_owner_may_be_held_to_fewer_places_than_there_are(registry):
    registry.slots_an_owner = 1
    start(registry, "ada", steps=100_000)
    with pytest.raises(SlotsBusy, match="you have a run going"):
        start(registry, "ada")
    assert start(registry, "bob", steps=5).live


def test_an_owner_of_any_letters_harms_nobody(registry):
    start(registry, "\u00e9", steps=1)
    assert registry.of_owner("ada") == []
    assert len(registry.of_owner("\u00e9")) == 1


def test_an_answer_that_nobody_waits_for_any_more_harms_nothing(registry):
    run = start(registry, steps=100_000)
    wait_for(lambda: run.points, what="the first points")
    for _ in range(3):
        registry.ask(run, "1 2 3").cancel()
    assert registry.ask(run, "1 2 3").result(20)["answer"] == ["3", "2", "1"]
    assert run.live


def test_a_flood_of_questions_is_turned_away_and_stop_still_works(registry):
    run = start(registry, steps=100_000, batch_size=2048)
    replies = [registry.ask(run, "1 2 3") for _ in range(300)]
    registry.control(run, "stop")
    assert any("busy" in reply.result(30).get("error", "") for reply in replies)
    wait_for_status(run, "stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("paused", [False, True])
def test_a_worker_that_is_signalled_saves_first(registry, number, paused):
    run = start(registry, steps=100_000)
    wait_for(lambda: run.points, what="the first points")
    if paused:
        registry.control(run, "pause")
        wait_for_status(run, "paused")
    os.kill(run.worker.process.pid, number)
    wait_for_status(run, "stopped")
    assert read_manifest(run.folder).step == steps_of(run)[-1]


def test_a_worker_whose_server_was_killed_saves_and_ends(tmp_path):
    script = f"""
import time
from pathlib import Path
from playground.runs.registry import Registry
from playground.training.config import RunConfig
if __name__ == "__main__":
    registry = Registry(Path({str(tmp_path)!r}))
    run = registry.start(RunConfig.from_fields({SMALL | {"steps": 100_000}!r}), "ada")
    while not run.points:
        time.sleep(0.01)
    print(run.worker.process.pid, run.folder, flush=True)
    time.sleep(600)
"""
    (tmp_path / "server.py").write_text(script)
    server = subprocess.Popen(
        [sys.executable, tmp_path / "server.py"], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    with server:
        pid, folder = server.stdout.readline().split()
        server.kill()
    wait_for(lambda: not psutil.pid_exists(int(pid)) or psutil.Process(int(pid)).status() == "zombie", 30, "the worker's end")
    assert read_manifest(Path(folder)).step > 0


def test_a_run_that_cannot_save_says_so_keeps_its_weights_and_saves_later(registry):
    run = start(registry, steps=100_000)
    wait_for(lambda: run.points, what="the first points")
    registry.control(run, "pause")
    wait_for_status(run, "paused")
    wait_for(lambda: run.folder.exists(), what="the checkpoint")
    os.rename(run.folder, run.folder.with_name("aside"))
    run.folder.write_text("in the way")  # as a full disk would, it makes every save fail, for root too
    registry.control(run, "step")
    registry.control(run, "stop")
    wait_for(lambda: "could not write the checkpoint" in run.message, what="the trouble")
    wait_for_status(run, "paused")
    assert registry.ask(run, "1 2").result(20)["answer"] == ["2", "1"]
    run.folder.unlink()
    registry.control(run, "stop")
    wait_for_status(run, "stopped")
    assert read_manifest(run.folder).step == steps_of(run)[-1]


def test_a_long_probe_with_many_heads_stays_small_on_the_way_to_the_page(registry):
    run = start(registry, steps=1, min_length=200, max_length=200, n_layers=4, n_heads=8, d_model=64, batch_size=2)
    wait_for(lambda: run.snapshot, what="a snapshot")
    assert sum(len(head) for kind in run.snapshot["attention"].values() for layer in kind for head in layer) <= 100_000
    assert len(run.stage["source"]) > 20
