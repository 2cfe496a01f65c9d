"""Check that a run fits into this machine's memory, before a model is built."""

from pathlib import Path

import psutil

from playground.models.config_fields import ConfigError
from playground.training.config import RunConfig

TORCH_BASELINE_BYTES = 400_000_000  # bytes that a worker takes before it builds a model
CGROUP_DIR = Path("/sys/fs/cgroup")


def free_memory() -> int:
    """Return the bytes that a new process may take.

    The lower of the free memory of the machine and the remaining limit of its container. The cache
    of files counts as free, because the kernel takes it back.
    """
    free = psutil.virtual_memory().available
    try:
        allowed = int((CGROUP_DIR / "memory.max").read_text())
        used = int((CGROUP_DIR / "memory.current").read_text())
        stat = dict(line.split() for line in (CGROUP_DIR / "memory.stat").read_text().splitlines())
        return min(free, allowed - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # no control groups here, or no limit ("max")
        return free


def ensure_memory_available(config: RunConfig, reserved_bytes: int = 0) -> None:
    """Reject a run that would not fit into free memory.

    Args:
        reserved_bytes: bytes that other runs are about to take.

    Raises:
        ConfigError: with the estimate and the free memory.
    """
    needed, free = config.estimate_memory() + TORCH_BASELINE_BYTES, free_memory() - reserved_bytes
    if needed > 0.9 * free:
        raise ConfigError(
            "batch_size",
            f"batch_size is {config.training.batch_size}: this run needs about "
            f"{needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            "use a smaller batch_size, d_model, d_ff or max_length",
        )
