"""The limits of a public server for each visitor.

A server for its own machine alone has no such limits, only those of the machine (`memory.py`). Each
refusal is one sentence: the requested value, the limit, and how to lift it. On a Space, the visitor
duplicates the Space; elsewhere, the operator of the server sets the variable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from playground.models.config import SettingError, plain
from playground.training.config import RunConfig
from playground.training.environment import env_bytes, env_number

from .processes import usable_cores
from .run import Refused

SETTINGS = {
    "d_model": "MAX_D_MODEL",
    "n_layers": "MAX_LAYERS",
    "max_length": "MAX_LENGTH",
    "longest_answer": "MAX_LENGTH",
    "batch_size": "MAX_BATCH",
}
# Bytes per parameter that a run always stores: two checkpoints (each with the weight and Adam's two
# moments), and the first and the last weights of the history.
KEPT_A_PARAMETER = 2 * 12 + 2 * 4
LONGEST_METRICS = 16_000_000  # bytes: about 100,000 steps, read in one or two seconds
HOSTED_LOOK, HOSTED_PROOF = 20.0, 120.0  # seconds in a process that all visitors share
WARNED_BEFORE = 60.0  # remaining seconds of training at which a run starts to warn


@dataclass(frozen=True)
class Limits:
    """The limits of a server; 0 means no limit.

    Minutes are of training, without the owner's pauses. Bytes are of disk space.
    """

    d_model: int = 0
    n_layers: int = 0
    max_length: int = 0  # of a source, and of a target in an uploaded dataset
    batch_size: int = 0
    minutes: float = 0.0
    threads: int = 0  # of one run, so that it leaves cores to the others
    metrics_bytes: int = 0  # of metrics in a checkpoint, which the server process reads
    own_bytes: int = 0  # all runs of one visitor
    all_bytes: int = 0  # all runs
    # of one view of a visitor's model; 0: the limit of the server's own checkpoints
    look_seconds: float = 0.0
    proof_seconds: float = 0.0  # of a view that measures on hundreds of sequences
    on_a_space: bool = False

    @classmethod
    def none(cls) -> Limits:
        return cls()

    @classmethod
    def hosted(cls) -> Limits:
        """Return the limits of a public server, from environment variables.

        `environment.py` has the defaults.

        Raises:
            EnvError: if a variable is not a number.
        """
        sizes = {
            name: int(env_number(SETTINGS[name]))
            for name in ("d_model", "n_layers", "max_length", "batch_size")
        }
        return cls(
            **sizes,
            threads=max(1, usable_cores() // slots()),
            metrics_bytes=LONGEST_METRICS,
            minutes=env_number("MAX_MINUTES"),
            look_seconds=HOSTED_LOOK,
            proof_seconds=HOSTED_PROOF,
            own_bytes=env_bytes("RUNS_MB"),
            all_bytes=env_bytes("RUNS_TOTAL_MB"),
            on_a_space="SPACE_ID" in os.environ,
        )

    @property
    def here(self) -> str:
        """The name of the server in a sentence."""
        return "this Space" if self.on_a_space else "this server"

    @property
    def seconds(self) -> float:
        """The limit of a run's training time in seconds; 0 means no limit."""
        return 60 * self.minutes

    def way_out(self, variable: str) -> str:
        """Return how to lift a limit, as the end of a sentence."""
        return (
            "duplicate it to lift that"
            if self.on_a_space
            else f"its owner sets PLAYGROUND_{variable}"
        )

    def check(self, config: RunConfig) -> None:
        """Refuse a run that exceeds the limits of this server.

        Raises:
            SettingError: with the setting, its value and the limit.
        """
        given = {
            "d_model": config.model.d_model,
            "n_layers": config.model.n_layers,
            "max_length": config.task.max_length,
            "longest_answer": config.task.longest_answer,
            "batch_size": config.training.batch_size,
        }
        for name, value in given.items():
            most = self.max_length if name == "longest_answer" else getattr(self, name)
            if most and value > most:
                raise SettingError(
                    name,
                    f"{name} is {value}: {self.here} allows at most {most}; "
                    f"{self.way_out(SETTINGS[name])}",
                )
        needed = kept_by(config)
        if self.own_bytes and needed > self.own_bytes:
            raise SettingError(
                "d_model",
                f"d_model is {config.model.d_model}: a model of "
                f"{config.model.parameter_count():,} parameters needs about {in_words(needed)} "
                f"on the disk, and {self.here} stores {in_words(self.own_bytes)} per visitor; "
                f"use a smaller d_model, d_ff or n_layers, or {self.way_out('RUNS_MB')}",
            )

    def check_threads(self, threads: int) -> None:
        """Refuse more threads than one run may use. Raises SettingError."""
        if self.threads and threads > self.threads:
            part = f"{self.here} gives each run {self.threads}"
            raise SettingError(
                "threads",
                f"threads is {threads}: {part}; {self.way_out('SLOTS')}, "
                f"or leave it at {self.threads}",
            )

    def check_metrics(self, path: Path) -> None:
        """Refuse a metrics file that would take seconds to read. Raises Refused."""
        if self.metrics_bytes and path.is_file() and path.stat().st_size > self.metrics_bytes:
            most = f"{self.here} takes {in_words(self.metrics_bytes)}"
            raise Refused(
                f"its metrics.jsonl has {in_words(path.stat().st_size)}: {most}; "
                "leave that file out, or keep fewer of its lines"
            )

    def of_time(self) -> str:
        """Return the message of a run that has reached its training time limit."""
        out = (
            "duplicate it to lift that, or download the checkpoint"
            if self.on_a_space
            else "download the checkpoint to go on elsewhere, "
            "or its owner sets PLAYGROUND_MAX_MINUTES"
        )
        minutes = f"{plain(self.minutes)} minute{'s' * (self.minutes != 1)}"
        return f"{self.here} allows {minutes} of training per run; {out}"

    def of_patience(self, seconds: float) -> str:
        """Return the refusal of a request that takes at least `seconds`."""
        out = "; duplicate it to lift that" if self.on_a_space else ""
        return (
            f"this would take {seconds / 60:.0f} minutes or more, and {self.here} allows "
            f"{self.proof_seconds:g} s: use a model with fewer heads, layers or parameters, "
            f"or a smaller max_length{out}"
        )

    def of_room(self) -> str:
        """Return the storage limits as a sentence."""
        kept = {"per visitor": self.own_bytes, "in total": self.all_bytes}
        return f"{self.here} stores " + " and ".join(
            f"{in_words(size)} {whose}" for whose, size in kept.items() if size
        )


def slots() -> int:
    """Return the default number of concurrent runs."""
    return int(env_number("SLOTS")) or max(2, usable_cores())


def kept_by(config: RunConfig) -> int:
    """Estimate the disk space of a run in bytes, without its evictable history."""
    return KEPT_A_PARAMETER * config.model.parameter_count()


def in_words(size: int) -> str:
    """Format a number of bytes, as in "1.5 GB"."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
