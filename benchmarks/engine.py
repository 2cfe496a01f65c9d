"""From a switch of the exported page to the changed output on screen, in Chromium."""

import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from benchmarks.slider import summarize
from playground.reports.interactive_page import write_page
from tests.support.app_server import ROOT
from tests.support.chromium import FLAGS, find_browser

MODELS = ("reverse-one-head", "reverse")
N_CLICKS = 200
# Switch the heads off and on in turn. A time ends in the next task after the frame with the new
# output.
SWITCH_JS = """async n => {
  const switches = [...document.querySelectorAll('.head-cell .switch')],
    nextTask = () => new Promise(resolve => {
      const channel = new MessageChannel();
      channel.port1.onmessage = resolve;
      channel.port2.postMessage(0);
    }),
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
        rows = [measure_model(browser, name, Path(folder)) for name in MODELS]
        browser.close()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| model | size of the page | load average of the machine | "
        "from a switch to the output on screen, ms: median, 95 % (clicks) |",
        "|---|---|---|---|",
    ]
    for row in rows:
        times = row["switch_ms"]
        lines.append(
            f"| {row['model']} | {row['bytes'] / 1000:,.0f} kB | {row['load']} | "
            f"{times['median']}, {times['p95']} ({times['n']}) |"
        )
    return "\n".join(lines)
