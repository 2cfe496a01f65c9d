"""Train the bundled checkpoints: `python -m scripts.train_checkpoints [NAME ...]`.

Each is trained with a preset and seed 0 on one CPU thread, and stores the live snapshots of its
training (runs/replay.py) for the page's slider.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from playground.checkpoints.checkpoint import save_checkpoint
from playground.runs.replay import REPLAY_FILE, encode_replay
from playground.runs.snapshot import SnapshotBuilder
from playground.training.presets import preset_config
from playground.training.trainer import Metrics, Trainer

ROOT = Path(__file__).resolve().parents[1]
LENGTHS = {"min_length": 1, "max_length": 10}
CHECKPOINTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "reverse": ("fast", {"task": "reverse", **LENGTHS}),
    "reverse-one-head": ("one-head", {"task": "reverse", **LENGTHS}),
    "copy": ("fast", {"task": "copy", **LENGTHS}),
}


def is_recorded(step: int) -> bool:
    """Return whether the snapshot of this step is stored: dense at first, then every few steps."""
    interval = 1 if step <= 4 else 2 if step <= 20 else 5 if step <= 120 else 20
    return step % interval == 0


def train(name: str, folder: Path) -> Metrics:
    """Train one checkpoint and write it to `folder`; return the metrics of the last step."""
    preset, values = CHECKPOINTS[name]
    config = preset_config(preset, {**values, "seed": 0, "device": "cpu", "num_threads": 1})
    trainer = Trainer(config)
    builder = SnapshotBuilder(config)
    frames = [builder.snapshot(trainer.eval_model, 0)]

    def record() -> Iterator[Metrics]:
        for metrics in trainer:
            if is_recorded(metrics.step):
                frames.append(builder.snapshot(trainer.eval_model, metrics.step))
            yield metrics

    all_metrics = list(record())
    save_checkpoint(
        folder,
        trainer,
        all_metrics,
        trainer.evaluate(),
        resumable=False,
        extra={REPLAY_FILE: encode_replay(frames)},
    )
    return all_metrics[-1]


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or CHECKPOINTS:
        metrics = train(name, ROOT / "checkpoints" / name)
        print(f"{name}: step {metrics.step}, exact match {metrics.exact_match:.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
