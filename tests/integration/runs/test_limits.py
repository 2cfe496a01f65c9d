"""Limits of a shared instance: sizes, minutes and disk space.

Real registries, with limits from the environment.
"""

import json
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
    DEPRECATED_NAMES,
    ENV_NUMBERS,
    EnvError,
    env_number,
    set_env_default,
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
# each above the limit that `strict` sets
LARGE = {"d_model": 32, "n_layers": 2, "max_length": 6, "batch_size": 16}
ENDLESS = 100_000


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up().join()


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    """Create registries one after the other, with settings from the environment."""
    made = []

    def make(**numbers) -> Registry:
        for name, value in numbers.items():
            monkeypatch.setenv(f"PLAYGROUND_{name}", str(value))
        if made:
            made[-1].shutdown()
        made.append(
            Registry(
                tmp_path,
                slots=3,
                idle_timeout_s=0,
                release_after_s=0,
                limits=Limits.shared_instance(),
            )
        )
        return made[-1]

    yield make
    made[-1].shutdown()


def strict(hosted) -> Registry:
    return hosted(MAX_D_MODEL=16, MAX_LAYERS=1, MAX_LENGTH=5, MAX_BATCH=8)


def small(**fields) -> RunConfig:
    return RunConfig.from_flat(SMALL | fields)


def until(condition, what="a condition"):
    return wait_for(condition, 60, what)


def done(registry: Registry, owner: str = "ada", name: str = "", **fields) -> Run:
    """Return a finished run without a worker."""
    run = registry.start(small(**({"max_steps": 30} | fields)), owner, name=name)
    until(lambda: run.status == "done" and not run.has_worker, "a finished run")
    return run


# Numbers of the environment


@pytest.mark.parametrize("inputs", ["many", "nan", "inf", "-1", "1e30", "2.5", "0x10", "<b>"])
def test_invalid_numbers_have_a_message(monkeypatch, inputs):
    monkeypatch.setenv("PLAYGROUND_SLOTS", inputs)
    with pytest.raises(EnvError) as response:
        env_number("SLOTS")
    assert (
        f"PLAYGROUND_SLOTS is {inputs!r}; it must be a whole number from 0 to 1,000, or be left "
        "out for 0" == str(response.value)
    )


def test_blank_limit_is_the_default_and_fractions_are_accepted(monkeypatch):
    for inputs, value in (("", 15), ("  ", 15), (" 0.5 ", 0.5)):
        monkeypatch.setenv("PLAYGROUND_MAX_MINUTES", inputs)
        assert env_number("MAX_MINUTES") == value
    validate_env()


@pytest.mark.parametrize(("name", "old"), DEPRECATED_NAMES.items())
def test_a_variable_of_version_0_1_0_still_sets_its_limit(monkeypatch, caplog, name, old):
    monkeypatch.delenv(f"PLAYGROUND_{name}", raising=False)
    monkeypatch.setenv(f"PLAYGROUND_{old}", "7")
    set_env_default(name, "9")
    assert env_number(name) == 7
    validate_env()
    assert f"PLAYGROUND_{old} is deprecated; set PLAYGROUND_{name} instead" in caplog.text
    monkeypatch.setenv(f"PLAYGROUND_{name}", "8")
    assert env_number(name) == 8


def test_environment_numbers_are_read_through_the_table_only():
    """A number that is not read through the table would give Python's own error."""
    for path in (ROOT / "playground").rglob("*.py"):
        # torchrun's own
        assert "int(os.environ.get(" not in path.read_text() or path.name == "common.py", path
        assert "float(os.environ" not in path.read_text(), path


