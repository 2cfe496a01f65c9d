"""Which client sent a request, from which page, and whose quota the request counts for."""

import ipaddress
import os
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from playground.common.env import env_number, env_text, is_env_set
from playground.jobs.admission import CLIENT_ADDRESS, VIEWER, Client
from playground.runs.access import ModelRef
from playground.runs.record import owner_id


def resolve_client_address(connection: HTTPConnection) -> str:
    """Return the address of the client that sent a request; of IPv6 the network of 64 bits.

    A proxy appends the address of its own client to X-Forwarded-For, so the entries before those of
    the trusted proxies may be forged. The header counts on a Space, and where API_PROXIES is set.
    """
    address = connection.client.host if connection.client else ""
    if "SPACE_ID" not in os.environ and not is_env_set("API_PROXIES"):
        return network_of(address)
    forwarded = ",".join(connection.headers.getlist("x-forwarded-for"))
    hops = [hop.strip() for hop in forwarded.split(",")]
    return network_of(hops[-min(int(env_number("API_PROXIES")), len(hops))] or address)


@lru_cache(maxsize=1000)
def network_of(address: str) -> str:
    """Return the unit of a limit: an IPv4 address, or an IPv6 network."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))


def resolve_client(ref: ModelRef) -> Client:
    """Return the client that a request counts for; viewers have quotas apart from the owner's."""
    name = VIEWER if ref.is_share_link else owner_id(ref.owner) if ref.owner else ""
    return Client(CLIENT_ADDRESS.get(), name)


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
