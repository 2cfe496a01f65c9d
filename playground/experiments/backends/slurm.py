"""Train shards as a SLURM job array; the folder must be on a disk that all nodes share.

The tasks of the array have the numbers of the shards. A task is the command `run-shard` itself, so
that SLURM's signal before a time limit, a preemption or `scancel` lets it save its runs. SLURM puts
the task of a lost node back into its queue, and `run-shard` continues what is there.
"""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict, Field

from playground.errors import UserError

from .base import Backend, Job

SIGNAL_S = 60  # seconds from SIGTERM to the time limit: enough to save every run
COMMAND_TIMEOUT_S = 60


class SlurmOptions(BaseModel):
    """What a task may use; empty texts and 0 leave it to the cluster.

    minutes   time limit of a task
    parallel  maximum number of tasks at a time
    """

    model_config = ConfigDict(extra="forbid")

    partition: str = ""
    account: str = ""
    minutes: int = Field(60, ge=1)
    memory_gb: int = Field(0, ge=0)
    cores: int = Field(1, ge=1)
    parallel: int = Field(0, ge=0)


class Slurm(Backend):
    """The commands sbatch, squeue and scancel of this machine."""

    Options = SlurmOptions

    def start(self, job: Job, shards: Sequence[int]) -> dict[int, str]:
        options, logs = self.options, job.folder / "logs"
        logs.mkdir(exist_ok=True)
        shard = f'"$SLURM_ARRAY_TASK_ID"/{job.n_shards}'
        out = f'{shlex.quote(str(job.folder / "shards"))}/"$SLURM_ARRAY_TASK_ID"'
        program = shlex.join([sys.executable, "-m", "playground", "run-shard"])
        spec = shlex.quote(str(job.folder / "spec.json"))
        sbatch = {
            "job-name": job.name,
            "array": ",".join(map(str, shards)) + f"%{options.parallel}" * bool(options.parallel),
            "cpus-per-task": options.cores,
            "time": options.minutes,
            "partition": options.partition,
            "account": options.account,
            "mem": f"{options.memory_gb}G" * bool(options.memory_gb),
            "output": logs / "%a.log",
            "open-mode": "append",
            "signal": f"B:TERM@{SIGNAL_S}",
            # `exec`: SLURM sends its signals to this process
            "wrap": f"PLAYGROUND_SLOTS={options.cores} exec {program} {spec} "
            f"--shard {shard} --out {out}",
        }
        words = [f"--{name}={value}" for name, value in sbatch.items() if value != ""]
        array = _run("sbatch", "--parsable", "--requeue", *words).split(";")[0].strip()
        return {index: f"{array}_{index}" for index in shards}

    def states(self, job: Job) -> dict[int, str]:
        # of this user, because squeue rejects the identifier of a job that ended long ago
        output = _run("squeue", "--me", "--noheader", "--array", "--format=%i %T")
        states = dict(line.split(maxsplit=1) for line in output.splitlines())
        return {shard: states[id] for shard, id in job.ids.items() if id in states}

    def cancel(self, job: Job, shards: Collection[int]) -> None:
        if shards:
            _run("scancel", "--quiet", *(job.ids[shard] for shard in shards))

    def log_hint(self, job: Job, shard: int) -> str:
        return f"in {job.folder / 'logs' / f'{shard}.log'}"

    def fetch(self, job: Job) -> None:
        pass  # the jobs write into the folder


def _run(program: str, *words: str) -> str:
    """Run a command of SLURM, and return its output. Raises UserError if it fails."""
    if shutil.which(program) is None:
        raise UserError(
            f"{program} is not on this machine; start the experiment where SLURM's commands are, "
            "such as the login node of a cluster"
        )
    try:
        done = subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{program} does not answer; try again later") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UserError(f"{program}: {reason[-1].removeprefix(f'{program}: ')}")
    return done.stdout
