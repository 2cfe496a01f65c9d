"""A published claim, and what its replication needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PLAIN_ADAM = {
    "optimizer": "adam",
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_eps": 1e-8,
    "weight_averaging": False,
}
SEPARATORS = "Sources end with EOS here; the original has no separator."


@dataclass(frozen=True)
class Claim:
    """A published claim.

    measure     the metric that is compared, see `replications.py`
    statement   the published result
    published   the published value; None without a value
    criterion   the criterion as text; `replications.py` implements it
    deviations  the differences from the original, with their effect
    estimated_minutes  duration of one run, or of the whole experiment, on two cores
    curve       the published values by update, where the source prints them: the held-out exact
                match for the measure "generalization_step", otherwise the loss
    threshold   the bound of the measured value in the criterion, if there is one
    settings    the settings of the run, unless the claim needs an `experiment`
    """

    title: str
    source: str
    measure: str
    statement: str
    published: float | None
    criterion: str
    deviations: tuple[str, ...]
    estimated_minutes: float
    threshold: float = 0.0
    curve: Mapping[int, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    experiment: Mapping[str, Any] | None = None
