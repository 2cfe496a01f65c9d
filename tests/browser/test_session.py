"""The session in the storage of a browser: reload, tabs, other values."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import SESSION_KEY, run_names, storage_of, wait_for_status

OPENED = ".live:not([data-status=opening])"


def stored_owner(page):
    return page.evaluate("key => JSON.parse(localStorage.getItem(key)).owner", SESSION_KEY)


@pytest.mark.smoke
def test_reload_and_second_tab_show_the_run_of_the_same_owner(app, open_page):
    page = open_page(f"{app.url}/?model=copy")
    wait_for_status(page, "checkpoint")
    page.select_option(".speed", "1")  # the run lasts longer than the test
    page.click("#train")
    wait_for_status(page, "training")
    page.wait_for_url(re.compile(r"[?&]model=run(:|%3A)"))
    owner, (name,) = stored_owner(page), run_names(page)
    page.reload()
    wait_for_status(page, "training")
    expect(page.locator(".page-bar .subject option:checked")).to_have_text(name)
    second = open_page(app.url, same_browser_as=page)
    second.wait_for_selector(".runs .run")
    for each in (page, second):
        assert (run_names(each), stored_owner(each)) == ([name], owner)
    page.click("#stop")


def test_an_invalid_value_is_replaced_by_a_new_owner(app, open_page):
    stored = storage_of(app, json.dumps({"owner": "<script>"}))
    page = open_page(app.url, storage_state=stored)
    page.wait_for_selector(OPENED)
    assert len(stored_owner(page)) == 32


def test_a_seventh_tab_has_connections_left(app, open_page):
    """A browser has six connections to a server, and no tab may keep one of its own."""
    page = open_page(app.url)
    for _ in range(6):
        page = open_page(app.url, same_browser_as=page)
        expect(page.locator(".live .answer")).to_contain_text("✓")
