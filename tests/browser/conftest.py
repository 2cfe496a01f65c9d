"""Fixtures of the browser tests: the app, a stand-in Hub and pages in Chromium.

Without Chromium or Chrome the tests are skipped; with CI=true they fail.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, Request, expect, sync_playwright

from tests.support.app_server import AppServer
from tests.support.browser_page import SIZES, storage_of, train_over_api, wait_for_status
from tests.support.chromium import FLAGS, find_browser
from tests.support.fake_hub import FakeHub
from tests.support.page_client import PageClient

# names on the Hub, and the fixtures that stand there
SERVED = {"gpt2": "tiny-gpt2", "bert-base-uncased": "tiny-bert", "google-t5/t5-small": "tiny-t5"}
VIEWPORT = {"width": 1440, "height": 950}
REDUCED_MOTION = "reduce"  # no recording plays on the first visit
expect.set_options(timeout=60_000)  # a busy machine is slow, not wrong


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        reason = (
            "no Chromium or Chrome on the path: install one (Debian: apt-get install "
            "chromium) or set BROWSER_PATH"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def app_hub() -> Iterator[FakeHub]:
    """The stand-in Hub of the app that all tests share."""
    with FakeHub() as hub:
        yield hub


@pytest.fixture(scope="session")
def app(app_hub, tmp_path_factory) -> Iterator[AppServer]:
    """A shared server, one for each test process, so each browser profile is an owner.

    Its machine has a Hub token, which no request of a user may contain.
    """
    folder = tmp_path_factory.mktemp("app")
    environment = {
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "PLAYGROUND_SLOTS": "4",
        "PLAYGROUND_ADDRESS_MS": "0",
    }
    server = AppServer(
        folder, **environment, **app_hub.environment(folder / "hf", token=app_hub.OWNER)
    )
    yield server
    server.stop()


@pytest.fixture(scope="session")
def old_owners() -> set[str]:
    """The owners whose runs last longer than a page."""
    return set()


@pytest.fixture(scope="session")
def finished_run(app, old_owners) -> tuple[PageClient, str]:
    """A run of 60 steps and its owner, which no test changes. The page lists a second run."""
    client, _ = train_over_api(app, seed=1)
    old_owners.add(client.owner)
    return train_over_api(app, client.owner)


@pytest.fixture
def open_run(app, open_page) -> Callable[..., Page]:
    """Open a run in a profile of its owner, and wait until it is shown to its end."""

    def open_run(client: PageClient, run: str, **options: Any) -> Page:
        session = storage_of(app, json.dumps({"owner": client.owner}))
        page = open_page(f"{app.url}/?model={run}", storage_state=session, **options)
        wait_for_status(page, "done")
        expect(page.locator(".runs .name").first).to_be_visible()  # it loads after the model
        expect(page.locator(".live .answer")).to_contain_text(re.compile("[✓✗]"))
        return page

    return open_run


@pytest.fixture(scope="session")
def served_models(request) -> dict[str, dict[str, bytes]]:
    """The files of the tiny fixtures, by the names of the models that they replace."""
    # and with it transformers, which few tests here need
    from tests.support.tiny_models import cached_models

    folder = cached_models(request.config.cache.mkdir("tiny-models"))
    return {
        name: {path.name: path.read_bytes() for path in (folder / tiny).iterdir()}
        for name, tiny in SERVED.items()
    }


@pytest.fixture(scope="module")
def model_hub(served_models) -> Iterator[FakeHub]:
    with FakeHub() as hub:
        for name, files in served_models.items():
            hub.put(name, files)
        yield hub


@pytest.fixture
def hub(model_hub) -> Iterator[FakeHub]:
    """The Hub with the fixtures; faults end with the test."""
    yield model_hub
    model_hub.clear_faults()


@pytest.fixture(scope="module")
def app_with_models(model_hub, tmp_path_factory) -> Iterator[AppServer]:
    folder = tmp_path_factory.mktemp("app")
    server = AppServer(folder, **model_hub.environment(folder / "hf", token=model_hub.OWNER))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def idle() -> dict[str, list[Page]]:
    """The idle pages, by the origin whose files their profile has cached.

    A first visit takes twice as long.
    """
    return {}


@pytest.fixture(scope="module")
def left_open() -> list[tuple[Page, set[tuple[str, str]]]]:
    """The page that the tests of a file share, with its owner."""
    return []


@pytest.fixture
def open_page(
    request: pytest.FixtureRequest,
    browser: Browser,
    idle: dict[str, list[Page]],
    left_open: list[tuple[Page, set]],
    old_owners: set[str],
) -> Iterator[Callable[..., Page]]:
    """Open pages, each in its own profile; check their errors and requests.

    No page may log an error or request another host. `share` returns the page of an earlier test of
    the file, unless that test failed; its runs last as long as the page.
    """
    contexts, reusable, listeners, complaints = [], [], [], []
    owners: set[tuple[str, str]] = set()
    failed_before = request.session.testsfailed

    def note_owner(sent: Request, owners: set[tuple[str, str]]) -> None:
        if (
            sent.method == "POST"
            and sent.url.endswith("/playground/api/runs/list")
            and (owner := sent.post_data_json.get("owner"))
        ):
            owners.add((sent.url, owner))

    def listen(page: Page, event: str, complaint: Callable[[Any], str | None]) -> None:
        def note(what: Any) -> None:
            if (text := complaint(what)) is not None:
                complaints.append(text)

        page.on(event, note)
        listeners.append((page, event, note))

    def open_page(
        url: str,
        same_browser_as: Page | None = None,
        may_complain: bool = False,
        visit: bool = True,
        storage_state: Any = None,
        share: bool = False,
        **viewport: int,
    ) -> Page:
        size: Any = VIEWPORT | viewport
        if share and left_open:
            page, visit = left_open[0][0], False
        elif same_browser_as is not None:
            page = same_browser_as.context.new_page()
        else:
            page = (
                pages.pop()
                if (pages := idle.get(url_origin(url)))
                else browser.new_context(viewport=size, reduced_motion=REDUCED_MOTION).new_page()
            )
            if share:
                left_open.append((page, set()))
            else:
                contexts.append(page.context)
                reusable.append((page, url))
        if storage_state:
            restore(page, url_origin(url), storage_state)
        if page.viewport_size != size:
            page.set_viewport_size(size)
        page.set_default_timeout(60_000)
        # where the test takes the network or the server away, Chromium logs it
        if not may_complain:
            listen(
                page, "console", lambda message: message.text if message.type == "error" else None
            )
        listen(page, "pageerror", str)
        listen(page, "request", lambda request: request.url if foreign(request.url, url) else None)
        listen(
            page,
            "request",
            lambda request: note_owner(request, left_open[0][1] if share else owners),
        )
        if visit:
            page.goto(url)
        return page

    yield open_page
    for page, event, listener in listeners:
        page.remove_listener(event, listener)
    if left_open and (request.session.testsfailed > failed_before or last_of_file(request.node)):
        page, owners_of_page = left_open.pop()
        reusable.append((page, page.url))
        contexts.append(page.context)
        owners |= owners_of_page
    retained = [(page, url) for page, url in reusable if not page.is_closed() and forget(page, url)]
    for context in contexts:
        if context not in [page.context for page, _ in retained]:
            context.close()
    for page, url in retained:
        idle.setdefault(url_origin(url), []).append(page)
    for runs_url, owner in owners:
        if owner not in old_owners:
            delete_runs(runs_url, owner)
    assert complaints == []


@pytest.fixture
def open_alone(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open an address in a profile of its own, in one of SIZES; its page may log nothing."""
    contexts, logged = [], []

    def open_alone(
        url: str, size: str = "wide", requested: list[str] | None = None, **options: Any
    ) -> Page:
        width, height = SIZES[size]
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        if requested is not None:
            page.on("request", lambda request: requested.append(request.url))
        page.goto(url)
        return page

    yield open_alone
    for context in contexts:
        context.close()
    assert logged == []


