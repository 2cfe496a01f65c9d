"""The published claims of claims.toml: experiments with a published value."""

from pathlib import Path

from playground.common.definitions import Definition, read_definitions

from .spec import ExperimentSpec


class Claim(Definition):
    """A published claim, and the experiment that replicates it.

    measure     the metric that is compared, see `replications.py`
    statement   the published result
    published   the published value; None without a value
    criterion   the criterion as text; `replications.py` implements it
    threshold   the bound of the measured value in the criterion, if there is one
    deviations  the differences from the original, with their effect
    curve       the published values by update, where the source prints them: the held-out exact
                match for the measure "generalization_step", otherwise the loss
    """

    title: str
    source: str
    measure: str
    statement: str
    published: float | None = None
    criterion: str
    threshold: float = 0.0
    deviations: tuple[str, ...]
    curve: tuple[tuple[int, float], ...] = ()
    experiment: ExperimentSpec


CLAIMS = read_definitions(Path(__file__).with_suffix(".toml"), Claim)