@pytest.mark.parametrize("command", [["app.py", "--port", "1"], ["-m", "playground", "gallery"]])
def test_invalid_numbers_are_rejected_at_the_start(command):
    environment = os.environ | {
        "PLAYGROUND_IDLE_TIMEOUT_S": "an hour",
        "PLAYGROUND_MAX_D_MODEL": "1.5",
    }
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode != 0
    assert "PLAYGROUND_IDLE_TIMEOUT_S is 'an hour'; it must be a number from 0" in ended.stderr
    assert "PLAYGROUND_MAX_D_MODEL is '1.5'; it must be a whole number from 0" in ended.stderr
    assert "Traceback" not in ended.stderr


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
    ("field", "most"), [("d_model", 512), ("n_layers", 8), ("max_length", 128), ("batch_size", 512)]
)
def test_a_setting_above_the_limit_is_rejected_with_a_remedy(monkeypatch, field, most):
    limits = Limits(d_model=512, n_layers=8, max_length=128, batch_size=512)
    config = RunConfig.from_flat({"d_model": 8, "n_heads": 1, "n_layers": 1, field: most})
    limits.validate(config)
    with pytest.raises(ConfigError) as response:
        limits.validate(config.replace(**{field: 2 * most, "max_positions": 2 * most + 1}))
    assert response.value.field == field
    name = {
        "d_model": "MAX_D_MODEL",
        "n_layers": "MAX_LAYERS",
        "max_length": "MAX_LENGTH",
        "batch_size": "MAX_BATCH",
    }[field]
    assert (
        str(response.value)
        == f"{field} is {2 * most}: this server allows at most {most}; its owner sets "
        f"PLAYGROUND_{name}"
    )
    monkeypatch.setenv("SPACE_ID", "ada/playground")
    monkeypatch.setenv(f"PLAYGROUND_{name}", str(most))
    with pytest.raises(ConfigError) as response:
        Limits.shared_instance().validate(
            config.replace(**{field: 2 * most, "max_positions": 2 * most + 1})
        )
    assert (
        str(response.value)
        == f"{field} is {2 * most}: this Space allows at most {most}; duplicate it to lift that"
    )


@pytest.mark.smoke
@pytest.mark.parametrize("field", LARGE)
def test_no_door_lets_a_larger_run_in(hosted, tmp_path, field):
    registry = hosted()
    large = small(**{field: LARGE[field]}, max_steps=3)
    before = registry.start(large, "ada")
    until(lambda: before.status == "done" and not before.has_worker)
    checkpoint = tmp_path / "elsewhere"
    save_checkpoint(checkpoint, Trainer(large), None)
    registry = strict(hosted)
    registry.start(small(max_steps=1), "ada")  # what is as large as allowed begins
    before = next(run for run in registry.list_for_owner("ada") if run.id == before.id)
    laboratory = ExperimentService(registry)
    base = {name: value for name, value in SMALL.items() if name != field}
    grid = {"name": "x", "base": base, "grid": {field: [SMALL[field], LARGE[field]]}, "seeds": [0]}
    doors = {
        "the form's button": lambda: registry.start(large, "ada"),
        "run again": lambda: registry.rerun(before, "ada"),
        "a branch": lambda: registry.branch(before, 1, "ada"),
        "train on": lambda: ACTIONS["extend"](registry, before, None),
        "an upload, or from the Hub": lambda: registry.import_checkpoint(checkpoint, "ada", "mine"),
        "the size check of an upload": lambda: registry.validate_size(large),
        "a plan of the lab": lambda: laboratory.plan(grid, "ada"),
        "an experiment": lambda: laboratory.submit(grid, "ada"),
    }
    runs = len(registry.list_for_owner("ada"))
    try:
        for door, enter in doors.items():
            with pytest.raises(
                (ConfigError, UserError),
                match=rf"{field} is {LARGE[field]}: this server allows at most {SMALL[field]}",
            ):
                enter()
            assert len(registry.list_for_owner("ada")) == runs, door
        request = TrainArchitectures.model_construct(
            subject=f"run:{before.id}", owner="ada", architectures=["transformer"]
        )
        # without the validation, because the owner of this test has no key
        response = ArchitectureHandlers.train.__wrapped__(ArchitectureHandlers(registry), request)
        assert response["runs"] == []
        assert f"{field} is {LARGE[field]}" in response["error"]
        assert (checkpoint / "config.json").is_file()
        assert before.steps == 3  # refused whole: not a longer run that then may not go on
    finally:
        laboratory.close()


