"""The links of docs/sources.md open the views that they name."""

import re
from itertools import chain
from urllib.parse import parse_qs

from playwright.sync_api import expect

from tests.support.app_server import ROOT
from tests.support.browser_page import INSPECT_SECTIONS

LINK = re.compile(r"\[([^\]]+)\]\(http://127\.0\.0\.1:7860/\?([^)]+)\)")


def sources_links():
    """Return one link for each target of a link, as its query."""
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    return dict(LINK.findall(text))


def expect_place(page, place, query):
    tab, _, view = place.partition(", ")
    expect(page.get_by_role("tab", name=tab, exact=True)).to_have_attribute("aria-selected", "true")
    if tab == "Inspect":
        opened = page.locator(
            "#panel-inspect :is(.parts [aria-pressed=true], .views [aria-selected=true]):visible"
        )
        expect(opened.get_by_text(view, exact=True).last).to_be_visible()
    elif "part=" not in query and tab == "Compare":
        expect(page.locator("#panel-compare").get_by_text(view).first).to_be_visible()
    elif tab == "Compare":
        expect(page.locator("#panel-compare .parts [aria-pressed=true]")).to_have_text(view)
    elif view and tab != "Train":  # the settings of a link have tests of their own
        expect(page.locator(f"#panel-{tab.lower()}").get_by_text(view).first).to_be_visible()


def test_links_open_the_views_that_they_name(app, open_page):
    links = sources_links()
    assert {place.split(",")[0] for place in links} == {"Train", "Inspect", "Compare", "Learn"}
    page, sections = open_page(app.url), set(chain.from_iterable(INSPECT_SECTIONS.values()))
    for place, query in links.items():
        if place.startswith("Inspect"):
            assert parse_qs(query)["section"][0] in sections
            if place != "Inspect, Logit lens":  # the others differ only in their section
                continue
        page.goto(f"{app.url}/?{query}")
        expect_place(page, place, query)
