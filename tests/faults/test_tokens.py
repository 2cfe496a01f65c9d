"""Which tokens the Hub receives: never that of a Space, a user's only for its own hub tasks.

No token is stored. A canary is present wherever huggingface_hub reads tokens, in the environment
and in its file. The requests to the fake Hub, the responses to the pages, the app's log and
every file that it leaves must not contain it, or the tokens of users.
"""

import json
import math
import shutil
import time
from types import SimpleNamespace

import httpx
import psutil
import pytest
from huggingface_hub import constants

from playground.errors import UserError
from playground.hub.jobs import HubJobs
from playground.pretrained.jobs import PretrainedJobs
from playground.runs.owner_keys import new_owner_key
from playground.server.hub_api import HubHandlers
from playground.server.hub_token import resolve_token
from playground.server.jobs_api import JobHandlers
from tests.support.app_server import ROOT, AppServer, wait_for
from tests.support.coroutines import run_in_thread
from tests.support.fake_jobs import fake_processes, no_lessons
from tests.support.page_client import PageClient

REVERSE = "checkpoint:reverse-one-head"
SIGNED_IN = 3600
PAIRS = "src,tgt\n" + "".join(f"{n:03d},{n % 7}\n" for n in range(200))
CLIENT_SECRET = "CanaryOfTheOauthSecret"


@pytest.fixture(scope="module")
def hub(served_hub):
    return served_hub


@pytest.fixture
def canary(hub, tmp_path, monkeypatch):
    """Set the token of the owner in every place that this process reads."""
    (tmp_path / "token").write_text(hub.OWNER)
    monkeypatch.setenv("HF_TOKEN", hub.OWNER)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("SPACE_ID", raising=False)
    return hub.OWNER


def session_of(token, seconds=SIGNED_IN):
    """Return the session of a user who has signed in with Hugging Face."""
    return {
        "oauth_info": {
            "access_token": token,
            "expires_at": time.time() + seconds,
            "userinfo": {"preferred_username": "ada"},
        }
    }


