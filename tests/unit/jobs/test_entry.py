"""The messages of a job's process: progress, and a result or an error."""

import errno
import threading
from types import SimpleNamespace

import pytest
import torch

from playground.errors import UserError
from playground.jobs import entry
from playground.jobs.entry import ResidentOptions, last_message
from playground.jobs.progress import JobCancelled, ProgressReporter, to_json_safe, to_user_error


class Pipe:
    """A pipe that delivers these messages and then closes."""

    def __init__(self, *messages):
        self.messages, self.sent = list(messages), []

    def recv(self):
        if not self.messages:
            raise EOFError
        message = self.messages.pop(0)
        return message() if callable(message) else message

    def send(self, message):
        self.sent.append(message)

    def close(self):
        self.sent.append("closed")


@pytest.fixture(autouse=True)
def this_process(monkeypatch):
    """Leave the signals and the priority of this process unchanged."""
    monkeypatch.setattr(entry, "prepare_process", lambda nice: None)
    monkeypatch.setattr(entry, "exit_with_parent", lambda connection: None)


def failing(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "message", "retryable"),
    [
        (UserError("busy", retryable=True), "busy", True),
        (ValueError("seed is 'x'"), "seed is 'x'", False),
        *(
            (error, "not enough memory", True)
            for error in (
                MemoryError(),
                torch.OutOfMemoryError("CUDA out of memory"),
                RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"),
            )
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/secret/path"),
            "the system reported an error: No space left on device; free disk space and try again",
            True,
        ),
        (KeyError("layers"), "an unexpected error occurred (KeyError: 'layers'); try again", True),
    ],
)
def test_each_error_is_a_message(error, message, retryable, caplog):
    kind, response = last_message(failing(error))
    assert (kind, response.get("retryable", False)) == ("failed", retryable)
    assert message in response["error"]
    assert "/secret" not in response["error"]
    assert [record.exc_info[0] for record in caplog.records] == (
        [KeyError] if isinstance(error, KeyError) else []
    )


def test_the_whole_error_reaches_the_last_message():
    error = UserError("too long", "text", code="length", details={"longest": 8})
    response = {"error": "too long", "field": "text", "code": "length", "longest": 8}
    assert last_message(failing(error)) == ("failed", response)


def test_an_unexpected_error_names_the_model_in_one_line_of_the_log(caplog):
    message = str(to_user_error(KeyError("layers"), "ada/x\nINFO forged line"))
    assert message.startswith("ada/x\nINFO forged line: an unexpected error occurred (KeyError")
    (record,) = caplog.records
    assert record.name.startswith("playground.")
    assert "\n" not in record.getMessage()


def test_results_are_strict_json_with_null_for_nan():
    assert to_json_safe({"a": float("nan"), 1: [float("-inf"), (2.5, None, True)]}) == {
        "a": None,
        "1": [None, [2.5, None, True]],
    }
    with pytest.raises(TypeError):
        to_json_safe({"a": object()})


def test_a_cancelled_job_cannot_report_any_more():
    sent, cancelled = [], threading.Event()
    reporter = ProgressReporter(lambda *message: sent.append(message), cancelled)
    reporter.message("one", 600.0, "writing")
    reporter.partial({"n": 1})
    for done in range(50):
        reporter.progress(done, 50)
    reporter.progress(50, 50)
    assert sent[:2] == [("message", "one", 600.0, "writing"), ("partial", {"n": 1})]
    assert sent[-1] == ("progress", 50, 50, "")
    assert len(sent) < 10
    cancelled.set()
    for call in (
        lambda: reporter.message("two"),
        lambda: reporter.row({}),
        lambda: reporter.partial({}),
        lambda: reporter.progress(1, 1),
        reporter.raise_if_cancelled,
    ):
        with pytest.raises(JobCancelled):
            call()
    assert last_message(reporter.raise_if_cancelled) == ("cancelled",)


def count(text, reporter):
    reporter.message(f"Counting in {reporter.scratch.name}")
    return {"n": len(text)}


def test_process_for_one_job_sends_its_progress_and_its_result():
    pipe = Pipe()
    entry.run_job(pipe, f"{__name__}:count", ("abc",), nice=5, scratch="some/folder")
    assert pipe.sent == [
        ("message", "Counting in folder", 0.0, None),
        ("result", {"n": 3}),
        "closed",
    ]


def create_handler():
    def handle(kind, text, reporter):
        if kind == "wait":
            assert reporter.cancelled.wait(120)
            reporter.raise_if_cancelled()
        reporter.row({"n": 1})
        return {"n": len(text)}

    return handle


def serve(monkeypatch, pipe, **options):
    ended = []
    monkeypatch.setattr(entry.os, "_exit", ended.append)
    entry.serve(pipe, f"{__name__}:create_handler", ResidentOptions(**options))
    assert ended == [0]
    return pipe.sent


def test_resident_process_handles_one_job_after_another(monkeypatch):
    pipe = Pipe(("begin", "1", "count", ("ab",)), ("cancel", "1"), ("begin", "2", "count", (None,)))
    sent = serve(monkeypatch, pipe)
    assert sent[:3] == [("1", "row", {"n": 1}), ("1", "result", {"n": 2}), ("2", "row", {"n": 1})]
    assert sent[3][:2] == ("2", "failed")
    assert "TypeError" in sent[3][2]["error"]


def test_concurrent_jobs_of_a_resident_process_can_be_cancelled(monkeypatch):
    ended = threading.Event()

    class Waiting(Pipe):
        def send(self, message):
            super().send(message)
            if message == ("1", "cancelled"):
                ended.set()

    def wait():
        assert ended.wait(120)
        raise EOFError

    pipe = Waiting(
        ("begin", "1", "wait", ("a",)),
        ("begin", "2", "count", ("ab",)),
        ("cancel", "1"),
        ("cancel", "unknown"),
        wait,
    )
    sent = serve(monkeypatch, pipe, concurrent=True)
    assert ("1", "cancelled") in sent
    assert ("2", "result", {"n": 2}) in sent


def test_job_that_saves_may_finish_after_the_server_has_ended(monkeypatch):
    pipe = Pipe(("begin", "1", "wait", ("a",)))
    sent = serve(
        monkeypatch, pipe, concurrent=True, saving_kinds=frozenset({"wait"}), save_timeout_s=20.0
    )
    assert sent == [("1", "cancelled")]


def test_environment_is_set_before_the_handler_is_imported(monkeypatch):
    environment = {}
    monkeypatch.setattr(entry, "os", SimpleNamespace(environ=environment, _exit=lambda code: None))
    load = lambda target: lambda: environment.setdefault("seen", dict(environment))  # noqa: E731
    monkeypatch.setattr(entry, "load_target", load)
    entry.serve(Pipe(), "some:factory", ResidentOptions(environment={"HF_TOKEN": ""}))
    assert environment["seen"] == {"HF_TOKEN": ""}
