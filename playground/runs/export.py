"""Collect the files of a run's checkpoint, with the metrics up to its step.

The run stores its metrics outside the checkpoint folder.
"""

import json
import shutil
from pathlib import Path

from playground.checkpoints.manifest import read_manifest

from .weight_history import read_lines

CHECKPOINT_FILES = ("config.json", "model.safetensors", "training.safetensors", "metrics.jsonl")


def export_checkpoint(checkpoint: Path, run: Path | None, destination: Path) -> Path:
    """Copy the checkpoint files, and no other file, into a new folder.

    The run may continue to train meanwhile. Raises CheckpointError or OSError.
    """
    step = read_manifest(checkpoint).step
    destination.mkdir(parents=True)
    for name in CHECKPOINT_FILES:
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, destination / name)
    if run is not None and not (destination / "metrics.jsonl").is_file():
        with open(destination / "metrics.jsonl", "w", encoding="utf-8") as file:
            file.writelines(
                json.dumps(line) + "\n" for line in read_lines(run) if line["step"] <= step
            )
    return destination
