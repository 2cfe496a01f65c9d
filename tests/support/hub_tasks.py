"""Hub tasks in their own processes, as the page and the commands run them, or in this one."""

import os
import threading
from dataclasses import replace
from types import SimpleNamespace

from playground.hub.jobs import HubJobs


def start_hub_task(task, on_progress=lambda message: None):
    """Start a job; return its queue and the job."""
    queue = HubJobs()
    job = queue.start(task, "ada", on_progress=lambda job: on_progress(job.message))
    return queue, job


def run_tasks_here(monkeypatch, run_task_in_process, scratch):
    """Run the hub tasks of commands in this process instead of in one of their own."""

    def submit(queue, task, on_progress):
        task = replace(task, endpoint=os.environ["HF_ENDPOINT"])
        outcome, content, *_ = run_task_in_process(task, scratch)
        result, message = (content, "") if outcome == "result" else (None, content)
        released = threading.Event()
        released.set()
        return SimpleNamespace(result=result, message=message, released=released)

    monkeypatch.setattr("playground.hub.jobs.HubJobs.start", submit)
