"""Runs on the page: replay, branches, checkpoints, a restart and sharing."""

import re
import zipfile

import pytest
from playwright.sync_api import expect

from playground.checkpoints.manifest import read_manifest
from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer, wait_for
from tests.support.browser_page import (
    SMALL_SETTINGS,
    choose_run_action,
    displayed_step,
    go_to,
    pause_after,
    plotted_steps,
    run_names,
    selected_head_image,
    start_run,
    train_over_api,
    wait_for_frames,
    wait_for_status,
    wait_for_step,
    wait_for_text,
    wait_until,
)
from tests.support.page_client import PageClient

LONG = {"max_steps": 100_000}
LAST = 60
DRAWN = (
    "at => document.querySelector('.loss-chart').steps?.join() === Array.from({ length: at }, "
    "(_, i) => i + 1).join()"
)
HOSTILE = "<img src=x onerror=alert(1)>"
again_and_again = pytest.mark.parametrize(
    "turn", [1, *(pytest.param(turn, marks=pytest.mark.soak) for turn in range(2, 21))]
)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    """A server of one user on this machine, with one slot for training."""
    server = AppServer(tmp_path_factory.mktemp("own"), PLAYGROUND_SLOTS="1")
    yield server
    server.stop()


def test_the_timeline_shows_past_steps_and_starts_a_branch(app, open_run):
    page = open_run(*train_over_api(app))
    last, samples = selected_head_image(page), page.text_content(".samples")
    page.focus(".scrub")
    page.keyboard.press("Home")
    wait_for_text(page, ".viewing", "Viewing step 0")
    wait_until(page, "document.querySelector('.right-of').textContent.includes('at step 0')")
    expect(page.locator(".probe")).to_contain_text("step 0")
    assert selected_head_image(page) != last
    assert page.text_content(".samples") != samples
    page.click(".now")
    wait_for(lambda: selected_head_image(page) == last, description="the picture of the last step")
    (name,) = run_names(page)
    page.focus(".scrub")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    wait_for_frames(page)
    at = int(re.search(r"step (\d+)", page.text_content(".viewing")).group(1))
    page.click(".branch")
    wait_for_text(page, ".status-text", f"Paused at step {at} ")
    expect(page.locator(".runs .name").first).to_have_text(f"branch at {at}, {name}")
    wait_until(page, DRAWN, arg=at)
    page.click("#resume")
    wait_for_status(page, "done")
    # the curves of the run that it comes from are there too
    drawn_runs = page.locator(".runs .run", has=page.locator(".plot-run:checked"))
    expect(drawn_runs.locator(".name")).to_have_text([f"branch at {at}, {name}", name])
    wait_until(page, DRAWN, arg=LAST)


@pytest.mark.smoke
def test_a_hostile_name_stays_text_and_typing_it_leaves_the_focus(app, open_run):
    page = open_run(*train_over_api(app, d_ff=24))
    choose_run_action(page, run_names(page)[0], "rename")
    page.keyboard.type(f"{HOSTILE} mine")
    page.click(".page-bar .sequence")  # the focus leaves the name, and stays where it went
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("3 1 4")
    expect(page.locator(".runs .name")).to_have_text(f"{HOSTILE} mine")
    expect(page.locator(".subject option:checked")).to_have_text(f"{HOSTILE} mine")
    expect(page.locator(".page-bar .sequence")).to_have_value("3 1 4")
    assert page.locator(".live img, .page-bar img").count() == 0


