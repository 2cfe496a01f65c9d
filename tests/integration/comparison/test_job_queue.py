"""Jobs as the page starts them: a real process, a stand-in Hub, and their failures."""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from playground.comparison.job_queue import MAX_JOBS_PER_OWNER, ComparisonQueue
from playground.comparison.process import run
from playground.errors import UserError
from playground.jobs.process import warm_up
from playground.jobs.progress import ProgressReporter, to_json_safe, to_user_error
from tests.support.app_server import ROOT, wait_for


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def served(hub, tiny_gpt2, tiny_bert):
    hub.put("gpt2", files_of(tiny_gpt2))
    hub.put("bert-base-uncased", files_of(tiny_bert))
    return hub


@pytest.fixture(scope="module")
def comparer(served, tmp_path_factory):
    warm_up().join()
    comparer = ComparisonQueue()
    with pytest.MonkeyPatch.context() as patch:
        # its process inherits it
        patch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path_factory.mktemp("checkpoints")))
        yield comparer
    comparer.close()


def set_limits(monkeypatch, comparer, **limits):
    """Change the limits of heavy jobs for one test."""
    lane = comparer.queue.lane("benchmark")
    monkeypatch.setattr(lane, "policy", replace(lane.policy, **limits))


def over(comparer, job, owner="ada", seconds=100):
    """Poll as a page does until a job ends; return its last response with all rows."""
    rows, cursor = [], 0

    def look():
        nonlocal cursor
        answer = comparer.poll(job, owner, cursor)
        rows.extend(answer["rows"])
        cursor = answer["cursor"]
        return answer if answer["status"] in ("done", "failed", "cancelled") else None

    return wait_for(look, seconds, "the end of the job") | {"rows": rows}


def working(comparer, job, message="", owner="ada"):
    wait_for(
        lambda: (
            message in comparer.poll(job, owner)["message"]
            and comparer.poll(job, owner)["status"] == "working"
        ),
        100,
        message,
    )


def table(digits, *models, **more):
    return {"checkpoint": str(digits), "models": list(models), "n": 4, "shots": 0, "rank": 1} | more


@pytest.mark.smoke
def test_a_table_with_the_models_of_the_hub(comparer, served, digits):
    job = comparer.submit(
        "benchmark", table(digits, "gpt2", "ada/missing", "bert-base-uncased"), "ada"
    )
    answer = over(comparer, job)
    assert answer["status"] == "done", answer["message"]
    lines = [(row["model"], row["description"], row["n"]) for row in answer["result"]["rows"][4:]]
    pretrained = "pretrained, never trained on this task"
    assert lines == [
        ("digits", "trained on this task", 4),
        ("gpt2", pretrained, 4),
        ("ada/missing", "not evaluated", 0),
        ("bert-base-uncased", pretrained, 4),
        ("bert-base-uncased", pretrained, 4),
    ]
    assert "no repository ada/missing" in answer["result"]["rows"][6]["error"]
    assert {row["kind"] for row in answer["rows"]} == {
        "settings",
        "model",
        "estimate",
        "example",
        "leak",
    }
    assert served.received_tokens() == set()
    assert comparer.poll(job, "ada", 10**9)["rows"] == []
    with served.record_requests() as seen:  # the process keeps what it has loaded
        again = over(comparer, comparer.submit("benchmark", table(digits, "gpt2"), "ada"))
    assert again["status"] == "done"
    assert seen == []


