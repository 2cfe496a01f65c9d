"""The weights that each optimizer of a run updates, counted without building the model."""

import math
from collections import Counter
from dataclasses import dataclass

from playground.architectures.parameter_groups import parameter_groups
from playground.common.format import format_count

from .run_config import RunConfig

# The ends of the names of components whose weights are tables of vectors or numbers.
TABLES = ("embedding", "embeddings", "vectors", "biases")


@dataclass(frozen=True)
class OptimizerGroup:
    """The number of weights that one optimizer updates with one weight decay."""

    optimizer: str
    weight_decay: float
    parameters: int


def optimizer_groups(config: RunConfig) -> list[OptimizerGroup]:
    """Count the weights of each group that `build_optimizer` makes, by the same rules."""
    training, counts = config.training, Counter[tuple[str, float]]()
    for component, shapes in parameter_groups(config.model).items():
        for shape in shapes:
            is_matrix = len(shape) == 2 and not component.endswith(TABLES)
            optimizer = training.optimizer
            if optimizer == "muon" and (not is_matrix or component == "output layer"):
                optimizer = "adamw"
            decays = is_matrix or training.weight_decay_on == "all"
            counts[optimizer, training.weight_decay if decays else 0.0] += math.prod(shape)
    return [OptimizerGroup(*group, n) for group, n in counts.items()]


def describe_optimizer_groups(config: RunConfig) -> str:
    """Return a text such as "muon 65,536 parameters, adamw 3,213 parameters"."""
    return ", ".join(
        f"{group.optimizer} {format_count(group.parameters, 'parameter')}"
        + (f" with weight decay {group.weight_decay:g}" if config.training.weight_decay else "")
        for group in optimizer_groups(config)
    )
