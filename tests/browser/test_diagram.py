"""The numbers of the diagram in the Train tab and those of the Inspect tab, for the same model."""

import math
import re

import pytest
from playwright.sync_api import Page, Response, expect

from tests.support.browser_page import (
    go_to,
    open_section,
    start_run,
    wait_for_status,
    wait_until,
)

SMALLEST = 0.005  # the note of the diagram omits smaller weights
Weights = dict[tuple[int, int], float]  # by row and column
# The arrow keys select a row; the note is drawn in the next frame.
READ_NOTES_JS = """async () => {
    const canvas = document.querySelector('.diagram-canvas'),
      note = document.querySelector('.diagram-note'),
      notes = [];
    const press = async key => {
        canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
        return note.textContent;
    };
    for (let text = await press('Home'); text !== notes.at(-1); text = await press('ArrowDown'))
        notes.push(text);
    canvas.dispatchEvent(new Event('blur'));
    return notes; }"""
# The arrow keys select a cell, which the label of the map describes at once.
READ_CELLS_JS = """() => {
    const map = document.querySelector('.attention-focus .pg-heat-map > canvas'),
      texts = [];
    const press = key => {
        map.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        return map.ariaLabel;
    };
    for (let first = press('ArrowDown'); first !== texts.at(-1)?.[0]; first = press('ArrowDown')) {
        const row = [first];
        for (let text = press('ArrowRight'); text !== row.at(-1); text = press('ArrowRight'))
            row.push(text);
        for (let i = 1; i < row.length; i++) press('ArrowLeft');
        texts.push(row);
    }
    map.dispatchEvent(new Event('blur'));
    return texts; }"""


def read_diagram(page: Page) -> tuple[dict[str, Weights], dict[str, float], list[float]]:
    """Return the weights of each head, the probability of each prediction, and contributions."""
    weights, predictions = {}, {}
    heads = page.locator(".diagram .head")
    for i in range(heads.count()):
        head = heads.nth(i)
        head.click()
        expect(head).to_have_attribute("aria-pressed", "true")
        kind, layer, number = (head.get_attribute(f"data-{name}") for name in NAMES)
        notes = page.evaluate(READ_NOTES_JS)
        weights[f"{kind} {int(layer) + 1}.{int(number) + 1}"] = {
            (row, int(position)): float(weight)
            for row, note in enumerate(notes, 1)
            for position, weight in re.findall(r"\(position (\d+)\) (\d\.\d{3})", note)
        }
        for row, note in enumerate(notes, 1):
            if match := re.search(r"Prediction: (\S+) with probability (\d\.\d{3})", note):
                predictions[f"{row} {match[1]}"] = float(match[2])
    contributions = [
        float(text)
        for stack in page.locator(".diagram-stack").all()
        for text in reversed(stack.locator(".diagram-value").all_text_contents())
    ]
    return weights, predictions, contributions


NAMES = ("kind", "layer", "head")


def read_scores(page: Page, query: int) -> tuple[list[float], list[float], list[float]]:
    """Return the products, scores and weights of a query in the open block of attention."""
    table = page.locator(".block-scores table")
    page.click(f".block-scores button >> nth={query}")
    token = page.text_content(f".block-scores button >> nth={query}").strip()
    expect(table.locator(".query th")).to_have_text(f"query {token}")
    expect(page.locator(".block-scores [aria-pressed=true]")).to_have_attribute(
        "data-value", str(query)
    )
    rows = [
        [
            float(text.strip().replace("−", "-"))
            for text in row.locator("td").all_text_contents()[2:]
        ]
        for row in table.locator("tbody tr:not(.query)").all()
    ]
    products, scores, weights = (list(column) for column in zip(*rows, strict=True))
    return products, scores, weights


def set_teacher_forcing(page: Page, view: str) -> None:
    """Select the target as decoder input, and wait until the view shows its response."""

    def is_forced(response: Response) -> bool:
        payload = response.request.post_data_json if "inspect/view" in response.url else {}
        return payload.get("options", {}).get("mode") == "teacher-forced"

    with page.expect_response(is_forced):
        page.click(f".of-{view} [data-value=teacher-forced]")
    expect(page.locator(".inspect .stage")).not_to_have_class(re.compile("waiting"))


