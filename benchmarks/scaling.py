"""How a training step of ours grows with length and width: time, and the memory that is alive at
once, with fitted exponents.

Over long sequences the scores of attention, a number for every pair of tokens in every head,
outgrow all else: length squared. In wide models the products with the weights do, and the weights
themselves: width squared. What is fitted is the upper half of the range, where the smaller terms
still have a share; counted FLOPs say how large it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.flops import counted_flops
from playground.training.presets import preset_config
from playground.training.trainer import Trainer

SECONDS = 90  # for all timing; counting takes a few more
LENGTHS = (8, 16, 32, 64, 128, 256)
WIDTHS = (32, 64, 128, 256, 512)
BATCH = 8
LENGTH_OF_WIDTHS, WIDTH_OF_LENGTHS = 16, 64
KINDS = {"seconds": "time", "bytes": "memory", "flops": "counted FLOPs"}


def trainer(length: int, width: int) -> Trainer:
    """Ours, at a learning rate that does no harm however long it is timed."""
    sizes = {
        "d_model": width,
        "d_ff": 2 * width,
        "batch_size": BATCH,
        "min_length": length,
        "max_length": length,
    }
    endless = {
        "steps": 1_000_000,
        "eval_every": 1_000_000,
        "schedule": "constant",
        "learning_rate": 1e-5,
        "device": "cpu",
    }
    return Trainer(preset_config("fast", sizes | endless))


def peak_tensor_bytes(step: Trainer) -> int:
    """Bytes of tensors that are alive at once during a step, weights and Adam's averages
    included.
    """
    before = sum(weight.nbytes for weight in step.model.parameters())
    before += sum(
        value.nbytes
        for state in step.optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    )
    step.optimizer.zero_grad()  # so that the gradients, too, come and go under the profiler's eyes
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step.train_step()
        step.train_step()
    results = profiled.profiler.kineto_results  # the public tables keep sums, not the order
    changes = [
        (event.start_ns(), event.nbytes())
        for event in results.events()
        if event.name() == "[memory]"
    ]
    alive = peak = 0
    for _, change in sorted(changes, key=lambda each: each[0]):
        alive += change
        peak = max(peak, alive)
    return before + peak


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of log values over log sizes in the upper half, by least squares."""
    half = len(sizes) // 2
    x, y = ([math.log(value) for value in each[half:]] for each in (sizes, values))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )


def measure(
    lengths: Sequence[int] = LENGTHS, widths: Sequence[int] = WIDTHS, seconds: float = SECONDS
) -> dict[str, Any]:
    """Each size in turn, over and over, until the time is up; three times at least.

    The median counts.
    """
    torch.set_num_threads(1)
    sizes = [("length", n, n, WIDTH_OF_LENGTHS) for n in lengths] + [
        ("width", n, LENGTH_OF_WIDTHS, n) for n in widths
    ]
    steps = {(what, n): trainer(length, width) for what, n, length, width in sizes}
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for (what, n), step in steps.items():
        step.train_step()
        rows[what, n] = {
            "what": what,
            "size": n,
            "bytes": peak_tensor_bytes(step),
            "flops": counted_flops(step),
        }
    seconds_by_size: dict[tuple[str, int], list[float]] = {key: [] for key in steps}
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or any(len(each) < 3 for each in seconds_by_size.values()):
        for key, step in steps.items():
            started = time.perf_counter()
            step.train_step()
            seconds_by_size[key].append(time.perf_counter() - started)
    points = [
        row | {"n": len(seconds_by_size[key]), "seconds": median(seconds_by_size[key])}
        for key, row in rows.items()
    ]
    fitted = {}
    for what, of in (("length", [n + 1 for n in lengths]), ("width", widths)):  # EOS is a token too
        mine = [point for point in points if point["what"] == what]
        fitted[what] = {
            kind: round(exponent(of, [point[kind] for point in mine]), 2) for kind in KINDS
        }
    for what, exponents in fitted.items():
        powers = (f"{KINDS[kind]} grows as its power {power}" for kind, power in exponents.items())
        print(f"{what}: {', '.join(powers)}", flush=True)
    return {"points": points, "exponents": fitted}


def table(rows: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "| | size | steps | milliseconds a step: median | MiB alive at once | MFLOP counted |",
        "|---|---|---|---|---|---|",
    ]
    for point in rows["points"]:
        cells = [
            point["what"],
            f"{point['size']}",
            f"{point['n']}",
            f"{1000 * point['seconds']:.1f}",
            f"{point['bytes'] / 2**20:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} | {point['flops'] / 1e6:,.0f} |")
    theory = {
        "length": "attention's scores grow with length squared, all else with length",
        "width": "products with weights, and weights, grow with width squared, all else with width",
    }
    lines += [
        "",
        "| exponent over the upper half | time | memory | counted FLOPs | theory |",
        "|---|---|---|---|---|",
    ]
    for what, exponents in rows["exponents"].items():
        lines.append(
            f"| {what} | {' | '.join(f'{exponents[kind]:.2f}' for kind in KINDS)} | "
            f"{theory[what]}: 1 to 2 |"
        )
    sizes = (
        f"lengths at d_model {WIDTH_OF_LENGTHS}, widths at length {LENGTH_OF_WIDTHS}; d_ff "
        f"twice the width, batch {BATCH}"
    )
    return "\n".join([*lines, "", f"One thread, seed 0; {sizes}."])
