"""Define an experiment: fixed settings, one or two varied settings, and seeds.

An experiment lists its runs but does not train them. This module does not import torch.
"""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from playground.architectures import ARCHITECTURES
from playground.compat import setting_name, setting_value, upgrade_settings
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.run import MAX_NAME_LENGTH
from playground.tasks import LOOKUP, TASKS
from playground.training.config import RunConfig, default_max_length, field_named, section_of_field

VARIANT_KEY = "variant"
GRID, LENGTHS = "grid", "lengths"
EXPERIMENT_KINDS = (GRID, LENGTHS)
MAX_RUNS = 60
MAX_VALUES = 12  # of one setting
MAX_LENGTH = 512  # maximum sequence length in tokens, as for a task
FIXED_SETTINGS = ("seed", "max_positions", "source_vocab_size", "target_vocab_size")
MAX_QUESTION_LENGTH = 300
MIN_PER_LENGTH = 20  # minimum number of sequences to score a length
LABEL_SETTINGS = ("architecture", "cell", "attention")  # settings that name a variant
BUDGET_SETTINGS = ("max_steps", "lr_decay_steps")
MAX_COST_FLOPS = 2e13  # cost limit of one length (`work`): at most minutes on one core


@dataclass(frozen=True)
class Variant:
    """One combination of the varied values, and its settings."""

    values: dict[str, Any]
    settings: dict[str, Any]
    in_full: bool = False  # True when short labels would be ambiguous

    @property
    def full_label(self) -> str:
        return label(self.values)

    @property
    def short_label(self) -> str:
        """Return the label without the setting name; for a variant, its naming values."""
        (name, value), *more = self.values.items()
        if more or self.in_full:
            return self.full_label
        if name != VARIANT_KEY:
            return to_json_value(value)
        labelled = [
            to_json_value(value[each])
            for each in LABEL_SETTINGS
            if value.get(each, "none") != "none"
        ]
        return (
            " ".join(labelled)
            if labelled and set(value) <= {*LABEL_SETTINGS, *BUDGET_SETTINGS}
            else self.full_label
        )

    @cached_property
    def steps(self) -> int:
        """Return the number of steps of each run."""
        return self.config(0).training.max_steps

    def config(self, seed: int) -> RunConfig:
        """Return the configuration of the run with this seed.

        Raises:
            ConfigError: when the settings are incompatible.
        """
        return RunConfig.from_flat(self.settings | {"seed": seed})


