"""What the browser tests do and read on the page."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Frame, Page

SMALL = {"d_model": 16, "n_heads": 2, "n_layers": 1, "d_ff": 16, "batch_size": 8, "max_length": 5, "eval_n": 32, "eval_every": 50}


def go_to(page: Page, tab: str) -> None:
    """Open a tab, by its button or, where there is no room for that, out of the menu of the others."""
    page.wait_for_selector("#tabs")
    button = page.get_by_role("tab", name=tab, exact=True)
    if not button.is_visible():
        page.locator(".overflow-menu > button").click()
        button = page.locator(".overflow-dropdown button", has_text=tab)
    button.click()


def wait_until(page: Page | Frame, script: str, arg: Any = None, timeout: float | None = None) -> None:
    """Wait until a script of the page gives something true. Playwright's own pace, each frame, keeps a core busy."""
    page.wait_for_function(script, arg=arg, timeout=timeout, polling=50)


def shows(page: Page, *statuses: str, seconds: float = 120) -> None:
    """Wait until the live view shows one of these statuses."""
    script = "names => names.includes(document.querySelector('.live')?.dataset.status)"
    wait_until(page, script, arg=list(statuses), timeout=seconds * 1000)


def step_shown(page: Page) -> int:
    found = re.search(r"step (\d+)", page.text_content(".sentence"))
    return int(found.group(1)) if found else 0


def says(page: Page, selector: str, text: str, seconds: float = 120) -> None:
    """Wait until an element's text contains this."""
    script = "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)"
    wait_until(page, script, arg=[selector, text], timeout=seconds * 1000)


def passes(page: Page, step: int, seconds: float = 120) -> None:
    """Wait until the run on show has gone beyond a step."""
    script = "step => +(/step (\\d+)/.exec(document.querySelector('.sentence')?.textContent) || [])[1] > step"
    wait_until(page, script, arg=step, timeout=seconds * 1000)


def pause_after(page: Page, step: int) -> int:
    """Pause the run on show beyond a step, and return the step at which it stands."""
    passes(page, step)
    page.click("#pause")
    shows(page, "paused")
    return step_shown(page)


def drawn(page: Page) -> list[int]:
    """The steps of the points on the loss curve."""
    return page.evaluate("document.querySelector('.loss-chart').steps")


def settle(page: Page, field: str, value: object) -> None:
    """Put a number into a field of the form."""
    page.fill(f"#field-{field} input", str(value))
    page.press(f"#field-{field} input", "Tab")


def link_to(url: str, **fields: object) -> str:
    """A link that fills the form of a small run."""
    return f"{url}/?settings={quote(json.dumps(SMALL | fields))}"


def begin(page: Page, url: str, speed: int = 0, **fields: object) -> None:
    """Train a small run from the page, which may be one that has visited nothing yet, and wait for its first points."""
    if page.url != "about:blank":
        page.wait_for_selector(".live:not([data-status=opening])", state="attached")  # or Gradio complains of what is cut off
    page.goto(link_to(url, **fields))
    page.wait_for_selector(".live:not([data-status=opening])")
    wait_until(page, "document.querySelector('#field-max_length input')?.value === '5'")
    wait_until(page, "document.querySelector('#size')?.textContent.includes('parameters')")
    page.select_option(".speed", str(speed))
    before = page.locator(".runs tbody tr").count()
    page.click("#train" if page.is_visible("#train") else "#another")
    wait_until(page, "n => document.querySelectorAll('.runs tbody tr').length > n", arg=before)
    shows(page, "training", "waiting", "done")


def menu(page: Page, name: str, action: str) -> None:
    """Choose from the menu of the run of this name."""
    row = page.locator(".runs tbody tr", has=page.locator(f".name:text-is('{name}')"))
    row.locator("summary").click()
    row.locator(f"[data-do={action}]").click()


def names(page: Page) -> list[str]:
    """The names in the list of runs."""
    return page.locator(".runs .name").all_text_contents()


def colours(page: Page, selector: str) -> int:
    """How many different colours a canvas shows: a blank one has one."""
    return page.eval_on_selector(
        selector,
        """canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
        for (let i = 0; i < d.length; i += 4) seen.add(d[i] + ',' + d[i + 1] + ',' + d[i + 2] + ',' + d[i + 3]); return seen.size; }""",
    )


def attention(page: Page) -> str:
    """The picture of the chosen head, to be compared with another."""
    return page.evaluate("document.querySelector('.focus-map').toDataURL()")
