"""The playground, deployed to a Space of the fake Hub and started from its files."""

import json
import re
import subprocess

import pytest
from huggingface_hub.utils import close_session

from playground.hub.client import Hub
from playground.hub.errors import HubError
from playground.hub.space import REPO_ROOT, THUMBNAIL, is_deployed_path, space_files
from playground.hub.task_runner import HubTask
from playground.hub.tasks import HubTaskRunner
from playground.jobs.progress import ProgressReporter
from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT, AppServer
from tests.support.command_runner import run_command
from tests.support.fake_hub import FakeHub


@pytest.fixture(scope="module")
def hub():
    with FakeHub() as hub:
        yield hub
        close_session()


@pytest.fixture(scope="module")
def deploy(hub, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")

    def deploy(*arguments: object, token: str = FakeHub.ADA) -> subprocess.CompletedProcess:
        completed = run_command("deploy", *arguments, **hub.environment(home, token=token))
        assert not token or token not in completed.stdout + completed.stderr
        assert "Traceback" not in completed.stderr
        return completed

    return deploy


@pytest.fixture(scope="module")
def deployed(hub, deploy):
    """Deploy to ada/play for the first time; return the process and its requests to the Hub."""
    with hub.record_requests() as requests:
        completed = deploy("ada/play")
    assert completed.returncode == 0, completed.stderr
    return completed, requests


@pytest.mark.smoke
def test_a_space_contains_only_required_files():
    names = set(space_files())
    assert {
        "app.py",
        "requirements.txt",
        "README.md",
        "LICENSE",
        THUMBNAIL,
        "playground/server/app.py",
        "playground/ui/static/train/main.js",
    } <= names
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {
        f"docs/images/{name}" for name in re.findall(r"\(docs/images/([\w.]+)\)", readme)
    } <= names
    assert {name.split("/")[1] for name in names if name.startswith("checkpoints/")} == set(
        BUNDLED_CHECKPOINTS
    )
    assert {name.split("/")[0] for name in names} == {
        "app.py",
        "requirements.txt",
        "README.md",
        "LICENSE",
        "docs",
        "playground",
        "checkpoints",
    }
    tracked = subprocess.run(
        ["git", "ls-files", "playground"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    assert set(tracked) <= names
    assert not [name for name in names if name.endswith(".pyc") or "__pycache__" in name]


def test_folder_without_the_app_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"app\.py is missing"):
        space_files(tmp_path)


def test_a_dry_run_lists_the_files_and_writes_nothing(hub, deploy):
    with hub.record_requests() as requests:
        completed = deploy("ada/dry", "--dry-run")
    assert completed.returncode == 0, completed.stderr
    first_line, *files, last_line = completed.stdout.splitlines()
    assert first_line == "space ada/dry (private, branch main): would be created"
    assert sorted(line.split()[-1] for line in files) == sorted(space_files())
    assert last_line == "nothing was written"
    assert {request.method for request in requests} <= {"GET", "HEAD"}
    assert ("space", "ada/dry") not in hub.repos


def test_new_space_is_private_and_has_one_commit(hub, deployed):
    completed, requests = deployed
    assert completed.stdout.splitlines()[0] == "space ada/play (private, branch main): was created"
    assert completed.stdout.splitlines()[-1] == f"{hub.url}/spaces/ada/play"
    assert len([request for request in requests if "/commit/" in request.path]) == 1
    (created,) = [
        json.loads(request.body) for request in requests if request.path == "/api/repos/create"
    ]
    assert (created["type"], created["sdk"], created["name"]) == ("space", "gradio", "play")
    assert hub.repo("ada/play", "space").private
    deployed_files = hub.files("ada/play", kind="space")
    assert set(deployed_files) - {".gitattributes"} == set(space_files())
    assert all(
        deployed_files[name] == path.read_bytes()
        for name, path in space_files().items()
        if name != "README.md"
    )


def test_the_readme_names_an_existing_thumbnail(hub, deployed):
    readme = hub.files("ada/play", kind="space")["README.md"].decode()
    (thumbnail,) = re.findall(r"^thumbnail: (.+)$", readme, re.M)
    assert thumbnail == f"{hub.url}/spaces/ada/play/resolve/main/{THUMBNAIL}"
    assert readme.replace(f"thumbnail: {thumbnail}\n", "") == (REPO_ROOT / "README.md").read_text(
        encoding="utf-8"
    )


def test_redeployment_removes_stale_files_and_keeps_user_files(hub, deployed, tmp_path):
    hub.put(
        "ada/play",
        {"playground/old.py": "removed = 1", "notes.md": "a note", "app.py": "edited"},
        kind="space",
    )
    result = HubTaskRunner(
        Hub(FakeHub.ADA, hub.url),
        HubTask("deploy", "ada/play", FakeHub.ADA, private=True),
        ProgressReporter(lambda *message: None, scratch=tmp_path),
    ).deploy()
    (plan,) = result["plans"]
    changes = {change["path"]: change["status"] for change in plan["changes"]}
    assert {path: status for path, status in changes.items() if status != "same"} == {
        "app.py": "changed",
        "playground/old.py": "removed",
    }
    deployed_files = hub.files("ada/play", kind="space")
    assert deployed_files["app.py"] == (ROOT / "app.py").read_bytes()
    assert deployed_files["notes.md"] == b"a note"
    assert "playground/old.py" not in deployed_files
    assert is_deployed_path("playground/old.py")
    assert not is_deployed_path("checkpoints/uploaded/config.json")


@pytest.mark.parametrize(
    ("space", "token", "expected_message"),
    [
        ("ada/other", FakeHub.ADA, "has other content"),
        ("ada/read-only", FakeHub.ADA_READS, "this token is read-only"),
        ("ada/foreign", FakeHub.BEN, "ben cannot publish under ada"),
        ("ada", FakeHub.ADA, "write user/name"),
    ],
)
def test_an_impossible_deployment_gets_one_message(hub, tmp_path, space, token, expected_message):
    hub.put("ada/other", {"app.py": "other", "README.md": "---\nsdk: gradio\n---\n"}, kind="space")
    with pytest.raises(HubError, match=expected_message):
        HubTaskRunner(
            Hub(token, hub.url),
            HubTask("deploy", space, token, private=True),
            ProgressReporter(lambda *message: None, scratch=tmp_path),
        ).deploy()
    assert hub.files("ada/other", kind="space")["app.py"] == b"other"


def test_without_a_token_the_command_prints_instructions(deploy):
    completed = deploy("ada/play2", token="")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "hf auth login" in completed.stderr


def test_the_app_predicts_with_the_uploaded_weights(hub, deployed, tmp_path):
    space_folder = tmp_path / "space"
    for name, data in hub.files("ada/play", kind="space").items():
        (space_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (space_folder / name).write_bytes(data)
    (space_folder / "app.py").write_bytes((ROOT / "app.py").read_bytes())  # another test edits it
    app = AppServer(tmp_path, root=space_folder, SPACE_ID="ada/play")
    try:
        result = app.request("runs/poll", {"subject": "checkpoint:reverse"})
        assert result["status"] == "checkpoint"
        assert app.request("runs/predict", {"subject": "checkpoint:copy", "text": "3 1 4"})[
            "prediction"
        ] == [
            "3",
            "1",
            "4",
        ]
        assert app.request("runs/list", {"owner": ""})["note"].startswith(
            "This Space has no persistent storage"
        )
    finally:
        assert app.stop() == 0