@pytest.fixture(scope="module")
def foreign_page() -> Iterator[Callable[[str], str]]:
    """Serve the given HTML as a page of another origin, and under `localhost` of another site."""
    served = {"body": ""}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            head = "<!doctype html><title>A course</title><link rel=icon href='data:,'>"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"{head}{served['body']}".encode())

        def log_message(self, *_: Any) -> None:
            pass

    def address(body: str) -> str:
        served["body"] = body
        return f"http://127.0.0.1:{server.server_port}/"

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


def last_of_file(item: pytest.Item) -> bool:
    """Return whether the item is the last test of its file."""
    return [each for each in item.session.items if each.path == item.path][-1] is item


def url_origin(url: str) -> str:
    return "{0.scheme}://{0.netloc}".format(urlsplit(url))


def delete_runs(runs_url: str, owner: str) -> None:
    """Delete an owner's runs, which would train beside later tests.

    Does nothing after the end of the server.
    """
    with httpx.Client(timeout=60) as client, suppress(httpx.TransportError):
        listed = client.post(runs_url, json={"owner": owner}).raise_for_status()
        for run in listed.json()["runs"]:
            client.post(
                runs_url.removesuffix("list") + "action",
                json={"owner": owner, "subject": run["subject"], "action": "delete"},
            ).raise_for_status()


def restore(page: Page, origin: str, state: Any) -> None:
    """Restore the storage of another page in the profile of this page."""
    page.context.add_cookies(state["cookies"])
    page.route(f"{origin}/restore", lambda route: route.fulfill(body="", content_type="text/html"))
    page.goto(f"{origin}/restore")
    for stored in (each for each in state["origins"] if each["origin"] == origin):
        page.evaluate(
            "all => all.forEach(({ name, value }) => localStorage.setItem(name, value))",
            stored["localStorage"],
        )
    page.unroute(f"{origin}/restore")


def forget(page: Page, url: str) -> bool:
    """Clear the storage of a page, but not its cached files; return whether it succeeded."""
    try:
        page.context.set_offline(False)
        for other in page.context.pages:
            if other is not page:
                other.close()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        session = page.context.new_cdp_session(page)
        session.send(
            "Storage.clearDataForOrigin",
            {"origin": url_origin(url), "storageTypes": "cookies,local_storage,indexeddb"},
        )
        session.detach()
    except Error:
        return False
    return True


def foreign(requested: str, page: str) -> bool:
    return (
        urlsplit(requested).scheme not in ("data", "blob")
        and urlsplit(requested).netloc != urlsplit(page).netloc
    )
