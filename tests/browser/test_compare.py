"""The Compare tab in a real browser: the benchmark and the pretrained models.

A stand-in Hub serves tiny fixtures under the names gpt2 and bert-base-uncased; they are no
pretrained models.
"""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

# The first test waits for models and an app that start beside other tests.
pytestmark = pytest.mark.timeout(600)


def open_view(page, view, section=""):
    page.get_by_role("tab", name="Compare", exact=True).click()
    page.get_by_role("tab", name=view, exact=True).click()
    if section:
        page.locator(".parts").get_by_role("button", name=section, exact=True).click()


def select_model(page, section, name):
    """Enter the name of a model, and wait for its size."""
    control = f"{section} input.model0"
    page.fill(control, name)
    page.press(control, "Tab")
    note = page.locator(f"{section} .pg-field", has=page.locator("input.model0"))
    expect(note.locator("p")).to_contain_text("parameters")


def wait_for_job(page, section):
    """Wait until the job of a section ends, which must be done."""
    part = page.locator(section)
    end = re.compile("done|failed|cancelled")
    expect(part).to_have_attribute("data-status", end, timeout=240_000)
    assert part.get_attribute("data-status") == "done", part.locator(".job").text_content()


def model_names(page):
    return page.locator(".sheet .name").all_text_contents()


def wait_for_costs(page, *names):
    """Wait until the list has the size of each model."""
    for name in names:
        takes = page.locator(
            ".of-benchmark .choices li", has=page.locator(f".name:text-is('{name}')")
        ).locator(".cost")
        expect(takes).not_to_have_text("")
        expect(takes).not_to_contain_text("Checking")


def test_all_models_are_evaluated_on_the_same_examples(app_with_models, hub, open_page):
    page = open_page(app_with_models.url)
    open_view(page, "Benchmark")
    wait_for_costs(page, "gpt2", "bert-base-uncased")
    for name, value in {"n": 3, "shots": 2}.items():
        page.fill(f".of-benchmark input.{name}", str(value))
    page.click(".of-benchmark .run")
    wait_for_job(page, ".of-benchmark")
    assert model_names(page) == [
        "reverse",
        "gpt2",
        "bert-base-uncased",
        "chance",
        "copy the input",
        "most frequent token",
        "most frequent target",
    ]
    assert not hub.requests_with(hub.OWNER)  # no token was sent
    fairness, sheet = page.locator(".of-benchmark .fairness"), page.locator(".of-benchmark .sheet")
    expect(fairness).to_contain_text("do not compete on equal terms")
    assert fairness.bounding_box()["y"] < sheet.bounding_box()["y"]
    rendered = sheet.locator("tbody").text_content()
    with page.expect_download() as download:
        page.get_by_role("button", name="All data (JSON)").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert len(exported["examples"]) == 3 * 3
    assert [row["model"] for row in exported["rows"]] == model_names(page)
    page.select_option(".predictions-of", index=1)
    expect(page.locator(".of-benchmark details pre").last).to_contain_text("Output:")
    page.reload()
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator(".items tbody tr")).to_have_count(3)
    assert sheet.locator("tbody").text_content() == rendered


def test_generated_tokens_list_their_alternatives_and_survive_a_reload(app_with_models, open_page):
    page = open_page(app_with_models.url)
    open_view(page, "Pretrained", "Text generation")
    select_model(page, ".part-continue", "gpt2")
    page.fill(".part-continue textarea", "The capital of Japan is")
    page.click(".part-continue .run")
    wait_for_job(page, ".part-continue")
    written = page.locator(".generated-text .generated-token")
    assert "".join(written.all_text_contents()).startswith(" Tokyo.")
    heading, first = (
        page.locator(".token-alternatives h4"),
        page.locator(".token-alternatives .pg-bars li").first,
    )
    written.first.hover()
    expect(heading).to_contain_text("Token 1, ·Tokyo")
    expect(first.locator(".pg-bar-label")).to_contain_text("·Tokyo")
    assert first.get_attribute("class") == "target"  # greedy decoding took the most probable one
    written.first.focus()
    page.keyboard.press("ArrowRight")
    expect(heading).to_contain_text("Token 2, .")
    text = page.locator(".generated-text").text_content()
    page.reload()
    open_view(page, "Pretrained", "Text generation")
    expect(page.locator(".generated-text")).to_have_text(text, use_inner_text=False)
