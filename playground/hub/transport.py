"""The HTTP transport of huggingface_hub: short timeouts and few retries.

The settings apply to the whole process.
"""

import socket
import threading
import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import set_client_factory
from huggingface_hub.utils import _http, httpx, logging  # type: ignore[attr-defined]
from huggingface_hub.utils._http import hf_request_event_hook, parse_ratelimit_headers

CONNECT_TIMEOUT_S = 2.5  # connection timeout, in seconds
READ_TIMEOUT_S = 12.0  # timeout of a response, in seconds
MAX_RETRY_WAIT_S = 15.0  # longest accepted retry delay, in seconds; the Hub may request a day
TRANSIENT_STATUSES = (500, 502, 503, 504)  # HTTP statuses of temporary errors
MIN_BYTES_PER_S = 100_000  # expected minimum transfer rate, in bytes per second
RETRY_DELAY_S = 1.0  # default retry delay, in seconds
_configure_lock = threading.Lock()


class HubUnreachable(Exception):
    """An error for a host without a response, which gets no further request."""


class RateLimited(Exception):
    """An error for a retry delay that is too long; its argument is the delay in seconds."""


class FailFastTransport(httpx.Client):
    """An HTTP client with short timeouts and few retries.

    A host that never responded, or timed out twice in a row, gets no further request. The default
    client of huggingface_hub sends six requests and waits a minute for each.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.failed_hosts: dict[bytes, int] = {}  # consecutive timeouts by host

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        limits, host = request.extensions.get("timeout", {}), request.url.netloc
        request.extensions["timeout"] = {
            name: min(limit or READ_TIMEOUT_S, READ_TIMEOUT_S) for name, limit in limits.items()
        }
        try:
            response = super().send(request, **options)
            if (wait := _retry_wait(request, response)) is not None:
                response.close()
                time.sleep(wait)
                response = super().send(request, **options)
        except httpx.TimeoutException as error:
            self.failed_hosts[host] = self.failed_hosts.get(host, 1) + 1  # 1: no response yet
            if self.failed_hosts[host] > 1:
                raise HubUnreachable from error  # huggingface_hub does not retry this error
            raise
        self.failed_hosts[host] = 0
        return response


def _retry_wait(request: httpx.Request, response: httpx.Response) -> float | None:
    """Return the retry delay of a request in seconds; None if it must not be repeated.

    Status 429 means that the server did nothing, so any request may be repeated whose body is
    available. After a status 5xx only a request that changes nothing may be repeated.
    """
    requested = response.headers.get("retry-after", "").strip()
    wait = float(requested) if requested.isdigit() else None
    if (
        response.status_code == 429
        and wait is not None
        and isinstance(request.stream, httpx.ByteStream)
    ):
        return wait  # longer delays than MAX_RETRY_WAIT_S were rejected before
    if response.status_code in TRANSIENT_STATUSES and request.method in ("GET", "HEAD"):
        return RETRY_DELAY_S if wait is None else wait
    return None


def make_http_client() -> httpx.Client:
    """Return an HTTP client like that of huggingface_hub, with a timeout for every request."""

    def on_response(response: httpx.Response) -> None:
        result = [response.headers.get("retry-after", "").strip()]
        if (
            response.status_code == 429
            and (limit := parse_ratelimit_headers(response.headers))
            and not limit.remaining
        ):
            result.append(str(limit.reset_in_seconds))
        waits = [int(wait) for wait in result if wait.isdigit()]
        if response.status_code >= 400 and waits and max(waits) > MAX_RETRY_WAIT_S:
            raise RateLimited(max(waits))

    return FailFastTransport(
        event_hooks={"request": [hf_request_event_hook], "response": [on_response]},
        follow_redirects=True,
        timeout=httpx.Timeout(READ_TIMEOUT_S, connect=5.0),
    )


def configure_process() -> None:
    """Configure huggingface_hub for this process, once.

    `set_client_factory` closes the client in use, and with it the downloads of other threads.
    """
    with _configure_lock:
        if _http._GLOBAL_CLIENT_FACTORY is not make_http_client:
            set_client_factory(make_http_client)
    logging.set_verbosity_error()  # the job reports retries itself


def connection_problem(url: str) -> str:
    """Return why no connection to the host of a URL is possible; empty if one is.

    The result comes within seconds. A proxy of the environment is used.
    """
    address = urlsplit(url)
    proxy = (
        ""
        if urllib.request.proxy_bypass(address.hostname or "")
        else urllib.request.getproxies().get(address.scheme, "")
    )
    if proxy:
        address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    port = address.port or (443 if address.scheme == "https" else 80)
    problem: list[str] = ["no response"]

    def try_connect() -> None:  # in a thread, because name resolution has no timeout
        try:
            socket.create_connection((address.hostname or "", port), CONNECT_TIMEOUT_S).close()
            problem.clear()
        except socket.gaierror:
            problem[:] = ["no internet connection, or an unknown host name"]
        except OSError as error:
            problem[:] = [error.strerror or str(error) or "no response"]

    thread = threading.Thread(target=try_connect, daemon=True)
    thread.start()
    thread.join(CONNECT_TIMEOUT_S)
    return next(iter(problem), "")  # the thread may clear it at any time
