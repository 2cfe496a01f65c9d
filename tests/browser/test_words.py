"""What a user has to read before the first click, besides a recorded result: 120 words."""

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import go_to

MAX_WORDS = 120
WORDS = r"""() => {
  const RESULT = ".sheet, .generated-text, .token-alternatives, .presets .answer, ";
  const panel = document.querySelector("#panels > [role=tabpanel]:not([hidden])"),
    texts = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT), words = [];
  while (texts.nextNode()) {
    const { parentElement: element, textContent: text } = texts.currentNode;
    if (element.checkVisibility() && !element.closest(RESULT + ".pg-visually-hidden, select"))
      words.push(...(text.match(/\p{L}[\p{L}'’-]+/gu) ?? []));
  }
  return words;
}"""
VIEWS = {  # view -> what it has when it is complete
    "Train": ".live .samples li",
    "Inspect": ".inspect[data-drawn]",
    "Compare, Race": ".lane",
    "Compare, Experiments": ".presets li",
    "Compare, Benchmark": ".of-benchmark .sheet tbody tr",
    "Compare, Pretrained": ".generated-text",
    "Hub": ".hub .gallery-words:not(:empty)",
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_few_words_before_the_first_click(app, open_page, view):
    page = open_page(app.url)
    for name in view.split(", "):
        go_to(page, name)
    expect(page.locator(VIEWS[view]).first).to_be_visible()
    words = page.evaluate(WORDS)
    assert 10 < len(words) <= MAX_WORDS, " ".join(words)
