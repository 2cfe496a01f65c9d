import re

from playwright.sync_api import Page, expect

from tests.support.browser_page import settings_link, wait_for_status, wait_for_text, wait_until

WORDS = [a + b + c for a in "abcdef" for b in "abcdef" for c in "abcdef"]
TEXT = "\n".join(f"{word}\t{word[::-1]}" for word in WORDS)


def count(page: Page, name: str) -> str:
    """Return a line of the panel's counts."""
    return (
        page.locator(".dataset-panel dt", has_text=re.compile(f"^{name}$"))
        .locator("xpath=following-sibling::dd[1]")
        .text_content()
    )


def test_pasted_rows_become_a_task_that_is_trained_tried_and_shared(app, open_page):
    page = open_page(settings_link(app.url, max_steps=40))
    wait_until(page, "document.querySelector('#field-max_length input')?.value === '5'")
    wait_for_status(page, "checkpoint", "done")
    page.select_option("#field-task select", "dataset")
    expect(page.locator(".dataset-panel")).to_be_visible()
    wait_for_text(page, "#size", "press Use these examples")
    page.fill(".dataset-panel [name=text]", TEXT)
    expect(page.locator(".dataset-panel .counts")).to_contain_text("6 different characters")
    assert count(page, "examples") == "216"
    expect(page.locator(".dataset-panel .recognized")).to_contain_text("separated by tabs")
    expect(page.locator(".dataset-panel .held-out-warning")).to_contain_text("right means")
    expect(page.locator(".dataset-panel .use")).to_have_text("Use these 216 examples")
    page.click(".dataset-panel .use:enabled")
    expect(page.locator(".dataset-panel .use")).to_have_text("Dataset in use")
    expect(page.locator("#field-min_length input")).to_have_value("3")
    expect(page.locator("#field-max_length input")).to_have_value("3")
    wait_for_text(page, "#size", "parameters")
    page.click("#train")
    wait_for_status(page, "done", seconds=120)
    # a typical example of this dataset, whose name the run has
    expect(page.locator(".page-bar .sequence")).to_have_value("c d c")
    expect(page.locator(".live .runs")).to_contain_text("pasted examples")
    page.fill(".page-bar .sequence", "a b c")
    expect(page.locator(".live .answer")).to_contain_text(re.compile("[✓✗]"))
    page.get_by_role("tab", name="Inspect", exact=True).click()
    expect(page.locator(".page-bar .sequence")).to_have_value("a b c")
    expect(page.locator(".inspect .answer")).to_contain_text(re.compile("[✓✗]"))
    page.get_by_role("tab", name="Train").click()
    page.click("#header .share")
    expect(page.locator(".sharing .settings-link")).to_have_value(re.compile("settings="))
    other = open_page(page.input_value(".sharing .settings-link"))
    expect(other.locator("#field-task select")).to_have_value("dataset")
    # the link opens no data of another user, who needs a copy
    expect(other.locator(".dataset-panel .problem")).to_contain_text("not yours")
    other.fill(".dataset-panel [name=text]", TEXT)
    expect(other.locator(".dataset-panel .use")).to_have_text("Dataset in use")
    assert count(other, "examples") == "216"
