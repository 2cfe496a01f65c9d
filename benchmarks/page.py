"""Measure what a user waits for on the page, in Chromium.

Measured: the first load; from the click on Train to the first point, to 99.9 % and to the end of
the default run, with the CPU time of each process and the time of the same training without a page;
requests and frames meanwhile; the delay of Pause with eight tabs open; and how smoothly a run of
100,000 steps opens, draws and scrubs.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

import psutil
from playwright.sync_api import Browser, Page, expect, sync_playwright

from playground.runs.record import RunRecord, owner_id
from playground.runs.state import Run
from playground.runs.weight_history import is_retained
from playground.training.presets import preset_config
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from playground.ui.form_schema import FIRST_PRESET
from tests.support.app_server import ROOT, AppServer
from tests.support.chromium import FLAGS, find_browser

LOADS, CLICKS = 5, 10
TABS, PAUSES = 8, 20
LONG_RUN_STEPS = 100_000
RUN_NICE = 10  # the priority of the processes of runs
# In the page, so that no message to the browser and back is timed: from the click to the first text
# in an element.
FROM_CLICK_JS = """([button, shown]) => new Promise(resolve => {
  const box = document.querySelector(shown), started = performance.now(), before = box.textContent;
  new MutationObserver((_, self) => {
    if (!box.textContent || box.textContent === before) return;
    if (document.querySelector('.live').dataset.status !== 'training') return;
    self.disconnect();
    requestAnimationFrame(() => resolve((performance.now() - started) / 1000));
  }).observe(box, { childList: true, characterData: true, subtree: true });
  document.querySelector(button).click(); })"""
# From the click to 99.9 % of the held-out sequences of this run, as the page shows it, in
# seconds.
TO_GOAL_JS = """() => new Promise(resolve => {
  const live = document.querySelector('.live'), shown = document.querySelector('.score-value');
  const started = performance.now();
  let over = false;
  new MutationObserver((_, self) => {
    // until then the page shows the previous model
    if (live.dataset.status === 'training' && !(parseFloat(shown.textContent) >= 99.9)) over = true;
    if (!over || !(parseFloat(shown.textContent) >= 99.9)) return;
    self.disconnect();
    requestAnimationFrame(() => resolve((performance.now() - started) / 1000));
  }).observe(live, { childList: true, characterData: true, subtree: true, attributes: true });
  document.querySelector('#train').click(); })"""
# From the click until the page shows it, in seconds.
UNTIL_STATUS_JS = """([button, status]) => new Promise(resolve => {
  const live = document.querySelector('.live'), started = performance.now();
  new MutationObserver((_, self) => {
    if (live.dataset.status !== status) return;
    self.disconnect();
    requestAnimationFrame(() => resolve((performance.now() - started) / 1000));
  }).observe(live, { attributes: true });
  document.querySelector(button).click(); })"""
FRAMES_JS = """() => {
  window.frames_seen = [];
  let last = performance.now();
  const tick = now => {
    window.frames_seen.push(now - last);
    last = now;
    if (window.frames_seen.length < 2000) requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick); }"""

# Before the page's own scripts: how long each of its drawings takes.
DRAWINGS_JS = """window.drawings = [];
const plain = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = draw => plain(now => {
  const started = performance.now();
  draw(now);
  window.drawings.push(performance.now() - started);
});"""
WATCH_SECONDS = 6  # seconds in which a page is watched at its work


def first_load(browser: Browser, url: str) -> dict[str, Any]:
    """Measure a first visit.

    Returns the requests of a browser without a cache, and the seconds until the model is displayed.
    """
    context = browser.new_context(viewport={"width": 1440, "height": 950})
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    started = time.perf_counter()
    page.goto(url)
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=60_000)
    displayed = time.perf_counter() - started
    page.wait_for_load_state("load")
    context.close()
    return {"seconds": round(displayed, 2), "requests": len(sizes), "bytes": round(sum(sizes))}


def request_load(browser: Browser, url: str) -> dict[str, Any]:
    """Measure the requests, bytes and drawing times of a page.

    One measurement is during a run, one when the page is idle.
    """
    page = browser.new_context(viewport={"width": 1440, "height": 950}).new_page()
    page.add_init_script(DRAWINGS_JS)
    settings = {"max_steps": 1_000_000, "eval_every": 100, "lr_schedule": "constant"}
    page.goto(f"{url}/?settings={quote(json.dumps(settings))}")
    page.wait_for_selector(".live[data-status=checkpoint]")
    page.click("#train")
    page.wait_for_selector(".live[data-status=training]", timeout=60_000)
    page.wait_for_timeout(2000)
    training = _watched(page)
    page.click("#stop")
    page.wait_for_selector(".live[data-status=stopped]", timeout=60_000)
    page.wait_for_timeout(2000)
    resting = _watched(page)
    page.context.close()
    return {"training": training, "resting": resting}


def _watched(page: Page) -> dict[str, Any]:
    page.evaluate(
        "performance.clearResourceTimings(); performance.setResourceTimingBufferSize(5000); "
        "window.drawings = []"
    )
    page.wait_for_timeout(1000 * WATCH_SECONDS)
    requests = page.evaluate(
        "performance.getEntriesByType('resource').map(one => [one.transferSize, one.duration])"
    )
    drawn = sorted(page.evaluate("window.drawings"))
    return {
        "requests_per_second": round(len(requests) / WATCH_SECONDS, 1),
        "bytes": round(median(size for size, _ in requests)) if requests else 0,
        "answer_ms": round(median(took for _, took in requests), 1) if requests else 0.0,
        "frames": len(drawn),
        "frame_ms": {
            "median": round(median(drawn), 2),
            "p95": round(drawn[int(0.95 * len(drawn))], 2),
        }
        if drawn
        else None,
    }


def clicks(page: Page) -> dict[str, list[float]]:
    """Return the seconds from Train to the first point, and to the end of the run."""
    points, ends = [], []
    for _ in range(CLICKS + 1):
        started = time.perf_counter()
        points.append(page.evaluate(FROM_CLICK_JS, ["#train", ".loss-value"]))
        page.wait_for_selector(".live[data-status=done]", timeout=120_000)
        ends.append(time.perf_counter() - started)
        print(f"first point {points[-1]:.2f} s, done {ends[-1]:.1f} s", flush=True)
        time.sleep(1)
    return {
        "first_point_seconds": [round(s, 2) for s in points[1:]],
        "done_seconds": [round(s, 1) for s in ends[1:]],
    }


def to_goal(page: Page, app: AppServer) -> dict[str, Any]:
    """Measure the time from Train to 99.9 % exact match on the page.

    Measured for reversal of ten tokens, and of one to ten, the default. After each run, the same
    one trains to 99.9 % in a process of its own, without a page.
    """
    result: dict[str, Any] = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        for name, settings in (("ten", {"min_length": 10}), ("mixed", {})):
            took, trained, cpu = [], [], []
            for seed in range(CLICKS + 1):
                config = preset_config(FIRST_PRESET, settings | {"seed": seed})
                fill_form(page, app.url, config.to_flat())
                before = cpu_seconds(app)
                took.append(round(page.evaluate(TO_GOAL_JS), 2))
                after = cpu_seconds(app)
                page.wait_for_selector(".live[data-status=done]", timeout=120_000)
                trained.append(alone.submit(train_to_goal, config).result())
                cpu.append({part: round(after[part] - before[part], 2) for part in after})
                print(f"{name}, seed {seed}: {took[-1]} s, alone {trained[-1]} s, {cpu[-1]}")
            result[f"{name}_to_goal_seconds"] = took[1:]
            result[f"{name}_alone_seconds"] = trained[1:]
            result[f"{name}_cpu_seconds"] = cpu[1:]
    return result


def train_to_goal(config: RunConfig) -> float:
    """Train until 99.9 % exact match at an evaluation; return the seconds."""
    started = time.perf_counter()
    for metrics in Trainer(config):
        if (metrics.exact_match or 0) >= 0.999:
            break
    return round(time.perf_counter() - started, 2)


def cpu_seconds(app: AppServer) -> dict[str, float]:
    """Return the CPU time so far of the server, of its processes, and of the browser.

    A process that has ended does not count. Each run has a process of its own.
    """
    seconds = {"server": 0.0, "runs": 0.0, "inspection": 0.0, "browser": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            command, times = " ".join(process.cmdline()), process.cpu_times()
            parents = [each.pid for each in process.parents()]
            if "chrom" in command:
                part = "browser"
            elif process.pid == app.process.pid:
                part = "server"
            elif app.process.pid in parents:
                part = "runs" if process.nice() >= RUN_NICE else "inspection"
            else:
                continue
        except psutil.Error:
            continue
        seconds[part] += times.user + times.system
    return seconds


def fill_form(page: Page, url: str, settings: dict[str, Any]) -> None:
    """Open the page by a link, and wait until the form has its settings."""
    page.goto(f"{url}/?settings={quote(json.dumps(settings))}")
    page.wait_for_selector(".live:not([data-status=opening])")
    expect(page.locator("#size")).to_contain_text("parameters")
    time.sleep(1)


def pauses(page: Page, url: str) -> list[float]:
    """Return the seconds from Pause to the status, with eight tabs on the run."""
    settings = {
        "max_steps": 1_000_000,
        "batch_size": 32,
        "eval_every": 1_000_000,
        "lr_schedule": "constant",
    }
    fill_form(page, url, settings)
    page.click("#train")
    tabs = [page] + [page.context.new_page() for _ in range(TABS - 1)]
    for tab in tabs[1:]:
        tab.goto(url)
    for tab in tabs:
        tab.wait_for_selector(".live[data-status=training]", timeout=60_000)
    seconds = []
    for number in range(PAUSES):
        time.sleep(1)
        tab = tabs[number % TABS]
        seconds.append(round(tab.evaluate(UNTIL_STATUS_JS, ["#pause", "paused"]), 2))
        tab.click("#resume")
        for other in tabs:
            other.wait_for_selector(".live[data-status=training]", timeout=60_000)
    page.click("#stop")
    page.wait_for_selector(".live[data-status=stopped]", timeout=60_000)
    for tab in tabs[1:]:
        tab.close()
    return seconds


def long_run(root: Path) -> Run:
    """Write a run of 100,000 steps: invented metrics, real weights."""
    config = RunConfig.from_flat({"max_steps": LONG_RUN_STEPS})
    record = RunRecord.new(config, owner_id("page benchmark"), "a long run").replace(
        status="done", step=LONG_RUN_STEPS
    )
    run = Run(record, root / "runs" / "long")
    (run.folder / "history").mkdir(parents=True)
    for step in range(LONG_RUN_STEPS + 1):
        if is_retained(step, 12):
            (run.folder / "history" / f"{step}.safetensors").hardlink_to(
                root / "reverse" / "model.safetensors"
            )
    with open(run.folder / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(1, LONG_RUN_STEPS + 1):
            line = {
                "step": step,
                "loss": round(3 / math.sqrt(step) * (1 + 0.3 * math.sin(step * 12.9898)), 6),
                "learning_rate": 0.003,
                "grad_norm": 1.0,
                "seconds": step / 50,
                "steps_per_second": 50.0,
                "tokens_per_second": 1e4,
            }
            if step % 10 == 0:
                line |= {
                    "exact_match": round(1 - 1 / (1 + step / 500), 4),
                    "token_accuracy": 0.9,
                    "eval_size": 256,
                }
            file.write(json.dumps(line) + "\n")
    run.write()
    return run


def scrubbing(page: Page, url: str, run: Run) -> dict[str, Any]:
    """Open the long run, and drag its slider from end to end for five seconds."""
    started = time.perf_counter()
    run.load_points()
    loaded = time.perf_counter() - started
    points = run.load_points()
    started = time.perf_counter()
    answer = json.dumps(points.delta_since(0))
    decimated = time.perf_counter() - started
    started = time.perf_counter()
    page.goto(f"{url}/?watch={run.share_id}")
    expect(page.locator(".viewing")).to_contain_text("to replay", timeout=60_000)
    opened = time.perf_counter() - started
    box = page.locator(".scrub").bounding_box()
    assert box
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] - 10, y)
    page.mouse.down()
    page.evaluate(FRAMES_JS)
    ends, until = 0, time.perf_counter() + 5
    while time.perf_counter() < until:
        share = 0.5 + 0.48 * math.cos(ends / 15)
        page.mouse.move(box["x"] + box["width"] * share, y)
        ends += 1
    page.mouse.up()
    frames = sorted(page.evaluate("window.frames_seen"))
    viewed = page.text_content(".viewing")
    return {
        "points": len(points),
        "load_seconds": round(loaded, 2),
        "answer_bytes": len(answer),
        "answer_ms": round(1000 * decimated, 1),
        "opened_seconds": round(opened, 2),
        "frames": len(frames),
        "frame_ms": {
            "median": round(median(frames), 1),
            "p95": round(frames[int(0.95 * len(frames))], 1),
            "most": round(frames[-1], 1),
        },
        "mouse_moves": ends,
        "then": viewed,
    }


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        root = Path(scratch) / "checkpoints"
        root.mkdir()
        shutil.copytree(ROOT / "checkpoints" / "reverse", root / "reverse")
        run = long_run(root)
        run.update_live(points=None)
        app = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        loads = [first_load(browser, app.url) for _ in range(LOADS + 1)][1:]
        page = browser.new_context(viewport={"width": 1440, "height": 950}).new_page()
        page.goto(app.url)
        page.wait_for_selector(".loss-value", state="attached")
        result = (
            clicks(page)
            | to_goal(page, app)
            | {"first_loads": loads, "at_work": request_load(browser, app.url)}
        )
        result["pause_seconds"] = pauses(page, app.url)
        result |= scrubbing(page, app.url, run)
        browser.close()
        app.stop()
    return result


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    first, done, frames = rows["first_point_seconds"], rows["done_seconds"], rows["frame_ms"]
    paused, loads = rows["pause_seconds"], [load["seconds"] for load in rows["first_loads"]]
    cpu = {
        part: median(run[part] for run in rows["mixed_cpu_seconds"])
        for part in rows["mixed_cpu_seconds"][0]
    }
    training, resting = rows["at_work"]["training"], rows["at_work"]["resting"]
    return "\n".join(
        [
            "| what | n | median | maximum |",
            "|---|---|---|---|",
            f"| a first visit until the model is on screen, seconds | {len(loads)} | "
            f"{median(loads):.2f} | {max(loads):.2f} |",
            f"| click on Train to the first point on screen, seconds | {len(first)} | "
            f"{median(first):.2f} | {max(first):.2f} |",
            *(
                f"| click on Train to 99.9 % on screen, reversal of {which}, seconds | {len(took)} "
                f"| {median(took):.1f} | {max(took):.1f} |"
                for which, took in (
                    ("ten tokens", rows["ten_to_goal_seconds"]),
                    ("one to ten", rows["mixed_to_goal_seconds"]),
                )
            ),
            f"| the same training without a page, reversal of one to ten, seconds | "
            f"{len(rows['mixed_alone_seconds'])} | {median(rows['mixed_alone_seconds']):.1f} | "
            f"{max(rows['mixed_alone_seconds']):.1f} |",
            f"| click on Train to the end of the default run on screen, seconds | {len(done)} | "
            f"{median(done):.1f} | {max(done):.1f} |",
            f"| click on Pause until the page shows it, {TABS} tabs open on the run, seconds | "
            f"{len(paused)} | {median(paused):.2f} | {max(paused):.2f} |",
            "",
            f"CPU seconds from the click to 99.9 %, reversal of one to ten: {cpu['runs']:.1f} in "
            f"the process of the run, {cpu['inspection']:.1f} for its pictures and other "
            f"processes, {cpu['server']:.1f} in the server, {cpu['browser']:.1f} in the browser "
            "(medians).",
            "",
            f"While a run trains, the page sends {training['requests_per_second']} requests per "
            f"second. A response has {training['bytes'] / 1000:.1f} KB (median, with headers) and "
            f"comes after {training['answer_ms']} ms. Drawing takes "
            f"{training['frame_ms']['median']} ms per frame (95th percentile "
            f"{training['frame_ms']['p95']} ms; {training['frames']} frames in {WATCH_SECONDS} s). "
            f"Without a run, the page sends {resting['requests_per_second']} requests per second.",
            "",
            f"The server reads a run of {rows['points']:,} steps from disk in "
            f"{rows['load_seconds']} s, once. It selects the points for the screen in "
            f"{rows['answer_ms']} ms: {rows['answer_bytes'] / 1000:.0f} KB. The run is on screen "
            f"{rows['opened_seconds']} s after its link is opened, including the load of the page. "
            f"A drag of its slider for 5 s ({rows['mouse_moves']} moves) draws {rows['frames']} "
            f"frames. A frame takes {frames['median']} ms (median), {frames['p95']} ms (95th "
            f"percentile), and at most {frames['most']} ms.",
        ]
    )