def test_a_download_that_hangs_is_cancelled_at_once_and_the_next_job_works(
    comparer, served, digits, tiny_gpt2
):
    served.put("ben/hangs", files_of(tiny_gpt2))
    with served.fault(served.STORAGE, "hang", method="GET"):
        job = comparer.submit("benchmark", table(digits, "ben/hangs"), "ada")
        working(comparer, job, "Downloading ben/hangs")
        behind = comparer.submit("benchmark", table(digits), "ben")
        assert comparer.poll(behind, "ben")["status"] == "waiting"
        assert comparer.poll(behind, "ben")["queue_position"] == 1
        # queries need not wait
        light = over(comparer, comparer.submit("cached-models", {}, "cy"), "cy")
        assert "gpt2" in [row["name"] for row in light["result"]["models"]]
        at = time.monotonic()
        comparer.cancel(job, "ada")
        answer = comparer.poll(job, "ada")
        assert answer["status"] == "cancelled"
        assert [
            row["model"] for row in answer["rows"] if row["kind"] == "model" and row["finished"]
        ][-1] == "digits"  # what had come stays
        wait_for(
            lambda: comparer.poll(behind, "ben")["status"] != "waiting", 60, "the next job's turn"
        )
        # a second, and what a busy machine adds; the download itself hangs for longer
        assert time.monotonic() - at < 5
    assert over(comparer, behind, "ben")["status"] == "done"


def test_the_process_is_killed_and_the_next_job_has_a_new_one(comparer, served, digits, tiny_gpt2):
    served.put("ben/dies", files_of(tiny_gpt2))
    with served.fault(served.STORAGE, "hang", method="GET"):
        job = comparer.submit("benchmark", table(digits, "ben/dies"), "ada")
        behind = comparer.submit("benchmark", table(digits, "gpt2"), "ada")
        working(comparer, job, "Downloading ben/dies")
        first = comparer.process_id
        os.kill(first, signal.SIGKILL)
        answer = over(comparer, job)
    assert answer["status"] == "failed"
    assert answer["message"].startswith(
        "ben/dies: the process was killed, probably because the machine ran out"
    )
    assert answer["retryable"]
    assert [row["model"] for row in answer["rows"] if row["kind"] == "model" and row["finished"]][
        -1
    ] == "digits"
    second = over(comparer, behind)
    assert second["status"] == "done", second["message"]
    assert comparer.process_id not in (None, first)


def test_a_job_that_is_deaf_costs_its_process_only(comparer, digits, monkeypatch):
    job = comparer.submit("benchmark", table(digits, n=400, rank=400), "ada")
    working(comparer, job, "Evaluating digits")
    first = comparer.process_id
    os.kill(first, signal.SIGSTOP)  # it no longer responds
    set_limits(monkeypatch, comparer, cancel_grace_s=0.5)
    comparer.cancel(job, "ada")
    behind = comparer.submit("benchmark", table(digits), "ben")
    assert over(comparer, behind, "ben")["status"] == "done"
    assert comparer.process_id != first


def test_jobs_are_their_owners_and_only_so_many(comparer, digits):
    first = comparer.submit("benchmark", table(digits, n=400, rank=400), "ada")
    second = comparer.submit("benchmark", table(digits), "ada")
    with pytest.raises(
        UserError, match=f"{MAX_JOBS_PER_OWNER} of your jobs are still queued or running"
    ):
        comparer.submit("benchmark", table(digits), "ada")
    comparer.submit("cached-models", {}, "ada")  # queries do not count
    for act in (comparer.poll, comparer.cancel):
        for owner in ("ben", "", "ada "):
            with pytest.raises(UserError, match="no longer stored"):
                act(first, owner)
        for unknown in ("nothing", None, 7, ["x"]):
            with pytest.raises(UserError):
                act(unknown, "ada")
    comparer.cancel(second, "ada")  # it had not begun
    assert comparer.poll(second, "ada")["status"] == "cancelled"
    comparer.cancel(first, "ada")
    comparer.cancel(first, "ada")
    assert over(comparer, comparer.submit("cached-models", {}, "ada"))["status"] == "done"
    with pytest.raises(UserError, match="is not a kind of job"):
        comparer.submit("shell", {}, "ada")


