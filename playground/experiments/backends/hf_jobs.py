"""Train shards as jobs of Hugging Face, which a private bucket connects with this machine.

    spec.json                the specification of the experiment
    package/                 the wheel of this checkout, and its requirements
    shards/<k>/experiments/  the results of shard k
    shards/<k>/runs/         its finished runs, if the experiment keeps weights

A job trains on its own disk and copies the results into the bucket. The
labels of a job name its experiment and its shard, so this machine needs no list of the jobs. The
account of the token pays. No job gets a token.
"""

import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from huggingface_hub import JobHardwareInfo, JobInfo, Volume
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]
from pydantic import BaseModel, ConfigDict, Field

from playground import ASSETS_DIR, IS_INSTALLED
from playground.common import messages
from playground.common.format import format_count, format_duration
from playground.errors import UserError
from playground.hub.client import Hub
from playground.hub.errors import NotFoundError
from playground.hub.transport import configure_process

from .base import Backend, Job

SPEC, REQUIREMENTS = "spec.json", ("requirements.txt", "constraints.txt")
IMAGE = "ghcr.io/astral-sh/uv:python3.12-bookworm"
MOUNT = "/experiment"
# Its words are the mounted bucket, the shard, the number of shards, and the build of torch.
PROGRAM = """\
uv pip install --quiet --system --torch-backend "$3" \
-r "$0/package/requirements.txt" -c "$0/package/constraints.txt" "$0"/package/*.whl &&
exec python -m playground run-shard "$0/spec.json" --shard "$1/$2" --out shard \
--results "$0/shards/$1"
"""
EXPERIMENT, SHARD = "playground-experiment", "shard"  # labels
ACTIVE = ["SCHEDULING", "RUNNING"]
SETUP_S = 180  # expected seconds of a job before its first step
UNIT_S = {"second": 1, "minute": 60, "hour": 3600}  # of a price
LOG_LINES = 200


class HfJobsOptions(BaseModel):
    """What a job may use.

    flavor    kind of machine
    minutes   time limit of a job
    attempts  starts of a job that fails, by the Hub itself
    """

    model_config = ConfigDict(extra="forbid")

    flavor: str = "cpu-upgrade"
    minutes: int = Field(60, ge=1)
    attempts: int = Field(1, ge=1, le=10)


class Machine(TypedDict):
    """A kind of machine with its price in dollars: an hour, and of all jobs of an experiment.

    `seconds` is the expected duration of the longest job.
    """

    flavor: str
    name: str
    cpu: str
    hourly: float
    seconds: float
    cost: float


