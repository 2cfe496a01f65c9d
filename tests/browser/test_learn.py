"""The Learn tab in a real browser: links open exercises, a prediction is compared with the
measurement, a bug is found.
"""

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import wait_until

# The guess of this bug, or of this line, has a reply.
NAMED = """title => !document.querySelector('.guess-name')
    || document.querySelector('.guess-name .clue').textContent.includes(title)"""
LOCATED = """line => document.querySelector('.solved')
    || document.querySelector('.guess-line .clue').textContent.includes(line + ':')"""


def test_a_link_opens_a_lesson_and_its_result_is_stored(app, open_page):
    page = open_page(f"{app.url}/?learn=lengths&positions=rope&seed=1")
    expect(page.locator(".lesson h3")).to_have_text("6. Length generalization")
    expect(page.locator(".lesson .option")).to_have_value("rope")
    page.click(".measure")
    expect(page.locator(".lesson .note")).to_contain_text("nter a number from 1 to 21 first")
    page.fill(".prediction", "21")
    page.click(".measure")
    expect(page.locator(".lesson .words")).to_contain_text("Training: step")
    expect(page.locator(".outcome")).to_be_visible(timeout=120_000)
    measured = re.search(r"\d+", page.text_content(".measured"))[0]
    expect(page.locator(".your-prediction")).to_have_text("length 21")
    expect(page.locator(".verdict").first).to_have_text(
        "✓ Correct, within 1." if int(measured) >= 20 else "Not correct."
    )
    page.click(".outcome .pg-chart-tools button:has-text('Table')")
    assert page.locator(".outcome .pg-chart-tools tbody tr").count() > 10
    page.fill(".try-text", "1 2 3 4")
    expect(page.locator(".try-outputs .pg-mark.right")).to_have_count(1)
    page.locator(".try-step").fill("0")  # the random weights before the first update
    expect(page.locator(".try-outputs .pg-mark.wrong")).to_have_count(1)
    # another prediction discards the measurement of the last one
    page.fill(".prediction", measured)
    expect(page.locator(".outcome")).to_be_hidden()
    page.click(".measure")
    expect(page.locator(".verdict").first).to_have_text("✓ Correct, within 1.")
    page.goto(app.url)
    page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    page.get_by_role("tab", name="Learn").click()
    expect(page.locator(".station[data-state=correct]")).to_contain_text("Length generalization")
    expect(page.locator(".measured")).to_contain_text(measured)
    page.click(".lesson .links button >> nth=0")
    expect(page.locator(".runs .run-group > summary")).to_have_text("Lessons (1)")
    name = page.locator(".runs .run-group .name")
    expect(name).to_have_text("Length generalization: trained to 5")


def test_a_mystery_is_solved(app, open_page):
    page = open_page(f"{app.url}/?bug=random&seed=3&steps=40")
    expect(page.locator(".which")).to_have_value("random")
    expect(page.locator(".seed")).to_have_value("3")
    page.click(".begin-bug")
    expect(page.locator(".bugs .cancel")).to_be_visible()
    wait_until(page, "localStorage.getItem('transformer-playground-tab') === 'learn'")
    page.reload()  # the measurement continues
    expect(page.locator(".guess-name .question")).to_have_text("Which bug is it?", timeout=120_000)
    expect(page.locator(".guess-line")).to_have_count(0)
    for title in page.locator(".guesses button").all_text_contents():
        page.locator(".guesses button", has_text=title).click()
        wait_until(page, NAMED, arg=title)
        if not page.locator(".guess-name").count():
            break
    expect(page.locator(".guess-line .question")).to_contain_text(f"Correct: {title}.")
    for line in page.locator(".source .line").all():
        number = line.get_attribute("title")
        line.click()
        wait_until(page, LOCATED, arg=number)
        if page.locator(".solved").count():
            break
    expect(page.locator(".solved .verdict")).to_have_text(title)
    expect(page.locator(".diff .minus")).to_have_count(2)
    expect(page.locator(".diff .plus")).to_have_count(2)


@pytest.mark.smoke
def test_teacher_links_open_exercises_and_hide_the_answer_key(app, open_page):
    page = open_page(f"{app.url}/?learn=teach")
    expect(page.locator(".teach h3").first).to_have_text("Exercises by link")
    assert page.locator(".result").text_content() == ""
    page.get_by_role("button", name="Show the bugs").click()
    expect(page.locator(".result li")).to_have_count(8)
    addresses = page.locator(".teach > div > .links-list a").evaluate_all(
        "links => links.map((link) => link.href)"
    )
    assert len(addresses) > 20
    causal = next(address for address in addresses if "causal-mask&" in address)
    page.goto(causal)
    expect(page.locator(".which")).to_have_value("linked")
    page.goto(f"{app.url}/?learn=lesson-99")
    expect(page.locator(".learn-note")).to_contain_text(
        "The link contains the unknown lesson lesson-99"
    )
