"""Count the cores that this process may use."""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return the CPU cores that this process may use, by affinity and container quota."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(cores, _quota() or cores)


def _quota() -> int:
    """Return the control group's CPU quota (version 2 or 1) in cores, rounded up; 0 if none."""
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
