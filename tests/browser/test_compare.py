"""The views Architectures and Benchmark of the Compare tab in a real browser.

A stand-in Hub serves tiny fixtures under the names gpt2 and bert-base-uncased; they are no
pretrained models.
"""

import csv
import io
import json
import re
from pathlib import Path

import psutil
from playwright.sync_api import expect

from tests.support.browser_page import count_colors, wait_until


def to_compare(page, view="Benchmark"):
    page.get_by_role("tab", name="Compare").click()
    page.get_by_role("tab", name=view, exact=True).click()


def wait_for_costs(page, *names):
    """Wait until the list has the size of each model."""
    for name in names:
        takes = page.locator(
            ".of-benchmark .choices li", has=page.locator(f".name:text-is('{name}')")
        ).locator(".cost")
        expect(takes).not_to_have_text("")
        expect(takes).not_to_contain_text("Checking")


def run_benchmark(page, n=3, shots=2, rank=1):
    for name, value in {"n": n, "shots": shots, "rank": rank}.items():
        page.fill(f".of-benchmark input.{name}", str(value))
    page.click(".of-benchmark .run")


def wait_for_job(page, view=".of-benchmark", status="done", seconds=120):
    page.wait_for_selector(f"{view}[data-status={status}]", timeout=seconds * 1000)


def model_names(page):
    return page.locator(".sheet .name").all_text_contents()


def row_of(page, name):
    return page.locator(
        ".of-benchmark .sheet tbody tr", has=page.locator(f".name:text-is('{name}')")
    ).first


def loaded(app, library):
    """Return whether a process of the app has loaded this library."""
    processes = [
        psutil.Process(app.process.pid),
        *psutil.Process(app.process.pid).children(recursive=True),
    ]
    return any(library in Path(f"/proc/{process.pid}/maps").read_text() for process in processes)


def test_all_models_are_evaluated_on_the_same_examples(app_with_models, hub, models, open_page):
    page = open_page(app_with_models.url)
    page.wait_for_selector(".live[data-status=checkpoint]")
    assert not loaded(app_with_models, "tokenizers")
    to_compare(page)
    wait_for_costs(page, *models)
    expect(page.locator(".of-benchmark .total-cost")).to_contain_text(
        "Downloads 1.0 MB first, once: gpt2, bert-base-uncased"
    )
    # the sizes need no download
    assert not [request for request in hub.requests if "/resolve/" in request.path]
    assert not loaded(app_with_models, "tokenizers")
    run_benchmark(page)
    wait_for_job(page)
    assert model_names(page) == [
        "reverse",
        "gpt2",
        "bert-base-uncased",
        "bert-base-uncased",
        "chance",
        "copy the input",
        "most frequent token",
        "most frequent target",
    ]
    assert loaded(app_with_models, "tokenizers")
    assert not hub.requests_with(hub.OWNER)  # no token was sent
    fairness, sheet = page.locator(".of-benchmark .fairness"), page.locator(".of-benchmark .sheet")
    expect(fairness).to_contain_text("do not compete on equal terms")
    assert fairness.bounding_box()["y"] < sheet.bounding_box()["y"]
    expect(row_of(page, "reverse")).to_contain_text("100 %")
    expect(row_of(page, "reverse")).to_contain_text("171,597")
    expect(page.locator(".of-benchmark .leaks")).to_contain_text("positions")
    expect(page.locator(".baseline")).to_have_count(4)

    rendered = page.locator(".of-benchmark .sheet tbody").text_content()
    with page.expect_download() as download:
        page.get_by_role("button", name="Table (CSV)").click()
    lines = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert [line["model"] for line in lines] == model_names(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="All data (JSON)").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert len(exported["examples"]) == 3 * 4
    assert float(lines[0]["exact_match"]) == exported["rows"][0]["exact_match"]

    check_matrix(page)
    page.reload()
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator(".items .item")).to_have_count(3)
    assert page.locator(".of-benchmark .sheet tbody").text_content() == rendered


