"""The owner key, which gives a browser access to its runs. It is untrusted input."""

import logging
import re
import secrets
from pathlib import Path
from typing import Any

from playground.common.atomic_write import write_file
from playground.common.strict_json import parse_strict_json

log = logging.getLogger(__name__)

OWNER_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]{32}")


def new_owner_key() -> str:
    """Return a new random owner key, which gives access to the runs started with it."""
    return secrets.token_urlsafe(24)


def valid_owner_key(value: object) -> str:
    """Return an owner key; "" for any other value."""
    return value if isinstance(value, str) and OWNER_KEY_PATTERN.fullmatch(value) else ""


def machine_owner_key(root: Path) -> str:
    """Return the owner key of a local instance, which every browser gets."""
    return stored_key(root / "runs" / ".owner")


def stored_key(path: Path) -> str:
    """Return the random key in a file; a missing or damaged one is replaced.

    Where that is not possible, the key lasts until the process ends.
    """
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
        if key := valid_owner_key(text):
            return key
        log.warning("%s holds no key and is replaced; what belongs to its key is lost", path)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("%s cannot be read (%s); its key changes with each start", path, error)
        return new_owner_key()
    key = new_owner_key()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, key.encode(), mode=0o600)  # readable by this user only
    except OSError as error:
        log.warning("%s cannot be written (%s); its key changes with each start", path, error)
    return key


def owner_from_session(session_json: Any) -> str:
    """Return the owner key in the value that a browser stores; empty if it is not valid."""
    try:
        return valid_owner_key(parse_strict_json(session_json.encode())["owner"])
    except (AttributeError, TypeError, ValueError, KeyError):
        return ""  # a first visit, or an invalid value
