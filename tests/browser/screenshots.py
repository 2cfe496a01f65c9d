"""Take screenshots of the running app: `python -m tests.browser.screenshots FOLDER`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.support.app_server import AppServer
from tests.support.chromium import FLAGS, find_browser

VIEWS = {"wide": (1440, 950, ""), "narrow": (390, 844, ""), "dark": (1440, 950, "?__theme=dark")}


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        server = AppServer(Path(scratch))
        browser = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        for name, (width, height, query) in VIEWS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(f"{server.url}/{query}")
            page.wait_for_selector(".live[data-status=checkpoint]")
            page.click("#train")
            page.wait_for_selector(".live[data-status=done]", timeout=120_000)
            page.wait_for_selector(".answer .right")
            page.mouse.move(0, 0)
            page.screenshot(path=folder / f"{name}.png", full_page=True)
        browser.close()
        server.stop()


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    main(target)
