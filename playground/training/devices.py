"""What kind of machine this is, as far as it decides where runs train. No torch in here."""

from __future__ import annotations

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
ZERO = "zero"  # the device setting of a run that trains in slices of ZeroGPU


def on_zero() -> bool:
    """Whether this is a Space on ZeroGPU: no GPU of its own, but one that is lent for seconds at a time to what a visitor's event calls."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def usable_cores() -> int:
    """Processor cores that this process may use, as affinity and the quota of its container allow."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(cores, _quota() or cores)


def _quota() -> int:
    """Cores that the control group (version 2 or 1) pays for, rounded up; 0 where there is no limit."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = (
                (CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        except (OSError, ValueError):
            return 0
    try:
        return max(0, math.ceil(int(quota) / int(period)))  # "max", or -1 in version 1: no limit
    except (ValueError, ZeroDivisionError):
        return 0
