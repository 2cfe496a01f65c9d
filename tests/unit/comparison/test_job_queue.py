"""The limits of jobs with pretrained models; their processes are replaced by stand-ins."""

import pytest

from playground.comparison.job_queue import (
    ComparisonQueue,
)
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


def test_end_of_the_process_names_the_models(comparison, started):
    job_id = comparison.submit("benchmark", {"models": ["ben/dies", 7, "gpt2"]}, "ada")
    started[0].on_exit(-9)
    state = comparison.poll(job_id, "ada")
    assert state["message"].startswith("ben/dies, gpt2: the process was killed, probably")
    assert state["retryable"]
