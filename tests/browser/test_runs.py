"""Runs on the page: replay, branches, many runs, reloads and sharing."""

import re
import zipfile

import pytest
from playwright.sync_api import expect

from playground.checkpoints.manifest import read_manifest
from tests.support.app_server import AppServer
from tests.support.browser_page import (
    choose_run_action,
    displayed_step,
    go_to,
    pause_after,
    plotted_steps,
    run_names,
    selected_head_image,
    start_run,
    wait_for_status,
    wait_for_step,
    wait_for_text,
    wait_until,
)

LONG = {"max_steps": 100_000}
DRAWN = (
    "at => document.querySelector('.loss-chart').steps?.join() === Array.from({ length: at }, "
    "(_, i) => i + 1).join()"
)
again_and_again = pytest.mark.parametrize(
    "turn", [1, *(pytest.param(turn, marks=pytest.mark.soak) for turn in range(2, 21))]
)


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    """A server of one user on this machine, with one slot for training."""
    server = AppServer(tmp_path_factory.mktemp("own"), PLAYGROUND_SLOTS="1")
    yield server
    server.stop()


def test_the_timeline_shows_past_steps_and_starts_a_branch(app, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, speed=20, max_steps=400, eval_every=10)
    wait_for_step(page, 20)
    page.focus(".scrub")
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    wait_for_text(page, ".viewing", "Viewing step")
    wait_until(page, "/at step \\d+/.test(document.querySelector('.right-of').textContent)")
    assert page.is_visible(".branch")
    page.select_option(".speed", "0")
    wait_for_status(page, "done")
    # looking back is not ended by the run's end
    assert "Viewing step" in page.text_content(".viewing")
    page.click(".now")
    expect(page.locator(".viewing")).to_contain_text("snapshots to replay")
    wait_until(page, "!/at step/.test(document.querySelector('.right-of').textContent)")
    last, answer_now = selected_head_image(page), page.text_content(".samples")
    page.focus(".scrub")
    page.keyboard.press("Home")
    wait_for_text(page, ".viewing", "Viewing step 0")
    wait_until(page, "document.querySelector('.right-of').textContent.includes('at step 0')")
    wait_for_text(page, ".try-note", "with the weights of step 0")
    expect(page.locator(".probe")).to_contain_text("step 0")
    assert selected_head_image(page) != last
    assert page.text_content(".samples") != answer_now
    expect(page.locator(".loss-value")).to_contain_text("at step 1")
    page.click(".play")
    wait_until(
        page, "+(/step (\\d+)/.exec(document.querySelector('.viewing').textContent) || [])[1] > 8"
    )
    page.click(".play")
    held = page.text_content(".viewing")
    page.wait_for_timeout(600)
    assert page.text_content(".viewing") == held
    page.click(".now")
    wait_until(page, "last => document.querySelector('.focus-map').toDataURL() === last", arg=last)
    expect(page.locator(".runs .name")).to_have_count(1)
    name = run_names(page)[0]
    page.focus(".scrub")
    for _ in range(12):
        page.keyboard.press("ArrowLeft")
    # until the last of these is drawn
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    wait_for_text(page, ".viewing", "Viewing step")
    at = int(re.search(r"step (\d+)", page.text_content(".viewing")).group(1))
    page.click(".branch")
    wait_for_text(page, ".status-text", f"Paused at step {at} ")
    expect(page.locator(".runs .name").first).to_have_text(f"{name} from {at}")
    wait_until(page, DRAWN, arg=at)
    page.click(".manual-controls summary")
    page.fill(".rate", "0.0001")
    page.press(".rate", "Enter")
    page.click("#resume")
    wait_for_status(page, "done")
    # the curves of the run that it comes from are there too
    drawn_runs = page.locator(".runs .run", has=page.locator(".plot-run:checked"))
    expect(drawn_runs.locator(".name")).to_have_text([f"{name} from {at}", name])
    wait_until(page, DRAWN, arg=400)


