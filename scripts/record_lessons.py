"""Record results of lessons that train for minutes: `python -m scripts.record_lessons [NAME ...]`.

Learn has them beside the button that trains, so that the result can be seen at once.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import torch

from playground.cli.experiments import OWNER, open_experiments
from playground.jobs.job import JobStatus
from playground.lessons.service import LessonJobs
from playground.server.lessons_api import recorded_path

LESSONS = ("induction", "grokking")
POLL_S = 1.0


def record(name: str, folder: Path) -> None:
    """Train and measure a lesson as the page does, and write its result."""
    started = time.monotonic()
    with open_experiments(folder) as experiments:
        jobs = LessonJobs(experiments)
        job = jobs.submit_lesson(name, {}, OWNER)
        while (response := jobs.poll(job.id, OWNER))["status"] in (
            JobStatus.QUEUED,
            JobStatus.RUNNING,
        ):
            time.sleep(POLL_S)
        jobs.close()
    if response["status"] != JobStatus.DONE:
        raise SystemExit(f"{name}: {response['message']}")
    result = {key: value for key, value in response["result"].items() if key != "runs"}
    minutes = (time.monotonic() - started) / 60
    note = (
        f"A stored run of {datetime.date.today().isoformat()}, seed 0: {minutes:.1f} minutes with "
        f"{os.cpu_count()} cores ({platform.machine()}), PyTorch {torch.__version__}."
    )
    path = recorded_path(name)
    path.parent.mkdir(exist_ok=True)
    recorded = {**result, "runs": [], "note": note}
    text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{name}: {result['outcome']}. {note}", flush=True)


if __name__ == "__main__":
    for each in sys.argv[1:] or LESSONS:
        with tempfile.TemporaryDirectory() as scratch:
            record(each, Path(scratch) / "runs")
