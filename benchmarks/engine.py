"""From a switch or a key to the changed output on screen: exported page and Train, in Chromium."""

import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.slider import summarize
from playground.reports.interactive_page import write_page
from tests.support.app_server import ROOT, AppServer
from tests.support.chromium import FLAGS, find_browser

MODELS = ("reverse-one-head", "reverse")
N_CLICKS = 200
# Switch the heads off and on in turn. A time ends in the next task after the frame with the new
# output, ahead of the timers that have waited.
SWITCH_JS = """async n => {
  const switches = [...document.querySelectorAll('.head-cell [role=switch]')],
    nextTask = () => scheduler.postTask(() => {}, { priority: 'user-blocking' }),
    times = [];
  for (let i = 0; i < n; i++) {
    await new Promise(resolve => setTimeout(resolve, 100 + 7 * (i % 10)));
    const started = performance.now();
    switches[Math.floor(i / 2) % switches.length].click();
    await new Promise(resolve => requestAnimationFrame(resolve));
    await nextTask();
    times.push(performance.now() - started);
  }
  return times;
}"""

# The Train tab: one part stays off, and others are switched off and on, so each output has a new
# sentence about it; a typed digit changes the output. The engine is in a Worker, so a time ends
# after the first frame that has the changed sentence or output. An observer waits for the change:
# a question in each frame would be frames of its own, and the change would wait for the next one.
TRAIN_JS = """async n => {
  const text = selector => document.querySelector(selector).textContent,
    nextTask = () => scheduler.postTask(() => {}, { priority: 'user-blocking' }),
    measure = async (act, shown, isDone) => {
      await new Promise(resolve => setTimeout(resolve, 100 + 7 * Math.floor(10 * Math.random())));
      const before = shown(), started = performance.now(),
        changed = new Promise(resolve => {
          new MutationObserver((_, observer) => {
            if (shown() === before || !isDone()) return;
            observer.disconnect();
            resolve();
          }).observe(document.body, { characterData: true, childList: true, subtree: true });
        });
      act();
      await changed;
      await new Promise(resolve => requestAnimationFrame(resolve));
      await nextTask();
      return performance.now() - started;
    },
    state = () => text('.switch-state'),
    hasVerdict = () => /still right|wrong/.test(state()),
    [first, ...switches] = document.querySelectorAll('.head-cell [role=switch]'),
    input = document.querySelector('.sequence'),
    switched = [], typed = [];
  await measure(() => first.click(), state, hasVerdict); // it loads the engine and the weights
  for (let i = 0; i < n; i++)
    switched.push(await measure(
      () => switches[Math.floor(i / 2) % switches.length].click(), state, hasVerdict));
  first.click();
  for (let i = 0; i < n; i++)
    typed.push(await measure(() => {
      input.value = `3 1 4 ${i % 10}`;
      input.dispatchEvent(new Event('input', { bubbles: true }));
    }, () => text('.live .answer'), () => true));
  return { switched, typed: typed.slice(1) };
}"""


def measure_train(browser: Any, app: AppServer, name: str) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(f"{app.url}/?model=checkpoint:{name}")
    page.locator(".switch-controls").wait_for()
    page.locator(".live .answer .pg-mark").wait_for()
    times = page.evaluate(TRAIN_JS, N_CLICKS)
    page.close()
    return {f"{action}_ms": summarize(each) for action, each in times.items()}


def measure_model(browser: Any, name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.html"
    path.write_text(write_page(ROOT / "checkpoints" / name), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    page.goto(path.as_uri())
    page.get_by_text("256 of 256").wait_for()
    row = {
        "model": name,
        "load": round(os.getloadavg()[0], 1),
        "bytes": path.stat().st_size,
        "switch_ms": summarize(page.evaluate(SWITCH_JS, N_CLICKS)),
    }
    page.close()
    return row


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        app = AppServer(Path(folder))
        rows = [
            measure_model(browser, name, Path(folder)) | measure_train(browser, app, name)
            for name in MODELS
        ]
        browser.close()
        app.stop()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| model | size of the page | load average of the machine | "
        "switch of the page, ms: median, 95 % (clicks) | switch in Train | key in Train |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = [
            f"{each['median']}, {each['p95']} ({each['n']})"
            for each in (row["switch_ms"], row["switched_ms"], row["typed_ms"])
        ]
        lines.append(
            f"| {row['model']} | {row['bytes'] / 1000:,.0f} kB | {row['load']} | "
            f"{' | '.join(times)} |"
        )
    return "\n".join(lines)
