"""Record the animation of the README: `python -m scripts.record_animation [FILE]`.

The script starts the app, trains the default model in headless Chromium, and saves about ten
seconds of the page as an animated WebP.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.support.app_server import ROOT, AppServer
from tests.support.chromium import FLAGS, find_browser

FILE = ROOT / "docs" / "images" / "training.webp"
VIEWPORT = {"width": 1366, "height": 768}
SIZE = (960, 540)  # pixels of the animation
FRAME_INTERVAL_MS = 100
MAX_FRAMES = 60
DURATION_MS, LAST_FRAME_MS = 10_000, 2000
TIMEOUT_MS = 180_000


def screenshot(page: Page) -> Image.Image:
    picture = Image.open(io.BytesIO(page.screenshot()))
    return picture.convert("RGB").resize(SIZE, Image.Resampling.LANCZOS)


def record_run(page: Page) -> list[Image.Image]:
    """Train the default model; return one frame before the run, those during it, and its end."""
    page.wait_for_selector(".live[data-status=checkpoint]", timeout=TIMEOUT_MS)
    frames = [screenshot(page)]
    page.click("#train")
    page.mouse.move(0, 0)
    page.wait_for_selector(".live:not([data-status=checkpoint])", timeout=TIMEOUT_MS)
    while not page.locator(".live[data-status=done]").count():
        frames.append(screenshot(page))
        page.wait_for_timeout(FRAME_INTERVAL_MS)
    page.wait_for_selector(".answer .right", timeout=TIMEOUT_MS)
    return [*frames, screenshot(page)]


def sample(frames: list[Image.Image], count: int) -> list[Image.Image]:
    """Return at most `count` frames at even distances, among them the first and the last."""
    if len(frames) <= count:
        return frames
    return [frames[round(i * (len(frames) - 1) / (count - 1))] for i in range(count)]


def main(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = AppServer(Path(folder))
        try:
            browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
            page = browser.new_page(viewport=VIEWPORT)
            page.goto(server.url)
            frames = record_run(page)
        finally:
            server.stop()
    first, *others = sample(frames, MAX_FRAMES)
    durations = [(DURATION_MS - LAST_FRAME_MS) // len(others)] * len(others) + [LAST_FRAME_MS]
    first.save(
        file, save_all=True, append_images=others, duration=durations, loop=0, quality=55, method=6
    )
    print(f"{file}: {len(durations)} frames of {len(frames)}, {file.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
