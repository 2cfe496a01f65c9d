"""The owner key, which gives a browser access to its runs. It is untrusted input."""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from playground.common.strict_json import parse_strict_json

OWNER_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{32}")


def new_owner_key() -> str:
    """Return a new random owner key, which gives access to the runs started with it."""
    return secrets.token_urlsafe(24)


def machine_owner_key(root: Path) -> str:
    """Return the single owner key of a local instance; empty if it cannot be stored.

    Every browser gets the same key, so each has access to every run.
    """
    path = root / "runs" / ".owner"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            suppress(FileExistsError),
            open(
                path, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)
            ) as file,
        ):
            file.write(new_owner_key())
        owner = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return owner if OWNER_KEY_PATTERN.fullmatch(owner) else ""


def owner_from_session(session_json: Any) -> str:
    """Return the owner key in the value that a browser stores; empty if it is not valid."""
    try:
        owner = parse_strict_json(session_json.encode())["owner"]
        if OWNER_KEY_PATTERN.fullmatch(owner):
            return owner
    except (AttributeError, TypeError, ValueError, KeyError):
        pass  # a first visit, or an invalid value
    return ""
