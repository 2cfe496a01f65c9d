"""The Compare tab in a real browser. A stand-in Hub serves tiny fixtures under the names gpt2 and
bert-base-uncased; they are no
pretrained models."""

import csv
import io
import json
import time
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import expect

from tests.support.app_server import AppServer
from tests.support.browser_page import count_colors, wait_until


def to_compare(page, view="Benchmark"):
    page.get_by_role("tab", name="Compare").click()
    page.get_by_role("tab", name=view).click()


def settled(page, *names):
    """Wait until the list shows the costs of these models."""
    for name in names:
        takes = page.locator(
            ".of-table .suggestions li", has=page.locator(f".name:text-is('{name}')")
        ).locator(".takes")
        expect(takes).not_to_have_text("")
        expect(takes).not_to_contain_text("checking")


def ask(page, n=3, shots=2, rank=1):
    for name, value in {"n": n, "shots": shots, "rank": rank}.items():
        page.fill(f".of-table .of-{name}", str(value))
    page.click(".run-benchmark")


def only(page, *names):
    """Tick these models and no others."""
    for line in page.locator(".of-table .suggestions li").all():
        line.locator("input").set_checked(line.locator(".name").text_content() in names)


def over(page, view="table", status="done", seconds=120):
    page.wait_for_selector(
        f".of-{view} .job-status[data-status={status}]", state="attached", timeout=seconds * 1000
    )


def answerers(page):
    return page.locator(".sheet:not(.learners) .who .name").all_text_contents()


def row_of(page, name):
    return page.locator(
        ".of-table .sheet tbody tr", has=page.locator(f".name:text-is('{name}')")
    ).first


def loaded(app, library):
    """Whether any process of the app has mapped this library."""
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
    settled(page, *models)
    expect(page.locator(".of-table .sum")).to_contain_text(
        "Downloads 1.0 MB first, once: gpt2, bert-base-uncased"
    )
    # the sizes cost no download
    assert not [request for request in hub.requests if "/resolve/" in request.path]
    assert not loaded(app_with_models, "tokenizers")
    ask(page)
    over(page)
    assert answerers(page) == [
        "reverse",
        "gpt2",
        "bert-base-uncased",
        "bert-base-uncased",
        "chance",
        "copy the input",
        "most frequent symbol",
        "commonest target",
    ]
    assert loaded(app_with_models, "tokenizers")
    assert not hub.requests_with(hub.OWNER)  # no token was sent
    fairness, sheet = page.locator(".of-table .fairness"), page.locator(".of-table .sheet")
    expect(fairness).to_contain_text("do not compete on equal terms")
    assert fairness.bounding_box()["y"] < sheet.bounding_box()["y"]
    expect(row_of(page, "reverse")).to_contain_text("100 %")
    expect(row_of(page, "reverse")).to_contain_text("171,597")
    expect(page.locator(".of-table .leaks")).to_contain_text("positions")
    expect(page.locator(".baseline")).to_have_count(4)

    page.locator(".items .item summary").first.click()
    answer = page.locator(".items .item[open] .answer-of")
    expect(answer).to_have_count(4)
    requested = answer.nth(1).locator("pre").text_content()
    assert requested.count("Input:") == 3  # two worked examples and the question
    assert requested.endswith("Output:")
    tokens = answer.nth(1).locator(".token").all_text_contents()
    assert "".join(tokens).replace("·", " ").replace("↵", "\n") == requested
    expect(answer.nth(0).locator(".symbols .ok")).to_have_text("✓ correct")
    for wrong in page.locator(".symbols .wrong:not(.verdict)").all():
        assert wrong.get_attribute("title") or "no answer" in wrong.text_content()

    with page.expect_download() as download:
        page.get_by_role("button", name="Table (CSV)").click()
    lines = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert [line["model"] for line in lines] == answerers(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="All data (JSON)").click()
    everything = json.loads(Path(download.value.path()).read_text())
    assert len(everything["examples"]) == 3 * 4
    assert float(lines[0]["exact_match"]) == everything["rows"][0]["exact_match"]

    rendered = page.locator(".of-table .sheet tbody").text_content()
    page.reload()
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator(".items .item")).to_have_count(3)
    assert page.locator(".of-table .sheet tbody").text_content() == rendered


