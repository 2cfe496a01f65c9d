"""The prepared experiments of presets.toml, and the stored results of some of them.

scripts/record_experiments.py measures those.
"""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from playground.common.validation import Definition, read_definitions
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
STORED_PREFIX = "stored:"  # of the id of a stored result
STORED_FILE = Path(__file__).with_name("stored.json")


@cache
def load_stored() -> dict[str, dict[str, Any]]:
    """Return the stored results, as `ExperimentService.details`, by their prepared experiments.

    The entry `origin` describes where and how each was measured.
    """
    stored: dict[str, dict[str, Any]] = json.loads(STORED_FILE.read_text(encoding="utf-8"))
    return stored


def find_stored(experiment_id: str) -> dict[str, Any] | None:
    """Return the stored result with an id; None if there is none."""
    if not experiment_id.startswith(STORED_PREFIX):
        return None
    return load_stored().get(experiment_id.removeprefix(STORED_PREFIX))


def default_seeds(n_variants: int) -> list[int]:
    """Return five seeds, or as many as a difference between so many variants needs."""
    enough = max(len(DEFAULT_SEEDS), min_seeds(n_variants))
    return list(range(min(enough, max(1, MAX_DEFAULT_RUNS // n_variants))))


def spec(name: str) -> dict[str, Any]:
    """Return the specification of a prepared experiment, for `ExperimentService.start`."""
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
