"""Frame times of the Train tab while its slider is dragged over a long run, in Chromium.

The history is synthetic: the page receives the curve of 100,000 recorded steps, and the snapshots
of the bundled recording under those steps.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from tests.support.app_server import AppServer
from tests.support.chromium import FLAGS, find_browser

N_STEPS = 100_000
N_CURVE_POINTS = 20_000  # the most that a page receives at once
N_EVALUATIONS = 2_000
N_MOVES = 300
# Move the slider in each frame, from its end to its start and back. Returns the intervals of the
# frames, the time of the page's callbacks in each, and how many steps the page has displayed.
DRAG_JS = """async n => {
  const slider = document.querySelector('.scrub'), last = Number(slider.max);
  slider.scrollIntoView({ block: 'center' });
  const request = window.requestAnimationFrame.bind(window);
  let cost = 0, before = null;
  window.requestAnimationFrame = callback => request(time => {
    const started = performance.now();
    callback(time);
    cost += performance.now() - started;
  });
  const intervals = [], costs = [], displayed = new Set();
  for (let i = 0; i <= n; i++) {
    slider.value = Math.round(last * Math.abs(1 - 2 * i / n));
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    const time = await new Promise(resolve => request(resolve));
    if (before !== null) { intervals.push(time - before); costs.push(cost); }
    before = time;
    cost = 0;
    displayed.add(document.querySelector('.viewing').textContent);
  }
  window.requestAnimationFrame = request;
  return { intervals, costs, displayed: displayed.size, last };
}"""


def synthetic_history(response: dict[str, Any]) -> dict[str, Any]:
    """Return a poll response with a history of N_STEPS steps."""
    if not response.get("points"):
        return response
    last = response["points"]
    n_points = len(last["steps"])
    if not n_points:
        return response
    stride = N_STEPS // N_CURVE_POINTS
    steps = list(range(stride, N_STEPS + 1, stride))
    points = {
        name: [last[name][i * n_points // len(steps)] for i in range(len(steps))]
        for name in ("loss", "learning_rate", "grad_norm")
    }
    evaluations = last["evaluations"]
    every = N_STEPS // N_EVALUATIONS
    return response | {
        "step": N_STEPS,
        "max_steps": N_STEPS,
        "weight_steps": list(range(N_STEPS + 1)),
        "points": last
        | points
        | {
            "steps": steps,
            "evaluations": [
                [every * (i + 1), *evaluations[i * len(evaluations) // N_EVALUATIONS][1:]]
                for i in range(N_EVALUATIONS)
            ],
        },
    }


def serve_history(page: Page) -> None:
    """Answer the requests for the run of a page with the synthetic history."""
    recorded: list[int] = []

    def on_poll(route: Route) -> None:
        response = route.fetch()
        content = response.json()
        recorded[:] = content.get("weight_steps") or recorded
        route.fulfill(response=response, json=synthetic_history(content))

    def on_snapshot(route: Route) -> None:
        payload = json.loads(route.request.post_data or "{}")
        at = payload["step"] * (len(recorded) - 1) // N_STEPS
        response = route.fetch(post_data=payload | {"step": recorded[at]})
        content = response.json()
        if content.get("snapshot"):
            content["snapshot"]["step"] = payload["step"]
        route.fulfill(response=response, json=content)

    page.route("**/api/runs/poll", on_poll)
    page.route("**/api/runs/snapshot", on_snapshot)


def summarize(milliseconds: list[float]) -> dict[str, float]:
    values = sorted(milliseconds)
    return {
        "n": len(values),
        "median": round(values[len(values) // 2], 2),
        "p95": round(values[int(0.95 * len(values))], 2),
    }


def measure_width(browser: Browser, url: str, width: int, height: int) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
    serve_history(page)
    page.goto(f"{url}/?model=reverse")
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
    page.wait_for_timeout(2000)
    frames = page.evaluate(DRAG_JS, N_MOVES)
    assert frames["last"] == N_STEPS, frames["last"]
    assert frames["displayed"] > N_MOVES / 4, frames["displayed"]
    page.close()
    intervals = frames["intervals"]
    return {
        "viewport": f"{width} × {height}",
        "load": round(os.getloadavg()[0], 1),
        "frames_per_second": round(1000 * len(intervals) / sum(intervals), 1),
        "interval_ms": summarize(intervals),
        "callbacks_ms": summarize(frames["costs"]),
    }


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        app = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        rows = [measure_width(browser, app.url, *size) for size in ((1440, 950), (390, 844))]
        browser.close()
        app.stop()
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| viewport | load average of the machine | frames | frames per second | "
        "interval: median, 95 % | all callbacks of a frame: median, 95 % |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        interval, cost = row["interval_ms"], row["callbacks_ms"]
        lines.append(
            f"| {row['viewport']} | {row['load']} | {interval['n']} | {row['frames_per_second']} | "
            f"{interval['median']}, {interval['p95']} | {cost['median']}, {cost['p95']} |"
        )
    return "\n".join(lines)
