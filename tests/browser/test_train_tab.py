import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.app_server import wait_for
from tests.support.browser_page import (
    count_colors,
    go_to,
    selected_head_image,
    wait_for_frames,
    wait_for_status,
    wait_for_step,
    wait_until,
)

# The parts of the tab that are beyond the first screen, or whose content is cut.
OFF_SCREEN_JS = """() => [
  ...['#header', '#page-bar', '#buttons', '#form', '.status', '.speed', '.prediction-row',
    '.diagram-grid', '.diagram-note', '.samples-box', '.loss-box', '.score-box', '.rewind',
    '.run-rows'].filter(selector => {
      const { top, bottom, left, right } =
        document.querySelector(selector).getBoundingClientRect();
      return top < 0 || left < 0 || bottom > innerHeight || right > innerWidth || top >= bottom;
    }),
  ...['.status-text', '.answer', '.diagram-note', '.right-of', '.viewing', '#size'].filter(
    selector => {
      const { scrollWidth, clientWidth, scrollHeight, clientHeight } =
        document.querySelector(selector);
      return scrollWidth > clientWidth + 1 || scrollHeight > clientHeight + 1;
    }),
  ...(document.scrollingElement.scrollHeight > innerHeight ? ['scrolls'] : []),
]"""


def expect_one_screen(page: Page) -> None:
    wait_until(page, "document.querySelector('.score-chart canvas')")
    wait_until(page, "document.querySelector('.live .samples li')")
    wait_for_frames(page)
    assert page.evaluate(OFF_SCREEN_JS) == []


@pytest.mark.parametrize(("width", "height"), [(1366, 768), (1440, 900)])
def test_the_tab_is_on_one_screen_from_first_to_last_step(app, open_page, width, height):
    page = open_page(app.url, width=width, height=height)
    wait_for_status(page, "checkpoint")
    expect_one_screen(page)
    page.select_option(".speed", "20")
    page.click("#train")
    wait_for_step(page, 20)
    expect_one_screen(page)
    page.select_option(".speed", "0")
    expect(page.locator(".learned")).to_be_visible()
    wait_for_status(page, "done")
    expect_one_screen(page)
    covered = "document.querySelector('.learned').getBoundingClientRect().top"
    assert page.evaluate(covered) >= page.evaluate(
        "document.querySelector('.samples-box').getBoundingClientRect().bottom"
    )


@pytest.fixture
def page(app, open_page):
    """The first screen, on a page that the tests of this file share.

    No test leaves a run, another model or a changed form.
    """
    page = open_page(app.url, share=True)
    wait_for_status(page, "checkpoint")
    return page


def test_the_first_screen_shows_a_bundled_model_to_try(page):
    expect(page.locator(".status-text")).to_contain_text("exact match")
    on_cpu = page.locator(".device").text_content().startswith("Training on cpu")
    expect(page.locator("#field-device label:visible")).to_have_count(0 if on_cpu else 3)
    expect(page.locator(".live .answer")).to_have_text(re.compile(r"5 1 4 1 3\s*✓"))
    expect(page.locator(".diagram .head")).to_have_count(24)
    wait_for(
        lambda: count_colors(page, ".loss-chart canvas") > 5, description="the curve of the loss"
    )
    page.fill(".sequence", "9 8 7")
    expect(page.locator(".live .answer")).to_have_text(re.compile(r"7 8 9\s*✓"))
    page.fill(".sequence", "<img src=x onerror=alert(1)>")
    expect(page.locator(".try-note")).to_contain_text("'<' is not a token")
    expect(page.locator(".live .answer")).to_be_empty()  # a tick beside an error would be a lie
    assert page.locator(".live img").count() == 0
    page.fill(".sequence", page.get_attribute(".sequence", "placeholder"))


