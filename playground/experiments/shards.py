"""Split an experiment into shards that train anywhere, and merge their results.

    <folder>/spec.json      the specification of the experiment
    <folder>/jobs.json      the backend, the number of shards, and the last job of each
    <folder>/shards/<k>/    the storage folder of shard k: its runs, and their results
    <folder>/experiments/   the merged experiment, as a server or a command stores it

A shard is an experiment with the runs k, k + n, k + 2n, ... of the plan. The command `run-shard`
trains it on this machine or elsewhere, and continues what an earlier attempt left. The folder is
the only connection between the machines.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from playground.common.atomic_write import storing, write_file
from playground.common.strict_json import read_json
from playground.common.validation import parse
from playground.errors import UserError

from .backends import BACKENDS, Job
from .spec import SPEC_FIELDS, Experiment, parse_experiment
from .store import StoredExperiment
from .summary import read_lines

SPEC, JOBS = "spec.json", "jobs.json"
MERGED = "merged"  # the id of the merged experiment
MAX_ATTEMPTS = 3  # jobs of one shard while a command waits for it
POLL_INTERVAL_S = 2.0


class ShardJobs(BaseModel):
    """Where the shards of an experiment train.

    options   those of the backend
    jobs      the identifier of the last job of a shard, by its number
    """

    backend: str
    options: dict[str, Any]
    n_shards: int
    jobs: dict[int, str] = {}


class ShardedExperiment:
    """An experiment that trains in shards, and its folder."""

    def __init__(self, folder: Path, experiment: Experiment, record: ShardJobs) -> None:
        self.folder, self.experiment, self.record = folder, experiment, record
        self.backend = BACKENDS[record.backend](record.options)

    @classmethod
    def create(cls, folder: Path, experiment: Experiment, record: ShardJobs) -> ShardedExperiment:
        """Store a new experiment in a folder, or return the same one that is there already.

        The backend, its options and the number of shards are those of `record`; an experiment that
        has jobs keeps its number of shards.

        Raises:
            UserError: when the folder has another experiment, or cannot be written.
        """
        if (folder / JOBS).exists():
            present = cls.read(folder)
            if not present.experiment.is_equivalent(experiment):
                raise UserError(f"--out {folder} has another experiment; choose another folder")
            record.n_shards, record.jobs = present.record.n_shards, present.record.jobs
        spec = experiment.model_dump_json(include=set(SPEC_FIELDS), indent=1)
        with storing("the experiment"):
            write_file(folder / SPEC, spec.encode() + b"\n")
        sharded = cls(folder, experiment, record)
        sharded.write_jobs()
        return sharded

    @classmethod
    def read(cls, folder: Path, owner: str = "") -> ShardedExperiment:
        """Read the experiment of a folder.

        Raises:
            UserError: when the folder has none, or it is damaged.
        """
        if not (folder / JOBS).exists():
            raise UserError(
                f"{folder} has no experiment that trains in shards; give the folder that "
                "`experiment --on` has as --out"
            )
        try:
            experiment = parse_experiment(read_json(folder / SPEC), owner)
            return cls(folder, experiment, parse(ShardJobs, read_json(folder / JOBS)))
        except (OSError, ValueError) as error:
            raise UserError(f"the experiment in {folder} cannot be read: {error}") from None

    def write_jobs(self) -> None:
        with storing("the jobs of the experiment"):
            write_file(self.folder / JOBS, self.record.model_dump_json(indent=1).encode() + b"\n")

    def n_runs(self, shard: int) -> int:
        """Return the number of runs of a shard."""
        return len(range(shard, self.experiment.n_runs, self.record.n_shards))

    def states(self) -> dict[int, str]:
        """Return the state of each shard whose job waits or runs, as its backend names it.

        Raises:
            UserError: when the backend does not answer.
        """
        states = self.backend.states(self.record.jobs.values())
        return {shard: states[job] for shard, job in self.record.jobs.items() if job in states}

    def train(self) -> Iterator[tuple[int, Counter[str]]]:
        """Submit the unfinished shards, and yield the finished runs and the jobs by state.

        A shard whose job ended early gets another one, up to `MAX_ATTEMPTS` in all. The iterator
        ends with the experiment. Jobs go on when the caller stops earlier.

        Raises:
            UserError: when a shard ends early at every attempt, or the backend rejects a job.
        """
        attempts: Counter[int] = Counter()
        while True:
            states = self.states()  # first: a job that is not among them writes no more results
            finished = [self._n_finished(shard) for shard in range(self.record.n_shards)]
            lost = [
                shard
                for shard, n in enumerate(finished)
                if n < self.n_runs(shard) and shard not in states
            ]
            if lost and min(attempts[shard] for shard in lost) >= MAX_ATTEMPTS and not states:
                raise UserError(
                    f"shard {lost[0]} ended {MAX_ATTEMPTS} times before its last run; its output "
                    f"is {self.backend.log_hint(self.folder, lost[0])}"
                )
            again = [shard for shard in lost if attempts[shard] < MAX_ATTEMPTS]
            if again:
                job = Job(self.folder, self.experiment.name, self.record.n_shards)
                self.record.jobs |= self.backend.start(job, again)
                self.write_jobs()
                attempts.update(again)
                states = dict.fromkeys(again, "SUBMITTED") | states
            yield sum(finished), Counter(states.values())
            if not states:
                return
            time.sleep(POLL_INTERVAL_S)

    def cancel(self) -> None:
        """End the jobs; each saves its runs first.

        Raises:
            UserError: when the backend does not answer.
        """
        self.backend.cancel([self.record.jobs[shard] for shard in self.states()])

    def merge(self) -> None:
        """Write the results of all shards so far as one experiment of the folder.

        Raises:
            UserError: when they cannot be written.
        """
        runs: dict[str, str] = {}
        lines: dict[str, bytes] = {}
        for shard in range(self.record.n_shards):
            for path, stored in self._stored(shard):
                by_run = read_lines(path.with_suffix(".jsonl"))
                runs |= {key: run for key, run in stored.runs.items() if run in by_run}
                lines |= by_run
        merged = StoredExperiment.model_construct(
            **dict(self.experiment) | {"id": MERGED},
            runs=runs,
            summarized=tuple(runs.values()),
            cancelled=False,
        )
        target = self.folder / "experiments" / f"{MERGED}.json"
        with storing("the results"):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_file(target.with_suffix(".jsonl"), b"".join(lines.values()))
            write_file(target, merged.model_dump_json(indent=1).encode() + b"\n")

    def _n_finished(self, shard: int) -> int:
        return sum(len(stored.summarized) for _, stored in self._stored(shard))

    def _stored(self, shard: int) -> Iterator[tuple[Path, StoredExperiment]]:
        """Yield the experiment that a shard has stored, if it has begun."""
        for path in (self.folder / "shards" / str(shard) / "experiments").glob("*.json"):
            try:
                yield path, parse(StoredExperiment, read_json(path))
            except (OSError, UserError, ValueError):
                continue  # a damaged file: the shard trains these runs again