def check_matrix(page):
    """Check that the outputs are a matrix of examples and models, with details."""
    marks = page.locator(".items .item").first.locator(".mark")
    expect(marks).to_have_count(4)
    expect(marks.first).to_have_text("✓ correct")
    page.locator(".items .item button").first.click()
    answer = page.locator(".predictions .prediction-of")
    expect(answer).to_have_count(4)
    prompt = answer.nth(1).locator("pre").text_content()
    assert prompt.count("Input:") == 3  # two few-shot examples and the source
    assert prompt.endswith("Output:")
    tokens = answer.nth(1).locator(".prompt-tokens .pg-token").all_text_contents()
    assert "".join(tokens).replace("·", " ").replace("↵", "\n") == prompt
    expect(answer.nth(0).locator(".parsed .pg-mark")).to_have_attribute("aria-label", "right")
    for wrong in page.locator(".parsed .pg-token.wrong").all():
        assert re.search("should be|missing|extra", wrong.get_attribute("title"))
    page.locator(".items .item button").first.press("Enter")
    expect(answer).to_have_count(0)


def test_a_finetuned_model_is_compared_with_base_and_scratch(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_compare(page)
    for name, value in {"n": 2, "shots": 1, "rank": 0}.items():
        page.fill(f".of-benchmark input.{name}", str(value))
    to_compare(page, "Pretrained models")
    page.locator(".parts").get_by_role("button", name="Fine-tuning").click()
    expect(page.locator(".part-finetune .cost")).to_contain_text("of memory")
    page.fill(".part-finetune input.steps", "12")
    page.fill(".part-finetune input.n", "8")
    page.click(".part-finetune .run")
    wait_for_job(page, ".part-finetune")
    page.locator(".part-finetune .pg-chart-tools").first.get_by_role("button", name="Table").click()
    steps = page.locator(".part-finetune .pg-table tbody td:first-child").all_text_contents()
    assert [steps[0], steps[-1]] == ["0", "12"]
    assert count_colors(page, ".part-finetune .pg-figure:last-child .pg-chart-plot canvas") > 3
    expect(page.locator(".part-finetune .verdict")).to_contain_text("of 8 held-out sequences")
    page.click(".compare-in-benchmark")
    wait_for_job(page)
    assert model_names(page)[:3] == ["reverse", "gpt2", "tuned:gpt2-reverse-1-10"]
    expect(row_of(page, "tuned:gpt2-reverse-1-10")).to_contain_text("fine-tuned: 12 steps")


def test_three_architectures_train_side_by_side_to_the_goal(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_compare(page, "Architectures")
    expect(page.locator(".of-architectures .choices li").nth(3)).to_be_visible()
    page.fill(".of-architectures input.min_length", "3")
    page.fill(".of-architectures input.max_length", "3")
    expect(page.locator(".of-architectures .total-cost")).to_contain_text("reverse 3;")
    for line in page.locator(".of-architectures .choices li").all():
        line.locator("input").set_checked("from scratch" in line.locator(".name").text_content())
    expect(page.locator(".train-all")).to_have_text("Train 3 models")
    page.click(".train-all")
    expect(page.locator(".train-all")).to_have_text("Stop 3 runs")
    reached = """() => { const cells = [...document.querySelectorAll('.learners .reached')];
        return cells.length === 3 && cells.every(cell => /\\d/.test(cell.textContent)); }"""
    wait_until(page, reached, timeout=300_000)
    assert count_colors(page, ".of-architectures .pg-chart-plot canvas") > 6
    page.reload()
    to_compare(page, "Architectures")
    wait_until(page, reached)
    expect(page.locator(".learners tbody")).to_contain_text("Adam, 0.002")
    page.locator(".learners tbody tr").first.get_by_role("button", name="Inspect").click()
    page.wait_for_selector(".inspect[data-drawn^=attention]")
    expect(page.locator(".page-bar .subject option:checked")).to_contain_text("BERT")
