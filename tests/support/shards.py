"""A backend of fake jobs, and the results of shards: written as `run-shard` does, and compared."""

import json
from dataclasses import dataclass, field

from pydantic import BaseModel

from playground.common.atomic_write import write_file
from playground.errors import UserError
from playground.experiments.backends import BACKENDS, Backend
from playground.experiments.spec import StoredExperiment, parse_experiment
from playground.experiments.summary import RunMetrics, RunSummary, append_lines
from playground.runs.record import owner_id

# settings of runs that take a moment
FIVE_STEPS = {"max_length": 4, "max_steps": 5, "d_model": 16, "n_layers": 1, "d_ff": 16}
FIVE_STEPS |= {"batch_size": 8, "eval_size": 32, "eval_every": 5}
METRICS = RunMetrics(done=True, exact_match=1.0, n=10, steps=5, exact_at_budget=1.0)


@dataclass
class FakeCluster:
    """Jobs by identifier, each with its state."""

    states: dict[str, str] = field(default_factory=dict)
    n_failures: int = 0  # of the next requests
    submitted: list[list[int]] = field(default_factory=list)


def fake_cluster(monkeypatch):
    """Return the jobs of a new backend with the name "fake", which the test controls."""
    cluster = FakeCluster()

    class FakeBackend(Backend):
        class Options(BaseModel, extra="forbid"):
            minutes: int = 1

        poll_interval_s = 0

        def start(self, job, shards):
            cluster.submitted.append(list(shards))
            jobs = {shard: f"{len(cluster.submitted)}_{shard}" for shard in shards}
            cluster.states |= dict.fromkeys(jobs.values(), "RUNNING")
            return jobs

        def states(self, job):
            if cluster.n_failures:
                cluster.n_failures -= 1
                raise UserError("no answer", retryable=True)
            states = cluster.states
            return {shard: states[id] for shard, id in job.ids.items() if id in states}

        def cancel(self, job, shards):
            for shard in shards:
                del cluster.states[job.ids[shard]]

        def log_hint(self, job, shard):
            return "in the log"

        def fetch(self, job):
            pass

    monkeypatch.setitem(BACKENDS, "fake", FakeBackend)
    return cluster


def finish_shard(folder, spec, shard, n_shards, n=None):
    """Write the first `n` results of a shard of an experiment, None: all."""
    experiment = parse_experiment(spec | {"shard": (shard, n_shards)}, owner_id("ada"))
    keys = [key for key, *_ in experiment.planned_runs()][:n]
    runs = {key: f"run-{key.replace('/', '-')}" for key in keys}
    stored = StoredExperiment.model_construct(
        **dict(experiment) | {"id": "id"},
        runs=runs,
        summarized=tuple(runs.values()),
        cancelled=False,
    )
    target = folder / "shards" / str(shard) / "experiments" / "id.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.with_suffix(".jsonl").unlink(missing_ok=True)
    lines = [RunSummary(run=run, step=5, metrics=METRICS, counts=[]) for run in runs.values()]
    append_lines(target.with_suffix(".jsonl"), [each.line() for each in lines])
    write_file(target, stored.model_dump_json().encode())


def write_results(hub, job, n=None):
    """Write the first `n` results of a job of the fake Hub into its bucket; it succeeds."""
    (folder,) = job.mounts(hub).values()
    *_, shard, n_shards, _ = job.spec["command"]
    finish_shard(
        folder, json.loads((folder / "spec.json").read_text()), int(shard), int(n_shards), n
    )
    return 0


def write_wheel(folder):
    """Write an empty package instead of that of the checkout."""
    (folder / "playground.whl").write_bytes(b"wheel")
    return folder / "playground.whl"


def measurements(results):
    """Return every number of the runs that does not depend on the time or the place."""
    places = ("run", "seconds")
    return [
        (variant["label"], variant["curve"], variant["loss"], without(places, variant["seeds"]))
        for variant in results["variants"]
    ]


def without(names, rows):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]
