"""Steps per second of our model and of the reference models.

Every candidate samples the same batches in the same order within its step. The reference models
train in our Trainer, and in the usual loop: torch.optim.Adam with defaults, clip_grad_norm_,
loss.item(). The table also gives their share of the CPU's peak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, cast

import torch

from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.models.config import TransformerConfig
from playground.tasks.held_out import sample_training_batch
from playground.training.presets import preset_config
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

from ._timing import format_interval, interval, rounds, speedup
from .flops import counted_flops
from .reference_models import CANDIDATES, OURS, reference_versions

PEAK_SIZE = 1024  # rows and columns of the matrices whose product is the processor's peak
TWO_THREADS = f"{OURS}, two threads"
IN_TRAINER, PLAIN = "in our Trainer", "in a plain loop"


@dataclass(frozen=True)
class Setting:
    """A size of the step.

    Each turn takes `calls` steps, and all turns together `seconds`. With `min_length`, the lengths
    are mixed.
    """

    d_model: int
    batch_size: int
    length: int
    seconds: float
    calls: int = 5
    min_length: int = 0

    @property
    def name(self) -> str:
        lengths = f"lengths {self.min_length} to" if self.min_length else "length"
        return f"d_model {self.d_model}, batch {self.batch_size}, {lengths} {self.length}"

    def config(self, threads: int = 1) -> RunConfig:
        """Return reversal with a learning rate that never diverges, without evaluations."""
        sizes = {"d_model": self.d_model, "d_ff": 2 * self.d_model, "batch_size": self.batch_size}
        lengths = {"min_length": self.min_length or self.length, "max_length": self.length}
        endless = {
            "max_steps": 1_000_000,
            "eval_every": 1_000_000,
            "lr_schedule": "constant",
            "learning_rate": 1e-4,
        }
        return preset_config(
            "adam", {**sizes, **lengths, **endless, "device": "cpu", "num_threads": threads}
        )


SETTINGS = (
    Setting(64, 32, 10, seconds=90),
    Setting(64, 128, 10, seconds=90),
    Setting(64, 128, 10, seconds=120, min_length=1),
    Setting(128, 128, 20, seconds=150, calls=2),
    Setting(128, 128, 50, seconds=200, calls=1, min_length=1),
    Setting(256, 128, 20, seconds=200, calls=1),
)


def plain_step(model: Seq2SeqModel, config: RunConfig) -> Callable[[], None]:
    """Return the usual training step, on the batches of our Trainer."""
    training, task = config.training, config.task
    optimizer = torch.optim.Adam(
        model.parameters(),
        lr=training.learning_rate,
        betas=(training.adam_beta1, training.adam_beta2),
    )
    generator, rule = torch.Generator().manual_seed(training.seed), task.load()

    def step() -> None:
        batch = sample_training_batch(
            rule, training.batch_size, task.min_length, task.max_length, generator
        )
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.max_grad_norm)
        optimizer.step()
        loss.item()

    return step


def with_two_threads(step: Callable[[], object]) -> None:
    """Run a step with two threads, among others with one."""
    torch.set_num_threads(2)
    step()
    torch.set_num_threads(1)


def candidates(setting: Setting) -> dict[str, Callable[[], object]]:
    """Return the step of each candidate."""
    config = setting.config()
    sizes = cast(TransformerConfig, config.model)
    steps: dict[str, Callable[[], object]] = {}
    for name, contestant in CANDIDATES.items():
        steps[f"{name}, {IN_TRAINER}"] = Trainer(
            config, model=contestant.build_model(sizes)
        ).train_step
        if name != OURS:
            steps[f"{name}, {PLAIN}"] = plain_step(contestant.build_model(sizes), config)
    two = Trainer(setting.config(threads=2), model=CANDIDATES[OURS].build_model(sizes))
    torch.set_num_threads(1)
    one = torch.randn(2, PEAK_SIZE, PEAK_SIZE)
    return steps | {
        TWO_THREADS: partial(with_two_threads, two.train_step),
        "peak": partial(torch.mm, one[0], one[1], out=torch.empty_like(one[0])),
    }


def measure(settings: tuple[Setting, ...] = SETTINGS) -> dict[str, Any]:
    rows = []
    for setting in settings:
        flops = counted_flops(Trainer(setting.config()))
        seconds_by_candidate = rounds(candidates(setting), setting.seconds, setting.calls)
        peak, ours = seconds_by_candidate.pop("peak"), seconds_by_candidate[f"{OURS}, {IN_TRAINER}"]
        for name, seconds in seconds_by_candidate.items():
            ours_over = speedup(ours, seconds)
            row: dict[str, Any] = {
                "setting": setting.name,
                "contestant": name,
                "n": len(seconds),
                "ours_over": ours_over,
            }
            row["steps_per_second"] = round(1 / median(seconds), 1)
            if name in (f"{OURS}, {IN_TRAINER}", TWO_THREADS):
                row["of_peak"] = interval(
                    [flops / a / (2 * PEAK_SIZE**3 / b) for a, b in zip(seconds, peak, strict=True)]
                )
                row |= {
                    "flops": flops,
                    "peak_gflops": round(2 * PEAK_SIZE**3 / median(peak) / 1e9, 1),
                }
            rows.append(row)
            print(
                f"{setting.name}: {name}, {row['steps_per_second']} steps/s; ours over it "
                f"{format_interval(ours_over)}",
                flush=True,
            )
    return {"versions": reference_versions(), "rows": rows}


def table(rows: dict[str, Any]) -> str:
    """Format the rows as Markdown."""
    lines = [
        "| step | model | rounds | steps per second: median | ours / this: median (95 % interval) "
        "| share of the peak: median (95 % interval) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows["rows"]:
        share = ""  # of what one thread multiplies at most
        if "of_peak" in row:
            share = (
                f"{format_interval(row['of_peak'])} of {row['peak_gflops']:g} GFLOP/s; "
                f"{row['flops'] / 1e6:.0f} MFLOP per step"
            )
        ours_over = (
            ""
            if row["contestant"] == f"{OURS}, {IN_TRAINER}"
            else format_interval(row["ours_over"])
        )
        cells = [
            row["setting"],
            row["contestant"],
            str(row["n"]),
            f"{row['steps_per_second']:g}",
            ours_over,
            share,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(
        [
            *lines,
            "",
            f"{rows['versions']}. Seed 0; only speed is measured, not exact match.",
        ]
    )
