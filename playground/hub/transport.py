"""The HTTP transport of huggingface_hub, with a timeout for every request.

The settings apply to the whole process.
"""

import threading

from huggingface_hub import set_client_factory
from huggingface_hub.utils import _http, httpx, logging  # type: ignore[attr-defined]
from huggingface_hub.utils._http import hf_request_event_hook, parse_ratelimit_headers

CONNECT_TIMEOUT_S = 5.0  # connection timeout, in seconds
# Timeout of a response, in seconds. huggingface_hub waits for up to seven in a row.
READ_TIMEOUT_S = 8.0
MAX_RETRY_WAIT_S = 15.0  # longest accepted retry delay, in seconds; the Hub may request a day
MIN_BYTES_PER_S = 100_000  # expected minimum transfer rate, in bytes per second
_configure_lock = threading.Lock()


class RateLimited(Exception):
    """An error for a retry delay that is too long; its argument is the delay in seconds."""


def limit_timeouts(request: httpx.Request) -> None:
    """Shorten the timeouts of a request: most of huggingface_hub have none, or a minute."""
    limits = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {
        name: min(limit or READ_TIMEOUT_S, READ_TIMEOUT_S) for name, limit in limits.items()
    } | {"connect": CONNECT_TIMEOUT_S}


def reject_long_wait(response: httpx.Response) -> None:
    """Raise RateLimited for an error after which huggingface_hub would wait too long."""
    waits = [response.headers.get("retry-after", "").strip()]
    if (
        response.status_code == 429
        and (limit := parse_ratelimit_headers(response.headers))
        and not limit.remaining
    ):
        waits.append(str(limit.reset_in_seconds))
    longest = max((int(wait) for wait in waits if wait.isdigit()), default=0)
    if response.status_code >= 400 and longest > MAX_RETRY_WAIT_S:
        raise RateLimited(longest)


def make_http_client() -> httpx.Client:
    """Return an HTTP client like that of huggingface_hub, with a timeout for every request."""
    return httpx.Client(
        event_hooks={
            "request": [hf_request_event_hook, limit_timeouts],
            "response": [reject_long_wait],
        },
        follow_redirects=True,
        timeout=None,  # that of `limit_timeouts`
    )


def configure_process() -> None:
    """Configure huggingface_hub for this process, once.

    `set_client_factory` closes the client in use, and with it the downloads of other threads.
    """
    with _configure_lock:
        if _http._GLOBAL_CLIENT_FACTORY is not make_http_client:
            set_client_factory(make_http_client)
    logging.set_verbosity_error()  # the job reports retries itself
