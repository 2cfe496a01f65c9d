"""From an action in the Train tab to its effect on screen, while a run trains on two busy cores."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from tests.support.app_server import AppServer
from tests.support.chromium import FLAGS, find_browser

ROUNDS = 10
GOAL_MS = 100
# Each action: its name, the element, the value to enter (null for a click), and what changes.
ACTIONS_JS = """[
  ["Pause", "#pause", null, () => isVisible("#resume")],
  ["Step", "#step", null, () => text(".status")],
  ["Resume", "#resume", null, () => isVisible("#pause")],
  ["another task", "#field-task select", "copy", () => text("#form")],
  ["the first task", "#field-task select", "reverse", () => text("#form")],
  ["another architecture", "#field-architecture select", "recurrent",
    () => isVisible("#field-n_heads")],
  ["the first architecture", "#field-architecture select", "transformer",
    () => isVisible("#field-n_heads")],
  ["another size", "#field-n_layers input", "3", () => changedFields()],
  ["the first size", "#field-n_layers input", "2", () => changedFields()],
  ["search of a setting", "#settings-search", "bias", () => visibleFields()],
  ["end of the search", "#settings-search", "", () => visibleFields()],
  ["another head", ".diagram-heads .head[aria-pressed=false]", null, () => pressedHead()],
  ["an earlier step", ".scrub", "1", () => text(".viewing")],
  ["the latest step", ".now", null, () => text(".viewing")],
  ["dark or light theme", ".theme-switch", null,
    () => document.documentElement.classList.contains("dark")],
  ["another tab", "#tab-learn", null, () => isVisible("#panel-learn")],
  ["back to Train", "#tab-train", null, () => isVisible("#panel-train")],
]"""
# A time ends in the next task after the frame in which the effect is there. The frames without it
# before that one count.
REACTIONS_JS = (
    """async () => {
  const find = selector => [...document.querySelectorAll(selector)],
    isVisible = selector => find(selector).some(each => each.offsetParent),
    text = selector => find(selector).map(each => each.textContent).join(),
    visibleFields = () => find("[id^=field-]").filter(each => each.offsetParent).length,
    changedFields = () => find("#form .changed").length,
    index = selector => find(selector).findIndex(each => each.ariaPressed === "true"),
    pressedHead = () => index(".diagram-heads .head"),
    nextTask = () => new Promise(resolve => {
      const channel = new MessageChannel();
      channel.port1.onmessage = resolve;
      channel.port2.postMessage(0);
    }),
    results = [];
  for (const [name, selector, value, state] of """
    + ACTIONS_JS
    + """) {
    await new Promise(resolve => setTimeout(resolve, 400 + 300 * Math.random()));
    const element = find(selector).find(each => each.offsetParent) ?? find(selector)[0],
      before = state(),
      started = performance.now();
    if (!element) throw new Error(`${name}: no element ${selector}`);
    if (value === null) element.click();
    else {
      element.value = value;
      for (const kind of ["input", "change"])
        element.dispatchEvent(new Event(kind, { bubbles: true }));
    }
    do {
      await new Promise(resolve => requestAnimationFrame(resolve));
      await nextTask();
    } while (state() === before && performance.now() < started + 5000);
    results.push([name, performance.now() - started]);
  }
  return results;
}"""
)


def _keep_busy() -> None:
    while True:
        pass


def measure() -> dict[str, Any]:
    """Return the times in ms by action, with a run and one more process on the cores."""
    settings = {"max_steps": 1_000_000, "lr_schedule": "constant", "eval_every": 100}
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        app = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 950})
        page.goto(f"{app.url}/?settings={quote(json.dumps(settings))}")
        page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
        for summary in page.locator("#form summary").all():
            summary.click()
        page.click("#train")
        page.wait_for_selector(".live[data-status=training]", timeout=60_000)
        page.wait_for_timeout(5000)
        busy = multiprocessing.Process(target=_keep_busy, daemon=True)
        busy.start()
        for _ in range(ROUNDS):
            for name, took in page.evaluate(REACTIONS_JS):
                times.setdefault(name, []).append(round(took, 1))
        load = os.getloadavg()[0]
        busy.kill()
        browser.close()
        app.stop()
    return {"load": round(load, 1), "times": times}


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    late = sum(took > GOAL_MS for times in rows["times"].values() for took in times)
    lines = [
        f"| action (n = {ROUNDS} each) | median, ms | slowest, ms |",
        "|---|---|---|",
        *(
            f"| {name} | {median(times):.0f} | {max(times):.0f} |"
            for name, times in rows["times"].items()
        ),
        "",
        f"Over {GOAL_MS} ms: {late} of {sum(map(len, rows['times'].values()))} actions. "
        f"Load average: {rows['load']}.",
    ]
    return "\n".join(lines)
