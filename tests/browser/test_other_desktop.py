"""The page of an app that runs as on Windows (tests/support/other_desktop)."""

from tests.support.app_server import OTHER_DESKTOP, AppServer
from tests.support.browser_page import start_run, wait_for_status


def test_the_page_opens_and_trains_on_another_desktop(open_page, tmp_path):
    app = AppServer(tmp_path, PYTHONPATH=OTHER_DESKTOP)
    try:
        page = open_page(app.url, visit=False)
        start_run(page, app.url, max_steps=30, eval_every=10)
        wait_for_status(page, "done")
    finally:
        app.stop()
    assert "Traceback" not in app.log.read_text()
