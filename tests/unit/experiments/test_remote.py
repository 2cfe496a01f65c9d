"""Experiments of a server whose shards train in fake jobs; the test controls the jobs."""

import json

import pytest

from playground.errors import UserError
from playground.experiments.backends import BACKENDS
from playground.experiments.remote import WAITING_FOR_TOKEN
from playground.experiments.service import ExperimentService
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from tests.support.app_server import wait_for
from tests.support.shards import FIVE_STEPS, fake_cluster, finish_shard

SPEC = {"name": "heads", "base": FIVE_STEPS, "grid": {"n_heads": [1, 2]}, "seeds": [0, 1, 2, 3]}
N_RUNS, N_SHARDS = 8, 2


@pytest.fixture
def cluster(monkeypatch):
    cluster = fake_cluster(monkeypatch)
    monkeypatch.setattr(BACKENDS["fake"], "runs_per_shard", N_RUNS // N_SHARDS)
    monkeypatch.setattr(BACKENDS["fake"], "poll_interval_s", 0.01)
    return cluster


@pytest.fixture
def open_server(tmp_path):
    """Return a function that starts the server again, on the same folder."""
    opened = []

    def open_server():
        close()
        registry = Registry(tmp_path)
        opened[:] = [registry, ExperimentService(registry)]
        return opened[1]

    def close():
        if opened:
            opened[1].close()
            opened[0].shutdown(0)

    yield open_server
    close()


@pytest.fixture
def service(cluster, open_server):
    return open_server()


def start(service, owner="ada", token="", **fields):
    return service.start_elsewhere(SPEC | fields, owner, "fake", {}, token)


def wait(service, experiment, condition, what):
    """Wait until a condition of the details holds, and return them."""

    def details():
        row = service.details(experiment, "ada")
        return condition(row) and row

    return wait_for(details, 20, what)


def folder(service, experiment):
    return service.store.state(experiment).shards_folder


def wait_for_jobs(service, experiment):
    return wait(
        service,
        experiment,
        lambda row: all(each["state"] == "RUNNING" for each in row["elsewhere"]["shards"]),
        "running jobs",
    )


def test_partial_results_arrive_until_every_run_has_one(cluster, service):
    experiment = start(service)
    row = wait_for_jobs(service, experiment)
    assert (row["state"], row["statuses"]) == ("running", {"planned": 8})
    finish_shard(folder(service, experiment), SPEC, 0, 2)
    row = wait(service, experiment, lambda row: row["statuses"].get("done"), "results")
    assert [each["done"] for each in row["elsewhere"]["shards"]] == [4, 0]
    assert [each["n"] for each in row["results"]["variants"]] == [4, 0]
    finish_shard(folder(service, experiment), SPEC, 1, 2)
    cluster.states.clear()
    row = wait(service, experiment, lambda row: row["state"] == "done", "the end")
    assert [each["n"] for each in row["results"]["variants"]] == [4, 4]
    assert cluster.submitted == [[0, 1]]


def test_a_restarted_server_follows_the_same_jobs(cluster, service, open_server):
    experiment = start(service)
    wait_for_jobs(service, experiment)
    again = open_server()
    row = wait_for_jobs(again, experiment)
    assert row["state"] == "running"
    finish_shard(folder(again, experiment), SPEC, 0, 2)
    finish_shard(folder(again, experiment), SPEC, 1, 2)
    cluster.states.clear()
    wait(again, experiment, lambda row: row["state"] == "done", "the end")
    assert cluster.submitted == [[0, 1]]
    row = open_server().details(experiment, "ada")
    assert (row["state"], row["statuses"]) == ("done", {"done": 8, "planned": 0})


def test_a_pause_ends_the_jobs_and_a_resume_starts_the_missing_ones(cluster, service, open_server):
    experiment = start(service)
    wait_for_jobs(service, experiment)
    finish_shard(folder(service, experiment), SPEC, 0, 2)
    service.pause(experiment, "ada")
    row = wait(service, experiment, lambda row: row["state"] == "paused", "the pause")
    assert (cluster.states, row["statuses"]["done"]) == ({}, 4)
    again = open_server()
    assert again.details(experiment, "ada")["state"] == "paused"
    again.resume(experiment, "ada")
    wait(again, experiment, lambda _: len(cluster.submitted) == 2, "the second job")
    assert cluster.submitted == [[0, 1], [1]]


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_an_ended_experiment_leaves_no_job(cluster, service, action):
    experiment = start(service)
    wait_for_jobs(service, experiment)
    place = folder(service, experiment)
    getattr(service, action)(experiment, "ada")
    wait_for(lambda: not cluster.states, 20, "the end of the jobs")
    if action == "delete":
        assert service.store.find(experiment.id, "ada") is None
        assert not place.exists()
    else:
        assert service.details(experiment, "ada")["state"] == "cancelled"


def test_an_experiment_is_not_deleted_while_its_jobs_cannot_be_ended(cluster, service):
    experiment = start(service)
    wait_for_jobs(service, experiment)
    cluster.n_failures = 10**6
    with pytest.raises(UserError, match="no answer"):
        service.delete(experiment, "ada")
    assert service.store.find(experiment.id, "ada")


def test_an_answer_that_is_late_does_not_end_an_experiment(cluster, service):
    experiment = start(service)
    wait_for_jobs(service, experiment)
    cluster.n_failures = 5
    wait(service, experiment, lambda row: row["message"] == "no answer", "the message")
    row = wait(service, experiment, lambda row: not row["message"], "an answer")
    assert row["state"] == "running"


def test_lost_jobs_without_progress_pause_an_experiment(cluster, service, open_server):
    experiment = start(service)

    def lose_jobs():
        cluster.states.clear()
        return service.details(experiment, "ada")["state"] == "paused"

    wait_for(lose_jobs, 20, "the pause")
    assert "3 times in a row" in service.details(experiment, "ada")["message"]
    n_submitted = len(cluster.submitted)
    assert open_server().details(experiment, "ada")["state"] == "paused"
    assert len(cluster.submitted) == n_submitted


def test_a_token_stays_in_memory_and_is_needed_after_a_restart(
    cluster, service, open_server, monkeypatch, tmp_path
):
    monkeypatch.setattr(BACKENDS["fake"], "needs_token", True)
    experiment = start(service, token="hf_secret_of_ada")
    wait_for_jobs(service, experiment)
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    texts.append(json.dumps(service.details(experiment, "ada")))
    assert not [text for text in texts if "hf_secret" in text]
    again = open_server()
    row = wait(again, experiment, lambda row: row["message"], "the request to sign in")
    assert (row["message"], row["elsewhere"]["needs_token"]) == (WAITING_FOR_TOKEN, True)
    again.remote.use_token(owner_id("ben"), "hf_secret_of_ben")
    assert again.details(experiment, "ada")["elsewhere"]["needs_token"]
    again.remote.use_token(owner_id("ada"), "hf_secret_of_ada")
    assert not wait_for_jobs(again, experiment)["elsewhere"]["needs_token"]
    assert cluster.submitted == [[0, 1]]


def test_more_runs_than_a_server_trains_may_train_elsewhere(cluster, service):
    many = {"seeds": list(range(100))}
    with pytest.raises(ValueError, match="the maximum on this server is 60"):
        service.start(SPEC | many, "ada")
    for _ in range(4):
        start(service, **many)
    with pytest.raises(UserError, match="you have 4 experiments in jobs"):
        start(service, **many)
