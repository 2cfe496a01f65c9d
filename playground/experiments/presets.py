"""The prepared experiments of presets.toml, and the finished one that the app includes.

scripts/record_example_experiment.py measures that example.
"""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from playground.common.definitions import Definition, read_definitions
from playground.models.config_fields import ConfigError

from .analysis import min_seeds
from .spec import DEFAULT_SEEDS, GRID


class ExperimentPreset(Definition):
    """A question, its motivation and the experiment that answers it."""

    title: str
    why: str
    base: dict[str, Any]
    grid: dict[str, list[Any]]
    kind: str = GRID
    times: int | None = None


EXPERIMENT_PRESETS = read_definitions(Path(__file__).with_suffix(".toml"), ExperimentPreset)
MAX_DEFAULT_RUNS = 60  # of an experiment without a list of seeds
EXAMPLE_ID = "example"
EXAMPLE_FILE = Path(__file__).with_name("example.json")


@cache
def load_example() -> dict[str, Any]:
    """Return the example as `ExperimentService.details` describes an experiment.

    The entry `example` describes where and how it was measured.
    """
    details: dict[str, Any] = json.loads(EXAMPLE_FILE.read_text(encoding="utf-8"))
    return details


def default_seeds(n_variants: int) -> list[int]:
    """Return five seeds, or as many as a difference between so many variants needs."""
    enough = max(len(DEFAULT_SEEDS), min_seeds(n_variants))
    return list(range(min(enough, max(1, MAX_DEFAULT_RUNS // n_variants))))


def spec(name: str) -> dict[str, Any]:
    """Return the specification of a prepared experiment, for `ExperimentService.start`.

    Raises:
        ConfigError: when the name is unknown.
    """
    if name not in EXPERIMENT_PRESETS:
        raise ConfigError(
            "question", f"question is {name!r}; choose one of {', '.join(EXPERIMENT_PRESETS)}"
        )
    preset = EXPERIMENT_PRESETS[name]
    return {
        "name": name,
        "question": preset.title,
        "seeds": default_seeds(math.prod(map(len, preset.grid.values()))),
        **preset.model_dump(exclude={"title", "why"}, exclude_none=True),
    }
