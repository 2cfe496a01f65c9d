"""Scaling of a training step with length and width.

Measured: time and peak memory, with fitted exponents. For long sequences the attention scores
dominate, one number per pair of tokens and head: length squared. For wide models the products with
the weights and the weights themselves dominate: width squared. The fit uses the upper half of the
range, where the smaller terms still matter; the FLOPs show how much.
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
KINDS = {"seconds": "time", "bytes": "memory", "flops": "FLOPs"}


def trainer(length: int, width: int) -> Trainer:
    """Return a trainer of our model, with a learning rate that never diverges."""
    sizes = {
        "d_model": width,
        "d_ff": 2 * width,
        "batch_size": BATCH,
        "min_length": length,
        "max_length": length,
    }
    endless = {
        "max_steps": 1_000_000,
        "eval_every": 1_000_000,
        "lr_schedule": "constant",
        "learning_rate": 1e-5,
        "device": "cpu",
    }
    return Trainer(preset_config("adam", sizes | endless))


def peak_tensor_bytes(step: Trainer) -> int:
    """Return the peak bytes of tensors during a step.

    Weights and Adam's averages are included.
    """
    before = sum(weight.nbytes for weight in step.model.parameters())
    before += sum(
        value.nbytes
        for state in step.optimizer.state.values()
        for value in state.values()
        if torch.is_tensor(value)
    )
    step.optimizer.zero_grad()  # so that the profiler also measures the gradients
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
    """Return the slope of log values over log sizes in the upper half (least squares)."""
    half = len(sizes) // 2
    x, y = ([math.log(value) for value in each[half:]] for each in (sizes, values))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum(
        (a - mean_x) ** 2 for a in x
    )


def measure(
    lengths: Sequence[int] = LENGTHS, widths: Sequence[int] = WIDTHS, seconds: float = SECONDS
) -> dict[str, Any]:
    """Measure the sizes in interleaved rounds until the time is up; at least three.

    The median counts.
    """
    torch.set_num_threads(1)
    sizes = [("length", n, n, WIDTH_OF_LENGTHS) for n in lengths] + [
        ("width", n, LENGTH_OF_WIDTHS, n) for n in widths
    ]
    steps = {(dimension, n): trainer(length, width) for dimension, n, length, width in sizes}
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for (dimension, n), step in steps.items():
        step.train_step()
        rows[dimension, n] = {
            "dimension": dimension,
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
    # EOS is a token too
    for dimension, of in (
        ("length", [n + 1 for n in lengths]),
        ("width", widths),
    ):  # EOS is a token too
        points_of_dimension = [point for point in points if point["dimension"] == dimension]
        fitted[dimension] = {
            kind: round(exponent(of, [point[kind] for point in points_of_dimension]), 2)
            for kind in KINDS
        }
    for dimension, exponents in fitted.items():
        powers = (f"{KINDS[kind]} grows as its power {power}" for kind, power in exponents.items())
        print(f"{dimension}: {', '.join(powers)}", flush=True)
    return {"points": points, "exponents": fitted}


def table(rows: dict[str, Any]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| | size | steps | milliseconds per step: median | MiB of tensors, maximum | MFLOP |",
        "|---|---|---|---|---|---|",
    ]
    for point in rows["points"]:
        cells = [
            point["dimension"],
            f"{point['size']}",
            f"{point['n']}",
            f"{1000 * point['seconds']:.1f}",
            f"{point['bytes'] / 2**20:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} | {point['flops'] / 1e6:,.0f} |")
    theory = {
        "length": "attention scores grow with the length squared, all else with the length",
        "width": "weights and their products grow with the width squared, all else with the width",
    }
    lines += [
        "",
        "| exponent, from the upper half of the sizes | time | memory | FLOPs | theory |",
        "|---|---|---|---|---|",
    ]
    for dimension, exponents in rows["exponents"].items():
        lines.append(
            f"| {dimension} | {' | '.join(f'{exponents[kind]:.2f}' for kind in KINDS)} | "
            f"{theory[dimension]}: 1 to 2 |"
        )
    sizes = (
        f"lengths at d_model {WIDTH_OF_LENGTHS}, widths at length {LENGTH_OF_WIDTHS}; d_ff "
        f"twice the width, batch {BATCH}"
    )
    return "\n".join([*lines, "", f"One thread, seed 0; {sizes}."])
