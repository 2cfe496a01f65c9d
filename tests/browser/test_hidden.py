"""A hidden page sets no timers and sends no requests until it is visible again."""

from tests.support.browser_page import wait_for_status

HIDE = """(() => {
  let hidden = false;
  Object.defineProperty(document, "hidden", { get: () => hidden });
  window.hidePage = (now) => {
    hidden = now;
    document.dispatchEvent(new Event("visibilitychange"));
  };
  window.timers = 0;
  const setTimer = window.setTimeout;
  window.setTimeout = (callback, ms, ...args) => {
    if (ms >= 100 && ms <= 1000) window.timers += 1;
    return setTimer(callback, ms, ...args);
  };
})();"""
TABS = {
    "Inspect": ".inspect .views [aria-selected=true]",
    "Compare": ".compare .views [aria-selected=true]",
    "Lab": ".lab .presets li",
    "Learn": ".learn .parts button, .learn [role=tab]",
    "Train": ".live .runs",
}


def test_a_hidden_page_does_not_poll_until_it_is_visible(app, open_page):
    url = f"{app.url}/?model=reverse"
    page = open_page(url, init_script=HIDE)
    wait_for_status(page, "checkpoint")
    for tab, rendered in TABS.items():
        page.get_by_role("tab", name=tab, exact=True).first.click()
        page.locator(rendered).first.wait_for()
    page.evaluate("hidePage(true)")
    requested = []
    page.on("request", lambda request: requested.append(request.url))

    def other_requests():
        return [url for url in requested if not url.endswith("/runs/list")]

    for _ in range(10):  # pending requests end first, which takes longer on a busy machine
        requested.clear()
        page.evaluate("timers = 0")
        page.wait_for_timeout(4000)
        if page.evaluate("timers") <= 4 and not other_requests():
            break
    assert page.evaluate("timers") <= 4  # seven polling loops would set about eighty
    assert other_requests() == []
    with page.expect_request("**/playground/api/runs/list"):
        page.evaluate("hidePage(false)")
    with page.expect_request("**/playground/api/experiments/poll"):
        page.get_by_role("tab", name="Lab", exact=True).first.click()
