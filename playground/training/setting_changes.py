"""Setting changes during a run: what may change, and which settings are in effect at a step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from playground.models.config_fields import ConfigError, config_field, short_repr, validate_field

from .train_config import TrainConfig

# Settings that may change during a run. Speed is not a setting of the run: it only limits the speed
# for viewers.
MUTABLE_SETTINGS = ("learning_rate", "max_steps", "stop_at_exact_match", "speed", "num_threads")
RESULT_NEUTRAL_SETTINGS = ("speed", "num_threads")  # those that do not affect what is learned
MAX_CHANGES = 1000  # of a run
MAX_SPEED = 1000.0  # steps per second; the maximum of a speed limit


@dataclass(frozen=True)
class _ChangeSettings:
    """The values of a change that are no settings of a run."""

    step: int = config_field(0, "The step after which a setting changes.", bounds=(0, 2**31 - 1))
    speed: float = config_field(
        0.0, "Maximum number of steps per second; 0 is full speed.", bounds=(0, MAX_SPEED)
    )


FIELDS = TrainConfig.__dataclass_fields__ | _ChangeSettings.__dataclass_fields__


@dataclass(frozen=True)
class SettingChange:
    """A setting change during a run: from the update after `step` on, `setting` is `value`.

    Raises ConfigError for a setting that cannot change, or an invalid value.
    """

    step: int
    setting: str
    value: float

    def __post_init__(self) -> None:
        if self.setting not in MUTABLE_SETTINGS:
            raise ConfigError(
                "setting",
                f"{short_repr(self.setting)} cannot change during a run; these can: "
                f"{', '.join(MUTABLE_SETTINGS)}",
            )
        validate_field(FIELDS["step"], self.step)
        object.__setattr__(self, "value", validate_field(FIELDS[self.setting], self.value))

    @classmethod
    def parse(cls, lines: Any) -> list[SettingChange]:
        """Parse the changes that `to_list` wrote, from untrusted input. Raises ValueError."""
        if isinstance(lines, list) and len(lines) > MAX_CHANGES:
            raise ValueError(f"there are {len(lines):,} changes; at most {MAX_CHANGES:,} are read")
        is_list = isinstance(lines, list)
        if not is_list or not all(isinstance(line, list) and len(line) == 3 for line in lines):
            raise ValueError(
                f"changes are {short_repr(lines)}; they must be a list of [step, setting, value]"
            )
        return sorted((cls(*line) for line in lines), key=lambda change: change.step)

    def to_list(self) -> list[Any]:
        return [self.step, self.setting, self.value]


def add_change(changes: Iterable[SettingChange], change: SettingChange) -> list[SettingChange]:
    """Add a change in order of steps; it replaces later changes of the same setting."""
    remaining = [
        each for each in changes if each.setting != change.setting or each.step < change.step
    ]
    return sorted([*remaining, change], key=lambda each: each.step)


def config_at_step(
    training: TrainConfig, changes: Iterable[SettingChange], step: int
) -> TrainConfig:
    """Return the settings in effect for the update after `step`, without speed."""
    values: dict[str, Any] = {
        c.setting: c.value for c in changes if c.step <= step and c.setting != "speed"
    }
    return dataclasses.replace(training, **values) if values else training