class HfJobs(Backend):
    """Jobs of the account whose token is `token`."""

    Options = HfJobsOptions
    shares_disk = False
    runs_per_shard = 100  # the start of a job takes minutes, which cost money
    poll_interval_s = 5.0
    needs_token = True
    _has_uploaded = False  # the code of a command is the same for all of its jobs

    def start(self, job: Job, shards: Sequence[int]) -> dict[int, str]:
        options, hardware, ids = self.options, self._hardware, {}
        if not self._has_uploaded:
            self._upload_package(job)
            self._has_uploaded = True
        torch = "auto" if hardware.accelerator else "cpu"
        for shard in shards:
            with self._hub.translating_errors(f"start the job of shard {shard}"):
                ids[shard] = self._hub.api.run_job(
                    image=IMAGE,
                    command=["bash", "-c", PROGRAM, MOUNT, str(shard), str(job.n_shards), torch],
                    env={"PLAYGROUND_SLOTS": str(_cores(hardware))},
                    flavor=options.flavor,
                    timeout=60 * options.minutes,
                    attempts=options.attempts,
                    name=re.sub(r"[^a-zA-Z0-9_-]", "-", f"{job.name}-{shard}"),
                    labels={EXPERIMENT: job.id, SHARD: str(shard)},
                    volumes=[Volume(type="bucket", source=self._bucket(job), mount_path=MOUNT)],
                    namespace=self.account,
                ).id
        return ids

    def states(self, job: Job) -> dict[int, str]:
        return {_shard(each): each.status.stage for each in self._jobs(job, status=ACTIVE)}

    def cancel(self, job: Job, shards: Collection[int]) -> None:
        for each in self._jobs(job, status=ACTIVE):
            if _shard(each) in shards:
                with self._hub.translating_errors(f"cancel the job of shard {_shard(each)}"):
                    self._hub.api.cancel_job(job_id=each.id, namespace=self.account)

    def log_hint(self, job: Job, shard: int) -> str:
        last = max(self._jobs(job, shard=shard), key=lambda each: str(each.created_at))
        with self._hub.translating_errors("download the log of a job"):
            lines = self._hub.api.fetch_job_logs(
                job_id=last.id, namespace=self.account, tail=LOG_LINES
            )
            text = "\n".join(lines)
        path = job.folder / "logs" / f"{shard}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(f"{text}\n".encode())
        return f"in {path}, and on {last.url}"

    def fetch(self, job: Job) -> None:
        # By size, because the clocks of the machines differ, and results only become more.
        with suppress(NotFoundError), self._hub.translating_errors("download the results"):
            self._hub.api.sync_bucket(
                f"hf://buckets/{self._bucket(job)}/shards",
                str(job.folder / "shards"),
                include=["*/experiments/*", "*/runs/*"],
                exclude=[f"*/runs/{each.name}/*" for each in job.folder.glob("runs/*")],
                ignore_times=True,
                quiet=True,
            )

    def describe_cost(self, core_seconds: Sequence[float]) -> str:
        machine = _price(self._hardware, core_seconds)
        return (
            f"{format_count(len(core_seconds), 'job')} on {machine['name']} ({machine['cpu']}), "
            f"each about {format_duration(machine['seconds'])}, cost about "
            f"${machine['cost']:,.2f} in all; the account {self.account} pays"
        )

    def list_machines(self, core_seconds: Sequence[float], needs_gpu: bool) -> list[Machine]:
        """Return the machines that can train jobs, the cheapest first, with their prices."""
        machines = [
            _price(each, core_seconds)
            for each in self._machines.values()
            if bool(each.accelerator) == needs_gpu
        ]
        return sorted(machines, key=lambda each: each["hourly"])

    # Connection

    @cached_property
    def _hub(self) -> Hub:
        if not self.token:
            raise UserError("HF Jobs need a token: run `hf auth login`, or set HF_TOKEN")
        configure_process()
        disable_progress_bars()
        return Hub(self.token)

    @cached_property
    def account(self) -> str:  # type: ignore[override]
        return str(self._hub.account()["name"])

    @cached_property
    def _machines(self) -> dict[str, JobHardwareInfo]:
        with self._hub.translating_errors("list the machines of HF Jobs"):
            return {each.name: each for each in self._hub.api.list_jobs_hardware()}

    @property
    def _hardware(self) -> JobHardwareInfo:
        flavor = self.options.flavor
        if flavor not in self._machines:
            raise UserError(messages.choose_one_of("flavor", flavor, self._machines), "flavor")
        return self._machines[flavor]

    # Jobs and their bucket

    def _jobs(self, job: Job, shard: int | None = None, **filters: Any) -> list[JobInfo]:
        labels = {EXPERIMENT: job.id} | ({} if shard is None else {SHARD: str(shard)})
        with self._hub.translating_errors("list the jobs"):
            return list(self._hub.api.list_jobs(labels=labels, namespace=self.account, **filters))

    def _bucket(self, job: Job) -> str:
        return f"{self.account}/playground-{job.id}"

    def _upload_package(self, job: Job) -> None:
        bucket = self._bucket(job)
        with tempfile.TemporaryDirectory() as folder:
            package = [build_wheel(Path(folder)), *(ASSETS_DIR / name for name in REQUIREMENTS)]
            files: list[tuple[str | Path | bytes, str]] = [(job.folder / SPEC, SPEC)]
            files += [(path, f"package/{path.name}") for path in package]
            with self._hub.translating_errors("upload the package to", bucket):
                self._hub.api.create_bucket(bucket, private=True, exist_ok=True)
                self._hub.api.batch_bucket_files(bucket, add=files)


def _shard(info: JobInfo) -> int:
    return int((info.labels or {})[SHARD])


def _price(hardware: JobHardwareInfo, core_seconds: Sequence[float]) -> Machine:
    """Return what jobs cost on a machine; a started minute counts as a whole one."""
    times = [SETUP_S + seconds / _cores(hardware) for seconds in core_seconds]
    minutes = sum(math.ceil(seconds / 60) for seconds in times)
    hourly = 3600 / UNIT_S[hardware.unit_label] * hardware.unit_cost_usd
    return {
        "flavor": hardware.name,
        "name": hardware.pretty_name,
        "cpu": hardware.cpu,
        "hourly": hourly,
        "seconds": max(times),
        "cost": max(minutes / 60 * hourly, 0.01),
    }


def _cores(hardware: JobHardwareInfo) -> int:
    return int(hardware.cpu.split()[0])  # such as "8 vCPU"


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout in an empty folder, and return its path."""
    if IS_INSTALLED:
        raise UserError(
            "HF Jobs train the code of a checkout, and this package is installed without one; "
            "clone the repository, and start the command in its folder"
        )
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    done = subprocess.run(
        [sys.executable, *words, str(ASSETS_DIR)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UserError(f"pip could not build the wheel of this checkout: {reason}")
    return next(folder.glob("*.whl"))