def files_with(folder, *secrets, exclude=()):
    """Return the files below a folder that contain any of these texts."""
    files = [path for path in folder.rglob("*") if path.is_file() and path not in exclude]
    return [
        path for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


# resolve_token


@pytest.mark.parametrize("typed", ["", "hf_typed", " hf_typed\n"])
@pytest.mark.parametrize("local", [False, True])
def test_space_uses_the_session_token_only(hub, canary, monkeypatch, typed, local):
    monkeypatch.setenv("SPACE_ID", "owner/space")
    assert resolve_token(typed, session_of(hub.ADA), local) == hub.ADA
    anonymous = [
        {},
        session_of(hub.ADA, -1),
        session_of(None),
        session_of(7),
        {"oauth_info": hub.ADA},
        {"oauth_info": None},
        {"oauth_info": {"access_token": hub.ADA}},
        *(
            {"oauth_info": {"access_token": hub.ADA, "expires_at": expires_at}}
            for expires_at in (None, "", "9999999999", [], {}, True, math.nan, -math.inf)
        ),
    ]
    for session in anonymous:
        assert resolve_token(typed, session, local) == ""


def test_a_local_server_uses_its_own_token_unless_one_is_entered(
    hub, canary, tmp_path, monkeypatch
):
    assert resolve_token("", {}, True) == hub.OWNER
    assert resolve_token("  ", {}, True) == hub.OWNER
    assert resolve_token(f" {hub.ADA}\n", {}, True) == hub.ADA
    monkeypatch.delenv("HF_TOKEN")
    assert resolve_token("", {}, True) == hub.OWNER  # from the token file
    (tmp_path / "token").unlink()
    assert resolve_token("", {}, True) == ""


def test_missing_values_do_not_fall_back_to_defaults(hub, canary):
    assert resolve_token("", {}, False) == ""
    assert resolve_token("", session_of(hub.ADA), False) == ""
    assert resolve_token(hub.ADA, {}, False) == hub.ADA


@pytest.mark.parametrize("typed", ["hf_two words", "hf_a\nhf_b", "hf_" + "x" * 3998])
def test_an_invalid_token_is_rejected_without_echoing_it(canary, typed):
    with pytest.raises(UserError) as error:
        resolve_token(typed, {}, True)
    assert "copy it again" in str(error.value)
    assert typed[3:] not in str(error.value)


# Users of a Space who have signed in: Gradio creates their session, so these tests call the
# route directly


@pytest.fixture
def visit_space(hub, canary, registries, monkeypatch):
    """Publish for a user with a session; return the response, and the token of the hub task."""
    monkeypatch.setenv("SPACE_ID", "owner/space")
    started = fake_processes(monkeypatch)
    registry = registries()
    shutil.copytree(ROOT / "checkpoints" / "reverse-one-head", registry.root / "digits")
    page = JobHandlers(registry, PretrainedJobs(), HubJobs(), no_lessons(registry))

    def visit(session):
        request = SimpleNamespace(scope={"session": session}, state=SimpleNamespace())
        owner = new_owner_key()
        fields = {"owner": owner, "kind": "push", "subject": "checkpoint:digits"}
        fields["request"] = {"token": hub.CY, "repo": "ada/digits"}
        response = run_in_thread(page.start(fields, request))
        job = page.hub.find(response.get("job"), owner)
        return response, job and job.arguments[0].token

    yield visit
    for process in started:
        process.finish()


@pytest.mark.parametrize("user", [None, "ada", ["ada"], {}, {"preferred_username": 7}])
def test_a_session_without_a_valid_user_has_no_name(hub, registries, monkeypatch, user):
    monkeypatch.setenv("SPACE_ID", "owner/space")
    session = session_of(hub.ADA)
    session["oauth_info"]["userinfo"] = user
    request = SimpleNamespace(scope={"session": session}, state=SimpleNamespace())
    response = run_in_thread(HubHandlers(registries()).session_info({}, request))
    assert (response["signed_in"], response["name"]) == (True, "")


@pytest.mark.smoke
def test_a_space_user_publishes_with_the_session_token(hub, visit_space):
    response, token = visit_space(session_of(hub.ADA))
    assert token == hub.ADA
    assert hub.ADA not in json.dumps(response)


@pytest.mark.parametrize("seconds", [None, -1], ids=["signed out", "expired session"])
def test_a_space_user_without_a_session_publishes_nothing(hub, visit_space, seconds):
    response, token = visit_space(session_of(hub.ADA, seconds) if seconds else {})
    assert "sign in first" in response["error"]
    assert token is None


# The app as a process


class User(PageClient):
    """A page of the app that records all responses."""

    def __init__(self, app):
        super().__init__(app, new_owner_key())
        self.responses = []

    def call(self, function, **request):
        self.responses.append(super().call(function, **request))
        return self.responses[-1]

    def was_reported(self, *secrets):
        return any(
            secret in json.dumps(response) for response in self.responses for secret in secrets
        )


def start_app(hub, folder, token, **settings):
    """Start the app with all files in one folder, and a token in its environment and file."""
    for name in ("home", "temporary"):
        (folder / name).mkdir()
    (folder / "home/token").write_text(token)
    environment = hub.environment(
        folder / "home", token=token, HF_HUB_DISABLE_IMPLICIT_TOKEN="0", HF_HUB_DISABLE_XET="0"
    )
    return AppServer(folder, **environment, TMPDIR=str(folder / "temporary"), **settings)


@pytest.fixture(scope="module")
def space(hub, tmp_path_factory):
    """Start the app as on a Space, with the token of the Space."""
    folder = tmp_path_factory.mktemp("space")
    app = start_app(hub, folder, hub.OWNER, SPACE_ID="owner/space", GRADIO_SERVER_NAME="0.0.0.0")
    yield app
    app.stop()


@pytest.fixture(scope="module")
def local(hub, tmp_path_factory):
    """Start the app of a single user who is signed in on this machine."""
    app = start_app(
        hub, tmp_path_factory.mktemp("local"), hub.ADA, OAUTH_CLIENT_SECRET=CLIENT_SECRET
    )
    yield app
    app.stop()


def test_no_hub_task_reveals_the_token_of_the_owner_of_a_space(hub, space):
    folder, user = space.log.parent, User(space)
    hub.put("owner/secret", {"playground.json": "{}", "model.safetensors": b""}, private=True)
    hub.put("dee/digits", packaged(space))
    with hub.record_requests() as requests:
        for kind in ("push", "plan"):
            for typed in ({}, {"token": hub.ADA}, {"token": hub.CY}):
                assert (
                    "sign in first"
                    in user.run_job(kind=kind, repo="owner/own", subject=REVERSE, **typed)["error"]
                )
        assert "sign in first" in user.run_job(kind="account", token=hub.ADA)["message"]
        assert user.call("hub/session", token=hub.ADA)["signed_in"] is False
        for kind in ("gallery", "pull"):
            result = user.run_job(kind=kind, repo="dee/digits", token=hub.ADA)
            assert result["status"] == "done", result
        for kind in ("repo_info", "pull", "reproduce"):
            result = user.run_job(kind=kind, repo="owner/secret", token=hub.ADA)
            assert "there is no repository owner/secret that is public" in result["message"], kind
        assert "no longer stored" in user.call("jobs/cancel", job="none")["error"]
        assert "is not a kind of job" in user.run_job(kind="token")["error"]
    assert {
        request.path.split("/")[2] for request in requests if request.path.startswith("/api/")
    } == {"models"}
    assert {request.token for request in requests} == {""}
    assert not [request for request in requests if hub.OWNER in request or hub.ADA in request]
    assert hub.requests_with(hub.OWNER) == []
    assert not user.was_reported(hub.OWNER, hub.ADA)
    assert files_with(folder, hub.OWNER, hub.ADA, exclude={folder / "home/token"}) == []


@pytest.mark.parametrize("typed", ["", "ADA", "OWNER", "EXPIRED"])
def test_a_private_dataset_is_read_with_the_token_of_the_user_only(hub, space, local, typed):
    """The user of the Space is not signed in; the machine of the local instance is, as Ada."""
    hub.put("ada/pairs", {"train.csv": PAIRS}, kind="dataset", private=True)
    token = getattr(hub, typed, "")
    with hub.record_requests() as requests:
        refused = upload_name(space, "hub:ada/pairs", token)
        assert "ada/pairs" in refused["error"]
    assert {request.token for request in requests} == {""}
    with hub.record_requests() as requests:
        report = upload_name(local, "hub:ada/pairs", token)
    assert {request.token for request in requests} == {token or hub.ADA}
    assert ("sha256" in report) == (typed in ("", "ADA"))
    for app in (space, local):
        folder = app.log.parent
        assert files_with(folder, hub.EXPIRED, exclude={folder / "home/token"}) == []


def upload_name(app, name, token):
    """Return the report about a dataset on the Hub."""
    headers = {"X-Owner": new_owner_key(), "X-Name": name, "X-Hub-Token": token}
    return httpx.post(f"{app.url}/playground/datasets", headers=headers, timeout=120).json()


def packaged(app):
    """Return the files of a small published model, without a Hub."""
    folder = app.checkpoints / "reverse-one-head"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    files["playground.json"] = files.pop("config.json")
    return files | {"README.md": "---\ntags:\n- transformer-playground\n---\n# Digits\n"}


def test_a_single_user_publishes_with_the_token_of_the_machine(hub, local):
    user = User(local)
    assert user.call("hub/session")["method"] == "machine"
    with hub.record_requests() as requests:
        result = user.run_job(kind="push", repo="ada/local", subject=REVERSE, expected="")
    assert result["status"] == "done", result
    assert {request.token for request in requests if request.host == hub.host} == {hub.ADA}
    assert not any(
        request.authorization for request in requests if request.host == hub.storage_host
    )
    files = hub.files("ada/local")
    assert "playground.json" in files
    assert not any(hub.ADA.encode() in data for data in files.values())
    assert not user.was_reported(hub.ADA)


def test_a_typed_token_has_precedence_and_is_not_stored(hub, local):
    folder, user = local.log.parent, User(local)
    excluded = {folder / "home/token"}
    with hub.record_requests() as requests, hub.fault(hub.COMMIT, "silent") as fault:
        started = user.submit(
            "push", repo="cy/typed", subject=REVERSE, token=f" {hub.CY}\n", expected=""
        )
        wait_for(lambda: fault.hits, 110, "the commit")
        assert (
            files_with(folder, hub.CY, hub.ADA, exclude=excluded) == []
        )  # while the push is running
        assert user.call("jobs/poll", job=started["job"])["status"] == "working"
    result = user.wait_for_end(started["job"])
    assert (result["status"], result["retryable"]) == ("failed", True)
    result = user.run_job(kind="push", repo="cy/typed", subject=REVERSE, token=hub.CY)
    assert result["status"] == "done", result
    with hub.record_requests() as later_requests:
        rejected = user.run_job(
            kind="push", repo="cy/typed", subject=REVERSE, token=f"{hub.CY}\n{hub.BEN}"
        )
        assert "copy it again" in rejected["error"]
        assert "create a new one" in user.run_job(kind="account", token=hub.UNKNOWN)["message"]
    assert {request.token for request in requests if request.host == hub.host} == {hub.CY}
    assert {request.token for request in later_requests} == {hub.UNKNOWN}
    assert not user.was_reported(hub.CY, hub.BEN, hub.ADA, hub.UNKNOWN)
    assert files_with(folder, hub.CY, hub.BEN, hub.ADA, hub.UNKNOWN, exclude=excluded) == []


@pytest.mark.smoke
def test_child_processes_inherit_no_secret(hub, local):
    """Workers read files of other users, so they must not have a secret."""
    page = PageClient(local, (local.checkpoints / "runs" / ".owner").read_text().strip())
    page.call("runs/predict", subject="checkpoint:reverse", text="3 1 4")
    run = page.train(max_steps=100_000)
    try:
        wait_for(lambda: page.poll(run)["status"] == "training", 60, "a worker")
        server = psutil.Process(local.process.pid)
        environments = [
            process.environ()
            for process in server.children(recursive=True)
            if process.status() != psutil.STATUS_ZOMBIE
        ]
        assert len(environments) >= 3
        for secret in (hub.ADA, CLIENT_SECRET):
            assert secret in server.environ().values()
            assert not any(secret in environment.values() for environment in environments)
        # the server has the token of the owner of the machine
        assert page.call("hub/session")["signed_in"] is True
    finally:
        page.run_action(run, "stop")
