"""The Lab tab in a real browser, with experiments of a few steps."""

import csv
import json
import re
import zipfile

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import count_colors, go_to, wait_for_status, wait_until

BASE = "checkpoint:reverse-one-head"


def to_lab(page):
    page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    go_to(page, "Lab")
    page.wait_for_selector(".lab .questions li")


def write_own(page, *varied, seeds="0", kind="training curves", name=""):
    """Fill the form of one's own experiment: (setting, values) once or twice."""
    if not page.locator(".own").evaluate("box => box.open"):
        page.click(".own > summary")
    page.wait_for_selector(f".own .base option[value='{BASE}']", state="attached")
    page.select_option(".own .base", BASE)
    for at, (setting, values) in enumerate(varied):
        page.select_option(f".own .setting-{at}", setting)
        page.fill(f".own .values-{at}", values)
    page.fill(".own .seeds", seeds)
    page.fill(".own .name", name)
    page.get_by_role("button", name=kind).click()


def over(page, state="done", seconds=120):
    page.wait_for_selector(f".results .whole[data-state={state}]", timeout=seconds * 1000)


def mine(page, name):
    return page.locator(".experiments li", has=page.locator(f".open-it:text-is('{name}')"))


def saved(page, selector, folder):
    with page.expect_download(timeout=120_000) as download:
        page.click(selector)
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_a_custom_experiment_is_planned_run_and_listed_after_a_reload(app, open_page, tmp_path):
    page = open_page(app.url)
    to_lab(page)
    question = page.locator(".questions li", has_text="Pre or post norm?")
    expect(question).to_contain_text("6 runs · duration unknown")
    expect(page.locator(".results .empty")).to_be_visible()
    write_own(page, ("norm_placement", "pre, up"), ("max_steps", "20"), seeds="0, 1", name="norms")
    expect(page.locator(".own .of-values-0")).to_contain_text("choose one of pre, post")
    expect(page.locator(".own .begin")).to_be_disabled()
    page.fill(".own .values-0", "pre, post")
    page.fill(".own .seeds", "0, x")
    expect(page.locator(".own .of-seeds")).to_contain_text("whole numbers")
    page.fill(".own .seeds", "0, 1")
    expect(page.locator(".own .plan")).to_contain_text(
        "4 runs: 2 combinations with 2 seeds; duration unknown"
    )
    expect(page.locator(".own .problem:not(:empty)")).to_have_count(0)
    page.click(".own .begin")
    expect(page.locator(".results .title")).to_have_text("norms")
    page.reload()  # nothing of it belongs to the page
    to_lab(page)
    expect(page.locator(".results .title")).to_have_text("norms")
    over(page)
    expect(page.locator(".results .summary")).to_contain_text(
        "Changing norm_placement: nothing reached 99 % exact match in 20 steps"
    )
    assert page.locator(".cells .name").all_text_contents() == ["pre", "post"]
    expect(page.locator(".cells tbody tr").first).to_contain_text("not within 20")
    expect(page.locator(".cells tbody tr").first).to_contain_text("reached by 0 of 2")
    for chart in (".score-chart", ".loss-chart"):
        wait_until(
            page,
            "name => document.querySelector('.results ' + name).series?.[0].xs.length === 2",
            arg=chart,
        )
        assert count_colors(page, f".results {chart}") > 4
    page.focus(".results .loss-chart")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".loss-chart + .caption")).to_contain_text("Step 20: ")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".loss-chart + .caption")).to_contain_text("Step 10: ")
    page.locator(".legend button").first.click()
    assert page.evaluate(
        "document.querySelector('.results .score-chart').series.map(each => each.label)"
    ) == ["post"]
    rows = list(csv.DictReader(saved(page, ".as-csv", tmp_path).read_text().splitlines()))
    assert [(row["norm_placement"], row["n"]) for row in rows] == [("pre", "2"), ("post", "2")]
    actual = json.loads(saved(page, ".as-json", tmp_path).read_text())
    assert len(actual["runs"]) == 4
    with zipfile.ZipFile(saved(page, ".as-figures", tmp_path)) as archive:
        assert set(archive.namelist()) == {"experiment.png", "experiment.svg", "experiment.pdf"}
    page.click(".results .all-in-train")
    wait_for_status(page, "done")
    # the line that is off is not laid over
    expect(page.locator(".live .overlay-legend .entry")).to_have_count(1)
    page.get_by_role("tab", name="Lab").click()
    page.locator(".cells tbody tr").first.get_by_role("button", name="Train").click()
    expect(page.locator(".live .overlay-legend .entry")).to_have_count(2)
    page.get_by_role("tab", name="Lab").click()
    page.locator(".cells tbody tr").first.get_by_role("button", name="Inspect").click()
    expect(page.locator(".page-bar .subject option:checked")).to_contain_text(
        "norms: norm_placement pre, seed 0"
    )
    page.get_by_role("tab", name="Lab").click()
    remove = mine(page, "norms").get_by_role("button", name="Delete")
    remove.click()
    expect(mine(page, "norms")).to_have_count(1)  # the button waits for a confirmation
    mine(page, "norms").get_by_role("button", name="Delete with its runs").click()
    expect(page.locator(".experiments li")).to_have_count(0)
    expect(page.locator(".results .empty")).to_be_visible()


