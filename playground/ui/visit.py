"""What a browser remembers of its visits: whose runs it may see. It is the browser's, so it is read with care."""

from __future__ import annotations

import json
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

OWNER = re.compile(r"[A-Za-z0-9_-]{32}")


def visited(owner: str) -> str:
    return json.dumps({"owner": owner})


def new_owner() -> str:
    """A secret that nobody can guess; whoever has it owns the runs that were started with it."""
    return secrets.token_urlsafe(24)


def owner_of_this_machine(root: Path) -> str:
    """The one owner of everything on a machine that serves nobody else: another browser, or a browser that has forgotten, still
    finds every run."""
    path = root / "runs" / ".owner"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError), open(path, "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(new_owner())
        owner = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return owner if OWNER.fullmatch(owner) else ""


def known(visit_value: Any) -> str:
    """The owner out of a browser's memory; empty where there is nothing sensible."""
    try:
        owner = json.loads(visit_value)["owner"]
        if OWNER.fullmatch(owner):
            return owner
    except (TypeError, ValueError, KeyError, RecursionError):
        pass  # a first visit, or a memory of something else
    return ""
