"""axe-core finds nothing on any page: dialogs, wide and narrow, light and dark."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.browser_page import displayed_step, go_to, start_run, wait_for_step, wait_until

NARROW = {"width": 390, "height": 844}
TABS = "Train", "Inspect", "Compare", "Learn", "Hub"


SETTLED = """() => !document.querySelector(".waiting, .heads-stale, .live.old, .answer.old")
    && !document.getAnimations().some(
      // a scroll-driven animation runs all the time
      (each) => each.playState === "running" && each.timeline === document.timeline)
    && ![...document.querySelectorAll("h2, h3, h4")].some(
      (heading) => heading.checkVisibility() && !heading.textContent)"""


def run_axe(page, options):
    wait_until(page, SETTLED)
    return page.evaluate(
        "options => axe.run(options).then(({ violations }) => violations)",
        options | {"resultTypes": ["violations"]},
    )


def findings(page, where, **options):
    """Return the findings of axe-core after all transitions: place, rule, impact, elements.

    A finding counts if the next check has one, too: a request can begin during a check, and dims
    the view.
    """
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(Axe().axe_script)
    violations = run_axe(page, options) and run_axe(page, options)
    return [
        (where, each["id"], each["impact"], [node["html"][:160] for node in each["nodes"]])
        for each in violations
    ]


def findings_of_both_themes(page, where):
    """Return the findings in the light theme, and those of contrast in the dark one."""
    actual = findings(page, where)
    page.evaluate("document.documentElement.classList.add('dark')")
    actual += findings(page, f"{where}, dark", runOnly=["color-contrast"])
    page.evaluate("document.documentElement.classList.remove('dark')")
    return actual


@pytest.fixture
def hub_in_trouble(app_hub):
    """A Hub that never responds, so that the page shows its errors."""
    with app_hub.fault(app_hub.ANY_PATH, 503):
        yield


def open_tab(page, tab):
    go_to(page, tab)
    page.locator(f".{'live' if tab == 'Train' else tab.lower()}.pg").wait_for()
    page.wait_for_load_state("networkidle")
    if tab == "Inspect":  # its script loads the first view shortly after the tab opens
        page.locator(".inspect[data-drawn]").wait_for()


@pytest.mark.usefixtures("hub_in_trouble")
def test_axe_finds_nothing_in_any_tab(app, open_page):
    page, actual = open_page(f"{app.url}/?__theme=light"), []
    expect(page.locator(".live .status-text")).not_to_have_text("Opening a model")
    for tab in TABS:
        open_tab(page, tab)
        actual += findings_of_both_themes(page, tab)
        views = page.locator(f".{tab.lower()}.pg > :is(.views, .views-row) [role=tab]")
        if views.count():
            expect(views.first).to_have_attribute("aria-selected", "true")
        for i in range(1, views.count()):
            views.nth(i).click()
            page.wait_for_load_state("networkidle")
            actual += findings_of_both_themes(page, f"{tab}, {views.nth(i).inner_text()}")
            for section in page.locator(".inspect .parts button:visible").all()[1:]:
                section.click()
                page.wait_for_load_state("networkidle")
                actual += findings(page, f"{tab}, {section.inner_text()}")
    page.set_viewport_size(NARROW)
    for tab in TABS:  # where layouts change, and neither colors nor what the views consist of
        open_tab(page, tab)
        actual += findings(page, f"{tab}, narrow")
    assert not actual, "\n".join(map(str, actual))


SMALL_TARGETS = """() => {
  const isSmall = (box) => box.width < 24 || box.height < 24;
  return [...document.querySelectorAll("a, button, input, select, summary, textarea")]
    .filter((each) => each.checkVisibility() && !each.matches(".skip-link"))
    .filter((each) => getComputedStyle(each).display !== "inline") // links in a text
    .map((each) => [each, (each.closest("label") ?? each).getBoundingClientRect()])
    .filter(([each, box]) => isSmall(box) && isSmall(each.getBoundingClientRect()))
    .map(([each]) => each.outerHTML.slice(0, 120));
}"""


def test_a_phone_shows_tabs_without_small_targets_or_a_sideways_scroll(app, open_page):
    page, actual = open_page(app.url, width=390, height=844), []
    for tab in TABS:
        open_tab(page, tab)
        actual += [(tab, target) for target in page.evaluate(SMALL_TARGETS)]
        width = page.evaluate("document.documentElement.scrollWidth")
        actual += [(tab, width)] if width > NARROW["width"] else []
    assert not actual, "\n".join(map(str, actual))


def test_axe_finds_nothing_in_dialogs_and_beside_a_run(open_run, finished_run):
    page, actual = open_run(*finished_run), []
    actual += findings(page, "a run")
    page.locator(".runs .run .plot-run:enabled").check()
    for button, name in (("#header [popovertarget=help]", "help"), ("#header .share", "Share")):
        page.locator(button).click()
        page.locator("dialog[open], :popover-open").wait_for()
        actual += findings_of_both_themes(page, name)
        page.keyboard.press("Escape")
    page.get_by_text("Advanced settings", exact=True).first.click()
    actual += findings_of_both_themes(page, "all settings")
    assert not actual, "\n".join(map(str, actual))


def test_axe_finds_nothing_in_the_diagram(app, open_page):
    """With a selected head, a row of the diagram and an open block."""
    page, actual = open_page(f"{app.url}/?__theme=light"), []
    expect(page.locator(".live .answer")).to_contain_text("✓")
    page.locator(".head[data-kind=encoder]").first.click()
    actual += findings_of_both_themes(page, "a selected head")
    page.locator(".diagram-canvas").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".diagram-note")).to_contain_text("attends to")
    actual += findings_of_both_themes(page, "a row of the diagram")
    for kind in ("encoder", "cross", "decoder"):
        page.locator(f".diagram-block[data-kind={kind}] .diagram-block-title").first.click()
        expect(page.locator(".open-block")).to_contain_text("parameters")
        expect(page.locator(".block-scores table")).to_be_visible()
        actual += findings_of_both_themes(page, f"an explained block: {kind}")
    assert not actual, "\n".join(map(str, actual))


# Note what a screen reader would speak: changes in visible live regions that are not off.
WATCH_LIVE_REGIONS = """() => {
  window.spoken = [];
  const LIVE = "[aria-live], [role=status], [role=alert], output";
  new MutationObserver(records => {
    for (const { target } of records) {
      const region = (target.closest ? target : target.parentElement)?.closest(LIVE);
      if (region?.checkVisibility() && region.getAttribute("aria-live") !== "off")
        spoken.push(region.className + ": " + region.textContent);
    }
  }).observe(document.body, { childList: true, characterData: true, subtree: true });
}"""


def test_live_regions_are_silent_while_a_run_trains(app, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, speed=20, max_steps=100_000)
    wait_for_step(page, 20)
    page.evaluate(WATCH_LIVE_REGIONS)
    wait_for_step(page, displayed_step(page) + 60)
    assert page.evaluate("spoken") == []


# The query of the page, what is clicked in turn, and what then must be visible.
STATES = (
    ("", (".part-switch >> nth=2", ".smallest-set summary"), ".smallest-set .pg-button"),
    ("?tab=compare", (".choose summary",), ".lanes .standing"),
    ("?tab=compare&section=experiments", (".presets button >> nth=1",), ".results table"),
    ("?tab=compare&section=experiments", (".own summary",), ".own .plan span"),
    ("?tab=learn&learn=grokking", (".guess-plot", ".recorded"), ".outcome"),
    ("?tab=learn&learn=bugs", (), ".bugs .pg-button"),
    ("?tab=learn&learn=teach", (".open-class",), ".class-bar b"),
)


def test_axe_finds_nothing_after_a_click(app, open_page):
    actual = []
    for query, clicks, visible in STATES:
        page = open_page(f"{app.url}/{query}")
        for selector in clicks:
            page.locator(selector).first.click()
        page.locator(visible).first.wait_for()
        actual += findings_of_both_themes(page, f"{query} {clicks}")
    assert not actual, "\n".join(map(str, actual))