def read_attention(page: Page) -> dict[str, Weights]:
    """Return the weights of each head in the attention view, with the target as decoder input."""
    set_teacher_forcing(page, "attention")
    weights = {}
    kinds = page.locator(".of-attention [aria-label='Kind of attention'] button")
    for kind in [each.get_attribute("data-value") for each in kinds.all()]:
        button = page.locator(f".of-attention [data-value={kind}]")
        button.click()
        expect(button).to_have_attribute("aria-pressed", "true")  # once the response is here
        for head in page.locator(".pg-head-grid button").all():
            head.click()
            expect(head).to_have_attribute("aria-pressed", "true")
            layer, number = re.findall(r"\d+", head.get_attribute("aria-label"))
            expect(page.locator(".attention-focus h4")).to_have_text(
                f"Layer {layer}, head {number}"
            )
            weights[f"{kind} {layer}.{number}"] = {
                (row, column): float(match[1])
                for row, texts in enumerate(page.evaluate(READ_CELLS_JS), 1)
                for column, text in enumerate(texts, 1)
                if (match := re.search(r"with weight (\d\.\d{3})", text))
            }
    return weights


def read_predictions(page: Page) -> dict[str, float]:
    """Return the most likely token of each position in the generation view."""
    set_teacher_forcing(page, "steps")
    best = page.locator(".steps-bars li").first
    predictions = {}
    while True:
        position, last = map(int, re.findall(r"\d+", page.text_content(".steps-words")))
        token = best.locator(".pg-bar-label").text_content().split()[0]
        predictions[f"{position} {token}"] = float(best.get_attribute("title"))
        if position == last:
            return predictions
        page.focus(".steps-slider")
        page.keyboard.press("ArrowRight")
        expect(page.locator(".steps-words")).to_have_text(f"position {position + 1} of {last}")


def read_contributions(page: Page) -> list[float]:
    """Return the size of each sublayer's output in the view of the forward pass."""
    sums = page.locator(".trace-list button", has_text=re.compile(r"^\s*\d+\. residual"))
    values = []
    for i in range(sums.count()):
        number = re.match(r"\s*(\d+)", sums.nth(i).text_content())[1]
        sums.nth(i).evaluate("button => button.click()")  # its block may be closed
        expect(page.locator(".trace-progress")).to_contain_text(f"step {number} of")
        match = re.search(r"has (\d+\.\d\d) times the norm", page.text_content(".trace-shape"))
        values.append(float(match[1]))
    return values


@pytest.mark.parametrize(
    ("architecture", "text"),
    [("transformer", "2 7 1 8"), ("decoder-only", ""), ("encoder-only", "4 1 3")],
)
def test_numbers_of_the_diagram_equal_those_of_inspect(app, open_page, architecture, text):
    page = open_page(app.url)
    start_run(page, app.url, architecture=architecture, n_layers=2, max_steps=40)
    wait_for_status(page, "done")
    page.focus(".page-bar .step")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    step = page.text_content(".step-words")
    if text:
        page.fill(".page-bar .sequence", text)
    text = text or page.input_value(".page-bar .sequence")
    expect(page.locator(".probe")).to_have_text(f"{text} · step {step}")
    wait_until(page, "!document.querySelector('.live').classList.contains('old')")
    drawn, predictions, contributions = read_diagram(page)
    if architecture == "transformer":
        page.click(".diagram-block[data-kind=cross] .diagram-block-title >> nth=0")
        page.click(".head[data-kind=cross][data-layer='1'][data-head='1']")
        expect(page.locator(".block-scores h4")).to_have_text("Head 2, query")
        products, scores, weights = read_scores(page, 2)
        for key, weight in enumerate(weights, 1):
            assert drawn["cross 2.2"].get((3, key), 0) == pytest.approx(weight, abs=SMALLEST)
        size = 16 // 2  # d_model of the small run, and its heads
        assert scores == pytest.approx([each / size**0.5 for each in products], abs=0.011)
        total = sum(map(math.exp, scores))
        assert weights == pytest.approx([math.exp(each) / total for each in scores], abs=0.01)
    go_to(page, "Inspect")
    page.wait_for_selector(".inspect[data-drawn]")
    open_section(page, "attention")
    expect(page.locator(".step-words")).to_have_text(step)
    displayed = read_attention(page)
    assert drawn.keys() == displayed.keys()
    for head, weights in displayed.items():
        visible = {cell: value for cell, value in weights.items() if value >= SMALLEST}
        assert drawn[head] == pytest.approx(visible, abs=1e-9), head
    assert len(contributions) == (10 if architecture == "transformer" else 4)
    if architecture == "transformer":
        open_section(page, "steps")
        assert predictions == pytest.approx(read_predictions(page), abs=6e-4)
        open_section(page, "trace")
        assert contributions == pytest.approx(read_contributions(page), abs=0.011)
