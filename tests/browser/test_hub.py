"""The Hub tab in a real browser, against the fake Hub: from a run to another user's page."""

import pytest
from playwright.sync_api import expect

from tests.support.app_server import wait_for
from tests.support.browser_page import selected_head_image, wait_for_status, wait_until


@pytest.fixture
def hub(app_hub):
    yield app_hub
    app_hub.clear_faults()


def to_the_hub(page):
    page.get_by_role("tab", name="Hub").click()
    page.wait_for_selector(".hub .session-text:not(:empty)")


def publish(page, repo, token):
    page.fill(".hub .token", token)
    page.fill(".hub .repo", repo)
    page.click(".hub .preview-push")
    # each job loads PyTorch, in a process with less priority than the tests beside it
    page.wait_for_selector(".hub .plan:not([hidden])", timeout=200_000)
    page.click(".hub .publish-button")
    page.wait_for_selector(".hub .published:not([hidden])", timeout=200_000)


def test_a_published_run_is_trained_further_in_another_browser(
    app, hub, open_page, open_run, finished_run
):
    page = open_run(*finished_run)
    expect(page.locator(".probe")).to_contain_text("step 60")
    of_the_first = selected_head_image(page)
    name = page.locator(".subject option:checked").text_content()
    to_the_hub(page)
    page.select_option(".hub .model", label=name)
    expect(page.locator(".hub .preview-push")).to_be_disabled()  # until there is a token
    publish(page, "ada/from-a-browser", hub.ADA)
    expect(page.locator(".hub .published")).to_contain_text("step 60")
    assert page.get_attribute(".hub .published a", "href") == f"{hub.url}/ada/from-a-browser"
    assert len(hub.repo("ada/from-a-browser").commits) == 2  # the one that made it, and ours

    other = open_page(app.url)
    to_the_hub(other)
    row = other.locator(".hub .models tbody tr", has_text="ada/from-a-browser")
    expect(row).to_contain_text("reverse")
    row.get_by_role("button").click()
    expect(other.locator(".hub .repository-summary")).to_contain_text("can be trained further")
    other.click(".hub .measure")
    expect(other.locator(".hub .verdict")).to_contain_text("The scores are equal")
    other.click(".hub .import")
    other.wait_for_selector("#train-page", state="visible")
    wait_for_status(other, "done")
    assert other.locator(".subject option:checked").text_content() == "ada/from-a-browser"
    expect(other.locator(".probe")).to_contain_text("step 60")
    wait_for(lambda: selected_head_image(other) == of_the_first)  # the picture follows the text
    assert not hub.requests_with(hub.OWNER)


def test_the_address_and_a_reload_keep_the_revision_that_is_open(app, hub, open_page):
    page = open_page(app.url)
    to_the_hub(page)
    page.select_option(".hub .model", value="checkpoint:copy")
    publish(page, "ada/changed", hub.ADA)
    published = hub.repo("ada/changed").head.oid
    hub.put("ada/changed", {"README.md": b"mine"}, message="mine")
    page.fill(".hub .any-repo", "ada/changed")
    page.keyboard.press("Enter")
    summary = page.locator(".hub .repository-summary")
    expect(summary).to_contain_text("2 layers × 4 heads")
    page.fill(".hub .any-repo", f"ada/changed@{published}")
    page.keyboard.press("Enter")
    wait_until(page, "/repo=ada(\\/|%2F)changed(@|%40)/.test(location.search)")
    expect(summary).to_contain_text("2 layers × 4 heads")
    page.reload()
    expect(summary).to_contain_text("2 layers × 4 heads")
    wait_until(page, "/repo=ada(\\/|%2F)changed(@|%40)/.test(location.search)")
    page.get_by_role("tab", name="Inspect").click()
    wait_until(page, "!location.search.includes('repo=ada')")
    page.get_by_role("tab", name="Hub").click()
    wait_until(page, "location.search.includes('repo=ada')")
    page.locator(".hub .opened").get_by_role("button", name="Close").click()
    wait_until(page, "!location.search.includes('repo=ada')")


def test_the_list_of_models_returns_after_an_outage(app, hub, open_page):
    page = open_page(app.url)
    to_the_hub(page)
    expect(page.locator(".hub .gallery-words")).to_contain_text("tag")  # no list is on its way
    with hub.fault(hub.ANY_PATH, 503):
        page.click(".hub .refresh-gallery")
        expect(page.locator(".hub .gallery-note")).to_contain_text("server error")
    # without a click
    expect(page.locator(".hub .gallery-words")).to_contain_text("tag")
    expect(page.locator(".hub .gallery-note")).to_be_empty()
