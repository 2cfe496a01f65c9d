"""The prepared experiments of presets.toml, each with its question and its motivation."""

import math
from pathlib import Path
from typing import Any, TypedDict

from playground.common.definitions import Definition, read_definitions
from playground.models.config_fields import ConfigError

from .analysis import min_seeds
from .spec import DEFAULT_SEEDS, GRID, MAX_RUNS, parse_experiment


class ExperimentPreset(Definition):
    """A question, its motivation and the experiment that answers it."""

    title: str
    why: str
    base: dict[str, Any]
    grid: dict[str, list[Any]]
    kind: str = GRID
    times: int | None = None


class ListedPreset(TypedDict):
    """A prepared experiment for JSON.

    `unavailable_reason` is "" when it can run, otherwise the reason why it cannot.
    """

    name: str
    title: str
    why: str
    spec: dict[str, Any]
    runs: int
    unavailable_reason: str


EXPERIMENT_PRESETS = read_definitions(Path(__file__).with_suffix(".toml"), ExperimentPreset)


def default_seeds(n_variants: int) -> list[int]:
    """Return five seeds, or as many as a difference between so many variants needs."""
    enough = max(len(DEFAULT_SEEDS), min_seeds(n_variants))
    return list(range(min(enough, MAX_RUNS // n_variants)))


def spec(name: str) -> dict[str, Any]:
    """Return the specification of a prepared experiment, for `ExperimentService.submit`.

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


def list_presets() -> list[ListedPreset]:
    """Return the prepared experiments."""
    presets = []
    for name, preset in EXPERIMENT_PRESETS.items():
        line: ListedPreset = {
            "name": name,
            "title": preset.title,
            "why": preset.why,
            "spec": spec(name),
            "runs": 0,
            "unavailable_reason": "",
        }
        try:
            line["runs"] = parse_experiment(spec(name), owner="").n_runs
        except ConfigError as error:
            line["unavailable_reason"] = str(error)
        presets.append(line)
    return presets
