"""The Hub tab in a real browser, against the fake Hub: from training to another user's page."""

import json

import pytest
from playwright.sync_api import expect

from playground.hub.jobs import MAX_CONCURRENT_TASKS
from tests.support.app_server import wait_for
from tests.support.browser_page import selected_head_image, start_run, wait_for_status, wait_until


@pytest.fixture
def hub(app_hub):
    yield app_hub
    app_hub.clear_faults()


def to_the_hub(page):
    page.get_by_role("tab", name="Hub").click()
    page.wait_for_selector(".hub .session-text:not(:empty)")


def chosen(page, text):
    """Select the model whose name begins with this text."""
    wait_until(
        page,
        "text => [...document.querySelectorAll('.hub .model option')].some(o => "
        "o.textContent.startsWith(text))",
        arg=text,
    )
    label = next(
        option
        for option in page.locator(".hub .model option").all_text_contents()
        if option.startswith(text)
    )
    page.select_option(".hub .model", label=label)


def publish(page, repo, token):
    page.fill(".hub .token", token)
    page.fill(".hub .repo", repo)
    page.click(".hub .preview-push")
    page.wait_for_selector(".hub .plan:not([hidden])", timeout=60_000)
    page.click(".hub .publish-button")
    page.wait_for_selector(".hub .published:not([hidden])", timeout=60_000)


def test_from_training_to_another_browser(app, hub, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, max_steps=40)
    wait_for_status(page, "done")
    expect(page.locator(".probe")).to_contain_text("step 40")
    of_the_first = selected_head_image(page)
    name = page.locator(".subject option:checked").text_content()
    to_the_hub(page)
    chosen(page, name)
    expect(page.locator(".hub .preview-push")).to_be_disabled()  # until there is a token
    publish(page, "ada/from-a-browser", hub.ADA)
    expect(page.locator(".hub .published")).to_contain_text("step 40")
    assert page.get_attribute(".hub .published a", "href") == f"{hub.url}/ada/from-a-browser"
    row = page.locator(".hub .models tbody tr", has_text="ada/from-a-browser")
    expect(row).to_contain_text("reverse")
    assert len(hub.repo("ada/from-a-browser").commits) == 2  # the one that made it, and ours

    other = open_page(app.url)
    to_the_hub(other)
    other.locator(".hub .models tbody tr", has_text="ada/from-a-browser").get_by_role(
        "button"
    ).click()
    other.wait_for_selector(".hub .opened-files:not([hidden])", timeout=60_000)
    expect(other.locator(".hub .repository-summary")).to_contain_text("can be trained further")
    other.click(".hub .measure")
    expect(other.locator(".hub .verdict")).to_contain_text("The scores are equal", timeout=60_000)
    other.click(".hub .import")
    other.wait_for_selector("#train-page", state="visible", timeout=60_000)
    wait_for_status(other, "done")
    assert other.locator(".subject option:checked").text_content() == "ada/from-a-browser"
    expect(other.locator(".probe")).to_contain_text("step 40")
    wait_for(lambda: selected_head_image(other) == of_the_first)  # the picture follows the text
    assert not hub.requests_with(hub.OWNER)


