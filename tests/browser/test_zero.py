"""The app on a Space with ZeroGPU, with a fake package `spaces` that provides a simulated GPU."""

import os

import pytest
from playwright.sync_api import expect

from tests.support.app_server import ROOT, AppServer
from tests.support.browser_page import fill_field, wait_for_status, wait_until

# Like the real package, it raises an error if it is imported before Gradio is complete, and reads
# the current request from Gradio's context.
SPACES = """
import gradio
if not hasattr(gradio, "Blocks"):
    raise ImportError("gradio imports spaces")
from gradio.context import LocalContext
from tests.support import fake_zerogpu
fake_zerogpu.CURRENT_REQUEST = LocalContext.request
def GPU(duration):
    return lambda task: fake_zerogpu.FakeZeroGpu(task, duration)
"""


@pytest.fixture(scope="module")
def zero_app(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zero")
    (folder / "spaces.py").write_text(SPACES)
    path = os.pathsep.join((str(folder), str(ROOT)))
    app = AppServer(
        folder,
        PYTHONPATH=path,
        SPACES_ZERO_GPU="true",
        PLAYGROUND_ZERO_SECONDS="1",
        GRADIO_SERVER_NAME="0.0.0.0",
    )
    yield app
    app.stop()


def test_a_run_trains_in_slices_while_its_page_is_open(zero_app, open_page):
    page = open_page(zero_app.url)
    wait_for_status(page, "checkpoint")
    page.click("#field-device label:has-text('ZeroGPU slices')")
    page.click("#advanced > button")
    fill_field(page, "max_steps", 40)
    page.select_option(".speed", "20")  # so that a second is not enough, however quick the machine
    page.click("#train")
    wait_for_status(page, "waiting", "training")
    wait_until(
        page,
        "/Waiting for the next slice of the "
        "GPU|Training/.test(document.querySelector('.status-text').textContent)",
    )
    wait_for_status(page, "done")
    expect(page.locator(".status-text")).to_contain_text("Done · 40 steps")
    expect(page.locator(".device")).to_contain_text(
        "ZeroGPU trains runs with device=zero in slices"
    )