def test_the_form_has_the_message_beside_the_field(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "ada/playground")
    limits = Limits.shared_instance()
    values = RunConfig().to_flat() | form_values(RunConfig()) | {"preset": "fast"}
    assert validate_form(list(values), list(values.values()), limits) == {}
    values |= {"n_layers": 9, "d_model": 64}
    text_rendered = "Layers is 9: this Space allows at most 8; duplicate it to lift that."
    assert validate_form(list(values), list(values.values()), limits) == {"n_layers": text_rendered}
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


def test_threads_above_the_run_limit_are_rejected_or_capped(hosted, tmp_path):
    registry = hosted(SLOTS=1)
    assert registry.settings.limits.threads == usable_cores()
    registry = hosted(SLOTS=1000)
    assert registry.settings.limits.threads == 1
    going = registry.start(
        small(max_steps=ENDLESS, num_threads=1), "ada", changes=[SettingChange(0, "speed", 40)]
    )
    stopped = done(registry)
    doors = {
        "a change of one that is going": lambda: registry.change_setting(going, "num_threads", 2),
        "a change of one that is not": lambda: registry.change_setting(stopped, "num_threads", 2),
    }
    text_rendered = (
        "num_threads is 2: this server gives each run 1; its owner sets PLAYGROUND_SLOTS, or leave "
        "it at 1"
    )
    for door, enter in doors.items():
        with pytest.raises(ConfigError) as response:
            enter()
        assert (response.value.field, str(response.value)) == ("num_threads", text_rendered), door
    assert len(registry.list_for_owner("ada")) == 2
    trainer = Trainer(small(num_threads=64))
    save_checkpoint(tmp_path / "sent", trainer, [trainer.train_step()])
    # trained where there was more: it is held to its part here
    sent = registry.import_checkpoint(tmp_path / "sent", "ada", "mine")
    assert registry.supervisor.worker_spec(sent).threads == 1
    torch.set_num_threads(1)
    registry.change_setting(stopped, "num_threads", 1)
    assert list(stopped.changes) == [SettingChange(stopped.step, "num_threads", 1)]
    Limits.unlimited().validate(small(num_threads=200))


def test_metrics_that_would_take_long_to_read_are_not_adopted(hosted, tmp_path):
    registry = hosted()
    trainer = Trainer(small(max_steps=5))
    checkpoint = tmp_path / "sent"
    save_checkpoint(checkpoint, trainer, [trainer.train_step() for _ in range(3)])
    metrics = checkpoint / "metrics.jsonl"
    size = metrics.stat().st_size
    os.truncate(metrics, MAX_METRICS_BYTES + 4_000_000)
    with pytest.raises(UserError) as response:
        registry.import_checkpoint(checkpoint, "ada", "mine")
    assert str(response.value) == (
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
    assert registry.import_checkpoint(checkpoint, "ada", "mine").load_points().last == 3
    assert registry.import_checkpoint(without, "ada", "mine").step == 3


# Minutes


def test_a_run_at_its_time_limit_saves_and_pauses_with_a_message(hosted):
    registry = hosted(MAX_MINUTES=0.02)
    run = registry.start(small(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 40)])
    until(lambda: run.status == "paused", "its end")
    words = "this server allows 0.02 minutes of training per run"
    assert run.message.startswith(words)
    until(lambda: run.checkpoints() and run.checkpoints()[0][1].step == run.step, "the checkpoint")
    assert 1.2 <= run.trained_seconds < 10
    step = run.step
    for action in ("resume", "step"):
        with pytest.raises(UserError, match=words):
            registry.control(run, action)
    response = registry.poll(run, 0, -1, 0)
    assert response["time_left"][0] == 0
    assert response["time_left"][1].startswith(words)
    with pytest.raises(UserError, match=words):
        ACTIONS["extend"](registry, run, None)
    # Another server on the same folder knows it too; with a longer limit it goes on where it was.
    registry = hosted()
    run = registry.find(run.id, "ada")
    with pytest.raises(UserError, match=words):
        registry.control(run, "resume")
    assert run.message.startswith(words)
    registry = hosted(MAX_MINUTES=15)
    run = registry.find(run.id, "ada")
    registry.control(run, "resume")
    until(lambda: run.step > step, "further steps")
    assert [line["step"] for line in read_lines(run.folder)][:step] == list(range(1, step + 1))