def test_the_list_renames_hides_deletes_repeats_and_lends_settings(app, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, max_steps=30, n_heads=4, d_ff=24)
    wait_for_status(page, "done")
    choose_run_action(page, run_names(page)[0], "rename")
    page.keyboard.type("mine")
    page.click(".page-bar .sequence")  # the focus leaves the name, and stays where it went
    page.keyboard.press("ControlOrMeta+A")
    page.keyboard.type("3 1")
    expect(page.locator(".subject option:checked")).to_have_text("mine")
    expect(page.locator(".runs .name")).to_have_text("mine")
    expect(page.locator(".page-bar .sequence")).to_be_focused()
    page.keyboard.type(" 4")
    expect(page.locator(".page-bar .sequence")).to_have_value("3 1 4")
    choose_run_action(page, "mine", "rename")
    page.keyboard.type("<img src=x onerror=alert(1)> mine")
    page.keyboard.press("Enter")
    expect(page.locator(".runs .name")).to_have_text("<img src=x onerror=alert(1)> mine")
    assert page.locator(".live img").count() == 0
    name = run_names(page)[0]
    expect(page.locator(".subject option:checked")).to_have_text(name)
    choose_run_action(page, name, "tag")
    page.keyboard.type("<b>wide</b>, baseline")
    page.keyboard.press("Enter")
    expect(page.locator(".runs .tag")).to_have_text(["<b>wide</b>", "baseline"])
    choose_run_action(page, name, "hide")
    expect(page.locator(".runs .run")).to_have_count(0)
    page.click(".show-hidden")
    choose_run_action(page, name, "hide")
    expect(page.locator(".show-hidden")).to_be_hidden()
    losses = page.evaluate("document.querySelector('.loss-value').textContent")
    choose_run_action(page, name, "rerun")
    expect(page.locator(".runs .run")).to_have_count(2)
    expect(page.locator(".subject option:checked")).to_have_text(f"{name} (2)")
    wait_for_status(page, "done")
    expect(page.locator(".loss-value")).to_have_text(losses)
    choose_run_action(page, name, "delete")
    expect(page.locator(".undo")).to_contain_text(f"Undo “{name}”")
    expect(page.locator(".runs .run")).to_have_count(1)
    page.click(".undo button")
    expect(page.locator(".runs .run")).to_have_count(2)
    page.goto(app.url)
    page.wait_for_selector(".runs .run")
    expect(page.locator("#field-max_length input")).to_have_value("10")
    choose_run_action(page, name, "use")
    wait_until(page, "document.querySelector('#field-max_length input').value === '5'")
    page.click("#advanced > button")
    expect(page.locator("#field-d_ff input")).to_have_value("24")


@again_and_again
def test_a_reload_and_seven_more_tabs_show_every_point_and_a_pause(app, open_page, turn):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, speed=20, **LONG)
    wait_for_step(page, 20)
    page.reload()
    wait_for_status(page, "training")
    # more than a browser has connections to a server
    tabs = [page] + [open_page(app.url, same_browser_as=page) for _ in range(7)]
    for tab in tabs:
        wait_for_status(tab, "training")
    wait_for_step(tabs[-1], displayed_step(tabs[-1]) + 10)
    tabs[-1].click("#pause")
    for tab in tabs:
        wait_for_status(tab, "paused")
    for tab in (page, tabs[1], tabs[-1]):
        at = displayed_step(tab)
        wait_until(tab, "at => document.querySelector('.loss-chart').steps.length === at", arg=at)
        assert plotted_steps(tab) == list(range(1, at + 1))
    tabs[3].click("#stop")
    wait_for_status(page, "stopped")


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
    end = displayed_step(page)
    wait_until(page, "at => document.querySelector('.loss-chart').steps.length === at", arg=end)
    assert plotted_steps(page) == list(range(1, end + 1))


@pytest.mark.smoke
def test_a_run_started_on_a_linked_page_survives_a_reload(app, open_page):
    page = open_page(f"{app.url}/?model=copy")
    wait_for_status(page, "checkpoint")
    page.click("#train")
    wait_for_status(page, "training", "done")
    page.wait_for_url(re.compile(r"[?&]model=run(:|%3A)"))
    name = page.locator(".page-bar .subject option:checked").text_content()
    page.reload()
    wait_for_status(page, "training", "done")
    expect(page.locator(".page-bar .subject option:checked")).to_have_text(name)
    page.click("#stop")