@again_and_again
def test_sigterm_saves_the_run_and_a_restart_resumes_it(own_server, open_page, turn):
    own, runs = own_server, own_server.checkpoints / "runs"
    page = open_page(own.url, may_complain=True, visit=False)
    before = set(runs.iterdir()) if runs.exists() else set()
    start_run(page, own.url, **LONG)
    wait_for_step(page, 30)
    assert own.stop() == 0
    (run,) = [path for path in set(runs.iterdir()) - before if not path.name.startswith(".")]
    saved = list((run / "checkpoints").iterdir())
    assert 1 <= len(saved) <= 2  # the one before, where a quarter of a minute had passed
    assert max(read_manifest(each).step for each in saved) > 29
    wait_for_text(page, ".status-text", "The server did not respond; retrying")
    own.start()
    # the sentence names a step again; the status may be one of before the restart
    wait_for_step(page, 29)
    wait_for_status(page, "paused")
    at = displayed_step(page)
    wait_until(page, "at => document.querySelector('.loss-chart').steps.length === at", arg=at)
    assert plotted_steps(page) == list(range(1, at + 1))
    page.click("#resume")
    wait_for_step(page, at + 20)
    page.click("#stop")
    wait_for_status(page, "stopped")


def test_a_share_link_shows_the_run_read_only(app, open_page):
    client = PageClient(app, new_owner_key())
    run = client.train(**SMALL_SETTINGS | LONG)
    link = f"{app.url}/?watch={client.call('runs/details', subject=run)['share_id']}"
    guest = open_page(link)
    wait_for_status(guest, "training")
    wait_for_step(guest, 20)
    expect(guest.locator(".status-text")).to_contain_text("shared with you")
    for selector in ("#pause", "#resume", "#stop", ".save-checkpoint", ".branch", ".saved"):
        expect(guest.locator(selector)).to_be_hidden()
    expect(guest.locator(".rate")).to_be_disabled()
    guest.focus("body")
    guest.keyboard.press(" ")
    wait_for_step(guest, displayed_step(guest) + 10)
    client.run_action(run, "stop")
    wait_for_status(guest, "stopped")
    client.run_action(run, "delete")


def test_a_checkpoint_is_downloaded_and_uploaded_and_the_only_one_stays(app, open_run, tmp_path):
    client, run = train_over_api(app)
    last, *others = [
        each["name"] for each in client.call("runs/details", subject=run)["checkpoints"]
    ]
    for name in others:
        client.run_action(run, "remove", checkpoint=name)
    refused = client.call("runs/action", subject=run, action="remove", checkpoint=last)
    assert "the only checkpoint of the run" in refused["error"]
    page = open_run(client, run, may_complain=True)
    page.click(".saved summary")
    with page.expect_download() as fetched:
        page.locator(".saved tbody tr").first.get_by_text("Download").click()
    packed = tmp_path / fetched.value.suggested_filename
    fetched.value.save_as(packed)
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path / "unpacked")
    assert read_manifest(tmp_path / "unpacked").step == LAST
    page.set_input_files(".file", packed)
    expect(page.locator(".runs .run")).to_have_count(2)
    expect(page.locator(".subject option:checked")).to_have_text(packed.stem)
    expect(page.locator(".status-text")).to_contain_text(f"{LAST} steps")
    wait_until(page, DRAWN, arg=LAST)
    (tmp_path / "odd.zip").write_bytes(b"PK no zip")
    page.set_input_files(".file", tmp_path / "odd.zip")
    expect(page.locator(".runs-note")).to_contain_text("odd.zip was rejected: it is not a zip file")
    expect(page.locator(".runs .run")).to_have_count(2)


def press(page, key):
    """Press a key without a focused element."""
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(key)


def open_and_close_help(page):
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")


def test_keys_control_the_run_and_on_another_tab_leave_it_alone(app, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, **LONG)
    at, done = pause_after(page, 10), []
    page.on(
        "request",
        lambda request: (
            done.append(request.post_data_json["action"])
            if request.url.endswith("/api/runs/action")
            else None
        ),
    )
    go_to(page, "Inspect")
    expect(page.locator(".live")).to_be_hidden()
    page.evaluate("document.activeElement.blur()")
    for key in ("ArrowRight", " "):
        page.keyboard.press(key)
    go_to(page, "Train")
    expect(page.locator(".live")).to_be_visible()
    press(page, "ArrowRight")
    wait_for_text(page, ".status-text", f"Paused at step {at + 1} ")
    open_and_close_help(page)
    press(page, " ")
    wait_for_step(page, at + 1)
    assert done == ["step", "resume"]
    page.click("#stop")
