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

from playground.families import FAMILIES
from playground.models.config import SettingError, shown
from playground.runs.run import LONGEST_NAME
from playground.tasks import ROWS, TASKS
from playground.training.config import RunConfig, default_length, field_owner, setting_of

VARIANT = "variant"
GRID, LENGTHS = "grid", "lengths"
KINDS = (GRID, LENGTHS)
MOST_RUNS = 60
MOST_VALUES = 12  # of one setting
LONGEST = 512  # maximum sequence length in tokens, as for a task
NOT_VARIED = ("seed", "max_positions", "source_vocabulary", "target_vocabulary")
LONGEST_SENTENCE = 300
FEWEST = 20  # minimum number of sequences to score a length
NAMING = ("family", "cell", "alignment")  # settings that name a variant
BUDGET = ("steps", "decay_steps")
MOST_WORK = 2e13  # cost limit of one length (`work`): at most minutes on one core


@dataclass(frozen=True)
class Cell:
    """One combination of the varied values, and its settings."""

    values: dict[str, Any]
    settings: dict[str, Any]
    in_full: bool = False  # True when short labels would be ambiguous

    @property
    def label(self) -> str:
        return label(self.values)

    @property
    def short(self) -> str:
        """Return the label without the setting name; for a variant, its naming values."""
        (name, value), *more = self.values.items()
        if more or self.in_full:
            return self.label
        if name != VARIANT:
            return plain_value(value)
        named = [plain_value(value[each]) for each in NAMING if value.get(each, "none") != "none"]
        return " ".join(named) if named and set(value) <= {*NAMING, *BUDGET} else self.label

    @cached_property
    def steps(self) -> int:
        """Return the number of steps of each run."""
        return self.config(0).training.steps

    def config(self, seed: int) -> RunConfig:
        """Return the configuration of the run with this seed.

        Raises:
            SettingError: when the settings are incompatible.
        """
        return RunConfig.from_fields(self.settings | {"seed": seed})


