"""The results of shards: written as `run-shard` does, and compared."""

from playground.common.atomic_write import write_file
from playground.experiments.spec import parse_experiment
from playground.experiments.store import StoredExperiment
from playground.experiments.summary import RunMetrics, RunSummary, append_lines
from playground.runs.record import owner_id

FIVE_STEPS = {  # settings of runs that take a moment
    "max_length": 4,
    "max_steps": 5,
    "d_model": 16,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "eval_size": 32,
    "eval_every": 5,
}
METRICS = RunMetrics(done=True, exact_match=1.0, n=10, steps=5, exact_at_budget=1.0)


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


def measurements(results):
    """Return every number of the runs that does not depend on the time or the place."""
    places = ("run", "seconds")
    return [
        (variant["label"], variant["curve"], variant["loss"], without(places, variant["seeds"]))
        for variant in results["variants"]
    ]


def without(names, rows):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]
