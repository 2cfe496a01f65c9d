"""Jobs as the page starts them: a real process, a fake Hub, and their failures."""

import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest

from playground.comparison.job_queue import ComparisonQueue
from playground.comparison.process import run
from playground.errors import UserError
from playground.jobs.process import warm_up
from playground.jobs.progress import ProgressReporter, to_json_safe, to_user_error
from tests.support.app_server import ROOT, wait_for


def read_files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def hub_with_models(hub, tiny_gpt2, tiny_bert):
    hub.put("gpt2", read_files(tiny_gpt2))
    hub.put("bert-base-uncased", read_files(tiny_bert))
    return hub


@pytest.fixture(scope="module")
def job_queue(hub_with_models, tmp_path_factory):
    warm_up().join()
    job_queue = ComparisonQueue()
    with pytest.MonkeyPatch.context() as patch:
        # inherited by the process of the queue
        patch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path_factory.mktemp("checkpoints")))
        yield job_queue
    job_queue.close()


def wait_for_result(job_queue, job, owner="ada", seconds=100):
    """Poll a job until it ends; return its last response with all rows."""
    rows, cursor = [], 0

    def poll_rows():
        nonlocal cursor
        response = job_queue.poll(job, owner, cursor)
        rows.extend(response["rows"])
        cursor = response["cursor"]
        return response if response["status"] in ("done", "failed", "cancelled") else None

    return wait_for(poll_rows, seconds, "the end of the job") | {"rows": rows}


def wait_until_working(job_queue, job, message="", owner="ada"):
    wait_for(
        lambda: (
            message in job_queue.poll(job, owner)["message"]
            and job_queue.poll(job, owner)["status"] == "working"
        ),
        100,
        message,
    )


def benchmark_request(digits, *models, **options):
    return {
        "checkpoint": str(digits),
        "models": list(models),
        "n": 4,
        "shots": 0,
        "rank": 1,
    } | options


@pytest.mark.smoke
def test_benchmark_downloads_models_of_the_hub(job_queue, hub_with_models, digits):
    job = job_queue.submit(
        "benchmark", benchmark_request(digits, "gpt2", "ada/missing", "bert-base-uncased"), "ada"
    )
    response = wait_for_result(job_queue, job)
    assert response["status"] == "done", response["message"]
    lines = [(row["model"], row["description"], row["n"]) for row in response["result"]["rows"][4:]]
    pretrained = "pretrained, never trained on this task"
    assert lines == [
        ("digits", "trained on this task", 4),
        ("gpt2", pretrained, 4),
        ("ada/missing", "not evaluated", 0),
        ("bert-base-uncased", pretrained, 4),
        ("bert-base-uncased", pretrained, 4),
    ]
    assert "no repository ada/missing" in response["result"]["rows"][6]["error"]
    assert {row["kind"] for row in response["rows"]} == {
        "settings",
        "model",
        "estimate",
        "example",
        "leak",
    }
    assert hub_with_models.received_tokens() == set()
    assert job_queue.poll(job, "ada", 10**9)["rows"] == []
    with hub_with_models.record_requests() as requests:  # the process caches the loaded models
        second = wait_for_result(
            job_queue, job_queue.submit("benchmark", benchmark_request(digits, "gpt2"), "ada")
        )
    assert second["status"] == "done"
    assert requests == []


def test_a_download_that_hangs_is_cancelled_at_once_and_the_next_job_works(
    job_queue, hub_with_models, digits, tiny_gpt2
):
    hub_with_models.put("ben/hangs", read_files(tiny_gpt2))
    with hub_with_models.fault(hub_with_models.STORAGE, "hang", method="GET"):
        job = job_queue.submit("benchmark", benchmark_request(digits, "ben/hangs"), "ada")
        wait_until_working(job_queue, job, "Downloading ben/hangs")
        next_job = job_queue.submit("benchmark", benchmark_request(digits), "ben")
        assert job_queue.poll(next_job, "ben")["status"] == "waiting"
        assert job_queue.poll(next_job, "ben")["queue_position"] == 1
        # queries do not wait for other jobs
        query = wait_for_result(job_queue, job_queue.submit("cached-models", {}, "cy"), "cy")
        assert "gpt2" in [row["name"] for row in query["result"]["models"]]
        cancelled_at = time.monotonic()
        job_queue.cancel(job, "ada")
        response = job_queue.poll(job, "ada")
        assert response["status"] == "cancelled"
        assert [
            row["model"] for row in response["rows"] if row["kind"] == "model" and row["finished"]
        ][-1] == "digits"  # finished rows are kept
        wait_for(
            lambda: job_queue.poll(next_job, "ben")["status"] != "waiting",
            60,
            "the next job's turn",
        )
        # includes the delay of a busy machine; the download hangs for longer
        assert time.monotonic() - cancelled_at < 5
    assert wait_for_result(job_queue, next_job, "ben")["status"] == "done"


