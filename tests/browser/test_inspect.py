"""The Inspect tab in a real browser: every view, with the mouse and with the keyboard."""

import json
import re
from itertools import chain

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import INSPECT_SECTIONS, open_section, wait_for_frames, wait_until

HEAD_MAP = ".attention-focus .pg-heat-map > canvas"


def inspect(page):
    page.get_by_role("tab", name="Inspect", exact=True).click()
    page.wait_for_selector(".inspect[data-drawn]")


@pytest.fixture
def page(app, open_page):
    """The Inspect tab as it opens, on a page that the tests of this file share.

    Each test leaves the same model selected.
    """
    page = open_page(app.url, share=True)
    inspect(page)
    open_section(page, "attention")
    cross = page.locator(".of-attention [data-value=cross]")
    cross.click()
    expect(cross).to_have_attribute("aria-pressed", "true")
    return page


def type_sequence(page, text):
    page.fill(".page-bar .sequence", text)
    wait_until(
        page,
        "text => document.querySelector('.inspect').dataset.drawn.endsWith(' ' + text)",
        arg=text,
    )


@pytest.mark.smoke
def test_heads_on_a_custom_sequence(page):
    type_sequence(page, "3 1 4")
    expect(page.locator(".inspect .answer")).to_contain_text("4 1 3")
    assert page.locator(".pg-head-grid button").count() == 8
    caption = page.locator(".attention-focus figcaption")
    page.focus(HEAD_MAP)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(caption).to_contain_text(
        re.compile(r"attends to 3 \(position 1\) with weight \d\.\d{3}\.")
    )
    page.click(".attention-focus [data-value=lines]")
    page.focus(".token-links canvas")
    page.keyboard.press("ArrowDown")
    expect(caption).to_contain_text("Target 1 (4) attends to")
    page.click(".attention-focus [data-value=map]")
    page.click(".of-attention [data-value=decoder]")
    expect(caption).to_contain_text("hatched")
    page.focus(".pg-head-grid button[aria-pressed=true]")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".of-attention h4")).to_have_text("Layer 1, head 1")
    page.locator(".pg-head-grid button").nth(6).click()
    expect(page.locator(".of-attention h4")).to_have_text("Layer 2, head 3")


def test_a_view_is_exported_with_its_numbers(page, tmp_path):
    type_sequence(page, "3 1 4")
    stored = {}
    for kind in ("png", "json"):
        page.click(".export summary")
        with page.expect_download() as download:
            page.click(f".export [data-format={kind}]")
        stored[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(stored[kind])
    assert stored["png"].read_bytes()[:4] == b"\x89PNG"
    assert stored["png"].stat().st_size > 5000
    content = json.loads(stored["json"].read_text())
    assert len(content["weights"]) == 2
    assert len(content["weights"][0]) == 4


def test_no_section_is_wider_than_a_screen_or_a_phone(page):
    for name in chain.from_iterable(INSPECT_SECTIONS.values()):
        open_section(page, name)
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            wait_for_frames(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
    page.set_viewport_size({"width": 1440, "height": 900})