@pytest.mark.smoke
def test_nothing_is_cut_off_at_any_width(page):
    for width in (1440, 900, 390):
        page.set_viewport_size({"width": width, "height": 844})
        wait_for_frames(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    tops = [
        page.locator(selector).bounding_box()["y"]
        for selector in ("#train", ".diagram", ".learning")
    ]
    assert tops == sorted(tops)
    expect(page.locator("#form")).to_be_hidden()
    page.click("#to-form")  # on a phone a sheet, below the button that trains
    train, sheet = (page.locator(each).bounding_box() for each in ("#train", "#form"))
    assert train["y"] + train["height"] < sheet["y"] < 422
    page.keyboard.press("Escape")
    expect(page.locator("#form")).to_be_hidden()


def test_enter_on_a_head_opens_it_in_inspect(page):
    page.click(".head[data-kind=encoder][data-layer='0'][data-head='2']")
    page.keyboard.press("Enter")
    pressed = page.locator(".inspect .pg-head-grid button[aria-pressed=true]")
    expect(pressed).to_have_attribute("aria-label", re.compile("layer 1, head 3"))
    expect(page.locator(".inspect [data-value=encoder][aria-pressed=true]")).to_be_visible()
    forced = page.locator(".inspect [data-value=teacher-forced][aria-pressed=true]")
    expect(forced).to_be_visible()  # so that the weights are those of the diagram
    go_to(page, "Train")
    page.click(".head[data-kind=cross][data-layer='1'][data-head='0']")


def test_the_first_visit_plays_the_recorded_training(app, browser):
    context = browser.new_context(viewport={"width": 1366, "height": 768})
    page = context.new_page()
    page.goto(f"{app.url}/?input=2 7 1")
    note = page.locator(".recording-note")
    expect(note).to_contain_text("A recording. Step 0")
    box = page.locator("#advanced > summary").bounding_box()
    assert box["y"] + box["height"] <= 768  # the last control of the form, without scrolling
    expect(page.locator(".viewing")).to_contain_text("Viewing step")
    expect(note).to_have_text(re.compile("^\\s*Train, type, or switch"))
    expect(page.locator(".viewing")).to_contain_text("snapshots")
    # the diagram, the map, the prediction and the samples show the same input and step
    expect(page.locator(".probe")).to_have_text("2 7 1 · step 200")
    expect(page.locator(".diagram-canvas")).to_have_attribute(
        "aria-label", re.compile("4 of 4 predicted tokens are right")
    )
    expect(page.locator(".live .answer")).to_contain_text("✓")
    expect(page.locator(".right-of")).to_have_text("8 of 8 right")
    page.reload()
    wait_for_status(page, "checkpoint")
    expect(page.locator(".live .answer")).to_contain_text("✓")
    expect(note).to_have_text(re.compile("^\\s*Train, type, or switch"))
    page.click(".part-switch >> nth=0")
    expect(note).to_be_hidden()
    context.close()


def test_train_and_task_are_reached_with_few_tab_presses(page):
    page.evaluate("document.activeElement.blur()")
    page.mouse.click(2, 2)
    page.keyboard.press("Tab")
    expect(page.locator(".skip-link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#train")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#field-task select")).to_be_focused()


def test_theme_switch_changes_the_theme(page):
    page.click(".theme-switch")
    assert page.evaluate("document.documentElement.classList.contains('dark')")
    page.click(".theme-switch")
    assert not page.evaluate("document.documentElement.classList.contains('dark')")


def test_one_click_trains_to_100_percent_on_screen(app, open_page):
    page = open_page(app.url)
    wait_for_status(page, "checkpoint")
    page.click("#train")
    wait_for_status(page, "training")
    expect(page.locator("#pause")).to_be_visible()
    expect(page.locator("#train")).to_be_hidden()
    # the shipped model's picture, which stayed until then, is the one of the end
    page.wait_for_selector(".live:not(.old)")
    first = selected_head_image(page)
    wait_for_status(page, "done", seconds=300)
    expect(page.locator(".score-value")).to_have_text(re.compile(r"^(100|99\.\d) % of 256$"))
    expect(page.locator(".right-of")).to_have_text("8 of 8 right")
    sentence = page.text_content(".status-text")
    assert re.search(
        r"Done · 200 steps in .* · exact match (100|99\.9) % of 2,000 held-out sequences", sentence
    ), sentence
    assert selected_head_image(page) != first
    legend = page.locator(".loss-box .pg-legend")
    expect(legend).to_have_text(re.compile(r"training\s*[\d.]+\s*held-out\s*[\d.]+"))
    expect(page.locator(".loss-chart")).to_have_attribute(
        "aria-label", re.compile(r"training [\d.]+; held-out [\d.]+")
    )
