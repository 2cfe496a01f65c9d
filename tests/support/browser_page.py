"""Actions and queries of the browser tests on the page."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from urllib.parse import quote

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Frame, Page

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer, wait_for
from tests.support.page_client import PageClient

DEFAULT_TIMEOUT_MS = 60_000  # of wait_until
SESSION_KEY = "transformer-playground"  # of the storage of a browser profile
SMALL_SETTINGS = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 5,
    "eval_size": 32,
    "eval_every": 50,
}

SIZES = {"wide": (1366, 768), "narrow": (390, 844), "narrowest": (320, 640)}
# The sections of the views of the Inspect tab that apply to a transformer.
INSPECT_SECTIONS = {
    "attention": ["attention", "heads"],
    "matters": ["ablation", "patch", "contributions"],
    "numbers": ["trace", "lens", "embeddings", "parameters"],
}


def go_to(page: Page, tab: str) -> None:
    """Open a tab with its button."""
    page.get_by_role("tab", name=tab, exact=True).click()


def go_to_experiments(page: Page) -> None:
    go_to(page, "Compare")
    go_to(page, "Experiments")


def wait_until(
    page: Page | Frame, script: str, arg: Any = None, timeout: float | None = None
) -> None:
    """Wait until a script of the page returns a true value.

    Playwright's `wait_for_function` evaluates the script inside the page, whose policy forbids it.
    """
    seconds = (timeout or DEFAULT_TIMEOUT_MS) / 1000
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if page.evaluate(script, arg):
                return
        except Error as error:
            if "context was destroyed" not in str(error):  # by a navigation
                raise
        page.wait_for_timeout(50)
    raise AssertionError(f"not true within {seconds:g} s: {script}")


def wait_for_frames(page: Page) -> None:
    """Wait until what was changed before this call is painted."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def wait_for_status(page: Page, *statuses: str, seconds: float = 120) -> None:
    """Wait until the live view shows one of these statuses."""
    script = "names => names.includes(document.querySelector('.live')?.dataset.status)"
    wait_until(page, script, arg=list(statuses), timeout=seconds * 1000)


def open_section(page: Page, name: str) -> None:
    """Open a section of the Inspect tab, and wait until it displays the response."""
    view = next(view for view, sections in INSPECT_SECTIONS.items() if name in sections)
    page.click(f"#view-{view}")
    page.click(f".inspect .parts [data-value={name}]")
    wait_until(
        page,
        "name => document.querySelector('.inspect').dataset.drawn.startsWith(name + ' ')",
        arg=name,
        timeout=60_000,
    )


def displayed_step(page: Page) -> int:
    match = re.search(r"step (\d+)", page.text_content(".status-text"))
    return int(match.group(1)) if match else 0


def wait_for_text(page: Page, selector: str, text: str, seconds: float = 120) -> None:
    """Wait until an element's text contains this."""
    script = "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)"
    wait_until(page, script, arg=[selector, text], timeout=seconds * 1000)


def wait_for_step(page: Page, step: int, seconds: float = 120) -> None:
    """Wait until the displayed run is beyond a step."""
    script = (
        "step => +(/step (\\d+)/.exec(document.querySelector('.status-text')?.textContent) || "
        "[])[1] > step"
    )
    wait_until(page, script, arg=step, timeout=seconds * 1000)


def pause_after(page: Page, step: int) -> int:
    """Pause the displayed run after a step, and return its step."""
    wait_for_step(page, step)
    page.click("#pause")
    wait_for_status(page, "paused")
    return displayed_step(page)


def plotted_steps(page: Page) -> list[int]:
    """Return the steps of the points on the loss curve."""
    return page.evaluate("document.querySelector('.loss-chart').steps")


def settings_link(url: str, **fields: object) -> str:
    """Return a link that fills the form with a small run."""
    return f"{url}/?settings={quote(json.dumps(SMALL_SETTINGS | fields))}"


def start_run(page: Page, url: str, speed: int = 0, **fields: object) -> None:
    """Start a small run on the page, and wait for its first points."""
    if page.url != "about:blank":
        # otherwise Gradio reports a truncated value
        page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    page.goto(settings_link(url, **fields))
    page.wait_for_selector(".live:not([data-status=opening])")
    wait_until(page, "document.querySelector('#field-max_length input')?.value === '5'")
    wait_until(page, "document.querySelector('#size')?.textContent.includes('parameters')")
    page.select_option(".speed", str(speed))
    n_runs = page.locator(".runs .run").count()
    page.click("#train" if page.is_visible("#train") else "#another")
    wait_until(page, "n => document.querySelectorAll('.runs .run').length > n", arg=n_runs)
    wait_for_status(page, "training", "waiting", "done")


def train_over_api(app: AppServer, owner: str = "", **fields: object) -> tuple[PageClient, str]:
    """Train a small run without a page, and wait for its end; return its owner's client and it."""
    client = PageClient(app, owner or new_owner_key())
    subject = client.train(**SMALL_SETTINGS | {"max_steps": 60, "eval_every": 10} | fields)
    wait_for(lambda: client.poll(subject)["status"] == "done", description=f"the end of {subject}")
    return client, subject


def storage_of(app: AppServer, value: str) -> dict[str, Any]:
    """Return the storage of a profile whose session has this text."""
    stored = [{"name": SESSION_KEY, "value": value}]
    return {"cookies": [], "origins": [{"origin": app.url, "localStorage": stored}]}


def choose_run_action(page: Page, name: str, action: str) -> None:
    """Select an action in the menu of a run."""
    row = page.locator(".runs .run", has=page.locator(f".name:text-is('{name}')"))
    row.locator("summary").click()
    row.locator(f"[data-action={action}]").click()


def run_names(page: Page) -> list[str]:
    """Return the names in the list of runs."""
    return page.locator(".runs .name").all_text_contents()


def count_colors(page: Page, selector: str) -> int:
    """Return the number of colors on a canvas; an empty one has one."""
    return page.eval_on_selector(
        selector,
        """canvas => {
        const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        const colors = new Set();
        for (let i = 0; i < d.length; i += 4) colors.add(d.slice(i, i + 4).join(','));
        return colors.size; }""",
    )


def selected_head_image(page: Page) -> str:
    """Return the picture of the selected head."""
    return page.evaluate("document.querySelector('.head[aria-pressed=true] canvas').toDataURL()")


def axe_violations(page: Page) -> list[tuple[str, str]]:
    """Return the rules of axe-core that the page breaks, each with an element."""
    page.evaluate(Axe().axe_script)
    violations = page.evaluate("axe.run().then(({ violations }) => violations)")
    return [(each["id"], each["nodes"][0]["html"][:120]) for each in violations]
