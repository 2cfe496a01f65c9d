"""The limits of jobs with pretrained models; their processes are replaced by stand-ins."""

import pytest

from playground.comparison.job_queue import (
    MAX_CONCURRENT_JOBS,
    MAX_JOBS_PER_OWNER,
    MAX_LIGHT_JOBS_PER_OWNER,
    MAX_TURN_S,
    ComparisonQueue,
)
from playground.errors import UserError
from tests.support.fake_jobs import fake_processes


@pytest.fixture
def started(monkeypatch):
    """The processes that were started."""
    return fake_processes(monkeypatch)


@pytest.fixture
def comparison(started):
    comparison = ComparisonQueue()
    yield comparison
    comparison.close()


def test_light_jobs_run_beside_a_heavy_one(comparison, started):
    jobs = [
        comparison.submit(kind, {}, "ada")
        for kind in ("benchmark", "cached-models", "model-info", "benchmark")
    ]
    assert [message[1] for message in started[0].sent] == jobs[:3]
    assert comparison.poll(jobs[3], "ada")["queue_position"] == 1


def test_cancelled_fine_tuning_saves_first(comparison, started):
    job_id = comparison.submit("finetune", {"model": "gpt2"}, "ada")
    comparison.cancel(job_id, "ada")
    state = comparison.poll(job_id, "ada")
    assert (state["status"], "saving" in state["message"]) == ("working", True)
    started[0].on_message(job_id, "result", {"cancelled": True, "steps": 3})
    state = comparison.poll(job_id, "ada")
    assert (state["status"], state["message"]) == (
        "cancelled",
        "cancelled; the results so far are available",
    )
    assert state["result"]["steps"] == 3


@pytest.mark.parametrize(
    ("hosted", "behind", "ends"), [(True, "ben", True), (True, "ada", False), (False, "ben", False)]
)
def test_hosted_job_is_cancelled_after_its_turn_if_other_owners_wait(started, hosted, behind, ends):
    comparison = ComparisonQueue(hosted=hosted)
    long = comparison.queue.get(comparison.submit("benchmark", {}, "ada"), "ada")
    comparison.submit("benchmark", {}, behind)
    comparison.queue.housekeep()
    assert long.is_active
    long.started_at -= MAX_TURN_S + 1
    comparison.queue.housekeep()
    assert (long.status == "cancelled") is ends
    assert (
        "stopped after 5 minutes because other jobs wait; the results so far are available"
        in long.message
    ) is ends
    comparison.close()


@pytest.mark.parametrize("hosted", [True, False])
def test_hosted_process_has_its_own_model_cache(started, hosted, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", "/the/owners")
    for folder in (tmp_path / "models", tmp_path / "mine"):
        comparison = ComparisonQueue(hosted=hosted)
        comparison.submit("cached-models", {}, "ada")
        environment = started[-1].arguments[1].environment
        assert environment["HF_HUB_CACHE"] == (str(folder) if hosted else "/the/owners")
        comparison.close()
        monkeypatch.setenv("PLAYGROUND_MODELS", str(tmp_path / "mine"))


def test_one_address_holds_at_most_half_of_the_comparison_jobs(comparison, client_address):
    client_address.set("192.0.2.1")
    for number in range(MAX_CONCURRENT_JOBS // 2):
        comparison.submit("benchmark", {}, f"invented {number}")
    with pytest.raises(UserError, match="from your address are still queued or running"):
        comparison.submit("benchmark", {}, "invented too")
    client_address.set("192.0.2.2")
    assert comparison.submit("benchmark", {}, "ada")


def test_single_owner_at_an_address_keeps_the_owner_limit(comparison, client_address):
    client_address.set("127.0.0.1")
    for kind, most in (
        ("benchmark", MAX_JOBS_PER_OWNER),
        ("cached-models", MAX_LIGHT_JOBS_PER_OWNER),
    ):
        for _ in range(most):
            comparison.submit(kind, {}, "ada")
        with pytest.raises(UserError, match="of your"):
            comparison.submit(kind, {}, "ada")


def test_end_of_the_process_names_the_models(comparison, started):
    job_id = comparison.submit("benchmark", {"models": ["ben/dies", 7, "gpt2"]}, "ada")
    started[0].on_exit(-9)
    state = comparison.poll(job_id, "ada")
    assert state["message"].startswith("ben/dies, gpt2: the process was killed, probably")
    assert state["retryable"]
