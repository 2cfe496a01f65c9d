"""Measure what travels between browser and server, in Chromium.

Measured: the uncompressed size of the page's configuration; requests and bytes of a first and of a
second visit; and those of opening each tab.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.app_server import AppServer
from tests.support.browser_page import go_to
from tests.support.chromium import FLAGS, find_browser

TABS = ("Inspect", "Compare", "Lab", "Hub", "Learn")
SETTLE_MS = 1500  # after the last visible change
KINDS = {  # by the start of a path
    "/playground/static/": "modules and stylesheets of the playground",
    "/playground/": "responses of the playground's routes",
    "/": "the page and the files of Gradio",
}


class Traffic:
    """The requests of a page that reach the server, and the bytes of their responses."""

    def __init__(self, page: Page) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._urls: dict[str, str] = {}
        network = page.context.new_cdp_session(page)
        network.send("Network.enable")
        network.on("Network.requestWillBeSent", self._on_request)
        network.on("Network.loadingFinished", self._on_finished)

    def _on_request(self, event: dict[str, Any]) -> None:
        self._urls[event["requestId"]] = event["request"]["url"]

    def _on_finished(self, event: dict[str, Any]) -> None:
        url = urlsplit(self._urls.get(event["requestId"], ""))
        size = round(event["encodedDataLength"])
        if url.scheme == "http" and size:  # a response from the cache has no bytes
            kind = next(kind for start, kind in KINDS.items() if url.path.startswith(start))
            self.requests[kind] += 1
            self.bytes[kind] += size

    def summary(self) -> dict[str, Any]:
        """Return the totals, and the bytes of each kind."""
        return {
            "requests": self.requests.total(),
            "bytes": self.bytes.total(),
            "by_kind": {kind: self.bytes[kind] for kind in KINDS.values()},
        }


def visit(context: BrowserContext, url: str) -> dict[str, Any]:
    """Open the page until it shows a model."""
    page = context.new_page()
    traffic = Traffic(page)
    page.goto(url)
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
    page.wait_for_timeout(SETTLE_MS)
    page.close()
    return traffic.summary()


def open_tabs(browser: Browser, url: str) -> list[dict[str, Any]]:
    """Open each tab once, in a new profile."""
    page = browser.new_context(viewport={"width": 1440, "height": 950}).new_page()
    page.goto(url)
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
    rows = []
    for tab in TABS:
        traffic = Traffic(page)
        go_to(page, tab)
        page.wait_for_selector(f"#{tab.lower()} .pg", timeout=60_000)
        page.wait_for_timeout(SETTLE_MS)
        rows.append({"tab": tab} | traffic.summary())
    page.context.close()
    return rows


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        app = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        config = len(httpx.get(f"{app.url}/config").content)
        context = browser.new_context(viewport={"width": 1440, "height": 950})
        visits = [visit(context, app.url) for _ in range(2)]
        result = {"config_bytes": config, "visits": visits, "tabs": open_tabs(browser, app.url)}
        browser.close()
        app.stop()
    return result


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    modules = KINDS["/playground/static/"]
    names = ("first visit", "second visit", *(f"opening {row['tab']}" for row in rows["tabs"]))
    return "\n".join(
        [
            f"Gradio's configuration of the page has {rows['config_bytes'] / 1000:.0f} KB.",
            "",
            f"| what | requests | KB transferred | of which {modules} |",
            "|---|---|---|---|",
            *(
                f"| {name} | {row['requests']} | {row['bytes'] / 1000:.0f} | "
                f"{row['by_kind'][modules] / 1000:.0f} |"
                for name, row in zip(names, rows["visits"] + rows["tabs"], strict=True)
            ),
        ]
    )
