"""The shards of an experiment, with a backend that the tests control."""

import json

import pytest

from playground.errors import UserError
from playground.experiments import shards as shards_module
from playground.experiments.backends import BACKENDS
from playground.experiments.shards import ShardedExperiment, ShardJobs, mirrored_results
from playground.experiments.spec import StoredExperiment, parse_experiment
from playground.runs.record import owner_id
from tests.support.app_server import wait_for
from tests.support.shards import fake_cluster, finish_shard

OWNER = owner_id("ada")
SPEC = {"name": "heads", "grid": {"n_heads": [1, 2]}, "seeds": [0, 1, 2, 3]}


@pytest.fixture
def cluster(monkeypatch):
    return fake_cluster(monkeypatch)


def create(folder, n_shards=2, **more):
    record = ShardJobs(backend="fake", options={}, n_shards=n_shards)
    return ShardedExperiment.create(folder, parse_experiment(SPEC | more, OWNER), record)


def finish(folder, shard, n=None):
    finish_shard(folder, SPEC, shard, 2, n)


def test_unfinished_shards_get_jobs_until_every_run_has_a_result(cluster, tmp_path):
    training = create(tmp_path).train()
    assert next(training) == (0, {"SUBMITTED": 2})
    assert next(training) == (0, {"RUNNING": 2})
    finish(tmp_path, 0)
    finish(tmp_path, 1, n=1)
    cluster.states.clear()  # the second job ended early
    assert next(training) == (5, {"SUBMITTED": 1})
    finish(tmp_path, 1)
    cluster.states.clear()
    assert list(training) == [(8, {})]
    assert cluster.submitted == [[0, 1], [1]]


def test_a_shard_that_always_ends_early_is_named(cluster, tmp_path):
    finish(tmp_path, 0)
    training = create(tmp_path).train()
    for _ in range(3):
        next(training)
        cluster.states.clear()
    with pytest.raises(UserError, match=r"shard 1 ended 3 times in a row .* in the log"):
        next(training)
    assert cluster.submitted == [[1]] * 3


@pytest.mark.parametrize("has_results", [True, False])
def test_progress_of_a_shard_resets_its_attempts(cluster, tmp_path, has_results):
    finish(tmp_path, 0)
    metrics = tmp_path / "shards" / "1" / "runs" / "run" / "metrics.jsonl"
    metrics.parent.mkdir(parents=True)
    training = create(tmp_path).train()
    for n in range(4):  # each job adds a run, or steps of a long run
        next(training)
        finish(tmp_path, 1, n=n if has_results else 0)
        metrics.write_text("{}\n" * (0 if has_results else n))
        cluster.states.clear()
    for _ in range(3):
        next(training)
        cluster.states.clear()
    with pytest.raises(UserError, match=r"shard 1 ended 3 times in a row"):
        next(training)
    assert cluster.submitted == [[1]] * 7


def test_a_short_failure_of_the_scheduler_does_not_end_a_command(cluster, tmp_path):
    training = create(tmp_path).train()
    next(training)
    cluster.n_failures = 2
    assert [next(training) for _ in range(3)] == [(0, {"SUBMITTED": 2})] * 2 + [(0, {"RUNNING": 2})]
    cluster.n_failures = 1000
    with pytest.raises(UserError, match="no answer"):
        list(training)


def test_the_same_command_waits_for_the_jobs_that_it_left(cluster, tmp_path):
    next(create(tmp_path).train())
    assert next(create(tmp_path, n_shards=5).train()) == (0, {"RUNNING": 2})
    assert cluster.submitted == [[0, 1]]


def test_cancelled_jobs_end_and_finished_runs_stay(cluster, tmp_path):
    sharded = create(tmp_path)
    next(sharded.train())
    finish(tmp_path, 1)
    ShardedExperiment.read(tmp_path).cancel()
    assert sharded.states() == {}
    sharded.merge()
    stored = StoredExperiment.model_validate_json(
        (tmp_path / "experiments" / "merged.json").read_text()
    )
    assert len(stored.summarized) == 4


def test_a_command_that_waits_for_cancelled_jobs_starts_no_more(cluster, tmp_path):
    waiting = create(tmp_path).train()
    next(waiting)
    ShardedExperiment.read(tmp_path).cancel()
    with pytest.raises(UserError, match="the jobs were cancelled"):
        next(waiting)
    next(create(tmp_path).train())
    assert cluster.submitted == [[0, 1]] * 2


def test_a_folder_has_one_experiment(cluster, tmp_path):
    create(tmp_path)
    with pytest.raises(UserError, match="has another experiment"):
        create(tmp_path, seeds=[9])
    with pytest.raises(UserError, match="has no experiment that trains in shards"):
        ShardedExperiment.read(tmp_path / "missing")