def test_pauses_do_not_count(hosted):
    registry = hosted(MAX_MINUTES=15)
    run = registry.start(small(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 40)])
    until(lambda: run.step > 4)
    registry.control(run, "pause")
    until(lambda: run.status == "paused")
    registry.control(run, "step")
    step = run.step
    until(lambda: run.step > step)
    until(lambda: run.trained_seconds > 0)
    before = run.trained_seconds
    time.sleep(1.2)
    registry.control(run, "step")
    until(lambda: run.step > step + 1)
    time.sleep(0.2)
    assert before < run.trained_seconds < before + 0.6
    assert registry.poll(run, 0, -1, 0)["time_left"] is None


def test_times_in_a_checkpoint_do_not_extend_the_limit(hosted, tmp_path):
    """Times of another server do not count here, and a forged time hides no training here."""
    registry = hosted(MAX_MINUTES=0.02)
    trainer = Trainer(small(max_steps=ENDLESS))
    trainer.train_step()
    trainer.seconds = 1e9  # more than any run may have here
    save_checkpoint(tmp_path / "sent", trainer, None)
    run = registry.import_checkpoint(tmp_path / "sent", "ada", "mine")
    registry.control(run, "resume")
    until(lambda: run.status == "paused" and run.message, "its end")
    assert "0.02 minutes" in run.message


# Disk space


def age(run: Run, hours: float) -> None:
    """Set the last use of a run to this long ago."""
    at = time.time() - 3600 * hours
    os.utime(run.folder / "run.json", (at, at))
    run.last_viewed_at = -1e9


def forget_visits(registry: Registry) -> None:
    registry.owner_last_seen.clear()


def test_history_of_the_owner_is_evicted_before_a_choice_is_needed(hosted):
    registry = hosted()
    runs = [done(registry, name=f"run {n}", max_steps=60) for n in range(2)]
    sizes = [directory_size(run.folder) for run in runs]
    package_of = (sum(sizes) + 50_000) / 1e6
    registry = hosted(RUNS_MB=package_of)
    runs = registry.list_for_owner("ada")
    other = registry.start(small(max_steps=30), "bob")
    until(lambda: other.status == "done" and not other.has_worker)
    theirs = weight_steps(other.folder)
    age(runs[1], 9)
    age(runs[0], 3)
    third = registry.start(small(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 20)])
    assert [run.evicted for run in runs] == ["", HISTORY_THINNED]  # the one left alone longest
    assert directory_size(runs[1].folder) < sizes[1]
    assert weight_steps(runs[1].folder) == [0, 1, 2, 4, 8, 16, 32, 60]
    assert state_steps(runs[1].folder) == []
    response = registry.storage_quota.eviction_message("ada")
    assert (
        response == f"Storage limit reached: {registry.settings.limits.storage_limit_message()}. "
        "Some earlier steps of “run 1” were deleted."
    )
    assert registry.summaries("ada")[1]["evicted"] == HISTORY_THINNED
    # Every idle run is thinned out now, and more does not fit. Pressing Train never deletes a
    # model.
    small(d_model=64, n_layers=2, d_ff=128, max_steps=5)
    registry.settings.limits = replace(registry.settings.limits, bytes_per_owner=400_000)
    text_rendered = (
        r"your runs use .* and this needs about .* more, but this server stores .* per "
        r"user: "
        r"delete “run"
    )
    with pytest.raises(UserError, match=text_rendered):
        registry.start(small(), "ada")
    assert all(run.checkpoints() for run in runs)
    assert registry.storage_quota.eviction_message("bob") == ""
    assert weight_steps(other.folder) == theirs
    registry.control(third, "stop")
    until(lambda: third.status == "stopped" and not third.has_worker)
    registry.settings.limits = replace(
        registry.settings.limits,
        bytes_per_owner=registry.storage_quota.size_of_run(third)
        + estimated_run_bytes(third.config)
        + 1000,
    )
    for run in runs:
        registry.delete(run)  # and its space is free at once, not after the ten minutes of Undo
    registry.start(small(max_steps=1), "ada")


