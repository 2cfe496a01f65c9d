"""Compare → Experiments in a real browser, with experiments of a few steps."""

import csv
import re

from playwright.sync_api import expect

from tests.support.browser_page import count_colors, go_to_experiments, wait_for_status

BASE = "checkpoint:reverse-one-head"


def to_experiments(page):
    page.wait_for_selector(".live:not([data-status=opening])", state="attached")
    go_to_experiments(page)
    page.wait_for_selector(".of-experiments .presets li")


def test_new_experiment_is_run_survives_a_reload_and_opens_in_tabs(app, open_page, tmp_path):
    page = open_page(app.url)
    to_experiments(page)
    page.click(".own > summary")
    page.wait_for_selector(f".own .base option[value='{BASE}']", state="attached")
    page.select_option(".own .base", BASE)
    for at, (setting, values) in enumerate((("norm_placement", "pre, post"), ("max_steps", "10"))):
        page.select_option(f".own .setting-{at}", setting)
        page.fill(f".own .values-{at}", values)
    page.fill(".own .seeds", "0")
    page.fill(".own .name", "norms")
    expect(page.locator(".own .plan")).to_contain_text("2 runs: ")
    page.click(".own .begin")
    expect(page.locator(".results .title")).to_have_text("norms")
    page.reload()  # the experiment is on the server
    to_experiments(page)
    expect(page.locator(".results .title")).to_have_text("norms")
    page.wait_for_selector(".results .experiment-result[data-state=done]", timeout=120_000)
    expect(page.locator(".results .measured-on")).to_contain_text("on 2,000 held-out sequences")
    assert page.locator(".variants .name").all_text_contents() == ["pre", "post"]
    for chart in (".score-chart", ".loss-chart"):
        assert count_colors(page, f".results {chart} canvas") > 4
    page.locator(".results .loss-chart [role=img]").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".loss-chart .pg-legend-x")).to_have_text("step 10")
    page.locator(".variants .variant input").first.uncheck()
    expect(page.locator(".score-chart .pg-legend-line")).to_have_text([re.compile("post")])
    with page.expect_download() as started:
        page.click(".as-csv")
    started.value.save_as(tmp_path / "norms.csv")
    rows = list(csv.DictReader((tmp_path / "norms.csv").read_text().splitlines()))
    assert [(row["norm_placement"], row["n"]) for row in rows] == [("pre", "1"), ("post", "1")]
    page.locator(".variants tbody tr").last.get_by_role("button", name="Show curves").click()
    wait_for_status(page, "done")
    expect(page.locator(".live .runs .plot-run:checked")).to_have_count(1)
    go_to_experiments(page)
    # a row without a line has no runs here
    page.locator(".variants tbody tr").last.get_by_role("button", name="Inspect").click()
    expect(page.locator(".page-bar .subject option:checked")).to_contain_text(
        "norms: norm_placement post, seed 0"
    )
