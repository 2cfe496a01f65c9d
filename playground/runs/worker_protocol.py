"""What the server and a training process exchange.

The pipe carries commands to the worker and messages to the server. Both are tuples that start with
their kind.

    commands   ("pause",) ("resume",) ("step", n) ("stop",) ("park",) ("save",)
               ("watch", bool) ("change", setting, value)
    messages   ("started", step, device) ("points", [dict]) ("history", [steps], latest step)
               ("status", name) ("saved", step) ("changes", [[step, setting, value]])
               ("trouble", text) ("active", seconds of training without pauses)
               ("ended", status, text, scores or None)
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from playground.training.setting_changes import SettingChange

DIVERGED_MESSAGE = "training diverged"  # start of the message of a diverged run
NO_USABLE_CHECKPOINT = "no checkpoint of this run can be used"
PINNED_SUFFIX = "-kept"  # suffix of the folder of a checkpoint that the owner saved


@dataclass(frozen=True)
class WorkerSpec:
    folder: str
    config: dict[str, Any]
    changes: list[list[Any]] = field(default_factory=list)
    first_command: str = "train"  # or "step"
    branched_from: tuple[str, int] | None = None  # folder and step that this run branches from
    trained_seconds: float = 0.0  # seconds of training so far
    threads: int = 0  # an upper limit, independent of the settings; 0: no limit
    cores: int = 1  # those of the machine, divided by the slots


def max_speed(changes: Iterable[SettingChange], step: int) -> float:
    """Return the maximum of steps per second at a step; 0 for no maximum."""
    speeds = [each.value for each in changes if each.setting == "speed" and each.step <= step]
    return speeds[-1] if speeds else 0.0