@dataclass(frozen=True)
class Experiment:
    """The specification of an experiment: `base`, with each combination in `grid` and each seed.

    A value of `variant` is a mapping that changes several settings. `owner` is the fingerprint of
    the owner. The kind "lengths" trains up to max_length, then evaluates all lengths up to `times`
    max_length, with `n` held-out sequences of each. Its models get position encodings for them.

    Raises:
        SettingError: when a field is invalid; `field` names the setting, or one of name, grid,
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
            or not 1 <= len(self.name) <= LONGEST_NAME
            or not self.name.isprintable()
        ):
            raise SettingError(
                "name",
                f"name is {shown(self.name)}; it must have 1 to {LONGEST_NAME} characters that can be printed",
            )
        if not isinstance(self.question, str) or len(self.question) > LONGEST_SENTENCE:
            raise SettingError(
                "question",
                f"question is {shown(self.question)}; it must be text of at most {LONGEST_SENTENCE} characters",
            )
        if self.kind not in KINDS:
            raise SettingError(
                "kind", f"kind is {shown(self.kind)}; choose one of {', '.join(KINDS)}"
            )
        for name, low, high in (("times", 1, 20), ("n", FEWEST, 2000)):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise SettingError(
                    name,
                    f"{name} is {shown(value)}; it must be a whole number from {low} to {high:,}",
                )
        if not isinstance(self.base, Mapping):
            raise SettingError("base", f"base is {shown(self.base)}; it must be settings by name")
        self._check_grid()
        object.__setattr__(self, "seeds", self._checked_seeds())
        if self.n_runs > MOST_RUNS:
            raise SettingError(
                "seeds",
                f"{' x '.join(str(len(v)) for v in self.grid.values())} values with {len(self.seeds)} seeds make {self.n_runs} runs; "
                f"at most {MOST_RUNS} are trained in one experiment: take fewer values or seeds",
            )
        for cell in self.cells:
            try:
                cell.config(self.seeds[0])
            except SettingError as error:
                raise SettingError(error.field, f"{cell.label}: {error}") from None

    def _check_grid(self) -> None:
        if not isinstance(self.grid, Mapping) or not 1 <= len(self.grid) <= 2:
            raise SettingError(
                "grid",
                f"grid is {shown(self.grid)}; it must name one or two settings and the values of each",
            )
        for name, values in self.grid.items():
            if name not in ("family", VARIANT) and name not in field_owner():
                raise SettingError(
                    "grid",
                    f"{shown(name)} is no setting of a run; the settings are family, {', '.join(field_owner())}",
                )
            if not isinstance(values, list | tuple) or not 1 <= len(values) <= MOST_VALUES:
                raise SettingError(
                    name,
                    f"{name} has the values {shown(values)}; give a list of 1 to {MOST_VALUES}",
                )
            if name == VARIANT and not all(
                isinstance(value, Mapping) and value for value in values
            ):
                raise SettingError(
                    name, f"variant has the values {shown(values)}; each must be settings by name"
                )
            if len({json.dumps(value) for value in values}) < len(values):
                raise SettingError(
                    name,
                    f"{name} has the values {shown(values)}; one value occurs twice; remove it",
                )
        varied = {name for values in self.grid.get(VARIANT, []) for name in values} | set(self.grid)
        for name in sorted(varied & set(NOT_VARIED)):
            way_out = "give seeds instead" if name == "seed" else "it follows from the task"
            raise SettingError(name, f"{name} cannot vary in an experiment; {way_out}")
        for name in sorted(varied & {"min_length", "max_length"}) if self.kind == LENGTHS else ():
            raise SettingError(
                name, f"{name} cannot vary where schemes are compared by length; put it in base"
            )
        doubled = sorted(varied & set(self.base))
        if doubled:
            raise SettingError(
                doubled[0],
                f"{doubled[0]} stands in base and in grid; a setting stays or varies, leave one out",
            )

    def _checked_seeds(self) -> tuple[int, ...]:
        seeds = self.seeds
        if (
            not isinstance(seeds, list | tuple)
            or not seeds
            or not all(type(s) is int and 0 <= s < 2**31 for s in seeds)
        ):
            raise SettingError(
                "seeds",
                f"seeds are {shown(seeds)}; give at least one whole number from 0 to 2,147,483,647",
            )
        if len(set(seeds)) < len(seeds):
            raise SettingError(
                "seeds",
                f"seeds are {shown(seeds)}; the same seed twice gives the same run twice, leave one out",
            )
        return tuple(seeds)

    @property
    def n_runs(self) -> int:
        cells = 1
        for values in self.grid.values():
            cells *= len(values)
        return cells * len(self.seeds)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        combinations = itertools.product(*self.grid.values())
        cells = [self._cell(dict(zip(self.grid, values, strict=True))) for values in combinations]
        alike = len({cell.short for cell in cells}) < len(cells)
        return tuple(replace(cell, in_full=alike) for cell in cells)

    def _cell(self, values: dict[str, Any]) -> Cell:
        """Build a variant; the experiment overrides the defaults of the architecture.

        Where architectures vary, each one omits the settings in `base` that it does not have.
        """
        base, varied = (
            dict(self.base),
            {name: value for name, value in values.items() if name != VARIANT},
        )
        varied |= values.get(VARIANT, {})
        registered = FAMILIES.get(varied.get("family", base.get("family", "transformer")))
        if registered and "family" in varied:
            known = {name for name, owner in field_owner().items() if owner != "model"} | set(
                registered.settings()
            )
            base = {name: value for name, value in base.items() if name in known}
        settings = {**getattr(registered, "recipe", {}), **base, **varied}
        if self.kind == LENGTHS:
            if settings.get("task") == ROWS:
                raise SettingError(
                    "task",
                    "task is 'rows', whose sequences are as long as they were given; lengths are asked of other tasks",
                )
            settings |= {"max_positions": positions_for(settings, self.longest(settings))}
        return Cell(values, settings)

    def longest(self, settings: Mapping[str, Any]) -> int:
        """Return the maximum evaluated length of a variant, in tokens."""
        trained = settings.get("max_length", default_length(settings.get("task")))
        if self.kind != LENGTHS or type(trained) is not int:  # its config rejects it
            return trained
        if trained * self.times > LONGEST:
            raise SettingError(
                "times",
                f"{self.times} times max_length {trained} is {trained * self.times} symbols; at most {LONGEST} are asked: lower times "
                "or max_length",
            )
        return trained * self.times

    def asked(self, settings: Mapping[str, Any]) -> range:
        """Return the evaluated lengths: from the minimum of the task to `longest`."""
        task = settings.get("task", setting_of("task").default)
        return range(TASKS[task].shortest, self.longest(settings) + 1)

    def check_work(self) -> None:
        """Check that the evaluation of the longest sequences fits the cost limit.

        Raises:
            SettingError: when it does not; `field` is n.
        """
        for cell in self.cells if self.kind == LENGTHS else ():
            parameters, longest = (
                cell.config(self.seeds[0]).model.parameter_count(),
                self.longest(cell.settings),
            )
            if work(parameters, self.n, longest) > MOST_WORK:
                raise SettingError(
                    "n",
                    f"{cell.label}: asking a model of {parameters:,} parameters {self.n:,} sequences of {longest} symbols takes too long "
                    "here; lower n, times or max_length, or take a smaller model",
                )

    def planned(self) -> Iterator[tuple[str, Cell, int]]:
        """Yield the key, the variant and the seed of every run.

        All variants of one seed come before the next seed, so that early results are comparable.
        """
        for seed in self.seeds:
            for at, cell in enumerate(self.cells):
                yield f"{at}/{seed}", cell, seed

    def to_json(self) -> dict[str, Any]:
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        return content | {
            "seeds": list(self.seeds),
            "base": dict(self.base),
            "grid": {k: list(v) for k, v in self.grid.items()},
        }

    def same_as(self, other: Experiment) -> bool:
        """Return whether the other experiment has the same runs and the same evaluation."""
        ours, theirs = self.to_json(), other.to_json()
        return all(
            ours[name] == theirs[name]
            for name in ("owner", "kind", "base", "grid", "seeds", "times", "n")
        )


def work(parameters: int, n: int, length: int) -> float:
    """Return the relative cost of evaluating `n` sequences of a length.

    It grows with the number of parameters and with the square of the length.
    """
    return float(parameters) * n * length**2


def positions_for(settings: Mapping[str, Any], length: int) -> int:
    """Return the number of positions for sources of this length and their targets."""
    of_task = {name: value for name, value in settings.items() if field_owner().get(name) == "task"}
    of_task |= {"family": settings.get("family", "transformer")}
    return RunConfig.from_fields(of_task | {"max_length": length}).model.max_positions


def label(values: Mapping[str, Any]) -> str:
    """Format a combination of values: `positions rope`, `n_heads 4, norm pre`."""
    told = [
        label(value) if name == VARIANT else f"{name} {plain_value(value)}"
        for name, value in values.items()
    ]
    return ", ".join(told)


def plain_value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def value_of(name: str, text: str) -> Any:
    """Parse a text as a value of a setting.

    Raises:
        SettingError: when the setting is unknown or the text is not a valid value.
    """
    if name == "family":
        return text
    if name not in field_owner():
        raise SettingError(
            "grid",
            f"{shown(name)} is no setting of a run; the settings are family, {', '.join(field_owner())}",
        )
    kind: Any = type(setting_of(name).default)
    if kind is bool:
        if text not in ("true", "false", "on", "off"):
            raise SettingError(name, f"{name} is {text!r}; it must be true or false")
        return text in ("true", "on")
    try:
        return kind(text)
    except ValueError:
        raise SettingError(
            name,
            f"{name} is {text!r}; it must be {'a whole number' if kind is int else 'a number'}",
        ) from None
