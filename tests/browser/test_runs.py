"""Runs on the page: replay, branches, many runs, reloads and sharing."""

import json
import re
import zipfile

import pytest
from playwright.sync_api import expect

from playground.checkpoints.manifest import read_manifest
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
    settings_link,
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


@pytest.fixture
def training(app, open_page, request):
    """A page with a run that trains, shared by tests that keep it; it is paused in between."""
    page = open_page(
        app.url, share=True, visit=False, may_complain=getattr(request, "param", False)
    )
    if page.url == "about:blank":
        start_run(page, app.url, lr_schedule="constant", warmup_steps=0, **LONG)
    else:
        page.select_option(".speed", "0")
        page.click("#resume")
    wait_for_status(page, "training")
    wait_for_step(page, 10)
    yield page
    if page.get_attribute(".live", "data-status") == "training":
        page.click("#pause")
        wait_for_status(page, "paused")


def test_slow_motion_shows_every_step_and_full_speed_is_a_choice_away(training):
    page = training
    page.select_option(".speed", "2")
    wait_for_text(page, ".status-text", "slowed to 2 steps/s")
    at = displayed_step(page)
    wait_for_step(page, at)
    displayed = [displayed_step(page)]
    while len(displayed) < 3:
        page.wait_for_timeout(50)
        if displayed_step(page) != displayed[-1]:
            displayed.append(displayed_step(page))
    assert displayed == list(range(displayed[0], displayed[0] + 3))
    page.select_option(".speed", "0")
    wait_for_step(page, displayed[-1] + 30)
    expect(page.locator(".status-text")).to_contain_text(re.compile(r"steps/s · "))


@pytest.mark.parametrize("training", [True], indirect=True)  # Chromium logs a status of 429
def test_a_rate_limit_delays_an_action_instead_of_failing_it(training):
    page, answers = training, []

    def refuse_once(route):
        answers.append(route.request.post_data_json["action"])
        if len(answers) == 1:
            refusal = {"error": "too many requests at once; try again in 1 s", "retryable": True}
            route.fulfill(status=429, headers={"Retry-After": "1"}, json=refusal)
        else:
            route.continue_()

    page.route("**/api/runs/action", refuse_once)
    page.click("#pause")
    wait_for_status(page, "paused")
    assert answers == ["pause", "pause"]
    expect(page.locator(".hand-note")).to_be_empty()
    page.unroute("**/api/runs/action")


def test_learning_rate_change_applies_at_its_step_and_persists(training):
    page = training
    at = pause_after(page, 20)
    page.click(".manual-controls summary")
    page.fill(".rate", "-3")
    page.press(".rate", "Enter")
    expect(page.locator(".hand-note")).to_contain_text("it must be a number from")
    page.fill(".rate", "0.0005")
    page.press(".rate", "Enter")
    expect(page.locator(".hand-note")).to_be_empty()
    page.click("#step")
    wait_for_text(page, ".status-text", f"step {at + 1}")
    page.select_option(".metric", "learning_rate")
    expect(page.locator(".loss-value")).to_have_text("0.0005")
    page.reload()
    wait_for_status(page, "paused")
    expect(page.locator(".rate")).to_have_value("0.0005")


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


