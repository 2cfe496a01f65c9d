"""What a browser remembers of its visits: whose runs it may see. It is the browser's, so it is read with care."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

OWNER = re.compile(r"[A-Za-z0-9_-]{32}")


def visited(owner: str) -> str:
    return json.dumps({"owner": owner})


def new_owner() -> str:
    """A secret that nobody can guess; whoever has it owns the runs that were started with it."""
    return secrets.token_urlsafe(24)


def known(visit_value: Any) -> str:
    """The owner out of a browser's memory; empty where there is nothing sensible."""
    try:
        owner = json.loads(visit_value)["owner"]
        if OWNER.fullmatch(owner):
            return owner
    except (TypeError, ValueError, KeyError, RecursionError):
        pass  # a first visit, or a memory of something else
    return ""
