"""The Learn tab in a real browser: a link opens a lesson, whose measurement is stored."""

import re

from playwright.sync_api import expect

from tests.support.browser_page import go_to


def test_a_link_opens_a_lesson_whose_result_survives_a_reload(app, open_page):
    page = open_page(f"{app.url}/?learn=lengths&positions=rope&seed=1")
    expect(page.locator(".lesson h3")).to_have_text("7. Length generalization")
    expect(page.locator(".lesson .option")).to_have_value("rope")
    page.fill(".prediction", "21")
    page.click(".measure")
    expect(page.locator(".outcome")).to_be_visible(timeout=120_000)
    measured = re.search(r"\d+", page.text_content(".measured"))[0]
    expect(page.locator(".your-prediction")).to_have_text("length 21")
    page.fill(".try-text", "1 2 3 4")
    expect(page.locator(".try-outputs .pg-mark.right")).to_have_count(1)
    page.goto(app.url)
    page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    go_to(page, "Learn")
    expect(page.locator(".measured")).to_contain_text(measured)
    page.click(".lesson .links button >> nth=0")
    expect(page.locator(".runs .run-group > summary")).to_have_text("Lessons (1)")
    name = page.locator(".runs .run-group .name")
    expect(name).to_have_text("Length generalization: trained to 5")
