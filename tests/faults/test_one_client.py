"""One hostile client meets a limit; others get responses to polls, and are not refused a slot."""

import pytest

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer, wait_for
from tests.support.attacks import ATTACKS, Attacker
from tests.support.page_client import PageClient, PollingThread, zipped_small_checkpoint

N_POLLS = 8  # polls of another user during an attack


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    app = AppServer(
        tmp_path_factory.mktemp("app"),
        GRADIO_SERVER_NAME="0.0.0.0",
        PLAYGROUND_SLOTS="2",
        PLAYGROUND_IDLE_TIMEOUT_S="20",
    )
    yield app
    app.stop()


@pytest.fixture(scope="module")
def archive_bytes(tmp_path_factory):
    return zipped_small_checkpoint(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("name", ATTACKS)
def test_others_are_served_while_one_client_attacks(app, archive_bytes, tmp_path, name):
    user, attacker = PageClient(app, new_owner_key()), Attacker(app)
    watcher = PollingThread(
        PageClient(app, new_owner_key(), keeps_connection=True), "checkpoint:reverse", 4
    )
    ATTACKS[name](attacker, tmp_path)
    watcher.start()
    try:
        assert user.get("/")
        assert user.load()
        subject = user.upload(archive_bytes)
        prediction = user.call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
        run = user.run_action(subject, "rerun")["subject"]
        assert user.poll(run)["status"] != "not-found"
        user.run_action(run, "stop")
        pairs = b"a\tb\nc\td\n" * 30
        headers = {"X-Owner": user.owner, "X-Name": "pasted"}
        assert "others" not in user.post("/playground/datasets", pairs, headers).get("error", "")
        wait_for(
            lambda: len(watcher.response_seconds) >= N_POLLS and attacker.rejections,
            120,
            "polls during the attack, and a rejection of it",
        )
    finally:
        watcher.stopping.set()
        watcher.join(60)
        attacker.stop()
    assert watcher.errors == []
    assert prediction["prediction"] == ["4", "1", "3"], prediction
    assert "Traceback" not in app.log.read_text()
