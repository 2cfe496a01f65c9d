"""A run is the same in a process of the fork server, a new interpreter and a spare process."""

import pytest

from playground.common.platform import START_METHODS
from playground.jobs import process as worker_process
from playground.runs.registry import Registry
from tests.support.app_server import wait_for
from tests.support.small_runs import start_run, wait_for_end


def trained_bytes(folder):
    """Train a run to its end, and return its weights."""
    registry = Registry(folder, slots=2)
    run = start_run(registry, max_steps=20, eval_every=10)
    wait_for_end(run)
    assert (run.status, run.message) == ("done", "")
    weights = max((run.folder / "checkpoints").glob("[0-9]*")) / "model.safetensors"
    registry.shutdown()
    return weights.read_bytes()


@pytest.fixture
def no_spares(monkeypatch):
    """Let a test start with no spare process, and end those that it leaves."""
    monkeypatch.setattr(worker_process, "_is_warm", False)
    yield
    while not worker_process._spares.empty():
        process, *_ = worker_process._spares.get()
        process.kill()


def test_a_run_has_the_same_weights_in_every_kind_of_process(tmp_path, monkeypatch, no_spares):
    weights = []
    for method in START_METHODS:
        monkeypatch.setenv("PLAYGROUND_START_METHOD", method)
        weights.append(trained_bytes(tmp_path / method))
    worker_process.warm_up().join()
    assert worker_process._spares.qsize() == 1
    weights.append(trained_bytes(tmp_path / "spare"))
    assert len(weights) == len(START_METHODS) + 1
    assert len(set(weights)) == 1


def test_a_spare_process_works_once_and_another_replaces_it(tmp_path, monkeypatch, no_spares):
    monkeypatch.setenv("PLAYGROUND_START_METHOD", "spawn")
    worker_process.warm_up().join()
    spare = worker_process._spares.get()
    worker_process._spares.put(spare)
    registry = Registry(tmp_path, slots=2)
    run = start_run(registry)
    wait_for(lambda: run.worker.process.pid, 60, "the process of the run")
    assert run.worker.process is spare[0]
    wait_for(lambda: worker_process._spares.qsize() == 1, 60, "the next spare process")
    registry.shutdown()
    wait_for(lambda: not spare[0].is_alive(), 60, "the end of the worker")


def test_a_spare_process_that_was_killed_is_not_used(tmp_path, monkeypatch, no_spares):
    monkeypatch.setenv("PLAYGROUND_START_METHOD", "spawn")
    worker_process.warm_up().join()
    spare = worker_process._spares.get()
    worker_process._spares.put(spare)
    spare[0].kill()
    spare[0].join()
    trained_bytes(tmp_path)


def test_there_is_no_spare_process_when_memory_is_scarce(monkeypatch, no_spares):
    monkeypatch.setenv("PLAYGROUND_START_METHOD", "spawn")
    monkeypatch.setattr(
        worker_process, "free_memory", lambda: worker_process.SPARE_MEMORY_BYTES - 1
    )
    worker_process.warm_up().join()
    assert worker_process._spares.empty()