def test_the_oldest_idle_run_is_removed_first_and_active_runs_stay(hosted):
    registry = hosted()
    names = ("old", "hidden", "new")
    runs = {name: done(registry, owner=f"user {name}", name=name, max_steps=60) for name in names}
    registry.update_metadata(runs["hidden"], hidden=True)
    going = registry.start(small(max_steps=ENDLESS), "zoe", changes=[SettingChange(0, "speed", 20)])
    until(lambda: going.checkpoints(), "a checkpoint")
    # its files change size while it trains
    registry.control(going, "pause")
    until(lambda: going.status == "paused" and going.checkpoints()[0][1].step == going.step)
    sizes = {name: directory_size(run.folder) for name, run in runs.items()}
    for name, hours in (("old", 9), ("hidden", 2), ("new", 5)):
        age(runs[name], hours)
    forget_visits(registry)

    def take(much: int) -> dict[str, str]:
        total = sum(directory_size(run.folder) for run in registry.all_runs())
        limit = total - much
        registry.settings.limits = replace(registry.settings.limits, bytes_per_owner=10**9)
        registry.settings.limits = replace(registry.settings.limits, bytes_total=limit)
        registry.storage_quota.enforce()
        return {name: runs[name].evicted for name in names}

    assert take(1000) == {"old": HISTORY_THINNED, "hidden": "", "new": ""}
    thinned = directory_size(runs["old"].folder)
    assert thinned < sizes["old"]
    assert take(sizes["hidden"] - thinned + 1000) == {
        "old": HISTORY_THINNED,
        "hidden": HISTORY_THINNED,
        "new": HISTORY_THINNED,
    }
    assert take(1000) == {"old": HISTORY_THINNED, "hidden": WEIGHTS_EVICTED, "new": HISTORY_THINNED}
    assert take(1000) == {"old": WEIGHTS_EVICTED, "hidden": WEIGHTS_EVICTED, "new": HISTORY_THINNED}
    assert runs["new"].checkpoints()
    assert going.checkpoints()
    assert going.evicted == ""
    old = runs["old"]
    text_rendered = (
        "its weights were deleted because the storage limit was reached (this server stores"
    )
    assert text_rendered in registry.poll(old, 0, -1, 0)["message"]
    assert registry.poll(old, 0, -1, 0)["points"]["steps"][-1] == 60  # the curves stay
    assert "error" in registry.snapshots.predict(old, "1 2 3").result(5)
    assert "The weights of “old” were deleted." in registry.storage_quota.eviction_message(
        "user old"
    )
    with pytest.raises(UserError, match="its weights were deleted"):
        registry.control(old, "resume")
    registry.settings.limits = replace(registry.settings.limits, bytes_total=10**9)
    again = registry.rerun(old, "user old")
    until(lambda: again.status == "done" and not again.has_worker)
    assert list(again.load_points().columns["loss"]) == list(old.load_points().columns["loss"])
    # A live run never gives way, even with little space.
    registry.settings.limits = replace(registry.settings.limits, bytes_total=1)
    registry.storage_quota.enforce()
    assert going.checkpoints()
    assert registry.find(going.id, "zoe") is going
    assert registry.find(old.id, "user old") is None  # its record goes last of all
    with pytest.raises(
        UserError, match=r"stores .* in total, and all of it is in use; try again later"
    ):
        registry.start(small(), "yan")


