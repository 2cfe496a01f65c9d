"""Whether a run fits into this machine's memory, asked before anything is built."""

from __future__ import annotations

import psutil

from playground.models.config import SettingError
from playground.training.config import RunConfig

TORCH_ITSELF = 400_000_000  # bytes that a worker takes before it has built anything


def check_memory(config: RunConfig) -> None:
    """Refuse a run that would not fit into free memory.

    Raises:
        SettingError: with the estimate and what is free.
    """
    needed, free = config.memory_estimate() + TORCH_ITSELF, psutil.virtual_memory().available
    if needed > 0.9 * free:
        raise SettingError(
            "batch_size",
            f"batch_size is {config.training.batch_size}: this run needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            "use a smaller batch_size, d_model, d_ff or max_length",
        )
