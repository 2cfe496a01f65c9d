"""The jobs of the fake Hub: commands that run in processes of this machine.

A bucket that a job mounts is a folder, whose path replaces the mount path among the words of the
command. The program `uv` only unpacks wheels, because their dependencies are installed here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from .store import format_timestamp, now
from .wire import HubError, Request, Response, json_response
from .writing import find_writer

if TYPE_CHECKING:
    from .hub import FakeHub

GPU = {"type": "gpu", "model": "A10G", "quantity": "1", "vram": "24 GB", "manufacturer": "Nvidia"}
HARDWARE = [
    {
        "name": name,
        "prettyName": title,
        "cpu": f"{cores} vCPU",
        "ram": "32 GB",
        "accelerator": GPU if name.startswith("a10g") else None,
        "unitCostMicroUSD": cost,
        "unitCostUSD": cost / 1e6,
        "unitLabel": "minute",
    }
    for name, title, cores, cost in (
        ("cpu-basic", "CPU Basic", 2, 167),
        ("cpu-upgrade", "CPU Upgrade", 8, 500),
        ("a10g-small", "Nvidia A10G - small", 4, 16_667),
    )
]
UV = """\
#!/bin/sh
for word; do
  case $word in
    */*.whl) python -m zipfile -e "$word" "$PYTHONPATH" ;;
    */*) test -f "$word" || exit 2 ;;
  esac
done
"""
ACTIVE = ("SCHEDULING", "RUNNING")


@dataclass
class HubJob:
    """A job: its specification as the client sent it, and its stage."""

    id: str
    owner: str
    spec: dict
    stage: str = "SCHEDULING"
    message: str | None = None
    created: datetime = field(default_factory=now)
    attempts: int = 0
    log: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def shard(self) -> str:
        return self.spec.get("labels", {}).get("shard", "")

    def end(self, stage: str, message: str = "") -> None:
        """Set the last stage; a job that has ended does not change."""
        if not self.ended.is_set():
            self.stage, self.message = stage, message
            self.ended.set()

    def mounts(self, hub: FakeHub) -> dict[str, Path]:
        """Return the folder of each mount path."""
        return {
            each["mountPath"]: hub.buckets[each["source"]].folder for each in self.spec["volumes"]
        }

    def to_json(self) -> dict:
        names = ("command", "arguments", "environment", "flavor", "labels", "volumes")
        return {
            "id": self.id,
            "createdAt": format_timestamp(self.created),
            "dockerImage": self.spec["dockerImage"],
            "owner": {"id": self.owner, "name": self.owner, "type": "user"},
            "status": {"stage": self.stage, "message": self.message},
        } | {name: self.spec.get(name) for name in names}


def run_in_process(hub: FakeHub, job: HubJob) -> int:
    """Run the command of a job until its end or its time limit, and return the exit code."""
    with tempfile.TemporaryDirectory(dir=hub.folder) as folder:
        uv = Path(folder) / "bin" / "uv"
        uv.parent.mkdir()
        uv.write_text(UV)
        uv.chmod(0o755)
        mounts = job.mounts(hub)
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(mounts.get(word, word)) for word in job.spec["command"]],
                cwd=folder,
                env={
                    "PATH": f"{uv.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
                    "HOME": folder,
                    "PYTHONPATH": f"{folder}/site",
                    "OMP_NUM_THREADS": "1",
                }
                | job.spec["environment"],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            threading.Thread(target=_terminate_at_end, args=(job, process), daemon=True).start()
            code = process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # as the end of a container does
        job.log += log.read_text(errors="replace").splitlines()
        return code


def _terminate_at_end(job: HubJob, process: subprocess.Popen) -> None:
    """Send SIGTERM to a process whose job is cancelled or reaches its time limit."""
    if not job.ended.wait(job.spec["timeoutSeconds"]):
        job.end("ERROR", "Job timeout")
    process.terminate()


def _run(hub: FakeHub, job: HubJob) -> None:
    job.stage = "RUNNING"
    while not job.ended.is_set() and job.attempts < job.spec.get("attempts", 1):
        job.attempts += 1
        code = hub.run_job(hub, job)
        if code == 0:
            job.end("COMPLETED")
    job.end("ERROR", "Job failed with exit code")


def hardware(hub: FakeHub, request: Request) -> Response:
    return json_response(HARDWARE)


def start_job(hub: FakeHub, request: Request, namespace: str) -> Response:
    find_writer(hub, request, namespace)
    job = HubJob(f"{len(hub.jobs) + 1:024x}", namespace, request.json())
    if job.spec["flavor"] not in [each["name"] for each in HARDWARE]:
        raise HubError(400, "Invalid flavor")
    hub.jobs[job.id] = job
    if job.shard not in hub.unstarted_shards:
        thread = threading.Thread(target=_run, args=(hub, job), daemon=True)
        hub.job_threads.append(thread)
        thread.start()
    return json_response(job.to_json())


def list_jobs(hub: FakeHub, request: Request, namespace: str) -> Response:
    find_writer(hub, request, namespace)
    stages, labels = request.query.get("stage", []), request.query.get("label", [])
    pairs = [label.split("=", 1) for label in labels]
    return json_response(
        [
            job.to_json()
            for job in hub.jobs.values()
            if job.owner == namespace
            and (not stages or job.stage in stages)
            and all(job.spec.get("labels", {}).get(name) == value for name, value in pairs)
        ]
    )


def find_job(hub: FakeHub, request: Request, namespace: str, id: str) -> HubJob:
    find_writer(hub, request, namespace)
    job = hub.jobs.get(id)
    if job is None or job.owner != namespace:
        raise HubError(404, "Job not found")
    return job


def inspect_job(hub: FakeHub, request: Request, namespace: str, id: str) -> Response:
    return json_response(find_job(hub, request, namespace, id).to_json())


def cancel_job(hub: FakeHub, request: Request, namespace: str, id: str) -> Response:
    job = find_job(hub, request, namespace, id)
    job.end("CANCELED")
    return json_response(job.to_json())


def job_logs(hub: FakeHub, request: Request, namespace: str, id: str) -> Response:
    job = find_job(hub, request, namespace, id)
    date = format_timestamp(job.created)
    lines = ["===== Job started =====", *job.log[-int(request.first("tail", "1000")) :]]
    events = [f"data: {json.dumps({'data': line, 'timestamp': date})}\n\n" for line in lines]
    return Response(200, "".join(events).encode(), {"Content-Type": "text/event-stream"})