def test_the_excess_of_one_user_affects_no_other(hosted):
    registry = hosted()
    modest = done(registry, "bob", "modest", max_steps=60)
    greedy = [done(registry, "eve", f"greedy {n}", max_steps=60) for n in range(3)]
    age(modest, 99)
    for n, run in enumerate(greedy):
        age(run, 3 - n)
    forget_visits(registry)
    one, total = (
        directory_size(modest.folder),
        sum(directory_size(run.folder) for run in registry.all_runs()),
    )
    registry.settings.limits = replace(registry.settings.limits, bytes_per_owner=int(1.2 * one))
    registry.settings.limits = replace(registry.settings.limits, bytes_total=total - one)
    registry.storage_quota.enforce()
    assert modest.evicted == ""
    assert weight_steps(modest.folder)
    assert greedy[0].evicted
    assert sum(directory_size(run.folder) for run in registry.all_runs()) <= total - one


def rest(registry: Registry, owner: str, size: int, hours: float) -> Run:
    """Return an untrained run, last used this long ago, with this many bytes of weights."""
    run = registry._new(small(), owner, "", registry.storage.new_run_folder(small()))
    (run.folder / "checkpoints").mkdir(parents=True)
    (run.folder / "checkpoints" / "weights").write_bytes(bytes(size))
    (run.folder / "history").mkdir()
    run.update(status="done")
    run.write()
    registry._add(run)
    age(run, hours)
    return run


def test_runs_of_one_address_evict_its_own_first(hosted, client_address):
    registry = hosted()
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=250_000, bytes_total=1_000_000
    )
    client_address.set("192.0.2.1")
    modest = rest(registry, "ada", 100_000, 99)
    client_address.set("192.0.2.9")
    crowd = [rest(registry, f"invented {n}", 200_000, 9 - n) for n in range(3)]
    # more than half, while no other owner needs it
    registry.storage_quota.ensure_available(owner_id("invented 3"), 200_000)
    assert [run.evicted for run in (modest, *crowd)] == [""] * 4
    crowd.append(rest(registry, "invented 3", 200_000, 1))
    registry.storage_quota.ensure_available(owner_id("invented 4"), 200_000)
    # its own, the oldest first
    assert [run.evicted for run in (modest, *crowd)] == ["", WEIGHTS_EVICTED, "", "", ""]
    client_address.set("192.0.2.1")
    registry.storage_quota.ensure_available(owner_id("bob"), 230_000)
    registry.settings.limits = replace(registry.settings.limits, bytes_total=800_000)
    registry.storage_quota.enforce()
    assert modest.evicted == ""


def test_address_over_its_share_is_rejected_when_no_run_of_it_is_idle(
    hosted, client_address, monkeypatch
):
    registry = hosted()
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=250_000, bytes_total=1_000_000
    )
    client_address.set("192.0.2.1")
    modest = rest(registry, "ada", 100_000, 99)
    client_address.set("192.0.2.9")
    crowd = [rest(registry, f"invented {n}", 200_000, 9 - n) for n in range(4)]
    monkeypatch.setattr(registry.storage_quota, "is_idle", lambda run: run not in crowd)
    with pytest.raises(
        UserError,
        match=r"stores 1.0 MB in total, of which one address may use half, .* delete some, try "
        r"again later, or",
    ):
        registry.storage_quota.ensure_available(owner_id("invented 4"), 200_000)
    assert modest.evicted == ""
    client_address.set("192.0.2.1")
    # what the other address takes beyond its half counts for that one only
    registry.storage_quota.ensure_available(owner_id("bob"), 200_000)
    assert modest.evicted == ""


def test_quota_evicts_absent_owners_uploads_before_trained_weights(hosted, tmp_path):
    registry = hosted()
    save_checkpoint(tmp_path / "checkpoint", Trainer(small()), None)
    runs = {"trained": done(registry, "tess", "trained", max_steps=60)}
    for name, owner in (("sent", "gus"), ("near", "nell")):
        runs[name] = registry.import_checkpoint(
            shutil.copytree(tmp_path / "checkpoint", tmp_path / name), owner, name
        )
    for name, hours in (("trained", 9), ("sent", 1), ("near", 99)):
        age(runs[name], hours)
    forget_visits(registry)
    registry.summaries("nell")

    def take() -> dict[str, str]:
        total = sum(directory_size(run.folder) for run in registry.all_runs())
        registry.settings.limits = replace(
            registry.settings.limits, bytes_per_owner=10**9, bytes_total=total - 1000
        )
        registry.storage_quota.enforce()
        return {name: run.evicted for name, run in runs.items()}

    assert take() == {"trained": HISTORY_THINNED, "sent": "", "near": ""}
    assert take() == {"trained": HISTORY_THINNED, "sent": WEIGHTS_EVICTED, "near": ""}
    assert runs["trained"].checkpoints()
    assert take() == {"trained": WEIGHTS_EVICTED, "sent": WEIGHTS_EVICTED, "near": ""}


