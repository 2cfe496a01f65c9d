"""Each quantity has one value, wherever the page shows it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from playground.runs.owner_keys import new_owner_key
from tests.support.browser_page import go_to, train_over_api

TASKS = ("reverse", "copy", "sort", "parity", "histogram")
PERCENT, NUMBER = r"(?:< )?[\d.]+ %", r"[\d.,e-]+"


def read(page: Page, selector: str, pattern: str) -> str:
    """Return the part of a text that a pattern matches."""
    text = page.locator(selector).inner_text()
    match = re.search(pattern, text)
    assert match, (selector, text)
    return match[match.lastindex or 0]


def read_train(page: Page) -> dict[str, set[str]]:
    """Return the texts of each quantity on the Train tab."""
    status, legend, menu = ".status-text", ".loss-box .pg-legend", ".run.open .pg-menu-panel"
    page.click(".run.open summary")
    values = {
        "final score": {
            read(page, status, rf"exact match ({PERCENT})"),
            read(page, ".run.open .best", PERCENT),
        },
        "last score": {
            read(page, ".score-value", PERCENT),
            read(page, ".score-legend", rf"({PERCENT})\s*$"),
        },
        "loss": {read(page, ".loss-value", NUMBER), read(page, legend, rf"training\s*({NUMBER})")},
        "step": {
            read(page, status, r"Done · (\d+) steps"),
            read(page, ".page-bar .step-words", r"\d+"),
            read(page, menu, r"step (\d+)"),
            page.input_value(".scrub"),
        },
        "parameters": {read(page, menu, r"([\d,]+) parameters")},
        "output": {page.locator(".live .answer .pg-tokens").inner_text()},
    }
    page.keyboard.press("Escape")
    return values


def read_inspect(page: Page) -> dict[str, str]:
    """Return the texts of the same quantities on the Inspect tab."""
    go_to(page, "Inspect")
    expect(page.locator(".inspect .answer .pg-tokens")).to_be_visible()
    values = {
        "output": page.locator(".inspect .answer .pg-tokens").inner_text(),
        "step": read(page, ".page-bar .step-words", r"\d+"),
    }
    page.click("#view-numbers")
    part = page.locator(".inspect .parts [data-value=parameters]")
    table = page.locator(".parameters-table")
    expect(part.or_(table).first).to_be_visible()
    if part.count():  # a model whose only numbers are its parameters has no choice
        part.click()
    total = table.locator("tr", has_text="sum").inner_text()
    return values | {"parameters": re.findall(r"[\d,]+", total)[-1]}


@pytest.mark.parametrize("architecture", ["transformer", "decoder-only", "recurrent"])
def test_each_quantity_has_one_value(app, open_run, old_owners, architecture):
    owner = new_owner_key()
    old_owners.add(owner)
    for task in TASKS:
        client, run = train_over_api(app, owner, task=task, architecture=architecture, max_steps=20)
        page = open_run(client, run)
        values = read_train(page)
        for name, text in read_inspect(page).items():
            values[name].add(text)
        assert {name: len(texts) for name, texts in values.items()} == dict.fromkeys(values, 1), (
            values
        )
