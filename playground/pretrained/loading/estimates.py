"""Estimate the time that a model takes on this machine's CPU from its size, before it is loaded.

The factors are those of SmolLM2-135M on two busy cores. Other programs and a GPU change the times.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# how often the time of one pass over the weights, in memory or in multiply-adds
LOAD_PASSES, TOKEN_PASSES, READ_PASSES = 60, 3, 2
REPETITIONS = 3


@dataclass(frozen=True)
class MachineSpeed:
    """Bytes of weights that a vector is multiplied with in a second, and floating-point operations
    of the product of two matrices."""

    bytes_per_s: float
    flops: float

    @classmethod
    def measure(cls) -> "MachineSpeed":
        """Measure the speed, which depends on what else runs; it takes some 0.1 s."""
        weights, vector = np.ones((4096, 4096), np.float32), np.ones(4096, np.float32)
        block = np.ones((512, 512), np.float32)
        return cls(
            weights.nbytes / _seconds(lambda: weights @ vector),
            2 * 512**3 / _seconds(lambda: block @ block),
        )

    def load_s(self, parameters: int) -> float:
        """Return the seconds for loading a model."""
        return LOAD_PASSES * 4 * parameters / self.bytes_per_s

    def token_s(self, parameters: int) -> float:
        """Return the seconds for the generation of a token, which reads all weights."""
        return TOKEN_PASSES * 4 * parameters / self.bytes_per_s

    def read_s(self, parameters: int) -> float:
        """Return the seconds for each token of a text that is read at once."""
        return READ_PASSES * 2 * parameters / self.flops


def _seconds(compute: Callable[[], Any]) -> float:
    compute()
    started = time.perf_counter()
    for _ in range(REPETITIONS):
        compute()
    return (time.perf_counter() - started) / REPETITIONS
