"""Logging: one handler on stderr, a level from the environment, no secrets."""

import logging
import re
import sys
import threading
import time
import traceback

from .env import env_text

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TOKEN_PATTERN = re.compile(r"\bhf_[A-Za-z0-9]{4,}")
CONTROL_PATTERN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f\u2028\u2029]")
REPEAT_INTERVAL_S = 60.0


class SafeFormatter(logging.Formatter):
    """Redacts Hub tokens and escapes control characters.

    A request chooses parts of some messages. With a raw newline it could forge a log line.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _escape(super().formatMessage(record).replace("\n", "\\n"))

    def formatException(self, exc_info: object) -> str:
        return _escape(super().formatException(exc_info))  # type: ignore[arg-type]


class RepeatFilter(logging.Filter):
    """Drops a message that the same line of code logged for the same error less than a minute ago.

    asyncio logs a traceback for each connection that it cannot accept, thousands per second. The
    texts do not count: a client chooses parts of them, and asyncio numbers its tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[object, ...], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.pathname, record.lineno, *_origin_of(record))
        now = time.monotonic()
        is_new = now - self._logged.get(key, -REPEAT_INTERVAL_S) >= REPEAT_INTERVAL_S
        if is_new:
            self._logged = {k: t for k, t in self._logged.items() if now - t < REPEAT_INTERVAL_S}
            self._logged[key] = now
        return is_new


def _origin_of(record: logging.LogRecord) -> tuple[object, ...]:
    """Return the type of a record's error, and the file and line that raised it."""
    if not record.exc_info or record.exc_info[0] is None:
        return ()
    frames = list(traceback.walk_tb(record.exc_info[2]))
    return (
        record.exc_info[0],
        *((frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else ()),
    )


def configure_logging() -> None:
    """Send the logs of the app, its web server and its threads to one handler on stderr.

    Calling it again changes nothing but the level. Raises EnvError for an unknown
    PLAYGROUND_LOG_LEVEL.
    """
    logger = logging.getLogger("playground")
    logger.setLevel(env_text("LOG_LEVEL").upper())
    if any(isinstance(handler.formatter, SafeFormatter) for handler in logger.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter(FORMAT))
    logger.addHandler(handler)
    logger.propagate = False
    asyncio_logger = logging.getLogger("asyncio")
    asyncio_logger.addHandler(handler)
    asyncio_logger.propagate = False
    asyncio_logger.addFilter(RepeatFilter())
    threading.excepthook = _log_thread_exception


def _log_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is None or isinstance(args.exc_value, SystemExit):
        return
    name = args.thread.name if args.thread else "?"
    logging.getLogger("playground").error(
        "The thread %s ended with an exception",
        name,
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
    )


def _escape(text: str) -> str:
    redacted = TOKEN_PATTERN.sub("hf_[redacted]", text)
    return CONTROL_PATTERN.sub(lambda match: f"\\x{ord(match[0]):02x}", redacted)