def test_a_dataset_stays_on_machines_that_share_the_disk(cluster, tmp_path, monkeypatch):
    dataset = {"task": "dataset", "dataset_sha256": "0" * 64, "dataset_symbols": "a b"}
    base = dataset | {"max_length": 4, "max_target_length": 4}
    create(tmp_path, base=base)
    monkeypatch.setattr(BACKENDS["fake"], "shares_disk", False)
    with pytest.raises(UserError, match="fake does not have your dataset"):
        create(tmp_path, base=base)


def test_a_record_of_an_unknown_backend_is_refused(cluster, tmp_path):
    create(tmp_path)
    record = (tmp_path / "jobs.json").read_text()
    (tmp_path / "jobs.json").write_text(record.replace('"fake"', '"cloud"'))
    with pytest.raises(UserError, match="is cloud; choose one of slurm, hf-jobs"):
        ShardedExperiment.read(tmp_path)


def test_a_damaged_result_counts_as_missing(cluster, tmp_path):
    finish(tmp_path, 0)
    finish(tmp_path, 1)
    (tmp_path / "shards" / "1" / "experiments" / "id.json").write_text("{")
    assert next(create(tmp_path).train())[0] == 4


@pytest.mark.parametrize("weights", [True, False])
def test_collected_weights_are_where_this_machine_leaves_them(cluster, tmp_path, weights):
    sharded = create(tmp_path, weights=weights)
    next(sharded.train())
    finish(tmp_path, 0, n=1)
    finish(tmp_path, 1, n=1)
    shards = tmp_path / "shards"
    run, other = (
        shards / each for each in ("0/runs/folder-of-run-0-0", "1/runs/folder-of-run-1-0")
    )
    for folder in (run, other, run.with_name("unfinished")):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text("weights")
        (folder / "run.json").write_text(json.dumps({"id": folder.name.removeprefix("folder-of-")}))
    del cluster.states[sharded.record.jobs[0]]  # the other shard still writes
    sharded.merge()
    assert [path.name for path in tmp_path.glob("runs/*")] == ["folder-of-run-0-0"] * weights
    assert other.exists()
    sharded.merge()


# The copy of the results of a job, which outlives its disk


def files(folder):
    return {path.name: path.read_text() for path in (folder / "experiments").iterdir()}


def write(folder, **contents):
    for name, text in contents.items():
        (folder / "experiments" / name.replace("_", ".")).write_text(text)


def test_results_are_copied_also_after_a_signal_and_continued_elsewhere(tmp_path):
    first, second, results = (tmp_path / name for name in ("first", "second", "results"))

    def train():
        with mirrored_results(first, results):
            write(first, a_json="{}", a_jsonl="line\n")
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        train()
    assert files(results) == {"a.json": "{}", "a.jsonl": "line\n"}
    with mirrored_results(second, results):
        assert files(second) == files(results)
        write(second, a_json="{1}", a_jsonl="line\nline\n")
    assert files(results) == {"a.json": "{1}", "a.jsonl": "line\nline\n"}


def test_results_are_copied_during_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(shards_module, "COPY_INTERVAL_S", 0.01)
    out, results = tmp_path / "out", tmp_path / "results"
    with mirrored_results(out, results):
        write(out, a_json="{}")
        wait_for(lambda: files(results) == {"a.json": "{}"}, 10, "a copy")


def test_unfinished_files_are_not_copied(tmp_path):
    out, results = tmp_path / "out", tmp_path / "results"
    with mirrored_results(out, results):
        (out / "experiments" / ".a.json.1234.tmp").write_text("{")
    assert files(results) == {}


@pytest.mark.parametrize("has_weights", [True, False])
def test_finished_runs_are_copied_where_weights_stay(tmp_path, has_weights):
    out, results = tmp_path / "out", tmp_path / "results"
    with mirrored_results(out, results, has_weights):
        for run in ("done", "training"):
            checkpoint = out / "runs" / f"folder-of-{run}" / "checkpoints" / "5"
            checkpoint.mkdir(parents=True)
            (checkpoint.parents[1] / "run.json").write_text(f'{{"id": "{run}"}}')
            (checkpoint / "model.safetensors").write_bytes(b"weights")
        write(out, a_json='{"runs": {"0/0": "done", "0/1": "training"}, "summarized": ["done"]}')
    copied = [path.relative_to(results).parts[1] for path in results.rglob("*.safetensors")]
    assert copied == ["folder-of-done"] * has_weights
