"""The settings of a run registry: slots, timeouts and limits."""

from dataclasses import dataclass, field

from playground.common.env import env_number

from .limits import Limits, default_slots


@dataclass
class RegistrySettings:
    """The settings that the parts of a registry share. They may change while it runs.

    At most `slots` workers exist at a time, and at most `slots_per_owner` for one owner. A run
    without a viewer for `idle_timeout_s` seconds saves and pauses. A run that is paused for
    `release_after_s` seconds releases its worker. A worker that sends no message and uses no
    processor time for `hang_timeout_s` seconds is killed. A timeout of 0 means that there is none.
    """

    slots: int = field(default_factory=default_slots)
    slots_per_owner: int = 0  # 0: all slots
    idle_timeout_s: float = field(default_factory=lambda: env_number("IDLE_TIMEOUT_S"))
    release_after_s: float = field(default_factory=lambda: env_number("RELEASE_AFTER_S"))
    hang_timeout_s: float = field(default_factory=lambda: env_number("HANG_TIMEOUT_S"))
    has_count_limits: bool = True  # of an owner's runs and experiments; a command has none
    limits: Limits = field(default_factory=Limits.unlimited)  # of a public server, for each user

    def __post_init__(self) -> None:
        self.slots_per_owner = min(self.slots_per_owner or self.slots, self.slots)
