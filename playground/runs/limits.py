"""What a server that others may use allows each of them. Where a playground serves its own machine alone there are no such limits, only
the machine's (memory.py).

Whatever is refused is said in one sentence: what was asked for, what this server allows, and how to lift that. On a Space one duplicates
it and has a machine of one's own; elsewhere whoever runs the server sets the variable.
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

SETTINGS = {"d_model": "MAX_D_MODEL", "n_layers": "MAX_LAYERS", "max_length": "MAX_LENGTH", "longest_answer": "MAX_LENGTH",
            "batch_size": "MAX_BATCH"}  # fmt: skip
# Bytes a parameter that a run keeps whatever happens: two checkpoints, each of a weight and Adam's two averages, and the weights at its
# beginning and at its end.
KEPT_A_PARAMETER = 2 * 12 + 2 * 4
LONGEST_METRICS = 16_000_000  # bytes, about 100,000 steps: a second or two of reading
HOSTED_LOOK, HOSTED_PROOF = 20.0, 120.0  # seconds at a process that all visitors share
WARNED_BEFORE = 60.0  # seconds of training that are left when a run begins to say so


@dataclass(frozen=True)
class Limits:
    """0 is no limit. Minutes are those in which a run trains, its owner's pauses left out; bytes are those on the disk."""

    d_model: int = 0
    n_layers: int = 0
    max_length: int = 0  # of a source, and of an answer among rows that somebody brings
    batch_size: int = 0
    minutes: float = 0.0
    threads: int = 0  # of one run; none may take the cores of its neighbours
    metrics_bytes: int = 0  # of metrics that come with a checkpoint: they are read in the process that serves everybody
    own_bytes: int = 0  # runs of one visitor
    all_bytes: int = 0  # runs of everybody
    look_seconds: float = (
        0.0  # that one view of a visitor's model may take; 0: as the server's own checkpoints
    )
    proof_seconds: float = 0.0  # likewise for what is measured on hundreds of sequences
    on_a_space: bool = False

    @classmethod
    def none(cls) -> Limits:
        return cls()

    @classmethod
    def hosted(cls) -> Limits:
        """Those of a server that is open to others, as the environment says (environment.py has the defaults).

        Raises:
            EnvError: for a variable that is no number.
        """
        sizes = {
            name: int(env_number(SETTINGS[name]))
            for name in ("d_model", "n_layers", "max_length", "batch_size")
        }
        return cls(
            **sizes, threads=max(1, usable_cores() // slots()), metrics_bytes=LONGEST_METRICS, minutes=env_number("MAX_MINUTES"),
            look_seconds=HOSTED_LOOK, proof_seconds=HOSTED_PROOF,
            own_bytes=env_bytes("RUNS_MB"), all_bytes=env_bytes("RUNS_TOTAL_MB"), on_a_space="SPACE_ID" in os.environ,
        )  # fmt: skip

    @property
    def here(self) -> str:
        """What the visitor is at."""
        return "this Space" if self.on_a_space else "this server"

    @property
    def seconds(self) -> float:
        """Seconds of training that a run may have; 0 for any number."""
        return 60 * self.minutes

    def way_out(self, variable: str) -> str:
        """How a limit is lifted, as the end of a sentence."""
        return (
            "duplicate it to lift that"
            if self.on_a_space
            else f"its owner sets PLAYGROUND_{variable}"
        )

    def check(self, config: RunConfig) -> None:
        """Refuse a run that is larger than any may be here.

        Raises:
            SettingError: naming the setting, what it is, and what is allowed.
        """
        given = {"d_model": config.model.d_model, "n_layers": config.model.n_layers, "max_length": config.task.max_length,
                 "longest_answer": config.task.longest_answer, "batch_size": config.training.batch_size}  # fmt: skip
        for name, value in given.items():
            most = self.max_length if name == "longest_answer" else getattr(self, name)
            if most and value > most:
                raise SettingError(
                    name,
                    f"{name} is {value}: {self.here} allows at most {most}; {self.way_out(SETTINGS[name])}",
                )
        needed = kept_by(config)
        if self.own_bytes and needed > self.own_bytes:
            raise SettingError(
                "d_model",
                f"d_model is {config.model.d_model}: a model of {config.model.parameter_count():,} parameters keeps about "
                f"{in_words(needed)} on the disk, and {self.here} keeps {in_words(self.own_bytes)} a visitor; use a smaller d_model, d_ff "
                f"or n_layers, or {self.way_out('RUNS_MB')}",
            )

    def check_threads(self, threads: int) -> None:
        """Refuse more threads than are one run's part of the processor. Raises SettingError."""
        if self.threads and threads > self.threads:
            part = f"{self.here} gives each run {self.threads}"
            raise SettingError(
                "threads",
                f"threads is {threads}: {part}; {self.way_out('SLOTS')}, or leave it at {self.threads}",
            )

    def check_metrics(self, path: Path) -> None:
        """Refuse a checkpoint's metrics that would take seconds to read. Raises Refused."""
        if self.metrics_bytes and path.is_file() and path.stat().st_size > self.metrics_bytes:
            most = f"{self.here} takes {in_words(self.metrics_bytes)}"
            raise Refused(
                f"its metrics.jsonl has {in_words(path.stat().st_size)}: {most}; leave that file out, or keep fewer of its lines"
            )

    def of_time(self) -> str:
        """What a run is told that has had its minutes."""
        out = "duplicate it to lift that, or download the checkpoint" if self.on_a_space else \
            "download the checkpoint to go on elsewhere, or its owner sets PLAYGROUND_MAX_MINUTES"  # fmt: skip
        return f"{self.here} allows {plain(self.minutes)} minute{'s' * (self.minutes != 1)} of training a run; {out}"

    def of_patience(self, seconds: float) -> str:
        """What a visitor is told whose request would take at least so many seconds."""
        least = f"this would take {seconds / 60:.0f} minutes or more, and {self.here} allows {self.proof_seconds:g} s"
        out = "; duplicate it to lift that" if self.on_a_space else ""
        return f"{least}: use a model with fewer heads, layers or parameters, or a smaller max_length{out}"

    def of_room(self) -> str:
        """How many bytes are kept here."""
        kept = {"a visitor": self.own_bytes, "in all": self.all_bytes}
        return f"{self.here} keeps " + " and ".join(
            f"{in_words(size)} {whose}" for whose, size in kept.items() if size
        )


def slots() -> int:
    """Runs that train at the same time, where nobody says how many."""
    return int(env_number("SLOTS")) or max(2, usable_cores())


def kept_by(config: RunConfig) -> int:
    """About how many bytes of disk a run needs, beside the history that gives way where room is scarce."""
    return KEPT_A_PARAMETER * config.model.parameter_count()


def in_words(size: int) -> str:
    """Bytes as people write them."""
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.3g} MB"
