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


def test_card_is_valid_for_the_hub(hub, published):
    card = ModelCard(hub.files(published)["README.md"].decode())
    assert "transformer-playground" in card.data.tags
    assert card.data.eval_results[0].metric_type == "exact_match"
    assert card.data.eval_results[0].metric_value == 1.0
    card.validate()  # sends a request to the Hub


def test_code_of_the_card_prints_its_documented_output(hub, published, tmp_path):
    text = hub.files(published)["README.md"].decode()
    snippet = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    expected = re.search(r"print\(.*\)  # (.+)", snippet).group(1)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))
    }
    completed = subprocess.run(
        [sys.executable, "-I", "-c", snippet],
        cwd=tmp_path,
        env=environment | hub.environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[-1] == expected