def test_a_share_link_shows_the_run_read_only(app, open_page):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, **LONG)
    wait_for_step(page, 20)
    page.click(".share")
    page.wait_for_selector(".sharing[open]")
    link = page.input_value(".watch-link")
    page.click(".sharing .close")
    guest = open_page(link)
    wait_for_status(guest, "training")
    wait_for_step(guest, 30)
    expect(guest.locator(".status-text")).to_contain_text("shared with you")
    for selector in ("#pause", "#resume", ".save-checkpoint", ".branch", ".saved"):
        expect(guest.locator(selector)).to_be_hidden()
    expect(guest.locator("#stop")).to_be_disabled()
    expect(guest.locator(".rate")).to_be_disabled()
    guest.focus("body")
    guest.keyboard.press(" ")
    guest.click(".play")
    wait_for_text(guest, ".viewing", "Viewing step")
    at = displayed_step(page)
    wait_for_step(page, at + 10)
    wait_for_status(page, "training")
    page.click("#stop")
    wait_for_status(guest, "stopped")


def test_checkpoints_are_listed_downloaded_uploaded_and_deleted(app, open_page, tmp_path):
    page = open_page(app.url, may_complain=True, visit=False)
    start_run(page, app.url, **LONG)
    at = pause_after(page, 20)
    page.click(".manual-controls summary")
    page.click(".save-checkpoint")
    wait_for_text(page, ".hand-note", f"Checkpoint of step {at} saved")
    page.click(".saved summary")
    rows = page.locator(".saved tbody tr")
    expect(page.locator(".saved")).to_contain_text("saved by you")
    with page.expect_download() as fetched:
        rows.filter(has_text="saved by you").get_by_text("Download").click()
    packed = tmp_path / fetched.value.suggested_filename
    fetched.value.save_as(packed)
    with zipfile.ZipFile(packed) as archive:
        assert set(archive.namelist()) == {
            "config.json",
            "model.safetensors",
            "training.safetensors",
            "metrics.jsonl",
        }
        archive.extractall(tmp_path / "unpacked")
    assert read_manifest(tmp_path / "unpacked").step == at
    for _ in range(2):  # once is a slip of the hand
        rows.filter(has_text="saved by you").get_by_text("Delete").click()
    wait_until(page, "!document.querySelector('.saved').textContent.includes('saved by you')")
    for left in range(rows.count() - 1, 0, -1):
        for _ in range(2):
            rows.last.get_by_text("Delete").click()
        expect(rows).to_have_count(left)
    for _ in range(2):
        rows.get_by_text("Delete").click()
    expect(page.locator(".saved-note")).to_contain_text("only checkpoint")
    page.set_input_files(".file", packed)
    wait_for_status(page, "stopped")
    assert displayed_step(page) == at
    assert plotted_steps(page) == list(range(1, at + 1))
    page.click(".resume-here")
    wait_for_step(page, at + 5)
    page.click("#stop")
    wait_for_status(page, "stopped")
    count = page.locator(".runs .run").count()
    (tmp_path / "odd.zip").write_bytes(b"PK no zip")
    page.set_input_files(".file", tmp_path / "odd.zip")
    expect(page.locator(".runs-note")).to_contain_text("odd.zip was rejected: it is not a zip file")
    assert page.locator(".runs .run").count() == count


def press(page, key):
    """Press a key without a focused element."""
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(key)


def open_and_close_help(page):
    page.keyboard.press("?")
    expect(page.locator(".keys")).to_be_visible()
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
    for key in ("ArrowRight", " ", "?"):
        page.keyboard.press(key)
    expect(page.locator("dialog[open]")).to_have_count(0)
    go_to(page, "Train")
    expect(page.locator(".live")).to_be_visible()
    press(page, "ArrowRight")
    wait_for_text(page, ".status-text", f"Paused at step {at + 1} ")
    open_and_close_help(page)
    press(page, " ")
    wait_for_step(page, at + 1)
    assert done == ["step", "resume"]
    page.click("#stop")