def test_schemes_are_compared_by_length_on_a_narrow_page_too(app, open_page):
    page = open_page(app.url, width=390, height=844)
    to_lab(page)
    write_own(
        page,
        ("position_type", "learned, sinusoidal"),
        ("max_steps", "20"),
        kind="length generalization",
        name="reach",
    )
    page.fill(".own .times", "2")
    page.fill(".own .n", "20")
    expect(page.locator(".own .begin")).to_have_text("Start 2 runs")
    page.click(".own .begin")
    over(page)
    expect(page.locator(".results .summary")).to_contain_text(
        "Trained on length 1–10 and evaluated up to 20"
    )
    expect(page.locator(".results .untrained")).to_contain_text(
        "learned, source 11 to 20, target 11 to 20"
    )
    wait_until(page, "document.querySelector('.by-length-chart').series?.[0].xs.length > 10")
    assert count_colors(page, ".by-length-chart") > 4
    page.focus(".heat-chart")
    for key in ("ArrowRight", *["ArrowRight"] * 10, "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".heat-chart + .caption")).to_contain_text(
        re.compile("sinusoidal, length 11: .* exact match, longer than the training lengths")
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator(".claims .details").first.click()
    expect(page.locator(".claims tr.more").first).to_contain_text(
        "python -m playground published uva-reversal --seed 0"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.smoke
def test_a_prepared_question_runs_is_cancelled_and_resumed(app, open_page):
    page = open_page(app.url)
    to_lab(page)
    question = page.locator(".questions li", has_text="What does a longer sequence cost?")
    question.get_by_role("button", name="Run: ").click()
    row = mine(page, "What does a longer sequence cost?")
    expect(row.locator(".words")).to_contain_text("0 of 9 runs")
    expect(row.locator(".words")).to_contain_text("training", timeout=60_000)
    expect(page.locator(".results .whole > .words")).to_contain_text("at step", timeout=60_000)
    expect(question.get_by_role("button")).to_have_text("Open")
    row.get_by_role("button", name="Cancel").click()
    expect(row.locator(".words")).to_contain_text("paused", timeout=60_000)
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".words")).to_contain_text("training", timeout=60_000)
    other = open_page(app.url)  # another browser
    to_lab(other)
    expect(other.locator(".experiments li")).to_have_count(0)
    row.get_by_role("button", name="Delete").click()
    row.get_by_role("button", name="Delete with its runs").click()
    expect(row).to_have_count(0)


def test_a_published_claim_runs_and_appears_with_our_result(app, open_page):
    page = open_page(app.url)
    to_lab(page)
    row = page.locator(".claims tr.claim", has_text="Reversal with 169,933 parameters")
    expect(row).to_contain_text("not run yet")
    row.get_by_role("button", name="Run: ").click()
    expect(row.get_by_role("button", name="Run: ")).to_have_count(0)
    expect(row.locator(".verdict")).to_have_text("compared", timeout=200_000)
    expect(row.locator(".ours")).to_contain_text(
        "median training loss at update 100", ignore_case=True
    )
    page.reload()
    to_lab(page)
    expect(row.locator(".verdict")).to_have_text("compared")
