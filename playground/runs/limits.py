"""The limits of a public server for each user, of this machine, and the settings of a registry.

A local server has the limits of the machine only. Each error is one sentence: the requested value,
the limit, and how to lift it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from playground.architectures.parameter_groups import parameter_count
from playground.common.env import env_bytes, env_number
from playground.common.format import format_bytes
from playground.common.platform import free_memory, usable_cores
from playground.errors import UserError
from playground.models.config_fields import ConfigError, format_number
from playground.training.run_config import RunConfig

LIMIT_ENV_NAMES = {
    "d_model": "MAX_D_MODEL",
    "n_layers": "MAX_LAYERS",
    "max_length": "MAX_LENGTH",
    "max_target_length": "MAX_LENGTH",
    "batch_size": "MAX_BATCH",
}
# Bytes per parameter that a run always stores: two checkpoints (each with the weight and Adam's two
# moments), and the first and the last weights of the history.
BYTES_PER_PARAMETER = 2 * 12 + 2 * 4
MAX_METRICS_BYTES = 16_000_000  # bytes: about 100,000 steps, read in one or two seconds
# seconds in a process that all users share
SHARED_VIEW_TIMEOUT_S, SHARED_SLOW_VIEW_TIMEOUT_S = (20.0, 120.0)
TORCH_BASELINE_BYTES = 400_000_000  # bytes that a worker takes before it builds a model
TIME_WARNING_S = 60.0  # remaining seconds of training at which a run starts to warn


@dataclass(frozen=True)
class Limits:
    """The limits of a server; 0 means no limit.

    Minutes are of training, without the owner's pauses. Bytes are of disk space.
    """

    d_model: int = 0
    n_layers: int = 0
    max_length: int = 0  # of a source, and of a target in an uploaded dataset
    batch_size: int = 0
    max_minutes: float = 0.0
    threads: int = 0  # of one run, so that it leaves cores to the others
    metrics_bytes: int = 0  # of metrics in a checkpoint, which the server process reads
    bytes_per_owner: int = 0  # all runs of one user
    bytes_total: int = 0  # all runs
    # of one view of a user's model; 0: the limit of the server's own checkpoints
    view_timeout_s: float = 0.0
    slow_view_timeout_s: float = 0.0  # of a view that measures on hundreds of sequences
    is_space: bool = False

    @classmethod
    def shared_instance(cls) -> Limits:
        """Return the limits of a public server, from environment variables (env.py)."""
        sizes = ("d_model", "n_layers", "max_length", "batch_size")
        return cls(
            **{name: int(env_number(LIMIT_ENV_NAMES[name])) for name in sizes},
            threads=max(1, usable_cores() // default_slots()),
            metrics_bytes=MAX_METRICS_BYTES,
            max_minutes=env_number("MAX_MINUTES"),
            view_timeout_s=SHARED_VIEW_TIMEOUT_S,
            slow_view_timeout_s=SHARED_SLOW_VIEW_TIMEOUT_S,
            bytes_per_owner=env_bytes("RUNS_MB"),
            bytes_total=env_bytes("RUNS_TOTAL_MB"),
            is_space="SPACE_ID" in os.environ,
        )

    @property
    def instance_name(self) -> str:
        return "this Space" if self.is_space else "this server"

    @property
    def max_train_seconds(self) -> float:
        return 60 * self.max_minutes

    def how_to_raise(self, variable: str) -> str:
        """Return how to lift a limit, as the end of a sentence."""
        return (
            "duplicate the Space to remove the limit"
            if self.is_space
            else f"its owner sets PLAYGROUND_{variable}"
        )

    def validate(self, config: RunConfig) -> None:
        """Raise ConfigError for a run that exceeds the limits of this server."""
        settings = config.to_flat()
        for name, variable in LIMIT_ENV_NAMES.items():
            maximum = self.max_length if name == "max_target_length" else getattr(self, name)
            if maximum and settings[name] > maximum:
                raise ConfigError(
                    name,
                    f"{name} is {settings[name]}: {self.instance_name} allows at most {maximum}; "
                    f"{self.how_to_raise(variable)}",
                )
        needed = estimated_run_bytes(config)
        if self.bytes_per_owner and needed > self.bytes_per_owner:
            raise ConfigError(
                "d_model",
                f"d_model is {config.model.d_model}: a model of {parameter_count(config.model):,} "
                f"parameters needs about {format_bytes(needed)} on the disk, and "
                f"{self.instance_name} stores {format_bytes(self.bytes_per_owner)} per user; "
                f"use a smaller d_model, d_ff or n_layers, or {self.how_to_raise('RUNS_MB')}",
            )

    def validate_metrics_size(self, path: Path) -> None:
        """Reject a metrics file that would take seconds to read. Raises UserError."""
        if self.metrics_bytes and path.is_file() and path.stat().st_size > self.metrics_bytes:
            limit = f"{self.instance_name} takes {format_bytes(self.metrics_bytes)}"
            raise UserError(
                f"its metrics.jsonl has {format_bytes(path.stat().st_size)}: {limit}; "
                "leave that file out, or keep fewer of its lines"
            )

    def time_limit_message(self) -> str:
        """Return the message of a run that has reached its training time limit."""
        advice = (
            "duplicate the Space to remove the limit, or download the checkpoint"
            if self.is_space
            else "download the checkpoint to go on elsewhere, "
            "or its owner sets PLAYGROUND_MAX_MINUTES"
        )
        minutes = f"{format_number(self.max_minutes)} minute{'s' * (self.max_minutes != 1)}"
        return f"{self.instance_name} allows {minutes} of training per run; {advice}"

    def storage_limit_message(self) -> str:
        limits = {"per user": self.bytes_per_owner, "in total": self.bytes_total}
        return f"{self.instance_name} stores " + " and ".join(
            f"{format_bytes(size)} {whose}" for whose, size in limits.items() if size
        )


def default_slots() -> int:
    """Return the default number of concurrent runs."""
    return int(env_number("SLOTS")) or max(2, usable_cores())


@dataclass
class RegistrySettings:
    """The settings that the parts of a registry share. They may change while it runs.

    A timeout of 0 means that there is none.
    """

    slots: int = field(default_factory=default_slots)  # workers at a time
    slots_per_owner: int = 0  # 0: all slots
    # without a viewer for so long, a run saves and pauses
    idle_timeout_s: float = field(default_factory=lambda: env_number("IDLE_TIMEOUT_S"))
    # paused for so long, a run releases its worker
    release_after_s: float = field(default_factory=lambda: env_number("RELEASE_AFTER_S"))
    # without a message and without processor time for so long, a worker is killed
    hang_timeout_s: float = field(default_factory=lambda: env_number("HANG_TIMEOUT_S"))
    has_count_limits: bool = True  # of an owner's runs and experiments; a command has none
    limits: Limits = field(default_factory=Limits)  # of a public server, for each user

    def __post_init__(self) -> None:
        self.slots_per_owner = min(self.slots_per_owner or self.slots, self.slots)


def estimated_run_bytes(config: RunConfig) -> int:
    """Estimate the disk space of a run in bytes, without its evictable history."""
    return BYTES_PER_PARAMETER * parameter_count(config.model)


def ensure_memory_available(config: RunConfig, reserved_bytes: int = 0) -> None:
    """Raise ConfigError for a run that would not fit into free memory.

    `reserved_bytes`: bytes that other runs are about to take.
    """
    needed, free = config.estimate_memory() + TORCH_BASELINE_BYTES, free_memory() - reserved_bytes
    if needed > 0.9 * free:
        raise ConfigError(
            "batch_size",
            f"batch_size is {config.training.batch_size}: this run needs about "
            f"{needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            "use a smaller batch_size, d_model, d_ff or max_length",
        )
