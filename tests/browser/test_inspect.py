"""The Inspect tab in a real browser: every view, with the mouse and with the keyboard."""

import json
import re
from itertools import chain

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import (
    INSPECT_SECTIONS,
    count_colors,
    open_section,
    start_run,
    wait_for_status,
    wait_until,
)

HEAD_MAP = ".attention-focus .pg-heat-map > canvas"


def inspect(page):
    page.get_by_role("tab", name="Inspect").click()
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
    if cross.get_attribute("aria-pressed") == "false":
        with page.expect_response("**/api/inspect/view"):
            cross.click()
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
    lines = page.locator(".token-links path")
    n_lines = lines.count()
    assert n_lines >= 4
    page.focus(".token-links svg")
    page.keyboard.press("ArrowDown")
    expect(caption).to_contain_text(re.compile(r"as a query\. Weights: .* \d\.\d{3}"))
    assert 0 < lines.count() < n_lines
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("as a key")
    page.keyboard.press("Escape")
    expect(lines).to_have_count(n_lines)
    page.locator(".token-links text").first.click()
    page.mouse.move(0, 0)
    expect(caption).to_contain_text("Position 1 (4) as a query")
    page.click(".attention-focus [data-value=map]")
    page.click(".of-attention [data-value=decoder]")
    expect(caption).to_contain_text("hatched")
    page.focus(".pg-head-grid button[aria-pressed=true]")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".of-attention h4")).to_have_text("Layer 1, head 1")
    page.locator(".pg-head-grid button").nth(6).click()
    expect(page.locator(".of-attention h4")).to_have_text("Layer 2, head 3")


def picture_at_rest(page):
    """Return the picture of the attention view after its last change."""
    picture = f"document.querySelector('{HEAD_MAP}').toDataURL()"
    before = None
    while before != (now := page.evaluate(picture)):
        before = now
        page.wait_for_timeout(500)
    return now


def test_the_answer_step_by_step(page):
    type_sequence(page, "3 1 4")
    open_section(page, "steps")
    expect(page.locator(".steps-words")).to_have_text("position 1 of 4")
    page.focus(".steps-slider")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".steps-written")).to_have_text("4 1")
    diagram = page.locator(".generation-diagram svg")
    expect(diagram).to_have_attribute(
        "aria-label", re.compile(r"^Next token: 1, probability 9.* Attends to 1 \(position 2\) 0\.")
    )
    page.select_option(".steps-head", "2.3")
    expect(diagram).to_have_attribute(
        "aria-label", re.compile(r"Attends to 1 \(position 2\) 1\.000\.$")
    )
    page.click(".steps-play")
    expect(page.locator(".steps-words")).to_have_text("position 4 of 4")
    page.click(".of-steps [data-value=sampled]")
    page.fill(".steps-temperature", "0")
    expect(page.locator(".inspect .problem")).to_contain_text("must be a number above 0")
    page.fill(".steps-temperature", "2")
    expect(page.locator(".inspect .problem")).to_be_empty()


def test_a_run_at_any_step_and_its_heads_over_the_steps(app, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, max_steps=60)
    wait_for_status(page, "done")
    page.get_by_role("tab", name="Inspect", exact=True).click()
    page.wait_for_selector(".inspect[data-drawn]")
    expect(page.locator(".page-bar .subject option:checked")).to_contain_text("reverse")
    expect(page.locator(".step-words")).to_contain_text("latest, 60")
    last = picture_at_rest(page)
    page.focus(".page-bar .step")
    page.keyboard.press("Home")
    expect(page.locator(".step-words")).to_have_text("0")
    wait_until(
        page,
        f"last => document.querySelector('{HEAD_MAP}').toDataURL() !== last",
        arg=last,
    )
    open_section(page, "heads")
    page.locator(".of-heads button", has_text="Measure over training").click()
    expect(page.locator(".heads-two")).to_be_visible(timeout=60_000)
    measure_again = page.locator(".of-heads button", has_text="Measure again")
    expect(measure_again).to_be_visible(timeout=60_000)
    assert count_colors(page, ".heads-chart canvas") > 2
    page.focus(".heads-chart [tabindex='0']")
    page.keyboard.press("ArrowRight")
    page.select_option(".heads-pattern", "previous")
    assert count_colors(page, ".heads-map canvas >> nth=0") > 2


def test_a_view_is_exported_with_its_numbers(page, tmp_path):
    type_sequence(page, "3 1 4")
    stored = {}
    for kind in ("png", "csv", "json"):
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
    rows = stored["csv"].read_text().splitlines()
    assert len(rows) == 1 + 2 * 4 * 4 * 4
    assert rows[0].startswith("kind,layer,head")


@pytest.mark.smoke
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_wider_than_the_page(app, open_page, width):
    page = open_page(app.url, share=True, width=width, height=900)
    inspect(page)
    for name in chain.from_iterable(INSPECT_SECTIONS.values()):
        open_section(page, name)
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_embeddings_and_parameters_of_the_model(page):
    open_section(page, "embeddings")
    page.focus(".embeddings-projection")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".embeddings-token")).not_to_have_value("0")
    open_section(page, "parameters")
    sum_row = page.locator(".of-parameters").get_by_role("row", name="sum")
    expect(sum_row).to_contain_text("171,597")
    page.focus("#view-forward")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#view-heads")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#view-heads")).to_be_focused()
