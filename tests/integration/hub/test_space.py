"""The playground, uploaded to a Space by the workflow and started from its files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.app_server import BUNDLED_CHECKPOINTS, ROOT, AppServer
from tests.support.fake_hub import FakeHub


def upload(hub: FakeHub, home: Path) -> None:
    """Run the last step of the workflow, for the Space ada/play."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/sync-space.yml").read_text())
    command = workflow["jobs"]["deploy"]["steps"][-1]["run"]
    completed = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env=os.environ
        | hub.environment(home, token=hub.ADA, HF_HUB_DISABLE_IMPLICIT_TOKEN="0")
        | {"SPACE": "ada/play", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    assert hub.ADA not in completed.stdout + completed.stderr


@pytest.fixture(scope="module")
def uploaded(served_hub, tmp_path_factory):
    """Upload twice, with other files in the Space before the second time; return its files."""
    home = tmp_path_factory.mktemp("home")
    upload(served_hub, home)
    others = {"playground/old.py": "removed = 1", "notes.md": "a note", "app.py": "edited"}
    served_hub.put("ada/play", others, kind="space")
    upload(served_hub, home)
    assert served_hub.repo("ada/play", "space").private
    return served_hub.files("ada/play", kind="space")


@pytest.mark.smoke
def test_a_space_contains_the_tracked_files_and_those_of_its_owner(uploaded):
    tracked = subprocess.run(
        ["git", "ls-files", "docs", "playground", "checkpoints"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    single = {"app.py", "requirements.txt", "README.md", "LICENSE", "notes.md"}
    assert single | set(tracked) <= set(uploaded)
    assert {name.split("/")[0] for name in set(uploaded) - single} == {
        "docs",
        "playground",
        "checkpoints",
    }
    assert {name.split("/")[1] for name in uploaded if name.startswith("checkpoints/")} == set(
        BUNDLED_CHECKPOINTS
    )
    assert not [name for name in uploaded if "__pycache__" in name]
    assert "playground/old.py" not in uploaded
    assert all(
        uploaded[name] == (ROOT / name).read_bytes() for name in ("app.py", "README.md", *tracked)
    )


def test_the_app_predicts_with_the_uploaded_weights(uploaded, tmp_path):
    space_folder = tmp_path / "space"
    for name, data in uploaded.items():
        (space_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (space_folder / name).write_bytes(data)
    app = AppServer(tmp_path, root=space_folder, SPACE_ID="ada/play")
    try:
        result = app.request("runs/poll", {"subject": "checkpoint:reverse"})
        assert result["status"] == "checkpoint"
        assert app.request("runs/predict", {"subject": "checkpoint:copy", "text": "3 1 4"})[
            "prediction"
        ] == ["3", "1", "4"]
        assert app.request("runs/list", {"owner": ""})["note"].startswith(
            "This Space has no persistent storage"
        )
    finally:
        assert app.stop() == 0