def test_overlaid_curves_survive_a_reload_with_failed_requests(app, open_page):
    page = open_page(app.url, may_complain=True, visit=False)
    for seed in range(2):
        start_run(page, app.url, max_steps=60, seed=seed, n_heads=1 + seed)
        wait_for_status(page, "done")
    other = run_names(page)[1]
    expect(page.locator(".differ")).to_have_count(0)
    before = page.evaluate("document.querySelector('.loss-chart canvas').toDataURL()")
    page.locator(".runs .run").nth(1).locator(".plot-run").check()
    wait_until(
        page,
        "before => document.querySelector('.loss-chart canvas').toDataURL() !== before",
        arg=before,
    )
    expect(page.locator(".runs .plot-run:checked")).to_have_count(2)
    page.click(".differ")
    expect(page.locator(".differences")).to_contain_text(re.compile("n_heads.*seed", re.S))
    assert page.locator(".differences tr").count() == 3
    page.check(".every-field")
    expect(page.locator(".differences")).to_contain_text("label_smoothing")
    page.click(".compare .close")
    page.locator(".runs .run", has_text=other).last.locator(".plot-run").uncheck()
    expect(page.locator(".runs .plot-run:checked")).to_have_count(1)
    page.select_option(".page-bar .subject", "checkpoint:copy")
    wait_for_status(page, "checkpoint")
    page.locator(".runs .run").nth(1).locator(".plot-run").check()
    expect(page.locator(".runs .plot-run:checked")).to_have_count(2)
    refused = []
    page.route(
        "**/api/runs/list",
        lambda route: (
            (refused.append(route), route.abort()) if len(refused) < 3 else route.continue_()
        ),
    )
    page.reload()
    wait_for_status(page, "checkpoint")
    expect(page.locator(".page-bar .subject")).to_have_value("checkpoint:copy")
    expect(page.locator(".runs .plot-run:checked")).to_have_count(2)
    assert len(refused) == 3
    expect(page.locator(".run-announcement")).to_contain_text("Checkpoint copy")
    page.unroute_all()


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
def test_time_without_a_network_loses_nothing(app, open_page, turn):
    page, failed = open_page(app.url, may_complain=True, visit=False), []
    start_run(page, app.url, speed=20, **LONG)
    wait_for_step(page, 5)
    page.on(
        "requestfailed",
        lambda request: (
            failed.append(request.url) if request.url.endswith("/api/runs/poll") else None
        ),
    )
    page.context.set_offline(True)
    wait_for_text(page, ".status-text", "The server did not respond; retrying")
    # each after a longer pause than the one before, up to 5 s
    while len(failed) < (4 if turn == 1 else 8):
        page.wait_for_timeout(100)
    left_at = len(plotted_steps(page))
    page.context.set_offline(False)
    wait_for_status(page, "training")
    wait_for_step(page, left_at + 60)  # more than were missed
    page.click("#stop")
    wait_for_status(page, "stopped")
    at = displayed_step(page)
    wait_until(page, "at => document.querySelector('.loss-chart').steps.length === at", arg=at)
    assert plotted_steps(page) == list(range(1, at + 1))


@pytest.mark.smoke
@again_and_again
def test_a_closed_browser_finds_its_run_again(app, open_page, turn):
    page = open_page(app.url, visit=False)
    start_run(page, app.url, **LONG)
    wait_for_step(page, 10)
    memory = page.context.storage_state()
    page.context.close()
    reopened = open_page(app.url, storage_state=memory)
    wait_for_status(reopened, "training")
    wait_for_step(reopened, 20)
    reopened.click("#pause")
    wait_for_status(reopened, "paused")
    at = displayed_step(reopened)
    wait_until(reopened, "at => document.querySelector('.loss-chart').steps.length === at", arg=at)
    assert plotted_steps(reopened) == list(range(1, at + 1))
    reopened.click("#stop")


def test_starts_above_the_slots_are_queued_and_move_up(own_server, open_page):
    own = own_server
    page = open_page(own.url, may_complain=True, visit=False)
    start_run(page, own.url, **LONG)
    wait_for_status(page, "training")
    page.click("#another")
    wait_for_text(page, ".status-text", "training slots are in use · next in the queue")
    page.click("#train")
    wait_for_text(page, ".status-text", "second in the queue")
    expect(page.locator(".no-figures")).to_be_visible()  # and nothing of the run before
    for figure in (".diagram", ".samples", ".answer"):
        expect(page.locator(figure)).to_be_hidden()
    first, second = run_names(page)[::-1][:2]
    choose_run_action(page, first, "stop")
    wait_for_text(page, ".status-text", "next in the queue")
    choose_run_action(page, second, "stop")
    wait_for_status(page, "training")
    expect(page.locator(".diagram")).to_be_visible()
    expect(page.locator(".no-figures")).to_be_hidden()
    page.click("#stop")
    wait_for_status(page, "stopped")
    other = open_page(own.url)  # on this machine another browser lists the same runs
    expect(other.locator(".runs .name")).to_have_text(run_names(page))


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
    # Whatever a page sends by itself: the link opens no other door.
    forged = """async ([subject, what]) => {
      const sent = { method: 'POST', body: JSON.stringify({ owner: '', subject, ...what }) };
      return (await fetch('playground/api/runs/action', sent)).json();
    }"""
    share_id = link.split("watch=")[1]
    for subject in (f"watch:{share_id}", f"run:{share_id}"):
        for what in (
            {"action": "stop"},
            {"action": "pause"},
            {"action": "delete"},
            {"action": "rename", "name": "x"},
            {"action": "change", "setting": "max_steps", "value": 1},
        ):
            assert "error" in guest.evaluate(forged, [subject, what])
    guest.click(".play")
    wait_for_text(guest, ".viewing", "Viewing step")
    at = displayed_step(page)
    wait_for_step(page, at + 10)
    wait_for_status(page, "training")
    page.click("#stop")
    wait_for_status(guest, "stopped")


