"""Split an experiment into shards that train anywhere, and merge their results.

    <folder>/spec.json      the specification of the experiment
    <folder>/jobs.json      the backend, the number of shards, and the last job of each
    <folder>/shards/<k>/    the storage folder of shard k: its runs, and their results
    <folder>/experiments/   the merged experiment, as a server or a command stores it
    <folder>/runs/          its runs with their weights, if the experiment keeps them

A shard is an experiment with the runs k, k + n, k + 2n, ... of the plan. The command `run-shard`
trains it on this machine or elsewhere, and continues what an earlier attempt left. The folder is
the only connection between the machines.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from playground.common.atomic_write import storing, write_file
from playground.common.platform import rename
from playground.common.strict_json import read_json
from playground.common.validation import parse
from playground.errors import UserError

from .backends import Job, find_backend
from .spec import SPEC_FIELDS, Experiment, ExperimentSpec, StoredExperiment, parse_experiment
from .summary import read_lines

COPY_INTERVAL_S = 15.0  # of the results of a job
SPEC, JOBS = "spec.json", "jobs.json"
MERGED = "merged"  # the id of the merged experiment
# Jobs of one shard in a row that add nothing: a lost node or a full disk often passes, while the
# third such end is most likely a fault of the experiment, which each further job would pay for.
MAX_ATTEMPTS = 3
MAX_FAILURES = 60  # requests in a row without an answer until a command stops to wait


class ShardJobs(BaseModel):
    """Where the shards of an experiment train.

    id         names the experiment at the backend
    jobs       the identifier of the last job of a shard, by its number
    cancelled  the jobs were cancelled; a command that waits for them starts no more
    account    the account that pays for them, if they need one
    """

    id: str = Field(default_factory=lambda: secrets.token_hex(8))
    backend: str
    options: dict[str, Any]
    n_shards: int
    jobs: dict[int, str] = {}
    cancelled: bool = False
    account: str = ""

    @classmethod
    def plan(
        cls, experiment: ExperimentSpec, backend: str, options: Mapping[str, Any], runs: int = 0
    ) -> ShardJobs:
        """Divide an experiment for a backend, into shards of so many runs (0: its default)."""
        default = find_backend(backend).runs_per_shard
        n_shards = -(-experiment.n_runs // (runs or default))
        return cls(backend=backend, options=dict(options), n_shards=n_shards)


class ShardResults(BaseModel):
    """What is read of a stored experiment, again and again: its runs, without the specification."""

    runs: dict[str, str]
    summarized: tuple[str, ...] = ()


class ShardedExperiment:
    """An experiment that trains in shards, and its folder."""

    def __init__(self, folder: Path, experiment: Experiment, record: ShardJobs) -> None:
        self.folder, self.experiment, self.record = folder, experiment, record
        self._attempts: Counter[int] = Counter()  # jobs of a shard since its last progress
        self._progress: dict[int, tuple[int, int]] = {}  # of a shard when its last job ended
        self.backend = find_backend(record.backend)(record.options)
        if not self.backend.shares_disk and any(
            variant.settings.get("dataset_sha256") for variant in experiment.variants
        ):
            raise UserError(
                f"{record.backend} does not have your dataset; train this experiment on this "
                "machine or on SLURM"
            )

    def use_token(self, token: str) -> None:
        """Talk to the backend with this token from now on."""
        if token != self.backend.token:
            self.backend = find_backend(self.record.backend)(self.record.options)
            self.backend.token = token

    @property
    def job(self) -> Job:
        """What the backend needs. Raises UserError for a token of another account."""
        record, account = self.record, self.backend.account
        if record.account not in ("", account):
            raise UserError(
                f"the jobs belong to the account {record.account}, and this is {account}; sign in "
                f"as {record.account}"
            )
        return Job(record.id, self.folder, self.experiment.name, record.n_shards, record.jobs)

    @classmethod
    def create(cls, folder: Path, experiment: Experiment, record: ShardJobs) -> ShardedExperiment:
        """Store a new experiment in a folder, or return the same one that is there already.

        One that has jobs keeps its id, its number of shards and its account, but not its options.
        Raises UserError when the folder has another experiment.
        """
        if (folder / JOBS).exists():
            present = cls.read(folder)
            if not present.experiment.is_equivalent(experiment):
                raise UserError(f"--out {folder} has another experiment; choose another folder")
            past = present.record
            record.id, record.n_shards, record.jobs = past.id, past.n_shards, past.jobs
            record.account = past.account
        sharded = cls(folder, experiment, record)
        spec = experiment.model_dump_json(include=set(SPEC_FIELDS), indent=1)
        with storing("the experiment"):
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / SPEC, spec.encode() + b"\n")
        sharded.write_jobs()
        return sharded

    @classmethod
    def read(cls, folder: Path, owner: str = "") -> ShardedExperiment:
        """Read the experiment of a folder. Raises UserError for none, or a damaged one."""
        if not (folder / JOBS).exists():
            raise UserError(
                f"{folder} has no experiment that trains in shards; give the folder that "
                "`experiment --on` has as --out"
            )
        try:
            experiment = parse_experiment(read_json(folder / SPEC), owner)
            return cls(folder, experiment, cls._read_jobs(folder))
        except (OSError, ValueError) as error:
            raise UserError(f"the experiment in {folder} cannot be read: {error}") from None

    @staticmethod
    def _read_jobs(folder: Path) -> ShardJobs:
        return parse(ShardJobs, read_json(folder / JOBS))

    def write_jobs(self) -> None:
        with storing("the jobs of the experiment"):
            write_file(self.folder / JOBS, self.record.model_dump_json(indent=1).encode() + b"\n")

    def allow_jobs(self) -> None:
        """Let shards get jobs after a cancellation, or after too many without progress."""
        self.record.cancelled = False
        self._attempts.clear()
        self.write_jobs()

    def states(self) -> dict[int, str]:
        """Return the state of each shard whose job waits or runs, as its backend names it."""
        return self.backend.states(self.job)

    def describe_cost(self) -> str:
        """Return the expected price of the jobs that `train` would submit; empty if it is none."""
        _, _, lost = self._poll()
        seconds = core_seconds(self.experiment, self.record.n_shards)
        return self.backend.describe_cost([seconds[shard] for shard in lost]) if lost else ""

    def train(self) -> Iterator[tuple[int, Counter[str]]]:
        """Start the unfinished shards; yield the finished runs and the jobs by state, to the end.

        A shard whose job ended early gets another one, up to `MAX_ATTEMPTS` that add nothing; then,
        or when the jobs are cancelled meanwhile, it raises UserError.
        """
        progress: tuple[int, Counter[str]] = 0, Counter()
        n_failures = 0
        while True:
            try:
                n_finished, states = self.advance()
                progress, n_failures = (n_finished, Counter(states.values())), 0
            except UserError as error:
                n_failures += 1
                if not error.retryable or n_failures == MAX_FAILURES:
                    raise
            yield progress
            if not n_failures and not progress[1]:
                return
            time.sleep(self.backend.poll_interval_s)

    def advance(self) -> tuple[int, dict[int, str]]:
        """Start the shards without a job; return the finished runs, and the states of the jobs."""
        states, n_finished, lost = self._poll()
        if lost and self._read_jobs(self.folder).cancelled:
            raise UserError("the jobs were cancelled; the same command continues from here")
        for shard in lost:
            progress = self._measure_progress(shard)
            if progress > self._progress.get(shard, progress):
                self._attempts[shard] = 0
            self._progress[shard] = progress
        again = [shard for shard in lost if self._attempts[shard] < MAX_ATTEMPTS]
        if lost and not again and not states:
            raise UserError(
                f"shard {lost[0]} ended {MAX_ATTEMPTS} times in a row without progress; its "
                f"output is {self.backend.log_hint(self.job, lost[0])}"
            )
        if again:
            self.record.account = self.backend.account
            self.write_jobs()  # before the first job: only this account can find it again
            self.record.jobs |= self.backend.start(self.job, again)
            self.write_jobs()
            self._attempts.update(again)
            states = dict.fromkeys(again, "SUBMITTED") | states
        return n_finished, states

    def _measure_progress(self, shard: int) -> tuple[int, int]:
        """Return the finished runs of a shard, and the size of the metrics: steps of a long run."""
        metrics = self._shard(shard).glob("runs/*/metrics.jsonl")
        return self._n_finished(shard), sum(path.stat().st_size for path in metrics)

    def _poll(self) -> tuple[dict[int, str], int, list[int]]:
        """Return the active shards, the finished runs, and the unfinished shards without a job."""
        states = self.states()  # first: a job that is not among them writes no more results
        self.backend.fetch(self.job)
        finished = [self._n_finished(shard) for shard in range(self.record.n_shards)]
        lost = [
            shard
            for shard, n in enumerate(finished)
            if n < len(range(shard, self.experiment.n_runs, len(finished))) and shard not in states
        ]
        return states, sum(finished), lost

    def cancel(self) -> dict[int, str]:
        """End the jobs, and a command that waits for them; return the states of active jobs."""
        self.record.cancelled = True
        self.write_jobs()
        states = self.states()
        self.backend.cancel(self.job, states.keys())
        return states

    def collect(self, known: Container[str] = ()) -> tuple[dict[str, str], dict[str, bytes]]:
        """Fetch the results but of `known` runs; return the runs by key, and the lines by run."""
        self.backend.fetch(self.job)
        runs: dict[str, str] = {}
        lines: dict[str, bytes] = {}
        for shard in range(self.record.n_shards):
            for path, stored in stored_results(self._shard(shard)):
                new = {run for run in stored.summarized if run not in known}
                by_run = read_lines(path.with_suffix(".jsonl")) if new else {}
                lines |= {run: bytes(by_run[run]) for run in new & by_run.keys()}
                runs |= {key: run for key, run in stored.runs.items() if run in lines}
        return runs, lines

    def merge(self) -> None:
        """Write the results of all shards so far as one experiment of the folder."""
        runs, lines = self.collect()
        if self.experiment.weights:
            self._collect_weights()
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

    def _collect_weights(self) -> None:
        """Move the runs of the shards that have ended to where this machine would train them."""
        active = self.states()
        with storing("the weights"):
            (self.folder / "runs").mkdir(exist_ok=True)
            for shard in set(range(self.record.n_shards)) - active.keys():
                for path in finished_runs(self._shard(shard)):
                    rename(path, self.folder / "runs" / path.name)

    def _n_finished(self, shard: int) -> int:
        return sum(len(stored.summarized) for _, stored in stored_results(self._shard(shard)))

    def _shard(self, shard: int) -> Path:
        return self.folder / "shards" / str(shard)


def stored_results(shard: Path) -> Iterator[tuple[Path, ShardResults]]:
    """Yield the file of the experiment that a shard has stored in its folder, if it has begun."""
    for path in (shard / "experiments").glob("*.json"):
        try:
            yield path, parse(ShardResults, read_json(path))
        except (OSError, UserError, ValueError):
            continue  # a damaged file: the shard trains these runs again


def finished_runs(shard: Path) -> list[Path]:
    """Return the folders of the runs whose results a shard has stored."""
    runs = {run for _, stored in stored_results(shard) for run in stored.summarized}
    folders = []
    for path in sorted((shard / "runs").glob("*/run.json")):
        with suppress(ValueError, OSError):  # a damaged run has no result
            record = read_json(path)
            if isinstance(record, dict) and record.get("id") in runs:
                folders.append(path.parent)
    return folders


def core_seconds(experiment: ExperimentSpec, n_shards: int) -> list[float]:
    """Return the expected seconds of training on one core, for each shard."""
    planned = [variant.steps * variant.step_s for _, variant, _ in experiment.planned_runs()]
    return [sum(planned[shard::n_shards]) for shard in range(n_shards)]


@contextmanager
def mirrored_results(out: Path, results: Path, has_weights: bool = False) -> Iterator[None]:
    """Begin with the results in `results`, and copy the new ones there during a `with` block.

    `has_weights` adds the finished runs. Files are written as a whole: a mounted bucket has no
    locks, and no files that grow.
    """
    here, there = out / "experiments", results / "experiments"
    for folder in (here, there):
        folder.mkdir(parents=True, exist_ok=True)
    _copy(there, here)
    ended = threading.Event()

    def copy() -> None:
        for run in finished_runs(out) if has_weights else ():  # first: results count as a whole run
            _copy_run(run, results / "runs" / run.name)
        _copy(here, there)

    def copy_often() -> None:
        while not ended.wait(COPY_INTERVAL_S):
            with suppress(OSError):  # the next copy has the same results
                copy()

    thread = threading.Thread(target=copy_often, name="results", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        copy()


def _copy(source: Path, target: Path) -> None:
    """Copy the changed files of a folder."""
    for pattern in ("*.json", "*.jsonl"):  # in this order: each run that a .json counts has a line
        for path in source.glob(pattern):
            copy, data = target / path.name, path.read_bytes()
            if not copy.exists() or copy.read_bytes() != data:
                copy.write_bytes(data)


def _copy_run(source: Path, target: Path) -> None:
    """Copy the files of a run, which do not change any more."""
    for path in filter(Path.is_file, source.rglob("*")):
        copy = target / path.relative_to(source)
        if not copy.exists() or copy.stat().st_size != path.stat().st_size:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
