"""A real browser on the real app. Any Chromium or Chrome serves; without one these tests say so and are skipped, but with
CI=true they fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.chromium import FLAGS, find_browser
from tests.hub.stand_in import StandInHub
from tests.servers import AppServer

SERVED = {"gpt2": "tiny-gpt2", "bert-base-uncased": "tiny-bert"}  # names on the Hub, and the fixtures that stand there
REFUSED = "422 (Unprocessable Entity)"  # how Gradio's validators say no; the browser logs it, the page explains it
expect.set_options(timeout=20_000)  # a busy machine is slow, not wrong


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


@pytest.fixture(scope="module")
def app(tmp_path_factory) -> Iterator[AppServer]:
    # Open to all, so that every browser is an owner of its own; this machine alone would be one owner.
    server = AppServer(tmp_path_factory.mktemp("app"), GRADIO_SERVER_NAME="0.0.0.0", PLAYGROUND_SLOTS="4")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def models(request) -> dict[str, dict[str, bytes]]:
    """The files of tiny fixtures, by the names under which they are served; they are no pretrained models."""
    from tests.comparison import fixtures  # and with it transformers, which few tests here need

    folder = fixtures.kept(request.config.cache.mkdir("tiny-models"))
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


@pytest.fixture(scope="module")
def app_with_models(model_hub, tmp_path_factory) -> Iterator[AppServer]:
    folder = tmp_path_factory.mktemp("app")
    server = AppServer(folder, **model_hub.environment(folder / "hf", token=model_hub.OWNER))
    yield server
    server.stop()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages, each in a browser profile of its own, and sees to it that none complained or called another host."""
    contexts, complaints = [], []

    def open_page(
        url: str, same_browser_as: Page | None = None, may_complain: bool = False, storage_state: Any = None, **viewport: int
    ) -> Page:
        if same_browser_as is None:
            contexts.append(browser.new_context(viewport={"width": 1440, "height": 950} | viewport, storage_state=storage_state))
        context = same_browser_as.context if same_browser_as else contexts[-1]
        page = context.new_page()
        page.set_default_timeout(30_000)
        if not may_complain:  # where the test takes the network or the server away, Chromium logs it
            page.on("console", lambda said: complaints.append(said.text) if said.type == "error" and REFUSED not in said.text else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if foreign(request.url, url) else None)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def foreign(requested: str, page: str) -> bool:
    return urlsplit(requested).scheme not in ("data", "blob") and urlsplit(requested).netloc != urlsplit(page).netloc