def test_settings_travel_as_a_link_and_as_json(app, open_page):
    page = open_page(settings_link(app.url, d_ff=48))
    wait_until(page, "document.querySelector('#field-max_length input')?.value === '5'")
    page.click("#advanced > button")
    expect(page.locator("#field-d_ff input")).to_have_value("48")
    page.click("#train")
    wait_for_status(page, "done", "training")
    page.click(".share")
    page.wait_for_selector(".sharing[open]")
    result = json.loads(page.input_value(".settings-json"))
    assert {name: result[name] for name in SMALL_SETTINGS} == SMALL_SETTINGS | {"d_ff": 48} | {
        name: SMALL_SETTINGS[name] for name in SMALL_SETTINGS if name != "d_ff"
    }
    link = page.input_value(".settings-link")
    page.click(".sharing .close")
    # the run may end at any time; a click on a disabled button does nothing
    page.evaluate("document.querySelector('#stop').click()")
    other = open_page(link)
    wait_until(other, "document.querySelector('#field-max_length input')?.value === '5'")
    broken = open_page(app.url + "/?settings={%22d_model%22:-1}")
    expect(broken.locator("#problem")).to_contain_text(
        "The form ignores the settings of this link: d_model is -1"
    )


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


@pytest.mark.parametrize("width", [1440, 390])
def test_the_keyboard_pauses_steps_and_explains_itself(training, width):
    page = training
    page.set_viewport_size({"width": width, "height": 950})
    press(page, " ")
    wait_for_status(page, "paused")
    at = displayed_step(page)
    press(page, "ArrowRight")
    wait_for_text(page, ".status-text", f"Paused at step {at + 1} ")
    open_and_close_help(page)
    press(page, " ")
    wait_for_status(page, "training")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_keys_on_another_tab_leave_the_hidden_run_alone(training):
    page = training
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


def test_a_killed_worker_shows_its_last_checkpoint_and_can_resume(app, open_page):
    import psutil

    page = open_page(app.url, visit=False)
    start_run(page, app.url, **LONG)
    at = pause_after(page, 20)
    page.click("#resume")
    wait_for_step(page, at + 10)
    # The fork server's children carry no name: the run's is the one that holds the newest run's
    # lock.
    children = [
        c
        for c in psutil.Process(app.process.pid).children(recursive=True)
        if c.status() != psutil.STATUS_ZOMBIE
    ]
    held = {
        file.path: c for c in children for file in c.open_files() if file.path.endswith("/.lock")
    }
    held[max(held)].kill()
    wait_for_status(page, "failed")
    expect(page.locator(".status-text")).to_contain_text(
        re.compile(r"killed.*checkpoint of step \d+ is saved")
    )
    page.click(".resume-here")
    wait_for_status(page, "training")
    wait_for_step(page, at + 30)
    page.click("#pause")
    wait_for_status(page, "paused")
    wait_for(
        lambda: plotted_steps(page) == list(range(1, displayed_step(page) + 1)),
        60,
        "every point, none twice",
    )
    page.click("#stop")
