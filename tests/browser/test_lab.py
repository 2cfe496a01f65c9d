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


def test_example_is_open_on_arrival_and_read_only(app, open_page, tmp_path):
    page = open_page(app.url)
    to_lab(page)
    example = page.locator(".results .experiment-result[data-experiment=example]")
    expect(example.locator(".example-note")).to_contain_text("Example, measured on")
    expect(example.locator(".summary")).to_contain_text("An exact rank test gives p = 0.029")
    expect(example.get_by_role("button", name="Delete")).to_have_count(0)
    expect(example.locator(".all-in-train")).to_have_count(0)
    expect_points(page, ".score-chart", 30)
    rows = list(csv.DictReader(download(page, ".as-csv", tmp_path).read_text().splitlines()))
    assert [row["learning_rate"] for row in rows] == ["0.0005", "0.006"]
    # of comparable runs of the tests before, if there are any
    estimates = page.locator(".presets .what").all_text_contents()
    assert all(re.search(r"runs · (about \d|less than 1 min)", text) for text in estimates)
    expect(page.locator(".presets > .pg-hint")).to_contain_text("Durations are estimates for")
    page.click(".own > summary")
    expect(page.locator(".own .begin")).to_have_text("Start 6 runs")
    errors = page.locator(".lab .pg-error, .lab .pg-status.error").all_text_contents()
    assert not "".join(errors).strip()


@pytest.mark.parametrize("width", [1366, 390])
def test_an_opened_result_is_in_view_and_has_the_focus(app, open_page, width):
    page = open_page(app.url, width=width, height=768)
    to_lab(page)
    page.locator(".own-experiments .example").scroll_into_view_if_needed()
    page.click(".own-experiments .example")
    expect(page.locator(".results .title")).to_be_focused()
    expect(page.locator(".results .title")).to_be_in_viewport(ratio=1)
    page.click(".own > summary")
    expect(page.locator(".own .begin")).to_be_in_viewport(ratio=1)


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


def test_curves_of_a_training_run_are_drawn_before_its_end(app, open_page):
    page = open_page(app.url)
    to_lab(page)
    fill_form(page, ("norm_placement", "pre, post"), ("max_steps", "5000"), name="live")
    expect(page.locator(".own .begin")).to_have_text("Start 2 runs")
    page.click(".own .begin")
    expect(page.locator(".score-chart .pg-legend")).to_contain_text("seed 0 so far", timeout=60_000)
    expect(page.locator(".results .experiment-result")).to_have_attribute("data-done", "0")
    expect(page.locator(".results .summary")).to_contain_text("No run has finished yet.")
    row = own_row(page, "live")
    row.get_by_role("button", name="Cancel", exact=True).click()
    expect(row.locator(".words")).to_contain_text("cancelled · 0 of 2 runs", timeout=60_000)
    expect(row.get_by_role("button", name="Resume")).to_have_count(0)


def test_length_generalization_on_a_narrow_page(app, open_page):
    page = open_page(app.url, width=390, height=844)
    to_lab(page)
    fill_form(
        page,
        ("position_type", "learned, sinusoidal"),
        ("max_steps", "20"),
        kind="lengths",
        name="reach",
    )
    page.fill(".own .times", "2")
    page.fill(".own .n", "20")
    expect(page.locator(".own .begin")).to_have_text("Start 2 runs")
    page.click(".own .begin")
    wait_for_end(page)
    expect(page.locator(".results .summary")).to_contain_text(
        "Trained on length 1–10 and evaluated up to 20"
    )
    expect(page.locator(".results .untrained")).to_contain_text(
        "learned, source 11 to 20, target 11 to 20"
    )
    expect_points(page, ".by-length-chart", 20)
    assert count_colors(page, ".by-length-chart canvas") > 4
    page.focus(".heat-chart .pg-heat-map > canvas")
    for key in ("ArrowRight", *["ArrowRight"] * 10, "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".heat-chart figcaption")).to_contain_text(
        re.compile("sinusoidal, length 1[12]: .* exact match, longer than the training lengths")
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".claims details > summary").first.click()
    expect(page.locator(".claims details").first).to_contain_text(
        "python -m benchmarks published --only uva-reversal"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.smoke
def test_prepared_experiment_is_paused_and_resumed(app, open_page):
    page = open_page(app.url)
    to_lab(page)
    preset = page.locator(".presets li", has_text="What does a longer sequence cost?")
    preset.get_by_role("button", name="Run: ").click()
    row = own_row(page, "What does a longer sequence cost?")
    expect(row.locator(".words")).to_contain_text("0 of 9 runs")
    expect(row.locator(".words")).to_contain_text("training", timeout=60_000)
    expect(page.locator(".results .experiment-result > .words")).to_contain_text(
        "at step", timeout=60_000
    )
    expect(preset.get_by_role("button")).to_have_text("Open")
    row.get_by_role("button", name="Pause").click()
    expect(row.locator(".words")).to_contain_text("paused", timeout=60_000)
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".words")).to_contain_text("training", timeout=60_000)
    other = open_page(app.url)  # another browser
    to_lab(other)
    expect(other.locator(".experiments li")).to_have_count(0)
    row.get_by_role("button", name="Cancel", exact=True).click()
    expect(preset.get_by_role("button")).to_have_text("Run")
    row.get_by_role("button", name="Delete").click()
    row.get_by_role("button", name="Delete with its runs").click()
    expect(row).to_have_count(0)


def test_published_claim_is_run_and_compared(app, open_page):
    page = open_page(app.url)
    to_lab(page)
    row = page.locator(".claims .claim", has_text="Reversal with the encoder alone")
    expect(row).to_contain_text("not run yet")
    expect(row.locator(".criterion")).to_contain_text("token accuracy")
    expect(row.locator(".stored")).to_contain_text("✓ pass: 100.00 % of the tokens")
    row.get_by_role("button", name="Run: ").click()
    expect(row.get_by_role("button", name="Run: ")).to_have_count(0)
    expect(row.locator(".measured .verdict")).to_have_text(re.compile("pass|fail"), timeout=300_000)
    expect(row.locator(".measured")).to_contain_text("of the tokens, on 2,000 held-out sequences")
    page.reload()
    to_lab(page)
    expect(row.locator(".measured .verdict")).to_have_text(re.compile("pass|fail"))
