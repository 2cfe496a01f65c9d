"""The Learn tab in a real browser: a link opens a lesson, whose measurement is stored."""

import re

from playwright.sync_api import expect

from tests.support.browser_page import go_to


def draw_guess(page):
    """Draw a curve that falls from the upper left to the lower right corner of the axes."""
    plot = page.locator(".guess-plot").bounding_box()
    left, top, right, bottom = (
        plot["x"] + 2,
        plot["y"] + 2,
        plot["x"] + plot["width"] - 2,
        plot["y"] + plot["height"] - 2,
    )
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom, steps=5)
    page.mouse.up()


def test_a_link_opens_a_lesson_whose_result_survives_a_reload(app, open_page):
    page = open_page(f"{app.url}/?learn=lengths&positions=rope&seed=1")
    expect(page.locator(".lesson h3")).to_have_text(re.compile("Length generalization"))
    expect(page.locator(".lesson .option")).to_have_value("rope")
    draw_guess(page)
    expect(page.locator(".guess-plot")).to_have_attribute(
        "aria-valuetext", re.compile("length 20: [01] %")
    )
    page.reload()  # a guess without a measurement stays, too
    page.click(".measure")
    expect(page.locator(".outcome")).to_be_visible(timeout=250_000)
    score = page.text_content(".verdict").strip()
    assert re.search(r"On average \d+ points? away\.", score)
    page.goto(app.url)
    page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    go_to(page, "Learn")
    expect(page.locator(".verdict")).to_have_text(score)
    page.click(".lesson .links button >> nth=0")
    expect(page.locator(".runs .run-group > summary")).to_have_text("Lessons (1)")
    name = page.locator(".runs .run-group .name")
    expect(name).to_have_text("Length generalization: trained to 5")
