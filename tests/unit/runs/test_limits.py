"""Limits of a shared instance: environment variables, sizes, threads and metrics."""

import os
import shutil
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from playground.checkpoints.checkpoint import save_checkpoint
from playground.common.env import ENV_NUMBERS, EnvError, env_number, validate_env
from playground.common.platform import usable_cores
from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.models.config_fields import ConfigError
from playground.runs.limits import LIMIT_ENV_NAMES, MAX_METRICS_BYTES, Limits, estimated_run_bytes
from playground.server.runs_api import ACTIONS
from playground.training.presets import PRESETS, preset_config
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from playground.ui.form_schema import form_defaults
from playground.ui.form_values import check_form
from tests.support.small_runs import tiny_config

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
    Limits().validate(
        RunConfig.from_flat(
            {"d_model": 2048, "n_layers": 12, "max_length": 512, "batch_size": 4096}
        )
    )


# Sizes


@pytest.mark.parametrize("field", LIMIT_ENV_NAMES)
def test_a_setting_above_the_limit_is_rejected_with_a_remedy(field, monkeypatch):
    monkeypatch.setattr("playground.runs.limits.parameter_count", lambda config: 1)
    limits = Limits(d_model=32, n_layers=8, max_length=128, batch_size=512)
    maximum = limits.max_length if field == "max_target_length" else getattr(limits, field)

    def with_value(value):
        sizes = dict.fromkeys(LIMIT_ENV_NAMES, 1) | {field: value}
        return SimpleNamespace(to_flat=lambda: sizes, model=None)

    limits.validate(with_value(maximum))
    message = f"{field} is {maximum + 1}: this {{}} allows at most {maximum}; {{}}"
    remedies = {
        "server": f"its owner sets PLAYGROUND_{LIMIT_ENV_NAMES[field]}",
        "Space": "duplicate the Space to remove the limit",
    }
    for place, remedy in remedies.items():
        with pytest.raises(ConfigError) as error:
            replace(limits, is_space=place == "Space").validate(with_value(maximum + 1))
        assert (error.value.field, str(error.value)) == (field, message.format(place, remedy))


def test_every_way_to_start_a_larger_run_is_rejected(registry, workers, start, tmp_path):
    large = tiny_config(d_model=32, max_steps=3)
    before = start(registry, d_model=32, max_steps=3)
    workers.finish(before)
    checkpoint = shutil.copytree(before.checkpoints()[0][0], tmp_path / "elsewhere")
    registry.settings.limits = Limits(d_model=16)
    start(registry, d_model=16)  # a run of exactly the maximum size starts
    experiments = ExperimentService(registry)
    grid = {"name": "x", "base": {}, "grid": {"d_model": [16, 32]}, "seeds": [0]}
    entry_points = {
        "the Train button": lambda: registry.start(large, "ada"),
        "run again": lambda: registry.rerun(before, "ada"),
        "a branch": lambda: registry.branch(before, 1, "ada"),
        "extend": lambda: ACTIONS["extend"](registry, before, None),
        "an upload, or from the Hub": lambda: registry.import_checkpoint(checkpoint, "ada", ""),
        "a planned experiment": lambda: experiments.plan(grid, "ada"),
        "an experiment": lambda: experiments.start(grid, "ada"),
    }
    try:
        for name, start_larger in entry_points.items():
            with pytest.raises(
                (ConfigError, UserError), match="d_model is 32: this server allows at most 16"
            ):
                start_larger()
            assert len(registry.list_for_owner("ada")) == 2, name
        assert (checkpoint / "config.json").is_file()
        assert before.steps == 3  # the rejected extension changes nothing
    finally:
        experiments.close()


def test_the_form_has_the_message_beside_the_field(monkeypatch):
    monkeypatch.setenv("SPACE_ID", "ada/playground")
    limits = Limits.shared_instance()
    values = form_defaults()
    assert check_form(values, limits.validate)["errors"] == {}
    values |= {"n_layers": 9, "d_model": 64}
    message = "Layers is 9: this Space allows at most 8; duplicate the Space to remove the limit."
    rejected = {"size": "", "errors": {"n_layers": message}}
    assert check_form(values, limits.validate) == rejected
    assert check_form(values)["errors"] == {}


def test_model_above_user_disk_quota_is_rejected_with_its_size():
    config = RunConfig.from_flat({"d_model": 512, "n_heads": 8, "n_layers": 2, "d_ff": 2048})
    with pytest.raises(
        ConfigError,
        match=r"parameters needs about 472 MB on the disk, and this server stores 200 MB per "
        r"user; use a smal",
    ):
        Limits(bytes_per_owner=200_000_000).validate(config)
    Limits(bytes_per_owner=estimated_run_bytes(config)).validate(config)


# Memory, threads and metrics


def test_threads_above_the_run_limit_are_capped(registry, workers, start, monkeypatch):
    for slots, threads in ((1, usable_cores()), (1000, 1)):
        monkeypatch.setenv("PLAYGROUND_SLOTS", str(slots))
        assert Limits.shared_instance().threads == threads
    registry.settings.limits = Limits.shared_instance()
    training, stopped = start(registry), workers.train(start(registry, num_threads=64))
    assert training.worker.spec.threads == stopped.worker.spec.threads == 1


def test_metrics_that_would_take_long_to_read_are_not_adopted(registry, tmp_path):
    trainer = Trainer(tiny_config(max_steps=5))
    checkpoint = tmp_path / "sent"
    save_checkpoint(checkpoint, trainer, [trainer.train_step() for _ in range(3)])
    metrics = checkpoint / "metrics.jsonl"
    size = metrics.stat().st_size
    os.truncate(metrics, MAX_METRICS_BYTES + 4_000_000)
    registry.settings.limits = Limits(metrics_bytes=MAX_METRICS_BYTES)
    with pytest.raises(UserError) as error:
        registry.import_checkpoint(checkpoint, "ada", "my run")
    assert str(error.value) == (
        "its metrics.jsonl has 20.0 MB: this server takes 16.0 MB; leave that file out, or keep "
        "fewer of its lines"
    )
    assert registry.list_for_owner("ada") == []
    os.truncate(metrics, size)
    registry.settings.limits = Limits(metrics_bytes=size)
    assert registry.import_checkpoint(checkpoint, "ada", "my run").load_points().last == 3


@pytest.mark.parametrize(("is_slow", "limit_s"), [(False, 20.0), (True, 120.0)])
def test_a_view_has_the_time_limit_of_a_shared_server(registry, workers, start, is_slow, limit_s):
    run = workers.train(start(registry))
    registry.settings.limits = Limits.shared_instance()
    process, requested = Mock(), []
    process.request.side_effect = lambda *_, **named: requested.append(named) or Future()
    registry.snapshots.inspector = registry.snapshots.slow_inspector = process
    registry.snapshots.request("show", run, "{}", slow=is_slow)
    assert [named["timeout_s"] for named in requested] == [limit_s]
