"""Measure what travels between browser and server, in Chromium.

Measured: requests and bytes of a first and of a second visit, and of opening each tab; and the
seconds until the page shows a model, in turns with the page of Gradio's components (BEFORE).
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.app_server import ROOT, AppServer
from tests.support.browser_page import go_to
from tests.support.chromium import FLAGS, find_browser

TABS = ("Inspect", "Compare", "Learn", "Hub")
SETTLE_MS = 1500  # after the last visible change
BEFORE = "637f24af"  # the last commit whose page had Gradio's components in all tabs
N_LOADS = 5
LINES = {  # names of lines, with their bytes per second and their latency in ms
    "localhost": (-1, 0),
    "1.6 Mbit/s, 150 ms": (200_000, 150),
}
KINDS = {  # by the start of a path
    "/playground/static/": "modules and stylesheets of the playground",
    "/playground/": "responses of the playground's routes",
    "/": "the page",
}


class Traffic:
    """The requests of a page that reach the server, and the bytes of their responses."""

    def __init__(self, page: Page) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.until_model: dict[str, Any] = {}  # the summary when the data of a model has come
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
        if url.path.endswith("/runs/poll") and not self.until_model:
            self.until_model = self.summary()

    def summary(self) -> dict[str, Any]:
        """Return the totals, and the bytes of each kind."""
        return {
            "requests": self.requests.total(),
            "bytes": self.bytes.total(),
            "by_kind": {kind: self.bytes[kind] for kind in KINDS.values()},
        }


def visit(context: BrowserContext, url: str) -> list[dict[str, Any]]:
    """Open the page; return the traffic until it has a model, and until it is complete."""
    page = context.new_page()
    traffic = Traffic(page)
    page.goto(url)
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
    page.wait_for_timeout(SETTLE_MS)
    page.close()
    return [traffic.until_model, traffic.summary()]


def open_tabs(browser: Browser, url: str) -> list[dict[str, Any]]:
    """Open each tab once, in a new profile."""
    page = browser.new_context(viewport={"width": 1440, "height": 950}).new_page()
    page.goto(url)
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
    rows = []
    for tab in TABS:
        traffic = Traffic(page)
        go_to(page, tab)
        page.wait_for_selector(f"#panel-{tab.lower()} .pg", timeout=60_000)
        page.wait_for_timeout(SETTLE_MS)
        rows.append({"tab": tab} | traffic.summary())
    page.context.close()
    return rows


def load(browser: Browser, url: str, line: str) -> float:
    """Return the seconds until a new profile shows the diagram of a model, over a line."""
    bytes_per_s, latency_ms = LINES[line]
    with browser.new_context(viewport={"width": 1440, "height": 950}) as context:
        page = context.new_page()
        context.new_cdp_session(page).send(
            "Network.emulateNetworkConditions",
            {
                "offline": False,
                "latency": latency_ms,
                "downloadThroughput": bytes_per_s,
                "uploadThroughput": bytes_per_s,
            },
        )
        page.goto(url, timeout=120_000)
        page.wait_for_selector(".live[data-status=checkpoint] .diagram canvas", timeout=120_000)
        return round(float(page.evaluate("performance.now()")) / 1000, 2)


def start_in_turns(checkouts: dict[str, Path], scratch: Path) -> dict[str, list[float]]:
    """Return the seconds until the app of each checkout responds; the first start of each warms."""
    seconds: dict[str, list[float]] = {name: [] for name in checkouts}
    for turn in range(N_LOADS + 1):
        for name, checkout in checkouts.items():
            started = time.perf_counter()
            app = AppServer(scratch / f"{name}-{turn}", checkout=checkout)
            seconds[name].append(round(time.perf_counter() - started, 2))
            app.stop()
    return {name: values[1:] for name, values in seconds.items()}


def load_in_turns(browser: Browser, urls: dict[str, str]) -> list[dict[str, Any]]:
    """Return the seconds of N_LOADS loads of each page over each line."""
    rows = []
    for line in LINES:
        seconds: dict[str, list[float]] = {name: [] for name in urls}
        for _ in range(N_LOADS):
            for name, url in urls.items():
                seconds[name].append(load(browser, url, line))
        rows.append({"line": line} | seconds)
    return rows


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        checkout = Path(scratch) / "before"
        command = ["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(checkout)]
        subprocess.run(command, check=True)
        subprocess.run(["git", "checkout", "--quiet", BEFORE], cwd=checkout, check=True)
        starts = start_in_turns({"before": checkout, "now": ROOT}, Path(scratch))
        app = AppServer(Path(scratch) / "now")
        before = AppServer(Path(scratch) / "then", checkout=checkout)
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        loads = load_in_turns(browser, {"before": before.url, "now": app.url})
        before.stop()
        context = browser.new_context(viewport={"width": 1440, "height": 950})
        visits = visit(context, app.url) + visit(context, app.url)
        result = {
            "starts": starts,
            "loads": loads,
            "visits": visits,
            "tabs": open_tabs(browser, app.url),
        }
        browser.close()
        app.stop()
    return result


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    modules = KINDS["/playground/static/"]
    visits = ("first visit", "second visit")
    names = [f"{visit}, {until}" for visit in visits for until in ("until a model", "in all")]
    names += [f"opening {row['tab']}" for row in rows["tabs"]]
    return "\n".join(
        [
            "Seconds until the app responds, and until a new profile shows a model: median (range) "
            f"of {N_LOADS} in turns with commit {BEFORE}.",
            "",
            f"| what | {BEFORE} | now |",
            "|---|---|---|",
            f"| start of the app | {_seconds(rows['starts']['before'])} | "
            f"{_seconds(rows['starts']['now'])} |",
            *(
                f"| {row['line']} | {_seconds(row['before'])} | {_seconds(row['now'])} |"
                for row in rows["loads"]
            ),
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


def _seconds(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"