def test_an_upload_trained_further_counts_as_trained_here(hosted, tmp_path):
    registry = hosted()
    save_checkpoint(tmp_path / "checkpoint", Trainer(small(max_steps=5)), None)
    run = registry.import_checkpoint(tmp_path / "checkpoint", "ada", "sent")
    assert run.imported is Run.read(run.folder).imported is True
    registry.control(run, "resume")
    until(lambda: run.status == "done" and not run.has_worker)
    assert run.imported is Run.read(run.folder).imported is False


def test_a_queued_branch_keeps_its_origin(hosted):
    registry = hosted()
    parent = done(registry, "ada", "parent", max_steps=60)
    age(parent, 9)
    forget_visits(registry)
    registry.settings.slots = 0
    branch = registry.branch(parent, 30, "ada")
    assert branch.status == "waiting"
    registry.settings.limits = replace(registry.settings.limits, bytes_total=1)
    registry.storage_quota.enforce()
    assert parent.evicted == ""
    assert parent.checkpoints()


def test_saving_a_checkpoint_and_an_upload_need_space_too(hosted, tmp_path):
    registry = hosted()
    run = registry.start(small(max_steps=ENDLESS), "ada", changes=[SettingChange(0, "speed", 20)])
    until(lambda: run.step > 0)
    checkpoint = tmp_path / "sent"
    save_checkpoint(checkpoint, Trainer(small()), None)
    registry.settings.limits = replace(
        registry.settings.limits, bytes_per_owner=estimated_run_bytes(run.config) + 1000
    )
    with pytest.raises(UserError, match="delete “"):
        registry.control(run, "save")
    with pytest.raises(UserError, match="delete “"):
        registry.import_checkpoint(checkpoint, "ada", "sent")
    assert (checkpoint / "config.json").is_file()
    registry.import_checkpoint(shutil.copytree(checkpoint, tmp_path / "copy"), "bob", "sent")


def test_thinning_keeps_the_files_for_resuming(hosted):
    registry = hosted()
    run = registry.start(small(max_steps=60), "ada", changes=[SettingChange(0, "speed", 200)])
    until(lambda: run.step >= 40)
    registry.control(run, "pause")
    until(
        lambda: (
            run.status == "paused"
            and run.checkpoints()
            and run.checkpoints()[0][1].step == run.step
        )
    )
    run.send_command("park")
    until(lambda: not run.has_worker)
    for path in surplus_weights(run.folder):
        path.unlink()
    registry.control(run, "resume")
    until(lambda: run.status == "done" and not run.has_worker)
    assert [line["step"] for line in read_lines(run.folder)] == list(range(1, 61))
    assert weight_steps(run.folder)[0] == 0
    assert weight_steps(run.folder)[-1] == 60


def test_a_record_of_an_earlier_version_is_read(hosted, tmp_path):
    registry = hosted()
    run = done(registry)
    folder = tmp_path / "earlier"
    folder.mkdir()
    # the server may still write into its own
    written = json.loads((run.folder / "run.json").read_text())
    for name in ("trained_seconds", "evicted", "imported"):
        del written[name]
    (folder / "run.json").write_text(json.dumps(written))
    again = Run.read(folder)
    assert (again.id, again.trained_seconds, again.evicted, again.imported, again.owner) == (
        run.id,
        0.0,
        "",
        False,
        owner_id("ada"),
    )
