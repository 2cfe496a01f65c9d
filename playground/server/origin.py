"""Check that a request comes from a page of this server."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from playground.common.env import env_text


def is_own_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the headers are those of a page of this server, or of no page.

    Only the Host header is compared with the Origin: a page of another site may send
    X-Forwarded-Host.
    """
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    host = host_of(origin)
    return host != "" and host in (headers.get("host"), *public_hosts())


def configured_hosts() -> list[str]:
    """Return the names of this server in PLAYGROUND_HOSTS."""
    return [name.strip() for name in env_text("HOSTS").split(",") if name.strip()]


def public_hosts() -> list[str]:
    """Return the configured host names of this server, with that of a Space."""
    space = os.environ.get("SPACE_HOST", "")
    return configured_hosts() + [name.strip() for name in space.split(",") if name.strip()]


def host_of(origin: str) -> str:
    """Return host and port of an Origin; empty for "null" and for invalid values."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