def test_hosted_comparer_rejects_local_folders_and_limits_downloads(
    hub_with_models, digits, tiny_gpt2
):
    job_queue = ComparisonQueue(hosted=True)
    try:
        result = wait_for_result(
            job_queue, job_queue.submit("model-info", {"models": [tiny_gpt2]}, "ada")
        )["result"]
        assert "is not the name of a model" in result["models"][0]["message"]
        assert (result["folders"], result["max_bytes"]) == (False, 600_000_000)
    finally:
        job_queue.close()
    wait_for(lambda: job_queue.process_id is None, 60, "the end of the process")


SERVER_SCRIPT = """
import sys, time
from playground.comparison.job_queue import (ComparisonQueue)
from playground.comparison.export import (to_csv)
if __name__ == "__main__":
    comparer = ComparisonQueue()
    job = comparer.submit("model-info", {"models": ["../odd"]}, "ada")
    while (answer := comparer.poll(job, "ada"))["status"] not in ("done", "failed"):
        time.sleep(0.05)
    assert "is not the name of a model" in answer["result"]["models"][0]["message"], answer
    print(sorted({"torch", "transformers", "huggingface_hub"} & set(sys.modules)))
    comparer.close()
"""


def test_the_server_process_does_not_import_torch(tmp_path):
    (tmp_path / "page.py").write_text(SERVER_SCRIPT)
    completed = subprocess.run(
        [sys.executable, tmp_path / "page.py"],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert completed.stdout.strip() == "[]", completed.stderr


def test_every_failure_becomes_a_message():
    assert "not enough memory" in str(to_user_error(MemoryError(), "gpt2"))
    assert str(to_user_error(OSError(28, "No space left on device"), "gpt2")).startswith(
        "gpt2: the system reported an error: No space left"
    )
    assert to_user_error(UserError("a message"), "gpt2").args == ("a message",)
    assert "an unexpected error occurred (KeyError" in str(to_user_error(KeyError("x"), "gpt2"))
    with pytest.raises(UserError, match="is not a kind of job"):
        run("no such kind", {}, ProgressReporter())


@pytest.mark.smoke
def test_only_unexpected_errors_are_logged_with_traceback(caplog):
    def fail():
        raise KeyError("layers")

    for expected in (MemoryError(), OSError(28, "No space left on device"), UserError("a message")):
        to_user_error(expected, "gpt2")
    assert caplog.records == []
    try:
        fail()
    except KeyError as error:
        to_user_error(error, "ada/x\nINFO forged line")
    (record,) = caplog.records
    assert record.name.startswith("playground.")
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])][-1] == "fail"
    assert "\n" not in record.getMessage()


def test_rows_are_strict_json_with_null_for_nan():
    assert to_json_safe({"a": float("nan"), 1: [float("-inf"), (2.5, None, True)]}) == {
        "a": None,
        "1": [None, [2.5, None, True]],
    }
    with pytest.raises(TypeError):
        to_json_safe({"a": object()})


def finetune_request(digits, model, **options):
    return {
        "checkpoint": str(digits),
        "model": model,
        "steps": 5000,
        "batch_size": 32,
        "n": 4,
    } | options


def test_cancelled_fine_tuning_ends_after_saving_its_weights(job_queue, digits, tiny_gpt2):
    job = job_queue.submit("finetune", finetune_request(digits, tiny_gpt2), "ada")
    wait_for(lambda: len(job_queue.poll(job, "ada")["rows"]) > 4, 100, "a few steps")
    job_queue.cancel(job, "ada")
    result = job_queue.poll(job, "ada")
    assert result["status"] in ("working", "cancelled")
    if result["status"] == "working":
        assert "saving the result" in result["message"]
    result = wait_for_result(job_queue, job)
    assert (result["status"], result["message"]) == (
        "cancelled",
        "cancelled; the results so far are available",
    )
    assert 0 < result["result"]["steps"] < 5000
    query = job_queue.submit("model-info", {"models": [result["result"]["model"]]}, "ada")
    assert not wait_for_result(job_queue, query)["result"]["models"][0]["message"]


def test_fine_tuning_is_saved_when_the_server_is_killed(digits, tiny_gpt2, tmp_path):
    program = """if __name__ == "__main__":
        import json, sys, time
        from playground.comparison.job_queue import ComparisonQueue
        comparer = ComparisonQueue()
        job = comparer.submit("finetune", json.loads(sys.argv[1]), "ada")
        while len(comparer.poll(job, "ada")["rows"]) < 5:
            time.sleep(0.05)
        print("learning", flush=True)
        time.sleep(600)"""
    (tmp_path / "server.py").write_text(program)
    environment = os.environ | {
        "PLAYGROUND_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "PYTHONPATH": str(ROOT),
    }
    command = [
        sys.executable,
        str(tmp_path / "server.py"),
        json.dumps(finetune_request(digits, tiny_gpt2)),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "learning\n"
        server.kill()
    (folder,) = wait_for(
        lambda: list((tmp_path / "checkpoints" / "compared").glob("*/fine-tuned.json")),
        100,
        "what it had learned",
    )
    assert 0 < json.loads(folder.read_text())["steps"] < 5000
