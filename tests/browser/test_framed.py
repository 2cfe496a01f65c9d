"""The page in a frame of another site, as on huggingface.co.

The browser denies the frame its storage.
"""

import re

import pytest

from tests.support.browser_page import run_names, settings_link, wait_for_status, wait_until

NO_STORAGE = """if (window.top !== window) Object.defineProperty(window, "localStorage", {
  get() { throw new DOMException("Access is denied for this document.", "SecurityError"); } });"""
OPENED = ".live:not([data-status=opening])"


@pytest.fixture
def framing(browser, app, foreign_page):
    """Open the page in a frame of another site; `framed.reload()` loads it again."""
    contexts = []
    frame = f"<iframe src='{settings_link(app.url)}' width=1400 height=900></iframe>"

    def allow_frame(route):
        reply = route.fetch()
        policy = re.sub(
            r"frame-ancestors[^;]*",
            "frame-ancestors *",
            reply.headers.get("content-security-policy", ""),
        )
        route.fulfill(response=reply, headers=reply.headers | {"content-security-policy": policy})

    def open_framed(without_cookies=False):
        contexts.append(
            browser.new_context(viewport={"width": 1440, "height": 950}, reduced_motion="reduce")
        )
        contexts[-1].add_init_script(NO_STORAGE)
        contexts[-1].route(
            lambda url: url.startswith(app.url) and re.fullmatch(r"/?(\?.*)?", url[len(app.url) :]),
            allow_frame,
        )
        if without_cookies:
            contexts[-1].route(
                "**/playground/api/session/store", lambda route: route.fulfill(status=200, json={})
            )
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.goto(foreign_page(frame).replace("127.0.0.1", "localhost"))  # another site
        return page

    yield open_framed
    for context in contexts:
        context.close()


def frame_of(page):
    frame = page.frames[1]
    frame.wait_for_selector(OPENED)
    return frame


def train(frame):
    wait_until(frame, "document.querySelector('#size')?.textContent.includes('parameters')")
    frame.click("#train")
    wait_until(frame, "document.querySelectorAll('.runs .run').length > 0")
    wait_for_status(frame, "training", "waiting", "done")


def test_reload_restores_run_when_framed_storage_is_denied(app, framing):
    page = framing()
    owners = set()
    page.on(
        "request",
        lambda sent: (
            owners.add(sent.post_data_json.get("owner"))
            if "/playground/api/runs/poll" in sent.url
            else None
        ),
    )
    frame = frame_of(page)
    assert (
        frame.evaluate(
            "(() => { try { return localStorage.length; } catch (error) { return error.name; } })()"
        )
        == "SecurityError"
    )
    train(frame)
    (name,) = run_names(frame)
    page.reload()
    reloaded = frame_of(page)
    reloaded.wait_for_selector(".runs .run")
    assert run_names(reloaded) == [name]
    assert reloaded.locator(".visit-note").is_hidden()

    # Neither page reads the key, it is in no address, and the log has none.
    (owner,) = owners
    assert len(owner) == 32
    assert [each.evaluate("document.cookie") for each in page.frames] == ["", ""]
    assert owner not in " ".join(each.url for each in page.frames)
    assert owner not in app.log.read_text()

    top = page.context.new_page()  # the same browser, not in a frame: another visit
    top.goto(app.url)
    top.wait_for_selector(OPENED)
    assert run_names(top) == []


def test_a_page_without_storage_explains_the_consequence(app, framing):
    page = framing(without_cookies=True)
    frame = frame_of(page)
    frame.wait_for_selector(".visit-note:not([hidden])")
    result = frame.locator(".visit-note").inner_text()
    assert "inside a frame. After a reload your runs will not be listed." in result
    assert frame.locator(".visit-note a").get_attribute("href") == f"{app.url}/"
