"""The Lab tab in a real browser, with experiments of a few steps."""

import csv
import json
import re

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import count_colors, go_to, wait_for_status

BASE = "checkpoint:reverse-one-head"


def to_lab(page):
    page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    go_to(page, "Lab")
    page.wait_for_selector(".lab .presets li")


def fill_form(page, *varied, seeds="0", kind="grid", name=""):
    """Fill in the form of a new experiment: (setting, values) once or twice."""
    if not page.locator(".own").evaluate("box => box.open"):
        page.click(".own > summary")
    page.wait_for_selector(f".own .base option[value='{BASE}']", state="attached")
    page.select_option(".own .base", BASE)
    for at, (setting, values) in enumerate(varied):
        page.select_option(f".own .setting-{at}", setting)
        page.fill(f".own .values-{at}", values)
    page.fill(".own .seeds", seeds)
    page.fill(".own .name", name)
    page.select_option(".own .kind", kind)


def error_of(page, field):
    return page.locator(".own .pg-field", has=page.locator(f".{field}")).locator(".pg-error")


def wait_for_end(page, state="done", seconds=120):
    selector = f".results .experiment-result[data-state={state}]:not([data-experiment=example])"
    page.wait_for_selector(selector, timeout=seconds * 1000)


def own_row(page, name):
    return page.locator(".experiments li", has=page.locator(f".open-it:text-is('{name}')"))


def download(page, selector, folder):
    with page.expect_download(timeout=120_000) as started:
        page.click(selector)
    path = folder / started.value.suggested_filename
    started.value.save_as(path)
    return path


def expect_points(page, chart, count, series=0):
    """Wait until a line of a chart has this many points, as its table shows."""
    box = page.locator(f".results {chart}")
    box.get_by_role("button", name="Table", exact=True).click()
    expect(box.locator("tbody tr")).to_have_count(count)
    box.get_by_role("button", name="Table", exact=True).click()


def test_an_opened_result_is_in_view_and_has_the_focus(app, open_page):
    page = open_page(app.url, width=390, height=768)
    to_lab(page)
    page.locator(".own-experiments .example").scroll_into_view_if_needed()
    page.click(".own-experiments .example")
    expect(page.locator(".results .title")).to_be_focused()
    expect(page.locator(".results .title")).to_be_in_viewport(ratio=1)
    page.click(".own > summary")
    expect(page.locator(".own .begin")).to_be_in_viewport(ratio=1)


@pytest.mark.smoke
def test_skip_link_moves_to_the_selected_tab(app, open_page):
    page = open_page(app.url)
    to_lab(page)
    page.focus(".skip-link")
    page.keyboard.press("Enter")
    expect(page.locator("#tabs > [role=tabpanel]:visible")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator(".presets summary").first).to_be_focused()


def test_new_experiment_is_planned_run_and_opened_again(app, open_page, tmp_path):
    page = open_page(app.url)
    to_lab(page)
    preset = page.locator(".presets li", has_text="Pre or post norm?")
    expect(preset).to_contain_text(re.compile(r"6 runs · (about \d|less than 1 min)"))
    fill_form(page, ("norm_placement", "pre, up"), ("max_steps", "20"), seeds="0, 1", name="norms")
    expect(error_of(page, "values-0")).to_contain_text("choose one of pre, post")
    expect(page.locator(".own .begin")).to_be_disabled()
    page.fill(".own .values-0", "pre, post")
    page.fill(".own .seeds", "0, x")
    expect(error_of(page, "seeds")).to_contain_text("whole numbers")
    page.fill(".own .seeds", "0, 1")
    expect(page.locator(".own .plan")).to_contain_text("4 runs: 2 combinations with 2 seeds; ")
    expect(page.locator(".own .pg-error")).to_have_count(0)
    page.click(".own .begin")
    expect(page.locator(".results .title")).to_have_text("norms")
    page.reload()  # the experiment is on the server
    to_lab(page)
    expect(page.locator(".results .title")).to_have_text("norms")
    wait_for_end(page)
    expect(page.locator(".results .summary")).to_contain_text(
        "Changing norm placement: nothing reached 99 % exact match in 20 steps"
    )
    expect(page.locator(".results .measured-on")).to_contain_text("on 2,000 held-out sequences")
    assert page.locator(".variants .name").all_text_contents() == ["pre", "post"]
    expect(page.locator(".variants tbody tr").first).to_contain_text("not within 20")
    expect(page.locator(".variants tbody tr").first).to_contain_text("reached by 0 of 2")
    for chart in (".score-chart", ".loss-chart"):
        expect_points(page, chart, 2)
        assert count_colors(page, f".results {chart} canvas") > 4
    plot = page.locator(".results .loss-chart [role=img]")
    plot.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".loss-chart .pg-legend-x")).to_have_text("step 20")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".loss-chart .pg-legend-x")).to_have_text("step 10")
    page.locator(".variants .variant input").first.uncheck()
    expect(page.locator(".score-chart .pg-legend button")).to_have_count(1)
    expect(page.locator(".score-chart .pg-legend button")).to_contain_text("post")
    rows = list(csv.DictReader(download(page, ".as-csv", tmp_path).read_text().splitlines()))
    assert [(row["norm_placement"], row["n"]) for row in rows] == [("pre", "2"), ("post", "2")]
    actual = json.loads(download(page, ".as-json", tmp_path).read_text())
    assert len(actual["runs"]) == 4
    open_in_other_tabs(page)
    page.get_by_role("tab", name="Lab").click()
    row = own_row(page, "norms")
    row.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(1)  # it needs a confirmation
    row.get_by_role("button", name="Delete with its runs").click()
    expect(page.locator(".experiments li")).to_have_count(0)
    expect(page.locator(".results .experiment-result[data-experiment=example]")).to_be_visible()


def open_in_other_tabs(page):
    """Open the runs of the experiment in Train and Inspect."""
    page.click(".results .all-in-train")
    wait_for_status(page, "done")
    # the hidden line is not among the overlays
    expect(page.locator(".live .runs .plot-run:checked")).to_have_count(1)
    page.get_by_role("tab", name="Lab").click()
    page.locator(".variants tbody tr").first.get_by_role("button", name="Show curves").click()
    expect(page.locator(".live .runs .plot-run:checked")).to_have_count(2)
    page.get_by_role("tab", name="Lab").click()
    page.locator(".variants tbody tr").first.get_by_role("button", name="Inspect").click()
    expect(page.locator(".page-bar .subject option:checked")).to_contain_text(
        "norms: norm_placement pre, seed 0"
    )
