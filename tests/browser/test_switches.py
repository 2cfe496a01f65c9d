"""Parts of the model are switched off in the Train tab: by pointer, by key, and while it trains."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import wait_for_status

CROSS = "cross-attention 1.1"
POSITIONS_JS = "each => each.map(({ offsetTop, offsetLeft }) => [offsetTop, offsetLeft])"


@pytest.fixture
def page(app, open_page):
    """A bundled model on a page that the tests of this file share; all its parts are on."""
    page = open_page(f"{app.url}/?model=checkpoint:reverse-one-head", share=True)
    wait_for_status(page, "checkpoint")
    expect(page.locator(".live .answer")).to_contain_text("✓")
    yield page
    for button in page.locator(".switch-row [aria-disabled=false]").all():
        button.click()


def expect_state(page, text):
    expect(page.locator(".switch-state")).to_have_text(re.compile(text))


def test_a_switch_and_a_key_change_the_output_without_a_request(page):
    page.get_by_role("switch", name=CROSS).click()
    expect_state(page, f"{CROSS} is off: this output is wrong")
    expect(page.locator(".live .answer")).to_contain_text("✗")
    expect(page.locator(".switch-score b")).to_have_text("0 of 256")
    sent = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_label("mean", exact=True).check()
    page.fill(".page-bar .sequence", "9 8 7")
    page.get_by_role("button", name="Switch all on").click()
    expect_state(page, "All parts are on")
    expect(page.locator(".live .answer")).to_have_text(re.compile(r"7 8 9\s*✓"))
    expect(page.locator(".probe")).to_contain_text("9 8 7")
    expect(page.locator(".switch-score b")).to_have_text("256 of 256")
    assert [url for url in sent if "/predict" in url or "weights" in url] == []
    page.get_by_label("zero", exact=True).check()
    page.fill(".page-bar .sequence", page.get_attribute(".page-bar .sequence", "placeholder"))


def test_the_keyboard_reaches_the_switch_of_the_selected_head(page):
    head = page.locator(".head[aria-pressed=true]")
    head.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    switch = page.locator("[role=switch]:focus")
    expect(switch).to_have_attribute("aria-checked", "false")
    expect_state(page, f"{switch.get_attribute('aria-label')} is off")


def test_no_part_moves_when_one_is_switched_off(page):
    switches = page.get_by_role("switch")
    before = switches.evaluate_all(POSITIONS_JS)
    for switch in switches.all():
        switch.click()
        expect(switch).to_have_attribute("aria-checked", "false")
        assert switches.evaluate_all(POSITIONS_JS) == before
    expect_state(page, "parts are off: this output")
    assert switches.evaluate_all(POSITIONS_JS) == before


@pytest.mark.parametrize(("width", "is_touch"), [(1366, False), (390, True)])
def test_switches_are_large_enough_and_do_not_overlap(app, browser, width, is_touch):
    context = browser.new_context(
        viewport={"width": width, "height": 768}, has_touch=is_touch, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(f"{app.url}/?model=checkpoint:reverse&off=cross.2.1")  # a link has what is off
    expect_state(page, "cross-attention 2.1 is off: this output is")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [switch.bounding_box() for switch in page.get_by_role("switch").all()]
    smallest = 32 if is_touch else 24
    assert min(min(box["width"], box["height"]) for box in boxes) >= smallest
    for box in boxes:
        assert not [other for other in boxes if other is not box and overlap(box, other)]
    context.close()


def overlap(a, b):
    return all(
        a[start] + 0.5 < b[start] + b[size] and b[start] + 0.5 < a[start] + a[size]
        for start, size in (("x", "width"), ("y", "height"))
    )
