"""A published model for a user without this project: its card, and the commands on it."""

import os
import re
import subprocess
import sys

import pytest
from huggingface_hub import ModelCard

from playground.hub.task_runner import HubTask
from tests.support.app_server import ROOT
from tests.support.hub_tasks import run_hub_task


@pytest.fixture(scope="module")
def published(hub):
    job = run_hub_task(
        HubTask(
            "push",
            "ada/reverse-10",
            hub.ADA,
            hub.url,
            checkpoint=str(ROOT / "checkpoints" / "reverse"),
        )
    )
    assert job.status == "done", job.message
    return "ada/reverse-10"


def test_its_card_is_read_and_validated_as_the_hub_does(hub, published):
    card = ModelCard(hub.files(published)["README.md"].decode())
    assert "transformer-playground" in card.data.tags
    assert card.data.eval_results[0].metric_type == "exact_match"
    assert card.data.eval_results[0].metric_value == 1.0
    card.validate()  # sends a request to the Hub


def test_the_code_of_the_card_runs_unchanged(hub, published, tmp_path):
    text = hub.files(published)["README.md"].decode()
    snippet = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    promised = re.search(r"print\(.*\)  # (.+)", snippet).group(1)
    bare = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", snippet],
        cwd=tmp_path,
        env=bare | hub.environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == promised
