"""Steps per second on a GPU: eager, compiled, and with the loss as a CUDA graph; the CPU beside it.

`python -m benchmarks.gpu` runs on a machine that has little more than torch. `python -m benchmarks`
then writes the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn

from benchmarks._results import save_results
from benchmarks.flops import counted_flops
from playground.architectures.parameter_groups import parameter_count
from playground.tasks.task import Batch
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

CPU = "float32, CPU"
# d_model, batch size and numbers; what matters most comes first, because a machine is lent briefly
ROWS = (
    *((512, 128, numbers) for numbers in ("float32", "tf32", "bfloat16", CPU)),
    *((64, 32, numbers) for numbers in ("float32", "bfloat16", CPU)),
    *((64, 1024, numbers) for numbers in ("float32", "bfloat16", CPU)),
)
ROUNDS, ROW_LENGTH, CPU_ROW_LENGTH = 5, 64, 4
RUN_LENGTH, LAST_STEPS = 50, 10


def measure() -> list[dict[str, Any]]:
    """Return a row for each size and precision; no rows without a GPU."""
    if not torch.cuda.is_available():
        print("no GPU here: nothing was measured")
        return []
    bandwidth, gpu = _bandwidth(), torch.cuda.get_device_name()
    rows = []
    for d_model, batch_size, numbers in ROWS:
        row = {"d_model": d_model, "batch_size": batch_size, "numbers": numbers, "gpu": gpu}
        row |= {"bandwidth": bandwidth} | _one(_config(d_model, batch_size, numbers))
        rows.append(row)
        print(row, flush=True)
        save_results("gpu", rows, unfinished=True)  # what breaks off leaves what there is
    return rows


def _config(d_model: int, batch_size: int, numbers: str) -> RunConfig:
    return RunConfig.from_flat(
        {
            "d_model": d_model,
            "d_ff": 2 * d_model,
            "n_heads": 4,
            "min_length": 10,
            "batch_size": batch_size,
            "precision": "float32" if numbers == CPU else numbers,
            "device": "cpu" if numbers == CPU else "cuda",
            "lr_schedule": "constant",
            "warmup_steps": 0,
            "learning_rate": 1e-4,
            "max_steps": 1_000_000,
            "eval_every": 1_000_000,
        }
    )


def _one(config: RunConfig) -> dict[str, Any]:
    """Measure the steps per second of each method, interleaved, and the cost of one step."""
    is_gpu = config.training.device == "cuda"
    row: dict[str, Any] = {"peak": _peak(config.training.precision)} if is_gpu else {}
    trainers = {"eager": Trainer(config)}
    losses = [trainers["eager"].train_step().loss for _ in range(RUN_LENGTH)]
    if is_gpu:
        # what was compiled for other sizes counts against the same limit, beyond which steps run
        # plainly
        torch._dynamo.reset()
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        trainers |= {name: Trainer(config) for name in ("compiled", "graphed")}
        trainers["compiled"].model.compile()
        _capture_loss(trainers["graphed"])
    length = ROW_LENGTH if is_gpu else CPU_ROW_LENGTH
    speeds: dict[str, list[float]] = {name: [] for name in trainers}
    for trainer in trainers.values():
        _seconds_of_row(trainer, length)
    for _ in range(ROUNDS):
        for name, trainer in trainers.items():
            speeds[name].append(length / _seconds_of_row(trainer, length))
    return row | {
        "speeds": {name: round(median(each), 1) for name, each in speeds.items()},
        "ratios": {
            name: [round(a / b, 2) for a, b in zip(speeds[name], speeds["eager"], strict=True)]
            for name in list(speeds)[1:]
        },
        "loss": float(f"{sum(losses[-LAST_STEPS:]) / LAST_STEPS:.4g}"),
        "flops": counted_flops(trainers["eager"]),
        "bytes": 4 * 9 * parameter_count(config.model),
    }


class _Loss(nn.Module):
    """The loss of a model as a module of tensors, which a graph can capture."""

    def __init__(self, model: Any, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, source_BS: Tensor, target_BT: Tensor, loss_weight_B: Tensor) -> Tensor:
        batch = Batch(source_BS, target_BT, loss_weight_B)
        loss: Tensor = self.model.loss(batch, self.label_smoothing)
        return loss


def _capture_loss(trainer: Trainer) -> None:
    """Replace forward and backward pass by CUDA graphs (torch.cuda.make_graphed_callables)."""
    training, batch = trainer.config.training, trainer.next_batch()
    loss = _Loss(trainer.model, training.label_smoothing)
    is_bfloat16 = training.precision == "bfloat16"
    with torch.autocast("cuda", torch.bfloat16, enabled=is_bfloat16, cache_enabled=False):
        graphed = torch.cuda.make_graphed_callables(
            loss, (batch.source_BS, batch.target_BT, batch.loss_weight_B)
        )

    def graphed_loss(batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        return cast(Tensor, graphed(batch.source_BS, batch.target_BT, batch.loss_weight_B))

    trainer.loss_fn = graphed_loss


def _seconds_of_row(trainer: Trainer, length: int) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(length):
        trainer.train_step()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def _bandwidth(size: int = 2**28) -> float:
    """Return the bytes per second of a copy in GPU memory, read and written."""
    source, target = torch.ones(size, device="cuda"), torch.empty(size, device="cuda")
    return 2 * 4 * size / _seconds(lambda: target.copy_(source))


def _peak(precision: str, size: int = 8192) -> float:
    """Return the operations per second of a large matrix product in this precision."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    # ones are quicker
    one = torch.randn(
        size,
        size,
        device="cuda",
        dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32,
    )
    return 2 * size**3 / _seconds(lambda: one @ one)


def _seconds(work: Callable[[], Any], times: int = 10) -> float:
    work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / times


def table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as Markdown.

    A step reads and writes at least 9 numbers per parameter: weights, gradients, Adam's averages.
    The shares of the peaks are those of the fastest method.
    """
    if not rows:
        return "No GPU was there to be measured on."
    columns = (
        "d_model",
        "batch",
        "numbers",
        f"loss at step {RUN_LENGTH}",
        "eager",
        "compiled",
        "graphed",
        "eager to CPU",
        "compiled to eager",
        "graphed to eager",
        "of the matrix peak",
        "of the bandwidth",
    )
    on_cpu = {
        (row["d_model"], row["batch_size"]): row["speeds"]["eager"]
        for row in rows
        if row["numbers"] == CPU
    }
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    lines = [f"{rows[0]['gpu']}; copies {rows[0]['bandwidth'] / 1e9:,.0f} GB/s.", "", *head]
    for row in rows:
        speeds, rate = row["speeds"], max(row["speeds"].values())
        slowest = on_cpu.get((row["d_model"], row["batch_size"]))
        cells = [row["d_model"], row["batch_size"], row["numbers"], f"{row['loss']:.3g}"]
        cells += [
            f"{speeds[name]:,.1f}" if name in speeds else ""
            for name in ("eager", "compiled", "graphed")
        ]
        cells.append(f"{speeds['eager'] / slowest:.1f}" if slowest else "")
        for name in ("compiled", "graphed"):
            each = row["ratios"].get(name)
            cells.append(f"{median(each):.1f} ({min(each):.1f} to {max(each):.1f})" if each else "")
        if "peak" in row:
            cells.append(f"{rate * row['flops'] / row['peak']:.1%}")
            cells.append(f"{rate * row['bytes'] / row['bandwidth']:.1%}")
        else:
            cells += ["", ""]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if measured := measure():
        save_results("gpu", measured)
        print(table(measured))
