"""Limits of a shared instance: sizes, minutes and disk space.

Real registries, with limits from the environment.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from playground.checkpoints.checkpoint import save_checkpoint
from playground.common.devices import usable_cores
from playground.common.env import (
    ENV_NUMBERS,
    EnvError,
    env_number,
    validate_env,
)
from playground.common.storage import directory_size
from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.jobs.process import warm_up
from playground.models.config_fields import ConfigError
from playground.runs.limits import MAX_METRICS_BYTES, Limits, estimated_run_bytes
from playground.runs.record import HISTORY_THINNED, WEIGHTS_EVICTED, owner_id
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.storage_quota import surplus_weights
from playground.runs.weight_history import read_lines, state_steps, weight_steps
from playground.server.architectures_api import ArchitectureHandlers
from playground.server.runs_api import ACTIONS
from playground.server.schemas.jobs import TrainArchitectures
from playground.training.config import RunConfig
from playground.training.presets import PRESETS, preset_config
from playground.training.setting_changes import SettingChange
from playground.training.trainer import Trainer
from playground.ui.form_values import estimate_and_validate, form_values, validate_form
from tests.support.app_server import ROOT, wait_for

SMALL = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 1,
    "d_ff": 16,
    "batch_size": 8,
    "max_length": 5,
    "eval_size": 32,
    "eval_every": 50,
}
LARGE = {"d_model": 32}  # above the limit of the strict registry
ENDLESS = 100_000


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up().join()


@pytest.fixture
def create_registry(tmp_path, monkeypatch):
    """Create registries, one after the other, with settings from the environment."""
    registries = []

    def create(**numbers) -> Registry:
        for name, value in numbers.items():
            monkeypatch.setenv(f"PLAYGROUND_{name}", str(value))
        if registries:
            registries[-1].shutdown()
        registries.append(
            Registry(
                tmp_path,
                slots=3,
                idle_timeout_s=0,
                release_after_s=0,
                limits=Limits.shared_instance(),
            )
        )
        return registries[-1]

    yield create
    registries[-1].shutdown()


def start_strict_registry(create_registry) -> Registry:
    return create_registry(MAX_D_MODEL=16, MAX_LAYERS=1, MAX_LENGTH=5, MAX_BATCH=8)


def small_config(**fields) -> RunConfig:
    return RunConfig.from_flat(SMALL | fields)


def wait_until(condition, description="a condition"):
    return wait_for(condition, 60, description)


def train_to_end(registry: Registry, owner: str = "ada", name: str = "", **fields) -> Run:
    """Train a run to its end; return it once it has released its worker."""
    run = registry.start(small_config(**({"max_steps": 30} | fields)), owner, name=name)
    wait_until(lambda: run.status == "done" and not run.has_worker, "a finished run")
    return run


# Environment variables


@pytest.mark.parametrize("value", ["many", "nan", "1e30"])
def test_invalid_numbers_have_a_message(monkeypatch, value):
    monkeypatch.setenv("PLAYGROUND_SLOTS", value)
    with pytest.raises(EnvError) as error:
        env_number("SLOTS")
    assert (
        f"PLAYGROUND_SLOTS is {value!r}; it must be a whole number from 0 to 1,000, or be left "
        "out for 0" == str(error.value)
    )


def test_blank_limit_is_the_default_and_fractions_are_accepted(monkeypatch):
    for value, expected in (("", 15), ("  ", 15), (" 0.5 ", 0.5)):
        monkeypatch.setenv("PLAYGROUND_MAX_MINUTES", value)
        assert env_number("MAX_MINUTES") == expected
    validate_env()


@pytest.mark.parametrize("command", [["app.py", "--port", "1"], ["-m", "playground", "gallery"]])
def test_invalid_numbers_are_rejected_at_the_start(command):
    environment = os.environ | {
        "PLAYGROUND_IDLE_TIMEOUT_S": "an hour",
        "PLAYGROUND_MAX_D_MODEL": "1.5",
    }
    completed = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode != 0
    assert "PLAYGROUND_IDLE_TIMEOUT_S is 'an hour'; it must be a number from 0" in completed.stderr
    assert "PLAYGROUND_MAX_D_MODEL is '1.5'; it must be a whole number from 0" in completed.stderr
    assert "Traceback" not in completed.stderr


def test_limits_are_on_by_default_on_a_shared_instance_only(monkeypatch):
    for name in ENV_NUMBERS:
        monkeypatch.delenv(f"PLAYGROUND_{name}", raising=False)
    limits = Limits.shared_instance()
    assert (
        limits.d_model,
        limits.n_layers,
        limits.max_length,
        limits.batch_size,
        limits.max_minutes,
    ) == (512, 8, 128, 512, 15)
    assert (limits.bytes_per_owner, limits.bytes_total) == (200_000_000, 5_000_000_000)
    for name in PRESETS:
        limits.validate(preset_config(name))
    Limits.unlimited().validate(
        RunConfig.from_flat(
            {"d_model": 2048, "n_layers": 12, "max_length": 512, "batch_size": 4096}
        )
    )


# Sizes


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("field", "maximum"),
    [("d_model", 512), ("n_layers", 8), ("max_length", 128), ("batch_size", 512)],
)
def test_a_setting_above_the_limit_is_rejected_with_a_remedy(monkeypatch, field, maximum):
    limits = Limits(d_model=512, n_layers=8, max_length=128, batch_size=512)
    config = RunConfig.from_flat({"d_model": 8, "n_heads": 1, "n_layers": 1, field: maximum})
    limits.validate(config)
    with pytest.raises(ConfigError) as error:
        limits.validate(config.replace(**{field: 2 * maximum, "max_positions": 2 * maximum + 1}))
    assert error.value.field == field
    name = {
        "d_model": "MAX_D_MODEL",
        "n_layers": "MAX_LAYERS",
        "max_length": "MAX_LENGTH",
        "batch_size": "MAX_BATCH",
    }[field]
    assert (
        str(error.value)
        == f"{field} is {2 * maximum}: this server allows at most {maximum}; its owner sets "
        f"PLAYGROUND_{name}"
    )
    monkeypatch.setenv("SPACE_ID", "ada/playground")
    monkeypatch.setenv(f"PLAYGROUND_{name}", str(maximum))
    with pytest.raises(ConfigError) as error:
        Limits.shared_instance().validate(
            config.replace(**{field: 2 * maximum, "max_positions": 2 * maximum + 1})
        )
    assert str(error.value) == (
        f"{field} is {2 * maximum}: this Space allows at most {maximum}; duplicate the Space to "
        "remove the limit"
    )


@pytest.mark.smoke
def test_every_way_to_start_a_larger_run_is_rejected(create_registry, tmp_path):
    field = "d_model"
    registry = create_registry()
    large = small_config(**{field: LARGE[field]}, max_steps=3)
    before = registry.start(large, "ada")
    wait_until(lambda: before.status == "done" and not before.has_worker)
    checkpoint = tmp_path / "elsewhere"
    save_checkpoint(checkpoint, Trainer(large), None)
    registry = start_strict_registry(create_registry)
    registry.start(small_config(max_steps=1), "ada")  # a run of exactly the maximum size starts
    before = next(run for run in registry.list_for_owner("ada") if run.id == before.id)
    experiments = ExperimentService(registry)
    base = {name: value for name, value in SMALL.items() if name != field}
    grid = {"name": "x", "base": base, "grid": {field: [SMALL[field], LARGE[field]]}, "seeds": [0]}
    entry_points = {
        "the Train button": lambda: registry.start(large, "ada"),
        "run again": lambda: registry.rerun(before, "ada"),
        "a branch": lambda: registry.branch(before, 1, "ada"),
        "extend": lambda: ACTIONS["extend"](registry, before, None),
        "an upload, or from the Hub": lambda: registry.import_checkpoint(
            checkpoint, "ada", "my run"
        ),
        "the size check of an upload": lambda: registry.validate_size(large),
        "a planned experiment": lambda: experiments.plan(grid, "ada"),
        "an experiment": lambda: experiments.submit(grid, "ada"),
    }
    runs = len(registry.list_for_owner("ada"))
    try:
        for name, start in entry_points.items():
            with pytest.raises(
                (ConfigError, UserError),
                match=rf"{field} is {LARGE[field]}: this server allows at most {SMALL[field]}",
            ):
                start()
            assert len(registry.list_for_owner("ada")) == runs, name
        request = TrainArchitectures.model_construct(
            subject=f"run:{before.id}", owner="ada", architectures=["transformer"]
        )
        # without validation, because "ada" is not a valid owner key
        response = ArchitectureHandlers.train.__wrapped__(ArchitectureHandlers(registry), request)
        assert response["runs"] == []
        assert f"{field} is {LARGE[field]}" in response["error"]
        assert (checkpoint / "config.json").is_file()
        assert before.steps == 3  # the rejected extension changes nothing
    finally:
        experiments.close()


def test_the_form_has_the_message_beside_the_field(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "ada/playground")
    limits = Limits.shared_instance()
    values = RunConfig().to_flat() | form_values(RunConfig()) | {"preset": "fast"}
    assert validate_form(list(values), list(values.values()), limits) == {}
    values |= {"n_layers": 9, "d_model": 64}
    message = "Layers is 9: this Space allows at most 8; duplicate the Space to remove the limit."
    assert validate_form(list(values), list(values.values()), limits) == {"n_layers": message}
    assert estimate_and_validate(values, limits)[0] == ""
    assert validate_form(list(values), list(values.values())) == {}


def test_model_above_user_disk_quota_is_rejected_with_its_size():
    config = RunConfig.from_flat({"d_model": 512, "n_heads": 8, "n_layers": 2, "d_ff": 2048})
    with pytest.raises(
        ConfigError,
        match=r"parameters needs about 472 MB on the disk, and this server stores 200 MB per "
        r"user; use a smal",
    ):
        Limits(bytes_per_owner=200_000_000).validate(config)
    Limits(bytes_per_owner=estimated_run_bytes(config)).validate(config)


def test_threads_above_the_run_limit_are_rejected_or_capped(create_registry, tmp_path):
    registry = create_registry(SLOTS=1)
    assert registry.settings.limits.threads == usable_cores()
    registry = create_registry(SLOTS=1000)
    assert registry.settings.limits.threads == 1
    training = registry.start(
        small_config(max_steps=ENDLESS, num_threads=1),
        "ada",
        changes=[SettingChange(0, "speed", 40)],
    )
    stopped = train_to_end(registry)
    changes = {
        "a change of a training run": lambda: registry.change_setting(training, "num_threads", 2),
        "a change of a stopped run": lambda: registry.change_setting(stopped, "num_threads", 2),
    }
    message = (
        "num_threads is 2: this server gives each run 1; its owner sets PLAYGROUND_SLOTS, or leave "
        "it at 1"
    )
    for name, change in changes.items():
        with pytest.raises(ConfigError) as error:
            change()
        assert (error.value.field, str(error.value)) == ("num_threads", message), name
    assert len(registry.list_for_owner("ada")) == 2
    trainer = Trainer(small_config(num_threads=64))
    save_checkpoint(tmp_path / "sent", trainer, [trainer.train_step()])
    # trained with more threads elsewhere: this server limits it
    imported = registry.import_checkpoint(tmp_path / "sent", "ada", "my run")
    assert registry.supervisor.worker_spec(imported).threads == 1
    torch.set_num_threads(1)
    registry.change_setting(stopped, "num_threads", 1)
    assert list(stopped.changes) == [SettingChange(stopped.step, "num_threads", 1)]
    Limits.unlimited().validate(small_config(num_threads=200))


def test_metrics_that_would_take_long_to_read_are_not_adopted(create_registry, tmp_path):
    registry = create_registry()
    trainer = Trainer(small_config(max_steps=5))
    checkpoint = tmp_path / "sent"
    save_checkpoint(checkpoint, trainer, [trainer.train_step() for _ in range(3)])
    metrics = checkpoint / "metrics.jsonl"
    size = metrics.stat().st_size
    os.truncate(metrics, MAX_METRICS_BYTES + 4_000_000)
    with pytest.raises(UserError) as error:
        registry.import_checkpoint(checkpoint, "ada", "my run")
    assert str(error.value) == (
        "its metrics.jsonl has 20.0 MB: this server takes 16.0 MB; leave that file out, or keep "
        "fewer of its lines"
    )
    assert registry.list_for_owner("ada") == []
    assert metrics.is_file()
    os.truncate(metrics, size)
    registry.settings.limits = replace(registry.settings.limits, metrics_bytes=size)
    without = shutil.copytree(
        checkpoint, tmp_path / "without", ignore=shutil.ignore_patterns("metrics.jsonl")
    )
    assert registry.import_checkpoint(checkpoint, "ada", "my run").load_points().last == 3
    assert registry.import_checkpoint(without, "ada", "my run").step == 3


# Minutes


def test_a_run_at_its_time_limit_saves_and_pauses_with_a_message(create_registry):
    registry = create_registry(MAX_MINUTES=0.02)
    run = registry.start(
        small_config(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 40)]
    )
    wait_until(lambda: run.status == "paused", "its end")
    message = "this server allows 0.02 minutes of training per run"
    assert run.message.startswith(message)
    wait_until(
        lambda: run.checkpoints() and run.checkpoints()[0][1].step == run.step, "the checkpoint"
    )
    assert 1.2 <= run.trained_seconds < 10
    step = run.step
    for action in ("resume", "step"):
        with pytest.raises(UserError, match=message):
            registry.control(run, action)
    response = registry.poll(run, 0, -1, 0)
    assert response["time_left"][0] == 0
    assert response["time_left"][1].startswith(message)
    with pytest.raises(UserError, match=message):
        ACTIONS["extend"](registry, run, None)
    # A restarted server has the same limit; with a longer limit the run continues from its step.
    registry = create_registry()
    run = registry.find(run.id, "ada")
    with pytest.raises(UserError, match=message):
        registry.control(run, "resume")
    assert run.message.startswith(message)
    registry = create_registry(MAX_MINUTES=15)
    run = registry.find(run.id, "ada")
    registry.control(run, "resume")
    wait_until(lambda: run.step > step, "further steps")
    assert [line["step"] for line in read_lines(run.folder)][:step] == list(range(1, step + 1))


def test_pauses_do_not_count_as_training_time(create_registry):
    registry = create_registry(MAX_MINUTES=15)
    run = registry.start(
        small_config(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 40)]
    )
    wait_until(lambda: run.step > 4)
    registry.control(run, "pause")
    wait_until(lambda: run.status == "paused")
    registry.control(run, "step")
    step = run.step
    wait_until(lambda: run.step > step)
    wait_until(lambda: run.trained_seconds > 0)
    before = run.trained_seconds
    time.sleep(1.2)
    registry.control(run, "step")
    wait_until(lambda: run.step > step + 1)
    time.sleep(0.2)
    assert before < run.trained_seconds < before + 0.6
    assert registry.poll(run, 0, -1, 0)["time_left"] is None


def test_times_in_a_checkpoint_do_not_extend_the_limit(create_registry, tmp_path):
    """Ignore the training time in a checkpoint: it may come from another server or be forged."""
    registry = create_registry(MAX_MINUTES=0.02)
    trainer = Trainer(small_config(max_steps=ENDLESS))
    trainer.train_step()
    trainer.seconds = 1e9  # above every limit
    save_checkpoint(tmp_path / "sent", trainer, None)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "my run")
    registry.control(run, "resume")
    wait_until(lambda: run.status == "paused" and run.message, "its end")
    assert "0.02 minutes" in run.message


# Disk space


def set_last_use(run: Run, hours: float) -> None:
    """Set the last use of a run to so many hours ago."""
    last_use = time.time() - 3600 * hours
    os.utime(run.folder / "run.json", (last_use, last_use))
    run.last_viewed_at = -1e9


def forget_owner_visits(registry: Registry) -> None:
    registry.owner_last_seen.clear()


def test_history_is_evicted_before_models_must_be_deleted(create_registry):
    registry = create_registry()
    runs = [train_to_end(registry, name=f"run {n}", max_steps=60) for n in range(2)]
    sizes = [directory_size(run.folder) for run in runs]
    quota_mb = (sum(sizes) + 50_000) / 1e6
    registry = create_registry(RUNS_MB=quota_mb)
    runs = registry.list_for_owner("ada")
    other_run = registry.start(small_config(max_steps=30), "bob")
    wait_until(lambda: other_run.status == "done" and not other_run.has_worker)
    steps_of_other = weight_steps(other_run.folder)
    set_last_use(runs[1], 9)
    set_last_use(runs[0], 3)
    third_run = registry.start(
        small_config(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 20)]
    )
    assert [run.evicted for run in runs] == ["", HISTORY_THINNED]  # the least recently used run
    assert directory_size(runs[1].folder) < sizes[1]
    assert weight_steps(runs[1].folder) == [0, 1, 2, 4, 8, 16, 32, 60]
    assert state_steps(runs[1].folder) == []
    response = registry.storage_quota.eviction_message("ada")
    assert (
        response == f"Storage limit reached: {registry.settings.limits.storage_limit_message()}. "
        "Some earlier steps of “run 1” were deleted."
    )
    assert registry.summaries("ada")[1]["evicted"] == HISTORY_THINNED
    # The history of every idle run is thinned, and another run does not fit. Starting a run
    # never deletes a model.
    registry.settings.limits = replace(registry.settings.limits, bytes_per_owner=400_000)
    message = (
        r"your runs use .* and this needs about .* more, but this server stores .* per "
        r"user: "
        r"delete “run"
    )
    with pytest.raises(UserError, match=message):
        registry.start(small_config(), "ada")
    assert all(run.checkpoints() for run in runs)
    assert registry.storage_quota.eviction_message("bob") == ""
    assert weight_steps(other_run.folder) == steps_of_other
    registry.control(third_run, "stop")
    wait_until(lambda: third_run.status == "stopped" and not third_run.has_worker)
    registry.settings.limits = replace(
        registry.settings.limits,
        bytes_per_owner=registry.storage_quota.size_of_run(third_run)
        + estimated_run_bytes(third_run.config)
        + 1000,
    )
    for run in runs:
        registry.delete(run)  # the space is free immediately, not after the ten minutes of Undo
    registry.start(small_config(max_steps=1), "ada")


def test_the_oldest_idle_run_is_removed_first_and_active_runs_stay(create_registry):
    registry = create_registry()
    names = ("old", "hidden", "new")
    runs = {
        name: train_to_end(registry, owner=f"user {name}", name=name, max_steps=60)
        for name in names
    }
    registry.update_metadata(runs["hidden"], hidden=True)
    active = registry.start(
        small_config(max_steps=ENDLESS), "zoe", changes=[SettingChange(0, "speed", 20)]
    )
    wait_until(lambda: active.checkpoints(), "a checkpoint")
    # its files change size while it trains
    registry.control(active, "pause")
    wait_until(lambda: active.status == "paused" and active.checkpoints()[0][1].step == active.step)
    sizes = {name: directory_size(run.folder) for name, run in runs.items()}
    for name, hours in (("old", 9), ("hidden", 2), ("new", 5)):
        set_last_use(runs[name], hours)
    forget_owner_visits(registry)

    def free_bytes(n_bytes: int) -> dict[str, str]:
        total = sum(directory_size(run.folder) for run in registry.all_runs())
        limit = total - n_bytes
        registry.settings.limits = replace(registry.settings.limits, bytes_per_owner=10**9)
        registry.settings.limits = replace(registry.settings.limits, bytes_total=limit)
        registry.storage_quota.enforce()
        return {name: runs[name].evicted for name in names}

    assert free_bytes(1000) == {"old": HISTORY_THINNED, "hidden": "", "new": ""}
    thinned = directory_size(runs["old"].folder)
    assert thinned < sizes["old"]
    assert free_bytes(sizes["hidden"] - thinned + 1000) == {
        "old": HISTORY_THINNED,
        "hidden": HISTORY_THINNED,
        "new": HISTORY_THINNED,
    }
    assert free_bytes(1000) == {
        "old": HISTORY_THINNED,
        "hidden": WEIGHTS_EVICTED,
        "new": HISTORY_THINNED,
    }
    assert free_bytes(1000) == {
        "old": WEIGHTS_EVICTED,
        "hidden": WEIGHTS_EVICTED,
        "new": HISTORY_THINNED,
    }
    assert runs["new"].checkpoints()
    assert active.checkpoints()
    assert active.evicted == ""
    old = runs["old"]
    message = "its weights were deleted because the storage limit was reached (this server stores"
    assert message in registry.poll(old, 0, -1, 0)["message"]
    assert registry.poll(old, 0, -1, 0)["points"]["steps"][-1] == 60  # the curves are kept
    assert "error" in registry.snapshots.predict(old, "1 2 3").result(5)
    assert "The weights of “old” were deleted." in registry.storage_quota.eviction_message(
        "user old"
    )
    with pytest.raises(UserError, match="its weights were deleted"):
        registry.control(old, "resume")
    registry.settings.limits = replace(registry.settings.limits, bytes_total=10**9)
    second_run = registry.rerun(old, "user old")
    wait_until(lambda: second_run.status == "done" and not second_run.has_worker)
    assert list(second_run.load_points().columns["loss"]) == list(old.load_points().columns["loss"])
    # The weights of a run with a worker are never evicted.
    registry.settings.limits = replace(registry.settings.limits, bytes_total=1)
    registry.storage_quota.enforce()
    assert active.checkpoints()
    assert registry.find(active.id, "zoe") is active
    assert registry.find(old.id, "user old") is None  # its record is deleted last
    with pytest.raises(
        UserError, match=r"stores .* in total, and all of it is in use; try again later"
    ):
        registry.start(small_config(), "yan")


def test_the_excess_of_one_user_affects_no_other(create_registry):
    registry = create_registry()
    small_run = train_to_end(registry, "bob", "modest", max_steps=60)
    large_runs = [train_to_end(registry, "eve", f"greedy {n}", max_steps=60) for n in range(3)]
    set_last_use(small_run, 99)
    for n, run in enumerate(large_runs):
        set_last_use(run, 3 - n)
    forget_owner_visits(registry)
    run_size, total = (
        directory_size(small_run.folder),
        sum(directory_size(run.folder) for run in registry.all_runs()),
    )
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=int(1.2 * run_size)
    )
    registry.settings.limits = replace(registry.settings.limits, bytes_total=total - run_size)
    registry.storage_quota.enforce()
    assert small_run.evicted == ""
    assert weight_steps(small_run.folder)
    assert large_runs[0].evicted
    assert sum(directory_size(run.folder) for run in registry.all_runs()) <= total - run_size


def create_idle_run(registry: Registry, owner: str, size: int, hours: float) -> Run:
    """Create an untrained run of a given size that was last used some hours ago."""
    run = registry._new(small_config(), owner, "", registry.storage.new_run_folder(small_config()))
    (run.folder / "checkpoints").mkdir(parents=True)
    (run.folder / "checkpoints" / "weights").write_bytes(bytes(size))
    (run.folder / "history").mkdir()
    run.update(status="done")
    run.write()
    registry._add(run)
    set_last_use(run, hours)
    return run


def test_runs_of_one_address_evict_its_own_first(create_registry, client_address):
    registry = create_registry()
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=250_000, bytes_total=1_000_000
    )
    client_address.set("192.0.2.1")
    small_run = create_idle_run(registry, "ada", 100_000, 99)
    client_address.set("192.0.2.9")
    bulk_runs = [create_idle_run(registry, f"generated {n}", 200_000, 9 - n) for n in range(3)]
    # one address may use more than half while no other needs the space
    registry.storage_quota.ensure_available(owner_id("generated 3"), 200_000)
    assert [run.evicted for run in (small_run, *bulk_runs)] == [""] * 4
    bulk_runs.append(create_idle_run(registry, "generated 3", 200_000, 1))
    registry.storage_quota.ensure_available(owner_id("generated 4"), 200_000)
    # then its own oldest run is evicted
    assert [run.evicted for run in (small_run, *bulk_runs)] == ["", WEIGHTS_EVICTED, "", "", ""]
    client_address.set("192.0.2.1")
    registry.storage_quota.ensure_available(owner_id("bob"), 230_000)
    registry.settings.limits = replace(registry.settings.limits, bytes_total=800_000)
    registry.storage_quota.enforce()
    assert small_run.evicted == ""


def test_address_over_its_share_without_idle_runs_is_rejected(
    create_registry, client_address, monkeypatch
):
    registry = create_registry()
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=250_000, bytes_total=1_000_000
    )
    client_address.set("192.0.2.1")
    small_run = create_idle_run(registry, "ada", 100_000, 99)
    client_address.set("192.0.2.9")
    bulk_runs = [create_idle_run(registry, f"generated {n}", 200_000, 9 - n) for n in range(4)]
    monkeypatch.setattr(registry.storage_quota, "is_idle", lambda run: run not in bulk_runs)
    with pytest.raises(
        UserError,
        match=r"stores 1.0 MB in total, of which one address may use half, .* delete some, try "
        r"again later, or",
    ):
        registry.storage_quota.ensure_available(owner_id("generated 4"), 200_000)
    assert small_run.evicted == ""
    client_address.set("192.0.2.1")
    # what one address uses beyond its half does not count for another
    registry.storage_quota.ensure_available(owner_id("bob"), 200_000)
    assert small_run.evicted == ""


def test_quota_evicts_absent_owners_uploads_before_trained_weights(create_registry, tmp_path):
    registry = create_registry()
    save_checkpoint(tmp_path / "checkpoint", Trainer(small_config()), None)
    runs = {"trained": train_to_end(registry, "tess", "trained", max_steps=60)}
    for name, owner in (("sent", "gus"), ("near", "nell")):
        runs[name] = registry.import_checkpoint(
            shutil.copytree(tmp_path / "checkpoint", tmp_path / name), owner, name
        )
    for name, hours in (("trained", 9), ("sent", 1), ("near", 99)):
        set_last_use(runs[name], hours)
    forget_owner_visits(registry)
    registry.summaries("nell")

    def free_bytes() -> dict[str, str]:
        total = sum(directory_size(run.folder) for run in registry.all_runs())
        registry.settings.limits = replace(
            registry.settings.limits, bytes_per_owner=10**9, bytes_total=total - 1000
        )
        registry.storage_quota.enforce()
        return {name: run.evicted for name, run in runs.items()}

    assert free_bytes() == {"trained": HISTORY_THINNED, "sent": "", "near": ""}
    assert free_bytes() == {"trained": HISTORY_THINNED, "sent": WEIGHTS_EVICTED, "near": ""}
    assert runs["trained"].checkpoints()
    assert free_bytes() == {"trained": WEIGHTS_EVICTED, "sent": WEIGHTS_EVICTED, "near": ""}


def test_an_upload_trained_further_counts_as_trained_here(create_registry, tmp_path):
    registry = create_registry()
    save_checkpoint(tmp_path / "checkpoint", Trainer(small_config(max_steps=5)), None)
    run = registry.import_checkpoint(tmp_path / "checkpoint", "ada", "sent")
    assert run.imported is Run.read(run.folder).imported is True
    registry.control(run, "resume")
    wait_until(lambda: run.status == "done" and not run.has_worker)
    assert run.imported is Run.read(run.folder).imported is False


def test_a_queued_branch_keeps_its_origin(create_registry):
    registry = create_registry()
    parent = train_to_end(registry, "ada", "parent", max_steps=60)
    set_last_use(parent, 9)
    forget_owner_visits(registry)
    registry.settings.slots = 0
    branch = registry.branch(parent, 30, "ada")
    assert branch.status == "waiting"
    registry.settings.limits = replace(registry.settings.limits, bytes_total=1)
    registry.storage_quota.enforce()
    assert parent.evicted == ""
    assert parent.checkpoints()


def test_saving_a_checkpoint_and_an_upload_need_space_too(create_registry, tmp_path):
    registry = create_registry()
    run = registry.start(
        small_config(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 20)]
    )
    wait_until(lambda: run.step > 0)
    checkpoint = tmp_path / "sent"
    save_checkpoint(checkpoint, Trainer(small_config()), None)
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=estimated_run_bytes(run.config) + 1000
    )
    with pytest.raises(UserError, match="delete “"):
        registry.control(run, "save")
    with pytest.raises(UserError, match="delete “"):
        registry.import_checkpoint(checkpoint, "ada", "sent")
    assert (checkpoint / "config.json").is_file()
    registry.import_checkpoint(shutil.copytree(checkpoint, tmp_path / "copy"), "bob", "sent")


def test_thinning_keeps_the_files_for_resuming(create_registry):
    registry = create_registry()
    run = registry.start(
        small_config(max_steps=60), "ada", changes=[SettingChange(0, "speed", 200)]
    )
    wait_until(lambda: run.step >= 40)
    registry.control(run, "pause")
    wait_until(
        lambda: (
            run.status == "paused"
            and run.checkpoints()
            and run.checkpoints()[0][1].step == run.step
        )
    )
    run.send_command("park")
    wait_until(lambda: not run.has_worker)
    for path in surplus_weights(run.folder):
        path.unlink()
    registry.control(run, "resume")
    wait_until(lambda: run.status == "done" and not run.has_worker)
    assert [line["step"] for line in read_lines(run.folder)] == list(range(1, 61))
    assert weight_steps(run.folder)[0] == 0
    assert weight_steps(run.folder)[-1] == 60
