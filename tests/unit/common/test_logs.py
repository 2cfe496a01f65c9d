"""The log: level, no secrets, no forged lines, and exceptions of all threads."""

import io
import logging
import subprocess
import sys

import pytest

from playground.common.logs import RepeatFilter, SafeFormatter

TOKEN = "hf_" + "aBcD1234" * 4


@pytest.fixture
def log():
    """A logger with the format of the app, and its output."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    return logger, stream


def test_tokens_are_redacted_in_messages_and_tracebacks(log):
    logger, stream = log
    logger.warning("the token is %s", TOKEN)
    try:
        raise ValueError(f"Received inputs: ['{TOKEN}']")
    except ValueError:
        logger.exception("a request failed")
    assert TOKEN not in stream.getvalue()
    assert stream.getvalue().count("hf_[redacted]") == 2
    assert "Traceback" in stream.getvalue()


@pytest.mark.parametrize("character", ["\n", "\r", "\x1b", "\u2028"])
def test_a_message_cannot_forge_a_line(log, character):
    logger, stream = log
    logger.warning("path %s", f"/x{character}CRITICAL forged")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_a_repeated_message_is_logged_once_a_minute(monkeypatch):
    now = 100.0
    monkeypatch.setattr("playground.common.logs.time.monotonic", lambda: now)
    repeats = RepeatFilter()

    def record(message, line=1):
        return logging.LogRecord("asyncio", 40, "x.py", line, message, (), None)

    assert [repeats.filter(record("too many open files")) for _ in range(3)] == [True, False, False]
    assert repeats.filter(record("another place", line=2))
    now += 61
    assert repeats.filter(record("too many open files"))


def test_a_repeated_error_is_dropped():
    repeats = RepeatFilter()

    def record(number, error=ValueError):
        try:
            raise error(f"session {number}")
        except ValueError:
            text = f"Task-{number} failed: {number * 'x'}"
            return logging.LogRecord("asyncio", 40, "x.py", 1, text, (), sys.exc_info())

    assert [repeats.filter(record(number)) for number in range(5)] == [True] + [False] * 4
    assert repeats.filter(record(5, UnicodeError))  # another error at the same line


def test_an_exception_in_a_thread_is_logged_with_its_traceback():
    script = (
        "import threading; from playground.common.logs import configure_logging\n"
        "configure_logging(); configure_logging()\n"
        "def work(): raise RuntimeError('from the thread')\n"
        "thread = threading.Thread(target=work, name='worker-7'); thread.start(); thread.join()\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.count("ERROR playground: The thread worker-7 ended with an exception") == 1
    assert done.stderr.count("RuntimeError: from the thread") == 1