def test_unpolled_jobs_give_way_and_are_removed(comparer, served, digits, tiny_gpt2, monkeypatch):
    served.put("ben/hangs", files_of(tiny_gpt2))
    with served.fault(served.STORAGE, "hang", method="GET"):
        left = comparer.submit("benchmark", table(digits, "ben/hangs"), "ada")
        working(comparer, left, "Downloading ben/hangs")
        set_limits(monkeypatch, comparer, unpolled_timeout_s=1.0)
        assert (
            over(comparer, comparer.submit("benchmark", table(digits), "ben"), "ben")["status"]
            == "done"
        )
    assert "its page no longer polls" in comparer.poll(left, "ada")["message"]
    set_limits(monkeypatch, comparer, result_ttl_s=0.1)
    wait_for(lambda: left not in comparer.queue._jobs, 60, "the end of what was kept")


def test_an_idle_process_gives_its_memory_back(comparer, monkeypatch):
    assert over(comparer, comparer.submit("cached-models", {}, "ada"))["status"] == "done"
    assert comparer.process_id
    monkeypatch.setattr(comparer.executor, "idle_timeout_s", 0.5)
    wait_for(lambda: comparer.process_id is None, 60, "the end of the idle process")
    assert over(comparer, comparer.submit("cached-models", {}, "ada"))["status"] == "done"


def test_hosted_comparer_rejects_local_folders_and_limits_downloads(served, digits, tiny_gpt2):
    comparer = ComparisonQueue(hosted=True)
    try:
        result = over(comparer, comparer.submit("model-info", {"models": [tiny_gpt2]}, "ada"))[
            "result"
        ]
        assert "is not the name of a model" in result["models"][0]["message"]
        assert (result["folders"], result["max_bytes"]) == (False, 600_000_000)
    finally:
        comparer.close()
    wait_for(lambda: comparer.process_id is None, 60, "the end of the process")


PAGE = """
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
    (tmp_path / "page.py").write_text(PAGE)
    done = subprocess.run(
        [sys.executable, tmp_path / "page.py"],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_every_failure_becomes_a_message():
    assert "not enough memory" in str(to_user_error(MemoryError(), "gpt2"))
    assert str(to_user_error(OSError(28, "No space left on device"), "gpt2")).startswith(
        "gpt2: the system reported an error: No space left"
    )
    assert to_user_error(UserError("as it is"), "gpt2").args == ("as it is",)
    assert "an unexpected error occurred (KeyError" in str(to_user_error(KeyError("x"), "gpt2"))
    with pytest.raises(UserError, match="is not a kind of job"):
        run("no such kind", {}, ProgressReporter())


@pytest.mark.smoke
def test_only_unexpected_errors_are_logged_with_traceback(caplog):
    def fail():
        raise KeyError("layers")

    for expected in (MemoryError(), OSError(28, "No space left on device"), UserError("as it is")):
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


def tuning(digits, model, **more):
    return {
        "checkpoint": str(digits),
        "model": model,
        "steps": 5000,
        "batch_size": 32,
        "n": 4,
    } | more


def test_cancelled_fine_tuning_is_over_when_its_weights_are_on_the_disk(
    comparer, digits, tiny_gpt2
):
    job = comparer.submit("finetune", tuning(digits, tiny_gpt2), "ada")
    wait_for(lambda: len(comparer.poll(job, "ada")["rows"]) > 4, 100, "a few steps")
    comparer.cancel(job, "ada")
    result = comparer.poll(job, "ada")
    assert result["status"] in ("working", "cancelled")
    if result["status"] == "working":
        assert "saving the result" in result["message"]
    result = over(comparer, job)
    assert (result["status"], result["message"]) == (
        "cancelled",
        "cancelled; the results so far are available",
    )
    assert 0 < result["result"]["steps"] < 5000
    known = comparer.submit("model-info", {"models": [result["result"]["model"]]}, "ada")
    assert not over(comparer, known)["result"]["models"][0]["message"]


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
    command = [sys.executable, str(tmp_path / "server.py"), json.dumps(tuning(digits, tiny_gpt2))]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "learning\n"
        server.kill()
    (folder,) = wait_for(
        lambda: list((tmp_path / "checkpoints" / "compared").glob("*/fine-tuned.json")),
        100,
        "what it had learned",
    )
    assert 0 < json.loads(folder.read_text())["steps"] < 5000
