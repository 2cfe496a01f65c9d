"""The page of the public API: its buttons, the keyboard, wide and narrow, light and dark."""

import functools

import pytest
from playwright.sync_api import expect

from tests.support.browser_page import SIZES, axe_violations


@pytest.fixture
def open_api_page(app, open_alone):
    return functools.partial(open_alone, f"{app.url}/api")


def test_a_button_copies_its_code(open_api_page, app):
    page = open_api_page(permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("link", name="predict", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#predict")).to_be_in_viewport()
    button = page.get_by_title("Copy: predict, Python")
    button.focus()
    page.keyboard.press("Space")
    expect(button).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert f'client = Client("{app.url}/")\n' in copied
    assert copied.endswith('api_name="/predict",\n)\nprint(result)')
    expect(button).to_have_text("Copy")


def test_without_a_clipboard_a_button_selects_its_code(open_api_page):
    page = open_api_page()
    page.evaluate("delete Navigator.prototype.clipboard")  # as without HTTPS
    button = page.get_by_title("Copy: predict, curl")
    button.click()
    expect(button).to_have_text("Selected")
    selected = page.evaluate("getSelection().toString()")
    assert selected == button.locator("xpath=..").locator("code").text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_and_nothing_overflows(open_api_page, size, scheme):
    page = open_api_page(size, color_scheme=scheme, bypass_csp=True)
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0]
    assert axe_violations(page) == []