@dataclass(frozen=True)
class Experiment:
    """The specification of an experiment: `base`, with each combination in `grid` and each seed.

    A value of `variant` is a mapping that changes several settings. `owner` is the fingerprint of
    the owner. The kind "lengths" trains up to max_length, then evaluates all lengths up to `times`
    max_length, with `n` held-out sequences of each. Its models get position encodings for them.

    Raises:
        ConfigError: when a field is invalid; `field` names the setting, or one of name, grid,
            seeds, kind, times, n.
    """

    owner: str
    name: str
    base: Mapping[str, Any]
    grid: Mapping[str, list[Any]]
    seeds: tuple[int, ...] = (0, 1, 2)
    kind: str = GRID
    times: int = 5
    n: int = 200
    question: str = ""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    created: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or not 1 <= len(self.name) <= MAX_NAME_LENGTH
            or not self.name.isprintable()
        ):
            raise ConfigError(
                "name",
                f"name is {short_repr(self.name)}; it must have 1 to {MAX_NAME_LENGTH} characters "
                "that can be printed",
            )
        if not isinstance(self.question, str) or len(self.question) > MAX_QUESTION_LENGTH:
            raise ConfigError(
                "question",
                f"question is {short_repr(self.question)}; it must be text of at most "
                f"{MAX_QUESTION_LENGTH} characters",
            )
        if self.kind not in EXPERIMENT_KINDS:
            raise ConfigError(
                "kind",
                f"kind is {short_repr(self.kind)}; choose one of {', '.join(EXPERIMENT_KINDS)}",
            )
        for name, low, high in (("times", 1, 20), ("n", MIN_PER_LENGTH, 2000)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ConfigError(
                    name,
                    f"{name} is {short_repr(value)}; it must be a whole number from {low} to "
                    f"{high:,}",
                )
        if not isinstance(self.base, Mapping):
            raise ConfigError(
                "base", f"base is {short_repr(self.base)}; it must be settings by name"
            )
        object.__setattr__(self, "base", upgrade_settings(self.base))
        self._validate_grid()
        object.__setattr__(self, "seeds", self._validate_seeds())
        if self.n_runs > MAX_RUNS:
            raise ConfigError(
                "seeds",
                f"{' x '.join(str(len(v)) for v in self.grid.values())} values with "
                f"{len(self.seeds)} seeds make {self.n_runs} runs; "
                f"at most {MAX_RUNS} are trained in one experiment: take fewer values or seeds",
            )
        for cell in self.variants:
            try:
                cell.config(self.seeds[0])
            except ConfigError as error:
                raise ConfigError(error.field, f"{cell.full_label}: {error}") from None

    def _validate_grid(self) -> None:
        if not isinstance(self.grid, Mapping) or not 1 <= len(self.grid) <= 2:
            raise ConfigError(
                "grid",
                f"grid is {short_repr(self.grid)}; it must name one or two settings and the values "
                "of each",
            )
        object.__setattr__(self, "grid", upgrade_settings(self.grid))
        for name, values in self.grid.items():
            if name not in ("architecture", VARIANT_KEY) and name not in section_of_field():
                raise ConfigError(
                    "grid",
                    f"{short_repr(name)} is no setting of a run; the settings are architecture, "
                    f"{', '.join(section_of_field())}",
                )
            if not isinstance(values, list | tuple) or not 1 <= len(values) <= MAX_VALUES:
                raise ConfigError(
                    name,
                    f"{name} has the values {short_repr(values)}; give a list of 1 to {MAX_VALUES}",
                )
            if name == VARIANT_KEY and not all(
                isinstance(value, Mapping) and value for value in values
            ):
                raise ConfigError(
                    name,
                    f"variant has the values {short_repr(values)}; each must be settings by name",
                )
            if len({json.dumps(value) for value in values}) < len(values):
                raise ConfigError(
                    name,
                    f"{name} has the values {short_repr(values)}; one value occurs twice; "
                    "remove it",
                )
        varied = {name for values in self.grid.get(VARIANT_KEY, []) for name in values} | set(
            self.grid
        )
        for name in sorted(varied & set(FIXED_SETTINGS)):
            remedy = "give seeds instead" if name == "seed" else "it follows from the task"
            raise ConfigError(name, f"{name} cannot vary in an experiment; {remedy}")
        for name in sorted(varied & {"min_length", "max_length"}) if self.kind == LENGTHS else ():
            raise ConfigError(
                name, f"{name} cannot vary where schemes are compared by length; put it in base"
            )
        duplicates = sorted(varied & set(self.base))
        if duplicates:
            raise ConfigError(
                duplicates[0],
                f"{duplicates[0]} is both in base and in grid; remove it from one of them",
            )

    def _validate_seeds(self) -> tuple[int, ...]:
        seeds = self.seeds
        if (
            not isinstance(seeds, list | tuple)
            or not seeds
            or not all(type(s) is int and 0 <= s < 2**31 for s in seeds)
        ):
            raise ConfigError(
                "seeds",
                f"seeds are {short_repr(seeds)}; give at least one whole number from 0 to "
                "2,147,483,647",
            )
        if len(set(seeds)) < len(seeds):
            raise ConfigError(
                "seeds",
                f"seeds are {short_repr(seeds)}; the same seed twice gives the same run twice, "
                "leave one out",
            )
        return tuple(seeds)

    @property
    def n_runs(self) -> int:
        cells = 1
        for values in self.grid.values():
            cells *= len(values)
        return cells * len(self.seeds)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        combinations = itertools.product(*self.grid.values())
        cells = [
            self._variant(dict(zip(self.grid, values, strict=True))) for values in combinations
        ]
        has_duplicates = len({cell.short_label for cell in cells}) < len(cells)
        return tuple(replace(cell, in_full=has_duplicates) for cell in cells)

    def _variant(self, values: dict[str, Any]) -> Variant:
        """Build a variant; the experiment overrides the defaults of the architecture.

        Where architectures vary, each one omits the settings in `base` that it does not have.
        """
        base, varied = (
            dict(self.base),
            {name: value for name, value in values.items() if name != VARIANT_KEY},
        )
        varied |= values.get(VARIANT_KEY, {})
        registered = ARCHITECTURES.get(
            varied.get("architecture", base.get("architecture", "transformer"))
        )
        if registered and "architecture" in varied:
            valid_settings = {
                name for name, owner in section_of_field().items() if owner != "model"
            } | set(registered.setting_names())
            base = {name: value for name, value in base.items() if name in valid_settings}
        settings = {**getattr(registered, "overrides", {}), **base, **varied}
        if self.kind == LENGTHS:
            if settings.get("task") == LOOKUP:
                raise ConfigError(
                    "task",
                    "the task is a dataset, which has no other lengths; choose another task",
                )
            settings |= {
                "max_positions": positions_for(settings, self.max_evaluated_length(settings))
            }
        return Variant(values, settings)

    def max_evaluated_length(self, settings: Mapping[str, Any]) -> int:
        """Return the maximum evaluated length of a variant, in tokens."""
        trained = settings.get("max_length", default_max_length(settings.get("task")))
        if self.kind != LENGTHS or type(trained) is not int:  # its config rejects it
            return trained
        if trained * self.times > MAX_LENGTH:
            raise ConfigError(
                "times",
                f"{self.times} times max_length {trained} is {trained * self.times} symbols; the "
                f"maximum is {MAX_LENGTH}: lower times or max_length",
            )
        return trained * self.times

    def evaluated_lengths(self, settings: Mapping[str, Any]) -> range:
        """Return the evaluated lengths: from the minimum of the task to `max_evaluated_length`."""
        task = settings.get("task", field_named("task").default)
        return range(TASKS[task].min_length, self.max_evaluated_length(settings) + 1)

    def check_cost(self) -> None:
        """Check that the evaluation of the longest sequences fits the cost limit.

        Raises:
            ConfigError: when it does not; `field` is n.
        """
        for cell in self.variants if self.kind == LENGTHS else ():
            parameters, max_length = (
                cell.config(self.seeds[0]).model.parameter_count(),
                self.max_evaluated_length(cell.settings),
            )
            if evaluation_cost(parameters, self.n, max_length) > MAX_COST_FLOPS:
                raise ConfigError(
                    "n",
                    f"{cell.full_label}: evaluating a model of {parameters:,} parameters on "
                    f"{self.n:,} sequences of {max_length} symbols takes too long here; lower "
                    "n, times or max_length, or use a smaller model",
                )

    def planned_runs(self) -> Iterator[tuple[str, Variant, int]]:
        """Yield the key, the variant and the seed of every run.

        All variants of one seed come before the next seed, so that early results are comparable.
        """
        for seed in self.seeds:
            for at, cell in enumerate(self.variants):
                yield f"{at}/{seed}", cell, seed

    def to_json(self) -> dict[str, Any]:
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        return content | {
            "seeds": list(self.seeds),
            "base": dict(self.base),
            "grid": {k: list(v) for k, v in self.grid.items()},
        }

    def is_equivalent(self, other: Experiment) -> bool:
        """Return whether the other experiment has the same runs and the same evaluation."""
        ours, theirs = self.to_json(), other.to_json()
        return all(
            ours[name] == theirs[name]
            for name in ("owner", "kind", "base", "grid", "seeds", "times", "n")
        )


def evaluation_cost(parameters: int, n: int, length: int) -> float:
    """Return the relative cost of evaluating `n` sequences of a length.

    It grows with the number of parameters and with the square of the length.
    """
    return float(parameters) * n * length**2


def positions_for(settings: Mapping[str, Any], length: int) -> int:
    """Return the number of positions for sources of this length and their targets."""
    of_task = {
        name: value for name, value in settings.items() if section_of_field().get(name) == "task"
    }
    of_task |= {"architecture": settings.get("architecture", "transformer")}
    return RunConfig.from_flat(of_task | {"max_length": length}).model.max_positions


def label(values: Mapping[str, Any]) -> str:
    """Format a combination of values: `positions rope`, `n_heads 4, norm pre`."""
    parts = [
        label(value) if name == VARIANT_KEY else f"{name} {to_json_value(value)}"
        for name, value in values.items()
    ]
    return ", ".join(parts)


def to_json_value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_value(name: str, text: str) -> Any:
    """Parse a text as a value of a setting.

    Raises:
        ConfigError: when the setting is unknown or the text is not a valid value.
    """
    name = setting_name(name)
    if name == "architecture":
        return setting_value(name, text)
    if name not in section_of_field():
        raise ConfigError(
            "grid",
            f"{short_repr(name)} is no setting of a run; the settings are architecture, "
            f"{', '.join(section_of_field())}",
        )
    kind: Any = type(field_named(name).default)
    if kind is bool:
        if text not in ("true", "false", "on", "off"):
            raise ConfigError(name, f"{name} is {text!r}; it must be true or false")
        return text in ("true", "on")
    try:
        return setting_value(name, kind(text))
    except ValueError:
        raise ConfigError(
            name,
            f"{name} is {text!r}; it must be {'a whole number' if kind is int else 'a number'}",
        ) from None
