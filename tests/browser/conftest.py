"""A real browser on the real app. Any Chromium or Chrome serves; without one these tests say so and are skipped, but with
CI=true they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, Request, expect, sync_playwright

from tests.support.app_server import AppServer
from tests.support.chromium import FLAGS, find_browser
from tests.support.fake_hub import StandInHub

SERVED = {"gpt2": "tiny-gpt2", "bert-base-uncased": "tiny-bert"}  # names on the Hub, and the fixtures that stand there
REFUSED = "422 (Unprocessable Entity)"  # how Gradio's validators say no; the browser logs it, the page explains it
expect.set_options(timeout=60_000)  # a busy machine is slow, not wrong


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        reason = "no Chromium or Chrome on the path: install one (Debian: apt-get install chromium) or set BROWSER_PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def app(tmp_path_factory) -> Iterator[AppServer]:
    """One server for all tests of a process: it is public, so each browser profile is an owner of its own."""
    server = AppServer(tmp_path_factory.mktemp("app"), GRADIO_SERVER_NAME="0.0.0.0", PLAYGROUND_SLOTS="4", PLAYGROUND_ADDRESS_MS="0")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def models(request) -> dict[str, dict[str, bytes]]:
    """The files of tiny fixtures, by the names under which they are served; they are no pretrained models."""
    from tests.support.tiny_models import cached_models  # and with it transformers, which few tests here need

    folder = cached_models(request.config.cache.mkdir("tiny-models"))
    return {name: {path.name: path.read_bytes() for path in (folder / tiny).iterdir()} for name, tiny in SERVED.items()}


@pytest.fixture(scope="module")
def model_hub(models) -> Iterator[StandInHub]:
    with StandInHub() as hub:
        for name, files in models.items():
            hub.put(name, files)
        yield hub


@pytest.fixture
def hub(model_hub) -> Iterator[StandInHub]:
    """The Hub with the fixtures; what a test breaks about it is whole again for the next one."""
    yield model_hub
    model_hub.heal()


@pytest.fixture(scope="module")  # its tests begin with a server and a cache that hold no pretrained model
def app_with_models(model_hub, tmp_path_factory) -> Iterator[AppServer]:
    folder = tmp_path_factory.mktemp("app")
    server = AppServer(folder, **model_hub.environment(folder / "hf", token=model_hub.OWNER))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def idle(browser: Browser) -> list[Page]:
    """Pages that nobody needs at present, each in a profile that remembers nothing. A page's first visit takes twice as long."""
    return []


@pytest.fixture
def open_page(browser: Browser, idle: list[Page]) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a browser profile of its own, and sees to it that none complained or called another host."""
    contexts, reusable, heard, complaints = [], [], [], []
    owners: set[tuple[str, str]] = set()

    def note_owner(request: Request) -> None:
        if request.method == "POST" and request.url.endswith("/playground/ask/runs") and (owner := request.post_data_json.get("owner")):
            owners.add((request.url, owner))

    def listen(page: Page, event: str, complaint: Callable[[Any], str | None]) -> None:
        def hear(what: Any) -> None:
            if (said := complaint(what)) is not None:
                complaints.append(said)

        page.on(event, hear)
        heard.append((page, event, hear))

    def open_page(
        url: str, same_browser_as: Page | None = None, may_complain: bool = False, visit: bool = True, storage_state: Any = None,
        **viewport: int,
    ) -> Page:  # fmt: skip
        if same_browser_as is not None:
            page = same_browser_as.context.new_page()
        elif viewport or storage_state:
            contexts.append(browser.new_context(viewport={"width": 1440, "height": 950} | viewport, storage_state=storage_state))
            page = contexts[-1].new_page()
        else:
            page = idle.pop() if idle else browser.new_context(viewport={"width": 1440, "height": 950}).new_page()
            contexts.append(page.context)
            reusable.append((page, url))
        page.set_default_timeout(60_000)
        if not may_complain:  # where the test takes the network or the server away, Chromium logs it
            listen(page, "console", lambda said: said.text if said.type == "error" and not harmless(said.text) else None)
        listen(page, "pageerror", lambda error: None if cut_off(str(error)) else str(error))
        listen(page, "request", lambda request: request.url if foreign(request.url, url) else None)
        listen(page, "request", note_owner)
        if visit:
            page.goto(url)
        return page

    yield open_page
    for page, event, hear in heard:
        page.remove_listener(event, hear)
    kept = [page for page, url in reusable if not page.is_closed() and forget(page, url)]
    for context in contexts:
        if context not in [page.context for page in kept]:
            context.close()
    idle.extend(kept)
    for runs_url, owner in owners:
        delete_runs(runs_url, owner)
    assert complaints == []


def delete_runs(runs_url: str, owner: str) -> None:
    """Delete an owner's runs, which would train beside the tests that follow; nothing where the server has ended."""
    with httpx.Client(timeout=60) as client, suppress(httpx.TransportError):
        for run in client.post(runs_url, json={"owner": owner}).json()["runs"]:
            client.post(runs_url.removesuffix("runs") + "do", json={"owner": owner, "subject": run["subject"], "do": "delete"})


def forget(page: Page, url: str) -> bool:
    """Leave what a page shows, and clear what its profile keeps of it but for the files that were fetched; whether that went well."""
    try:
        page.context.set_offline(False)
        for other in page.context.pages:
            if other is not page:
                other.close()
        page.goto("about:blank")
        page.mouse.move(0, 0)
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        session = page.context.new_cdp_session(page)
        session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "cookies,local_storage,indexeddb"})
        session.detach()
    except Error:
        return False
    return True


def harmless(said: str) -> bool:
    return REFUSED in said or cut_off(said)


def cut_off(error: str) -> bool:
    """Whether Gradio's own script tells that a page was left, or loaded again, while it waited for an answer."""
    return (error.startswith("AbortError") and "/assets/" in error) or error.strip() == "Unexpected error Connection errored out."


def foreign(requested: str, page: str) -> bool:
    return urlsplit(requested).scheme not in ("data", "blob") and urlsplit(requested).netloc != urlsplit(page).netloc