@pytest.mark.smoke
def test_an_invalid_model_name_stays_in_the_field_with_the_reason(app, open_page):
    page = open_page(app.url)
    to_compare(page)
    adding, problem = page.locator(".adding input"), page.locator(".adding + .problem")
    for name, result in {"": "Type a model name", "gpt2": "already in the list"}.items():
        adding.fill(name)
        adding.press("Enter")
        expect(problem).to_contain_text(result)
        expect(adding).to_have_value(name)
    for number in range(5):
        adding.fill(f"{'x' * 150}/{number}")  # longer than a message quotes
        expect(problem).to_have_text("")
        adding.press("Enter")
    expect(problem).to_contain_text("remove one first")
    expect(
        page.locator(
            ".of-table .takes.error", has_text="is not the name of a model; give one of the Hub"
        ).first
    ).to_be_visible()
    expect(page.locator(".compare .net")).to_have_text("")  # the Hub was reached
    page.set_viewport_size({"width": 390, "height": 844})
    note = page.locator(".of-table .empty")
    assert note.bounding_box()["x"] + note.bounding_box()["width"] <= 390


def test_a_download_shows_its_bytes_outlives_a_reload_and_is_cancelled(
    app_with_models, hub, models, open_page
):
    hub.put("ada/slow", models["gpt2"])
    page = open_page(app_with_models.url)
    to_compare(page)
    page.fill(".adding input", "ada/slow")
    page.keyboard.press("Enter")
    settled(page, "ada/slow")
    only(page, "ada/slow")
    hub.fault(r"ada/slow/resolve/.*safetensors", "silent")
    ask(page)
    expect(row_of(page, "ada/slow")).to_contain_text("downloading")
    expect(page.locator(".of-table .job-status .amount")).to_contain_text("KB")
    page.reload()
    page.get_by_role("tab", name="Compare").click()
    expect(row_of(page, "ada/slow")).to_contain_text("downloading")
    expect(row_of(page, "reverse")).to_contain_text("100 %")
    began = time.monotonic()
    page.click(".of-table .job-status .cancel")
    over(page, status="cancelled")
    assert time.monotonic() - began < 10
    expect(row_of(page, "reverse")).to_contain_text("100 %")
    hub.clear_faults()
    ask(page)
    over(page)
    assert answerers(page)[:2] == ["reverse", "ada/slow"]


def test_a_model_that_fails_shows_its_error_and_can_be_run_again(
    app_with_models, hub, models, open_page
):
    page = open_page(app_with_models.url)
    to_compare(page)
    page.fill(".adding input", "ada/later")
    page.keyboard.press("Enter")
    settled(page, "ada/later")
    expect(page.locator(".of-table .takes.error")).to_contain_text("ada/later")
    only(page, "gpt2", "ada/later")
    ask(page)
    over(page)
    expect(row_of(page, "ada/later").locator(".failed")).to_contain_text("ada/later")
    before = row_of(page, "gpt2").text_content()
    hub.put("ada/later", models["gpt2"])
    row_of(page, "ada/later").get_by_role("button", name="Try again").click()
    expect(row_of(page, "ada/later").locator(".score")).to_have_count(3)
    over(page)
    assert answerers(page)[:3] == ["reverse", "gpt2", "ada/later"]
    assert row_of(page, "gpt2").text_content() == before
    page.locator(".items .item summary").first.click()
    expect(page.locator(".items .item[open] .answer-of")).to_have_count(3)


