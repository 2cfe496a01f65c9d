from pathlib import Path
from types import SimpleNamespace

import pytest

from playground.architectures.parameter_groups import parameter_count
from playground.experiments.progress import estimate, state_name
from playground.experiments.spec import parse_experiment
from playground.experiments.state import ExperimentState
from playground.experiments.summary import RunMetrics, RunSummary, append_lines, read_lines
from playground.experiments.variant import declared_step_s
from playground.training.presets import architecture_preset

SPEC = {"name": "heads", "grid": {"n_heads": [1, 2]}, "seeds": [0]}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        ("waiting", "running"),
        ("starting", "running"),
        ("training", "running"),
        ("stopping", "running"),
        ("paused", "paused"),
        ("stopped", "paused"),
        ("done", "done"),
        ("failed", "done"),
    ],
)
def test_an_experiment_runs_while_a_run_does_with_or_without_its_worker(status, name):
    experiment = parse_experiment(SPEC, "owner")
    state = ExperimentState(experiment, Path("unused"))
    state.owner = "the key of the owner"
    runs = {"0/0": SimpleNamespace(status=status), "1/0": SimpleNamespace(status="done")}
    evaluator = SimpleNamespace(unevaluated_runs=lambda state, runs: [])
    assert state_name(state, runs, evaluator) == name


def seconds_per_weight_and_token(architecture):
    """Return how much longer a step takes with each token of the maximum length, by weight."""
    short, long = (
        architecture_preset(architecture, position_type="rope", max_length=n) for n in (10, 20)
    )
    return (declared_step_s(long) - declared_step_s(short)) / parameter_count(long.model)


def test_a_step_of_a_decoder_only_model_reads_source_and_target():
    once, twice = map(seconds_per_weight_and_token, ("transformer", "decoder-only"))
    assert twice == pytest.approx(2 * once)


def test_an_experiment_takes_as_long_as_its_longest_run():
    spec = parse_experiment({**SPEC, "grid": {"n_layers": [1, 6]}}, "owner")
    registry = SimpleNamespace(
        settings=SimpleNamespace(slots_per_owner=2),
        all_runs=lambda: [],
        list_for_owner=lambda owner: [],
    )
    seconds = estimate(spec, registry, "ada")["seconds"]
    longest = max(variant.steps * declared_step_s(variant.config(0)) for variant in spec.variants)
    assert seconds == pytest.approx(longest)


# Stored results


def line(run):
    metrics = RunMetrics(done=True, exact_match=1.0, n=10, steps=5)
    return RunSummary(run=run, step=5, metrics=metrics, counts=[]).line()


def test_a_write_that_a_killed_process_left_does_not_damage_the_next_one(tmp_path):
    path = tmp_path / "results.jsonl"
    append_lines(path, [line("a"), line("b")])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 20)
    append_lines(path, [line("c")])
    assert list(read_lines(path)) == ["a", "c"]


def test_a_full_disk_leaves_whole_lines(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "results.jsonl"
    append_lines(path, [line("a")])
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 30, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_lines(path, [line("b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
