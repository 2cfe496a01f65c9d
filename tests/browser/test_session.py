"""The session in the storage of a browser: reload, tabs, other values."""

import json

import pytest

from tests.support.browser_page import run_names, settings_link, wait_until

KEY = "transformer-playground"
OPENED = ".live:not([data-status=opening])"


def storage_state(app, text):
    stored = [{"name": KEY, "value": text}]
    return {"cookies": [], "origins": [{"origin": app.url, "localStorage": stored}]}


def stored_owner(page):
    return page.evaluate("key => JSON.parse(localStorage.getItem(key)).owner", KEY)


def start_training(page):
    wait_until(page, "document.querySelector('#size')?.textContent.includes('parameters')")
    page.click("#train")
    wait_until(page, "document.querySelectorAll('.runs .run').length > 0")


@pytest.mark.smoke
def test_reload_and_second_tab_have_the_same_owner(app, open_page):
    page = open_page(settings_link(app.url))
    page.wait_for_selector(OPENED)
    owner = stored_owner(page)
    start_training(page)
    (name,) = run_names(page)
    page.reload()
    page.wait_for_selector(".runs .run")
    assert (run_names(page), stored_owner(page)) == ([name], owner)
    second = open_page(app.url, same_browser_as=page)
    second.wait_for_selector(".runs .run")
    assert (run_names(second), stored_owner(second)) == ([name], owner)


@pytest.mark.parametrize(
    "text",
    [
        "gradio.FileData",
        json.dumps({"owner": "<script>"}),
    ],
    ids=range(2),
)
def test_an_invalid_value_is_replaced_by_a_new_owner(app, open_page, text):
    page = open_page(app.url, storage_state=storage_state(app, text))
    page.wait_for_selector(OPENED)
    assert len(stored_owner(page)) == 32
