"""The numbers that the environment may set, each with its default and what it accepts: one place, so that what is no number is told in
a sentence before anything starts, and not by whatever happens to read it first."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from playground.models.config import plain, shown


@dataclass(frozen=True)
class Number:
    """What a variable is when nobody sets it, and the range that it accepts; a `whole` one has no fractions."""

    default: float
    low: float = 0
    high: float = 1e9
    whole: bool = False


# The first part of every name is PLAYGROUND_. What they mean stands beside those who read them.
NUMBERS = {
    "SLOTS": Number(0, high=1000, whole=True),
    "THREADS": Number(0, high=256, whole=True),
    "LEASE": Number(1800),
    "REAP": Number(600),
    "HUNG_AFTER": Number(60),
    "HISTORY_MB": Number(96),
    "UPLOAD_MB": Number(50),
    "ROWS_MB": Number(100),
    "ROWS_IN_ALL_MB": Number(2000),
    "MODEL_MB": Number(2000),
    "MODELS_MB": Number(3000),
    "MAX_D_MODEL": Number(512, whole=True),
    "MAX_LAYERS": Number(8, whole=True),
    "MAX_LENGTH": Number(128, whole=True),
    "MAX_BATCH": Number(512, whole=True),
    "MAX_MINUTES": Number(15),
    "RUNS_MB": Number(200),
    "RUNS_IN_ALL_MB": Number(5000),
    "ZERO_SECONDS": Number(20, low=1, high=3600),
    "ADDRESS_MS": Number(500),
    "OWNER_MS": Number(200),
    "API_STARTS": Number(10),
    "API_HEAVY": Number(20),
    "API_CALLS": Number(600),
    "API_AT_ONCE": Number(2, low=1, high=1000, whole=True),
    "API_PROXIES": Number(1, low=1, high=100, whole=True),
}


# Read by the server alone. Its worker processes parse files of strangers, and do not inherit them.
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OAUTH_CLIENT_SECRET")
_secrets: dict[str, str] = {}


def withhold_secrets() -> None:
    """Take the secrets out of the environment that child processes inherit. Safe to call again."""
    _secrets.update({name: os.environ.pop(name) for name in SECRETS if name in os.environ})


def secret(name: str) -> str:
    """Return a secret of the environment, withheld or not; empty where it is not set."""
    return _secrets.get(name) or os.environ.get(name, "")


class NumberError(ValueError):
    """A variable that is set to what it does not accept; the message names it and says what it accepts."""


def number(name: str) -> float:
    """The number that PLAYGROUND_`name` is set to, or its default where it is not set, or to nothing.

    Raises:
        NumberError: for what is no such number.
    """
    about = NUMBERS[name]
    given = os.environ.get(f"PLAYGROUND_{name}", "").strip()
    try:
        value = float(given) if given else about.default
    except ValueError:
        value = math.nan
    if not about.low <= value <= about.high or (about.whole and value % 1):
        kind = "a whole number" if about.whole else "a number"
        bounds = f"from {plain(int(about.low))} to {plain(int(about.high))}"
        raise NumberError(
            f"PLAYGROUND_{name} is {shown(given)}; it must be {kind} {bounds}, or be left out for {plain(about.default)}"
        )
    return value


def check_numbers() -> None:
    """Read every one of them, so that a slip is told at the start.

    Raises:
        NumberError: with a line for each that is wrong.
    """
    wrong = []
    for name in NUMBERS:
        try:
            number(name)
        except NumberError as error:
            wrong.append(str(error))
    if wrong:
        raise NumberError("\n".join(wrong))


def is_set(name: str) -> bool:
    """Whether PLAYGROUND_`name` is set to anything."""
    return bool(os.environ.get(f"PLAYGROUND_{name}", "").strip())


def megabytes(name: str) -> int:
    """Bytes, where the variable says megabytes."""
    return int(number(name) * 1_000_000)
