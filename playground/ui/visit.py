"""What a browser remembers of its visits: whose runs it may see, and what was open last. It is the browser's, so it is read with
care."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

OWNER = re.compile(r"[A-Za-z0-9_-]{32}")


def visited(owner: str, subject: str) -> str:
    return json.dumps({"owner": owner, "subject": subject})


def new_owner() -> str:
    """A secret that nobody can guess; whoever has it owns the runs that were started with it."""
    return secrets.token_urlsafe(24)


def known(visit_value: Any) -> tuple[str, str]:
    """Owner and subject out of a browser's memory; empty where there is nothing sensible."""
    try:
        memory = json.loads(visit_value)
        owner, subject = memory["owner"], memory["subject"]
        if OWNER.fullmatch(owner) and len(subject) < 300:
            return owner, subject
    except (TypeError, ValueError, KeyError, RecursionError):
        pass  # a first visit, or a memory of something else
    return "", ""
