"""The page of the public API: its buttons, the keyboard, wide and narrow, light and dark."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

SIZES = {"wide": (1366, 768), "narrow": (390, 844), "narrowest": (320, 640)}


@pytest.fixture
def open_api_page(app, browser):
    """Return a function that opens the page; afterwards the browser has logged nothing."""
    messages, contexts = [], []

    def open_api_page(size="wide", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(f"{app.url}/api")
        return page

    yield open_api_page
    for context in contexts:
        context.close()
    assert messages == []


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
    page.evaluate(Axe().axe_script)
    violations = page.evaluate("axe.run().then(({ violations }) => violations)")
    assert [(each["id"], each["nodes"][0]["html"][:120]) for each in violations] == []