def test_a_repository_is_planned_replaced_and_its_revisions_open(app, hub, open_page):
    page = open_page(app.url)
    to_the_hub(page)
    chosen(page, "copy")
    publish(page, "ada/changed", hub.ADA)
    page.click(".hub .preview-push")
    expect(page.locator(".hub .plan-summary")).to_contain_text(
        "already has this checkpoint", timeout=60_000
    )
    expect(page.locator(".hub .publish-button")).to_be_hidden()
    chosen(page, "reverse-one-head")
    expect(page.locator(".hub .plan")).to_be_hidden()  # it was about another model
    page.fill(".hub .repo", "ada/changed")
    page.click(".hub .preview-push")
    expect(page.locator(".hub .plan-summary")).to_contain_text("already exists", timeout=60_000)
    expect(page.locator(".hub .files-summary")).to_contain_text("changed")
    before = hub.files("ada/changed")
    # Another user pushes after this page has loaded the plan.
    hub.put("ada/changed", {"README.md": b"mine"})
    page.click(".hub .publish-button")
    message = "another commit was pushed after the preview"
    expect(page.locator(".hub .publish-note")).to_contain_text(
        message, ignore_case=True, timeout=60_000
    )
    assert hub.files("ada/changed") == before | {"README.md": b"mine"}
    page.locator(".hub .publish-note button").click()
    page.wait_for_selector(".hub .plan:not([hidden])", timeout=60_000)
    page.click(".hub .publish-button")
    page.wait_for_selector(".hub .published:not([hidden])", timeout=60_000)

    page.fill(".hub .any-repo", "ada/changed")
    page.keyboard.press("Enter")
    expect(page.locator(".hub .repository-summary")).to_contain_text(
        "1 layer × 1 head", timeout=60_000
    )
    page.click(".hub .revisions summary")
    rows = page.locator(".hub .revisions tbody tr")
    # the commit of the creation, copy, the other user's, and reverse-one-head
    expect(rows).to_have_count(4)
    rows.nth(2).get_by_role("button").click()
    expect(page.locator(".hub .repository-summary")).to_contain_text(
        "2 layers × 4 heads", timeout=60_000
    )
    page.reload()
    expect(page.locator(".hub .repository-summary")).to_contain_text(
        "2 layers × 4 heads", timeout=60_000
    )
    page.get_by_role("tab", name="Inspect").click()
    wait_until(page, "!location.search.includes('hub=ada')")
    page.get_by_role("tab", name="Hub").click()
    wait_until(page, "location.search.includes('hub=ada')")
    page.locator(".hub .opened").get_by_role("button", name="Close").click()
    wait_until(page, "!location.search.includes('hub=ada')")


def test_an_unreachable_hub_does_not_affect_other_tabs(app, hub, open_page):
    with hub.fault(hub.ANY_PATH, 503):
        page = open_page(app.url)
        to_the_hub(page)
        page.click(".hub .refresh-gallery")
        expect(page.locator(".hub .gallery-note")).to_contain_text("server error", timeout=60_000)
        expect(page.locator(".hub .local-runs tbody tr")).to_have_count(3)
    # without a click
    expect(page.locator(".hub .gallery-words")).to_contain_text("tag", timeout=60_000)
    expect(page.locator(".hub .gallery-note")).to_be_empty()


HOSTILE = [
    "<img src=x onerror=document.title='hit'>",
    "'\"><script>document.title='hit'</script>",
    "{{7*7}}",
    "![](http://evil.example/x)",
]


def test_the_list_of_models_survives_a_rate_limit(app, hub, open_page):
    hub.put("ben/patience", {"README.md": b"---\ntags: [transformer-playground]\n---\n"})
    page = open_page(app.url)
    with hub.fault(hub.LIST, "slow", seconds=3):
        to_the_hub(page)
        for _ in range(2 * MAX_CONCURRENT_TASKS):
            with page.expect_response("**/api/hub/submit") as refused:
                page.click(".hub .refresh-gallery")
        assert "try again" in refused.value.json()["error"]
    expect(page.locator(".hub .models td", has_text="ben/patience")).to_be_visible(timeout=60_000)
    expect(page.locator(".hub .gallery-note")).to_be_empty()


@pytest.mark.smoke
def test_text_of_foreign_models_is_escaped(app, hub, open_page):
    for number, hostile in enumerate(HOSTILE):
        card = (
            "---\ntags: [transformer-playground]\nplayground:\n  task: "
            f"{json.dumps(hostile)}\n---\n{hostile}\n"
        )
        hub.put(
            f"cy/hostile-{number}",
            {
                "README.md": card.encode(),
                "playground.json": hostile.encode(),
                "model.safetensors": b"x",
            },
        )
    page = open_page(app.url)
    to_the_hub(page)
    page.click(".hub .refresh-gallery")
    for number in range(len(HOSTILE)):
        expect(
            page.locator(".hub .models tbody tr", has_text=f"cy/hostile-{number}")
        ).to_have_count(1)
    page.locator(".hub .models tbody tr", has_text="cy/hostile-0").get_by_role("button").click()
    expect(page.locator(".hub .opened-note")).to_contain_text("not the JSON", timeout=60_000)
    page.fill(".hub .any-repo", HOSTILE[0])
    page.keyboard.press("Enter")
    expect(page.locator(".hub .open-repository-form")).to_contain_text(
        "is not the name of a repository"
    )
    expect(page.locator(".hub .opened-note")).to_contain_text("not the JSON")  # of the model before
    assert page.title() == "Transformer Playground"
    assert page.locator(".hub img, .hub script").count() == 0