def test_without_a_network_what_is_here_still_works(hub, models, tmp_path, open_page):
    # no server listens on this port
    environment = hub.environment(tmp_path / "hf", HF_ENDPOINT="http://127.0.0.1:9")
    stored = tmp_path / "hf" / "hub" / "models--gpt2"
    (stored / "snapshots" / "0123").mkdir(parents=True)
    for name, content in models["gpt2"].items():
        (stored / "snapshots" / "0123" / name).write_bytes(content)
    app = AppServer(tmp_path, **environment)
    try:
        page = open_page(app.url)
        page.wait_for_selector(".live[data-status=checkpoint]")
        began = time.monotonic()
        to_compare(page)
        expect(page.locator(".compare .net")).to_contain_text("Already on this machine: gpt2")
        # three seconds, and what a busy machine adds; the client's own retries take 23
        assert time.monotonic() - began < 15
        expect(page.locator(".of-table .takes.error")).to_contain_text("the Hub is not reachable")
        expect(page.locator(".of-table .sum")).to_have_text("")
        ask(page)
        over(page)
        failed = row_of(page, "bert-base-uncased").locator(".failed > span")
        expect(failed).to_contain_text("cannot be reached")
        # a model that could not be loaded has no answers
        expect(page.locator(".of-table .job-status .words")).to_contain_text("2 models")
        page.set_viewport_size({"width": 390, "height": 844})
        assert failed.bounding_box()["x"] + failed.bounding_box()["width"] <= 390
        page.set_viewport_size({"width": 1440, "height": 950})
        expect(row_of(page, "gpt2").locator(".score")).to_have_count(3)
        page.get_by_role("tab", name="Inspect").click()
        page.wait_for_selector(".inspect[data-drawn^=attention]")
    finally:
        app.stop()


def test_a_finetuned_model_is_compared_with_base_and_scratch(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_compare(page, "Fine-tune")
    expect(page.locator(".of-finetune .cost")).to_contain_text("of memory")
    page.fill(".of-finetune .of-steps", "12")
    page.fill(".of-finetune .of-n", "8")
    page.click(".tune-it")
    over(page, "finetune")
    attends = page.evaluate("document.querySelector('.tuned-score').drawn")
    assert [attends[0]["step"], attends[-1]["step"]] == [0, 12]
    assert count_colors(page, ".tuned-loss") > 3
    expect(page.locator(".of-finetune .verdict")).to_contain_text("of 8 held-out sequences")
    for name, value in {"n": 2, "shots": 1, "rank": 0}.items():
        page.evaluate(
            "([name, value]) => { document.querySelector('.of-table .of-' + name).value = value; }",
            [name, value],
        )
    page.click(".benchmark-three")
    over(page)
    assert answerers(page)[:3] == ["reverse", "gpt2", "tuned:gpt2-reverse-1-10"]
    expect(row_of(page, "tuned:gpt2-reverse-1-10")).to_contain_text("fine-tuned: 12 steps")


def test_three_families_train_side_by_side_to_the_goal(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_compare(page, "Matched parameters")
    expect(page.locator(".of-families .suggestions li").nth(3)).to_be_visible()
    page.fill(".compare .shortest", "3")
    page.fill(".compare .max-length", "3")
    expect(page.locator(".of-families .sum")).to_contain_text("reverse 3;")
    for line in page.locator(".of-families .suggestions li").all():
        line.locator("input").set_checked("from scratch" in line.locator(".name").text_content())
    expect(page.locator(".train-them")).to_have_text("Train 3 models")
    page.click(".train-them")
    reached = """() => { const rows = [...document.querySelectorAll('.learners tbody tr')];
        return rows.length === 3 && rows.every(row => +row.dataset.reached); }"""
    wait_until(page, reached, timeout=300_000)
    assert count_colors(page, ".of-families .score-chart") > 6
    page.reload()
    to_compare(page, "Matched parameters")
    wait_until(page, reached)
    expect(page.locator(".facts")).to_contain_text("History")
    page.locator(".learners tbody tr").first.get_by_role("button", name="Inspect").click()
    page.wait_for_selector(".inspect[data-drawn^=attention]")
    expect(page.locator(".inspect .subject option:checked")).to_contain_text("BERT")
