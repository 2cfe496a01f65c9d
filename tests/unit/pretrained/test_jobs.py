"""The limits of jobs with pretrained models; their processes are replaced by stand-ins."""

import pytest

from playground.pretrained.jobs import PretrainedJobs, label_of


@pytest.fixture
def queue(started):
    queue = PretrainedJobs()
    yield queue
    queue.close()


def test_cancelled_fine_tuning_saves_first(queue, started):
    job = queue.submit("finetune", {"model": "gpt2"})
    queue.cancel(job)
    state = job.to_json()
    assert (state["status"], "saving" in state["message"]) == ("working", True)
    started[0].on_message(job.id, "result", {"cancelled": True, "steps": 3})
    state, message = job.to_json(), "cancelled; the results so far are available"
    assert (state["status"], state["message"]) == ("cancelled", message)
    assert state["result"]["steps"] == 3


def test_queries_do_not_wait_for_a_benchmark(queue, started):
    jobs = [
        queue.submit(kind, {}, owner=owner)
        for kind, owner in (("benchmark", "ada"), ("inference", "ben"), ("model-info", "cy"))
    ]
    assert [job.status.value for job in jobs] == ["working", "waiting", "working"]
    assert [message[2] for message in started[0].sent] == ["benchmark", "model-info"]


def environment_of(started, hosted):
    """Return the environment of the process of a new queue."""
    queue = PretrainedJobs(hosted=hosted)
    queue.submit("cached-models", {})
    queue.close()
    return started[-1].arguments[1].environment


def test_no_process_gets_the_token_of_the_machine(started, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for hosted in (False, True):
        environment = environment_of(started, hosted)
        assert "hf_secret" not in environment.values()
        assert environment["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"


def test_a_hosted_process_has_its_own_cache_and_smaller_limits(started, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", "/the/owners")
    own = environment_of(started, hosted=False)
    assert (own["PLAYGROUND_LOCAL_MODELS"], own["HF_HUB_CACHE"]) == ("1", "/the/owners")
    hosted = environment_of(started, hosted=True)
    assert (hosted["PLAYGROUND_LOCAL_MODELS"], hosted["PLAYGROUND_MAX_MODEL_MB"]) == ("0", "600")
    assert hosted["HF_HUB_CACHE"] == str(tmp_path / "models")
    monkeypatch.setenv("PLAYGROUND_MODELS", str(tmp_path / "mine"))
    monkeypatch.setenv("PLAYGROUND_MAX_MODEL_MB", "9")
    hosted = environment_of(started, hosted=True)
    assert hosted["HF_HUB_CACHE"] == str(tmp_path / "mine")
    assert hosted["PLAYGROUND_MAX_MODEL_MB"] == "9"


def test_end_of_the_process_names_the_models(queue, started):
    request = {"models": ["ben/dies", 7, "gpt2"]}
    job = queue.submit("benchmark", request, label=label_of("benchmark", request))
    started[0].on_exit(-9)
    state = job.to_json()
    assert state["message"].startswith("ben/dies, gpt2: the process was ended from outside")
    assert state["retryable"]
