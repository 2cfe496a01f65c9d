"""Check that a run fits into this machine's memory, before a model is built."""

from __future__ import annotations

from pathlib import Path

import psutil

from playground.models.config import SettingError
from playground.training.config import RunConfig

TORCH_ITSELF = 400_000_000  # bytes that a worker takes before it builds a model
CGROUP = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes that a new process may take.

    The lower of the free memory of the machine and the remaining limit of its container.
    """
    free = psutil.virtual_memory().available
    try:
        allowed = int((CGROUP / "memory.max").read_text())
        return min(free, allowed - int((CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):  # no control groups here, or no limit ("max")
        return free


def check_memory(config: RunConfig, besides: int = 0) -> None:
    """Refuse a run that would not fit into free memory.

    Args:
        besides: bytes that other runs are about to take.

    Raises:
        SettingError: with the estimate and the free memory.
    """
    needed, free = config.memory_estimate() + TORCH_ITSELF, free_memory() - besides
    if needed > 0.9 * free:
        raise SettingError(
            "batch_size",
            f"batch_size is {config.training.batch_size}: this run needs about "
            f"{needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            "use a smaller batch_size, d_model, d_ff or max_length",
        )
