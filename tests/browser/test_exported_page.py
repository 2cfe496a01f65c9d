"""A model as one file, opened from disk: it works without a server, by keyboard, and on a phone."""

import pytest
from playwright.sync_api import expect

from playground.reports.interactive_page import write_page
from tests.support.app_server import ROOT, wait_for
from tests.support.browser_page import SIZES, axe_violations
from tests.support.firefox import find_firefox, started_firefox

INPUT, OUTPUT = "3 1 4 1 5", ["5", "1", "4", "1", "3", "EOS"]


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "page.html"
    page = write_page(ROOT / "checkpoints/reverse-one-head", name="</script>" + "Ω" * 120)
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def open_exported(open_alone, exported):
    """Return a function that opens the file; afterwards it has requested nothing else."""
    requested, pages = [], []

    def open_exported(size="wide", **options):
        page = open_alone(exported, size, requested, **options)
        pages.append(page)
        page.get_by_role("textbox").fill(INPUT)
        expect_output(page, OUTPUT)
        return page

    yield open_exported
    assert requested == [exported] * len(pages)


def expect_output(page, tokens):
    expect(page.locator("output b")).to_have_text(tokens)


def expect_score(page, text):
    expect(page.locator(".switch-score b")).to_have_text(text)


def test_a_switch_changes_the_output_and_the_score(open_exported):
    page = open_exported()
    expect_score(page, "256 of 256")
    page.get_by_role("switch", name="cross-attention").click()
    expect(page.get_by_role("status").last).to_have_text(
        "cross-attention is off: this output is wrong."
    )
    expect(page.locator("output .wrong").first).to_be_visible()
    expect_score(page, "0 of 256")
    under_zero = page.locator("output").inner_text()
    page.get_by_label("mean", exact=True).check()
    expect(page.locator("output")).not_to_have_text(under_zero)
    all_on = page.get_by_role("button", name="Switch all on")
    all_on.click()
    expect_output(page, OUTPUT)
    expect(all_on).to_be_focused()
    expect(all_on).to_have_attribute("aria-disabled", "true")


def test_a_block_opens_in_place_and_shows_what_a_row_reads(open_exported):
    page = open_exported()
    title = page.locator("[data-kind=cross] .diagram-block-title")
    title.scroll_into_view_if_needed()
    place = title.bounding_box()
    title.click()
    expect(title).to_have_attribute("aria-expanded", "true")
    assert title.bounding_box() == pytest.approx(place, abs=0.1)
    large_map = page.get_by_role("img", name="Attention of the selected head")
    large_map.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    query = page.get_by_role("group", name="Query").locator("[aria-pressed=true]")
    expect(query).to_have_text("1")  # the second token of the output
    weights = [float(text) for text in page.locator(".block-scores .weight").all_inner_texts()]
    assert sum(weights) == pytest.approx(1, abs=0.01)
    large_map.click(position={"x": 100, "y": 30})
    expect(query).to_have_text("5")
    title.click()
    expect(page.locator("table")).to_have_count(0)


def test_bars_of_all_parts_have_one_width(open_exported):
    page = open_exported()
    boxes = [bar.bounding_box() for bar in page.locator(".diagram .importance").all()]
    assert len({box["width"] for box in boxes}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_and_nothing_overflows(open_exported, size, scheme):
    is_touch = size != "wide"
    page = open_exported(size, color_scheme=scheme, has_touch=is_touch, bypass_csp=True)
    page.locator("[data-kind=cross] .diagram-block-title").click()
    page.get_by_role("switch", name="cross-attention").click()
    page.get_by_role("textbox").fill("3 x")
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
    smallest = page.locator(".part-switch").first.bounding_box()["height"]
    assert smallest >= (32 if is_touch else 24)
    assert axe_violations(page) == []


def test_the_file_works_in_firefox(exported, tmp_path):
    path = find_firefox()
    if path is None:
        pytest.skip("no Firefox on the path: install one (Debian: apt-get install firefox-esr)")
    score = "document.querySelector('.switch-score b')?.textContent"
    with started_firefox(path, tmp_path / "profile") as firefox:
        firefox.call("WebDriver:Navigate", url=exported)
        wait_for(lambda: firefox.evaluate(score) == "256 of 256", description="the first score")
        firefox.evaluate(
            "document.querySelector('[role=switch][aria-label=\"cross-attention\"]').click()"
        )
        wait_for(lambda: firefox.evaluate(score) == "0 of 256", description="the score without it")
        assert firefox.evaluate("document.querySelectorAll('output .wrong').length") > 0
        assert firefox.evaluate("performance.getEntriesByType('resource').length") == 0
