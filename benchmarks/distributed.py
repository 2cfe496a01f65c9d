"""Two processes that train one run, compared with one process; one thread each.

At each width, interleaved: one process alone, then two processes together, as torchrun starts them,
on this machine with gloo. Sequences per second of wall-clock time of the first process, without
evaluation.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from statistics import median
from typing import Any

WIDTHS = (64, 128, 256)
ROUNDS, SECONDS = 9, 4.0
FIELDS = {
    "max_steps": 1_000_000,
    "batch_size": 128,
    "min_length": 10,
    "max_length": 10,
    "eval_every": 1_000_000,
    "lr_schedule": "constant",
    "learning_rate": 1e-4,
    "device": "cpu",
}


def train(pipe: Any, environment: dict[str, str], width: int) -> None:
    """Train as many steps as each message requests, and send the seconds."""
    os.environ |= environment
    import torch

    from playground.training.distributed import init_distributed
    from playground.training.run_config import RunConfig
    from playground.training.trainer import Trainer

    ranks = init_distributed(torch.device("cpu"))
    trainer = Trainer(
        RunConfig.from_flat(FIELDS | {"d_model": width, "d_ff": 2 * width}), dist=ranks
    )
    while steps := pipe.recv():
        ranks.all_reduce_max(0)  # begins when the slower one is there
        started = time.perf_counter()
        for _ in range(steps):
            trainer.train_step()
        pipe.send(time.perf_counter() - started)
    ranks.shutdown()


def start_ranks(size: int, width: int) -> list[tuple[Any, Any]]:
    """Start the processes of one run; return them and our ends of their pipes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
            "WORLD_SIZE": str(size),
        }
    context = multiprocessing.get_context("spawn")
    processes = []
    for rank in range(size):
        parent_end, child_end = context.Pipe()
        messages = meeting | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(size),
        }
        process = context.Process(target=train, args=(child_end, messages, width), daemon=True)
        process.start()
        processes.append((process, parent_end))
    return processes


def seconds(processes: list[tuple[Any, Any]], steps: int) -> float:
    """Return the seconds that the processes of a run need for the steps."""
    for _, pipe in processes:
        pipe.send(steps)
    took: list[float] = [pipe.recv() for _, pipe in processes]
    return took[0]


def measure() -> list[dict[str, Any]]:
    rows = []
    for width in WIDTHS:
        runs = {size: start_ranks(size, width) for size in (1, 2)}
        rates: dict[int, list[float]] = {size: [] for size in runs}
        # these warm up
        steps = {
            size: max(1, round(10 * SECONDS / seconds(processes, 10)))
            for size, processes in runs.items()
        }
        for _ in range(ROUNDS):
            for size, processes in runs.items():
                examples = FIELDS["batch_size"] * steps[size]  # type: ignore[operator]
                rates[size].append(round(examples / seconds(processes, steps[size]), 1))
        for process, pipe in (each for processes in runs.values() for each in processes):
            pipe.send(0)
            process.join()
        rows.append({"width": width, "one": rates[1], "two": rates[2]})
        print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rates as Markdown.

    The table has medians, and the median of the ratios with its range.
    """
    lines = [
        "| d_model | rounds | one process, sequences per second | two processes | speedup: "
        "median | lowest | highest |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        gains = [two / one for one, two in zip(row["one"], row["two"], strict=True)]
        speeds = f"{median(row['one']):,.0f} | {median(row['two']):,.0f}"
        lines.append(
            f"| {row['width']} | {len(gains)} | {speeds} | {median(gains):.2f} | {min(gains):.2f} "
            f"| {max(gains):.2f} |"
        )
    return "\n".join(lines)
