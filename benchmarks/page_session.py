"""A long session of the page: memory, event listeners, long tasks and replaced elements."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.support.app_server import AppServer
from tests.support.chromium import FLAGS, find_browser

SWITCHES = 200
OPENED_MODELS = 20
TRAININGS = 3
WATCHED_S = 30
TABS = ("train", "inspect", "compare", "learn", "hub")
METRICS = {"JSHeapUsedSize": "heap", "JSEventListeners": "listeners", "Nodes": "nodes"}
TRACED = ["devtools.timeline", "disabled-by-default-devtools.timeline"]
# The elements of the live view that others replace.
WATCH_JS = """() => {
  window.replaced = 0;
  const countElements = nodes =>
    [...nodes].filter(node => node.nodeType === Node.ELEMENT_NODE).length;
  new MutationObserver(records => {
    const changes = new Map();
    for (const { target, addedNodes, removedNodes } of records) {
      const [added, removed] = changes.get(target) ?? [0, 0];
      changes.set(target, [
        added + countElements(addedNodes), removed + countElements(removedNodes)]);
    }
    for (const counts of changes.values()) window.replaced += Math.min(...counts);
  }).observe(document.querySelector(".live .columns"), { childList: true, subtree: true });
}"""


def read_memory(session: CDPSession) -> dict[str, float]:
    """Return the bytes of the heap, the listeners and the nodes after a garbage collection."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return {METRICS[each["name"]]: each["value"] for each in metrics if each["name"] in METRICS}


def switch_tabs(page: Page, count: int) -> None:
    """Open the tabs in turn, and wait until each is on the page."""
    for i in range(count):
        tab = TABS[(i + 1) % len(TABS)]
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab} .pg >> visible=true")
    page.click("#tab-train")


def open_models(page: Page, count: int) -> None:
    """Open the models of the list in turn."""
    models = page.eval_on_selector_all(".subject option", "all => all.map(each => each.value)")
    for i in range(count):
        page.select_option(".subject", models[(i + 1) % len(models)])
        page.wait_for_selector(".live[data-status=checkpoint]")
        page.wait_for_load_state("networkidle")


def measure_memory(page: Page) -> dict[str, Any]:
    """Return the memory before and after each part of the session."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    switch_tabs(page, 3 * len(TABS))  # loads all modules
    open_models(page, OPENED_MODELS)
    rows = {"at the start": read_memory(session)}
    switch_tabs(page, SWITCHES)
    rows[f"after {SWITCHES} switches of tabs"] = read_memory(session)
    open_models(page, OPENED_MODELS)
    rows[f"after {OPENED_MODELS} more models"] = read_memory(session)
    return rows


def open_page(browser: Browser, url: str) -> Page:
    """Open the page as on a first visit."""
    page = browser.new_page(viewport={"width": 1440, "height": 950})
    page.set_default_timeout(60_000)
    page.goto(url)
    page.wait_for_selector(".live[data-status=checkpoint]")
    return page


def task_times(trace: bytes) -> list[float]:
    """Return the CPU milliseconds of each task of the page's main thread.

    The trainings take both cores, so tasks also wait for a core, which is no work of the page.
    """
    events = json.loads(trace)["traceEvents"]
    threads = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    return [
        each["tdur"] / 1000
        for each in events
        if (each["pid"], each["tid"]) in threads
        and each["name"].endswith("RunTask")
        and "tdur" in each
    ]


def watch_training(browser: Browser, url: str) -> dict[str, Any]:
    """Return the tasks, the longest one, and the replaced elements, of a watched training."""
    page = open_page(browser, f"{url}/?settings=" + '{"max_steps":1000000,"eval_every":100}')
    page.click("#train")
    page.wait_for_selector(".live[data-status=training]")
    page.wait_for_timeout(5000)
    page.evaluate(WATCH_JS)
    browser.start_tracing(page=page, categories=TRACED)
    page.wait_for_timeout(1000 * WATCHED_S)
    tasks = task_times(browser.stop_tracing())
    replaced = page.evaluate("window.replaced")
    page.click("#pause")
    page.wait_for_selector(".live[data-status=paused]")
    page.close()
    return {"tasks": len(tasks), "longest_ms": round(max(tasks), 1), "replaced": replaced}


def measure() -> dict[str, Any]:
    """Return the memory of a long session, and what three watched trainings show."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        app = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        memory = measure_memory(open_page(browser, app.url))
        trainings = [watch_training(browser, app.url) for _ in range(TRAININGS)]
        browser.close()
        app.stop()
    return {"memory": memory, "trainings": trainings}


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    trainings = rows["trainings"]
    longest = ", ".join(f"{each['longest_ms']:.0f}" for each in trainings)
    return "\n".join(
        [
            "| a session of the page | heap, MB | event listeners | nodes |",
            "|---|---|---|---|",
            *(
                f"| {when} | {each['heap'] / 1e6:.1f} | {each['listeners']:.0f} | "
                f"{each['nodes']:.0f} |"
                for when, each in rows["memory"].items()
            ),
            "",
            f"{TRAININGS} trainings, each watched for {WATCHED_S} s: the longest of their "
            f"{sum(each['tasks'] for each in trainings):,} tasks took {longest} ms; "
            f"{sum(each['replaced'] for each in trainings)} elements of the live view were "
            "replaced.",
        ]
    )
