"""A run continues in another process; tests/unit/checkpoints/test_resume.py has all cases."""

import json
import subprocess
import sys

import pytest

from playground.checkpoints.checkpoint import resume_trainer
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.trainer_fingerprint import fingerprint

CHANGE = SettingChange(4, "learning_rate", 0.02)
TRAIN = """
import json, os, signal, sys
from pathlib import Path
from playground.checkpoints.checkpoint import save_checkpoint
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
trainer = Trainer(RunConfig.from_flat(json.loads(sys.argv[1])))
for step in range(7):
    if step == 4:
        trainer.schedule_change("learning_rate", 0.02)
    trainer.train_step()
save_checkpoint(Path(sys.argv[2]), trainer, None)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.smoke
def test_killed_and_resumed_live_change_equals_scheduled_change(small_run, tmp_path):
    run = small_run.replace(max_steps=14, d_model=16, d_ff=16, dropout=0.1)
    uninterrupted = Trainer(run, [CHANGE])
    list(uninterrupted)
    expected = fingerprint(uninterrupted)
    command = [sys.executable, "-W", "error", "-c", TRAIN]
    command += [json.dumps(run.to_flat()), str(tmp_path / "cut")]
    killed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert killed.returncode == -9, killed.stderr
    resumed, _ = resume_trainer(tmp_path / "cut")
    list(resumed)
    assert (fingerprint(resumed), resumed.changes) == (expected, [CHANGE])
