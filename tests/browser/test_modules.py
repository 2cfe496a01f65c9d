"""The modules of the page: when the browser loads them, and the message after a failure."""

import re

from playwright.sync_api import expect

from tests.support.browser_page import go_to


def requested_modules(page):
    """Collect the paths of the modules that the page requests from now on."""
    paths = []

    def record(request):
        if match := re.search(r"/playground/static/[^/]+/(.+\.js)$", request.url):
            paths.append(match[1])

    page.on("request", record)
    return paths


def test_modules_of_a_tab_load_when_it_is_first_opened(app, open_page):
    page = open_page(app.url, visit=False)
    paths = requested_modules(page)
    page.goto(app.url)
    page.wait_for_selector(".live[data-status=checkpoint]")
    assert "train/main.js" in paths
    folders = {path.split("/")[0] for path in paths}
    assert folders <= {"shell", "train", "shared", "vendor", "engine"}
    # the model itself runs in a Worker after the first key or switch
    assert [path for path in paths if path.startswith("engine/")] == ["engine/parts.js"]
    assert "train/dataset_panel.js" not in paths  # it is hidden until its task is selected
    assert "train/share_dialog.js" not in paths
    go_to(page, "Hub")
    page.wait_for_selector("#panel-hub .hub")
    assert "hub/main.js" in paths
    n_requests = len(paths)
    go_to(page, "Train")
    go_to(page, "Hub")
    expect(page.locator("#panel-hub .hub")).to_be_visible()
    assert len(paths) == n_requests


def test_a_picture_of_the_first_model_stands_in_until_the_page_has_it(app, open_page):
    page = open_page(app.url, may_complain=True, visit=False)
    page.route("**/playground/static/**", lambda route: route.abort())
    for query in ("?tab=inspect", "?model=copy", "?embed=attention", "?bug=no-mask"):
        page.goto(app.url + query)
        expect(page.locator(".first-picture")).to_be_hidden()
    page.goto(app.url)
    expect(page.locator(".first-picture")).to_be_visible()
    place = page.locator(".first-picture").bounding_box()
    page.unroute("**/playground/static/**")
    page.route("**/runs/poll", lambda route: route.abort())
    page.reload()
    expect(page.locator("#form")).to_be_visible()
    expect(page.locator(".diagram-box .first-picture")).to_be_visible()
    assert page.locator(".first-picture").bounding_box() == place
    page.unroute("**/runs/poll")
    expect(page.locator(".diagram-box .head canvas")).to_have_count(24)
    expect(page.locator(".first-picture")).to_have_count(0)


def test_a_dialog_without_its_module_advises_a_reload(app, open_page):
    page = open_page(app.url, may_complain=True)
    page.wait_for_selector(".live[data-status=checkpoint]")
    page.route("**/train/share_dialog.js", lambda route: route.fulfill(status=404, body=""))
    page.click("#header .share")
    expect(page.locator(".live .hand-note")).to_have_text(
        "This dialog could not be loaded. Reload the page."
    )


def test_a_tab_without_its_modules_advises_a_reload(app, open_page):
    """This happens to a page that was open during an update of the server."""
    page = open_page(app.url, visit=False, may_complain=True)
    page.route("**/hub/main.js", lambda route: route.fulfill(status=404, body="Not found."))
    page.goto(app.url)
    page.wait_for_selector(".live[data-status=checkpoint]")
    go_to(page, "Hub")
    expect(page.locator("#panel-hub")).to_have_text(
        "This part of the page could not be loaded. Reload the page."
    )
    page.unroute("**/hub/main.js")
    go_to(page, "Learn")
    expect(page.locator("#panel-learn .learn")).to_be_visible()
