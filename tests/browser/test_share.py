"""The Share dialog: a link shows the sender's view, a frame embeds one view, a page is a file."""

import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from playground.ui.page import STATIC_DIR
from tests.support.browser_page import count_colors, plotted_steps, wait_for_status, wait_for_text

SHARE_DIALOG = STATIC_DIR / "train" / "share_dialog.js"


@pytest.fixture
def visiting(browser):
    """Open pages of another site, which may send requests to the playground."""
    contexts = []

    def visit(url):
        contexts.append(
            browser.new_context(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
        )
        page = contexts[-1].new_page()
        page.goto(url)
        return page

    yield visit
    for context in contexts:
        context.close()


def share_field(page, field):
    """Return the value of a field of the Share dialog."""
    if not page.locator("dialog.sharing[open]").count():
        page.click("#header .share")
        page.wait_for_selector("dialog.sharing[open]")
    return page.input_value(f".sharing {field}")


def test_a_link_shows_the_view_of_its_sender(open_page, open_run, finished_run):
    page = open_run(*finished_run)
    page.click(".head[data-kind=decoder][data-head='1']")
    page.fill(".page-bar .sequence", "9 8 7")
    page.focus(".scrub")
    page.press(".scrub", "ArrowLeft")
    page.press(".scrub", "ArrowLeft")
    wait_for_text(page, ".viewing", "Viewing step")
    link, viewed_step = share_field(page, ".watch-link"), page.text_content(".viewing")
    other = open_page(link, width=1200)
    wait_for_text(other, ".viewing", viewed_step)
    assert other.input_value(".page-bar .sequence") == "9 8 7"
    assert other.get_attribute(".head[data-kind=decoder][data-head='1']", "aria-pressed") == "true"
    assert not other.is_visible("#pause")


def test_a_saved_page_runs_the_model_from_disk(open_run, finished_run, visiting, tmp_path):
    client, run = finished_run
    page = open_run(client, run)
    share_field(page, ".watch-link")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as page").click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    saved = visiting(path.as_uri())
    name = client.call("runs/details", subject=run)["name"]
    assert path.stem == re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
    expect(saved.locator("h1")).to_have_text(f"{name}: break this transformer")
    expect(saved.locator("output b").last).to_be_visible()


INVALID_LINKS = {
    "tab": "inspect",
    "section": "constructor",
    "options": '{"a":[]}',
    "part": "none",
    "fields": '{"table":7,"free-fill":[],"attention":{"models":5},"job-table":{"id":"x"}}',
    "form": '{"grid":[1,["norm"],[{},[]],["d_model",null]],"seeds":{},"times":"x"}',
    "repo": "../../etc@x",
    "model": "copy",
    "kind": "__proto__",
    "curve": "constructor",
    "head": "9.9",
    "step": "-1",
}
READY = {
    "Train": ".live .runs",
    "Inspect": ".inspect[data-drawn]",
    "Compare": ".compare .views [aria-selected=true]",
    "Hub": ".hub .gallery-words:not(:empty)",
}


def test_an_invalid_link_breaks_no_tab(app, open_page):
    page = open_page(f"{app.url}/?{urlencode(INVALID_LINKS)}")  # fails on any script error
    page.wait_for_selector(READY["Inspect"])  # the tab of the link
    for tab, selector in READY.items():
        page.get_by_role("tab", name=tab, exact=True).click()
        page.wait_for_selector(selector)


def test_a_frame_shows_one_view_in_a_page_of_another_site(app, open_page, visiting, foreign_page):
    page = open_page(f"{app.url}/?model=reverse")
    wait_for_status(page, "checkpoint")
    share_field(page, ".code")
    page.click(".sharing summary:has-text('Code')")
    page.select_option(".code-kind", "Python program")
    assert "gradio_client" in share_field(page, ".code")
    page.select_option(".code-kind", "Embed: attention")
    code = share_field(page, ".code")
    host = visiting(foreign_page(code))
    frame = host.frame_locator("iframe")
    frame.locator(".diagram .head canvas").first.wait_for()
    for absent in ("#header", "#train", "#tabs [role=tab]", ".live .runs", ".loss-chart"):
        assert not frame.locator(absent).first.is_visible(), absent
    inner = next(each for each in host.frames if "embed=attention" in each.url)
    # the frame has no owner key
    assert inner.evaluate("localStorage.getItem('transformer-playground')") in (None, '""')
    assert (
        inner.locator(".open-full-page")
        .get_attribute("href")
        .endswith("?tab=train&model=checkpoint%3Areverse")
    )


@pytest.mark.parametrize("view", ["learning", "attention", "try", "samples"])
def test_an_embedded_view_shows_only_itself_and_fits_its_frame(app, open_page, view):
    height = int(re.search(rf"\b{view}: \[.+, (\d+)\]", SHARE_DIALOG.read_text())[1])
    page = open_page(f"{app.url}/?model=reverse&embed={view}", width=390, height=height)
    page.wait_for_selector(".live[data-status=checkpoint] .samples li", state="attached")
    parts = {
        each: page.locator(f".live {part}").last.is_visible()
        for each, part in (
            ("learning", "[data-part=curves]"),
            ("attention", ".diagram"),
            ("try", "[data-part=try]"),
            ("samples", "[data-part=samples]"),
        )
    }
    if view == "learning":
        parts["learning"] = page.is_visible(".score-chart")
        assert plotted_steps(page)[-1] == 200
        assert count_colors(page, ".loss-chart canvas") > 1
    elif view == "try":
        parts["try"] = page.is_visible(".try")
        page.fill(".live .sequence", "1 2 3")
        wait_for_text(page, ".answer", "3 2 1")
    assert [name for name, is_visible in parts.items() if is_visible] == [view]
    assert not page.locator(".live .device").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
