"""Define a variant: one combination of the varied settings, with its label; and sample some."""

import json
import random
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from playground.architectures.parameter_groups import parameter_count
from playground.common import messages
from playground.models.config_fields import ConfigError, short_repr
from playground.training.run_config import RunConfig, field_named, section_of_field

VARIANT_KEY = "variant"  # the name in a grid whose values are settings by name
LABEL_SETTINGS = ("architecture", "cell", "attention")  # settings that name a variant
DIGITS = 4  # significant digits of a number from a range
BUDGET_SETTINGS = ("max_steps", "lr_decay_steps")
# Fitted to the prepared experiments on one core of a server with two, at 128 sequences a step.
STEP_S, LAYER_S, FLOPS_PER_SECOND = 0.004, 0.012, 6e10
FLOPS_PER_WEIGHT = 6  # of a training step, for each token
COMPARABLE_SETTINGS = (
    "task",
    "n_symbols",
    "min_length",
    "max_length",
    "batch_size",
    "device",
    "num_threads",
    "eval_every",
    "eval_size",
)


@dataclass(frozen=True)
class Variant:
    """One combination of the varied values, and its settings."""

    values: dict[str, Any]
    settings: dict[str, Any]
    in_full: bool = False  # True when short labels would be ambiguous

    @cached_property
    def full_label(self) -> str:
        return label(self.values)

    @property
    def short_label(self) -> str:
        """Return the label without the setting name; for a variant, its naming values."""
        (name, value), *more = self.values.items()
        if more or self.in_full:
            return self.full_label
        if name != VARIANT_KEY:
            return format_value(value)
        labeled = [
            format_value(value[each])
            for each in LABEL_SETTINGS
            if value.get(each, "none") != "none"
        ]
        return (
            " ".join(labeled)
            if labeled and set(value) <= {*LABEL_SETTINGS, *BUDGET_SETTINGS}
            else self.full_label
        )

    @cached_property
    def steps(self) -> int:
        """Return the number of steps of each run."""
        return self.config(0).training.max_steps

    def config(self, seed: int) -> RunConfig:
        """Return the configuration of the run with this seed, or raise ConfigError."""
        first = self._first_config
        return first if not seed else replace(first, training=replace(first.training, seed=seed))

    @cached_property
    def step_s(self) -> float:
        """Return the expected seconds of a training step (`declared_step_s`)."""
        return declared_step_s(self.config(0))

    @cached_property
    def speed_key(self) -> Hashable:
        return speed_key(self.config(0))

    @cached_property
    def _first_config(self) -> RunConfig:
        return RunConfig.from_flat(self.settings | {"seed": 0})


def declared_step_s(config: RunConfig) -> float:
    """Return the expected seconds of a training step on one core, evaluations included."""
    length = config.model.sequence_length(config.task.max_length, config.task.max_sequence_length)
    tokens = config.training.batch_size * length
    n_flops = FLOPS_PER_WEIGHT * parameter_count(config.model) * tokens
    layers_s = LAYER_S * getattr(config.model, "n_layers", 1)
    return STEP_S + layers_s + n_flops / FLOPS_PER_SECOND


@lru_cache(maxsize=1024)
def speed_key(config: RunConfig) -> Hashable:
    """Return a key shared by runs of similar speed: architecture, model, task and machine."""
    settings = config.to_flat()
    return config.architecture, config.model, tuple(settings[name] for name in COMPARABLE_SETTINGS)


def label(values: Mapping[str, Any]) -> str:
    """Format a combination of values: `positions rope`, `n_heads 4, norm pre`."""
    parts = [
        label(value) if name == VARIANT_KEY else f"{name} {format_value(value)}"
        for name, value in values.items()
    ]
    return ", ".join(parts)


def format_value(value: Any) -> str:
    """Format the value of a setting for a label."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_value(name: str, text: str) -> Any:
    """Parse a text as a value of a setting, or raise ConfigError."""
    if name == "architecture":
        return text
    if name not in section_of_field():
        raise ConfigError("grid", messages.unknown_setting(short_repr(name), section_of_field()))
    kind: Any = type(field_named(name).default)
    if kind is bool:
        if text not in ("true", "false", "on", "off"):
            raise ConfigError(name, f"{name} is {text!r}; it must be true or false")
        return text in ("true", "on")
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(
            name,
            f"{name} is {text!r}; it must be {'a whole number' if kind is int else 'a number'}",
        ) from None


def parse_grid(pairs: Iterable[Sequence[str]]) -> dict[str, list[Any]]:
    """Parse settings with their values, separated by commas; raise ConfigError with the name."""
    grid: dict[str, list[Any]] = {}
    for name, text in pairs:
        if name in grid:
            raise ConfigError(
                name, f"{name} occurs twice; vary another setting, or give all its values at once"
            )
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise ConfigError(name, f"{name} has no values; give values separated by commas")
        grid[name] = [parse_value(name, part) for part in parts]
    return grid


class Range(BaseModel):
    """The numbers from `low` to `high`; on a log scale each factor of ten is equally likely."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"

    @model_validator(mode="after")
    def _check_order(self) -> "Range":
        if self.low >= self.high or (self.scale == "log" and self.low <= 0):
            raise ValueError("a range has low < high, and on a log scale low > 0")
        return self

    def at(self, share: float) -> float:
        """Return the number at this share of the range, from 0 to 1."""
        if self.scale == "log":
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)


def sample(
    grid: Mapping[str, Any], n: int, sampling: Literal["random", "latin-hypercube"], whole: set[str]
) -> list[dict[str, Any]]:
    """Return up to `n` different combinations of values; the same ones at every call.

    random           each value independently (Bergstra and Bengio 2012, section 2)
    latin-hypercube  n strata of each setting, each of which has one value (McKay, Beckman and
                     Conover 1979, section 2.3)

    `grid` has a list of values or a `Range` by setting; the numbers of `whole` ones are whole.
    """
    generator = random.Random(0)
    columns = {}
    for name, values in grid.items():
        shares = [generator.random() for _ in range(n)]
        if sampling == "latin-hypercube":
            strata = generator.sample(range(n), n)
            shares = [(at + share) / n for at, share in zip(strata, shares, strict=True)]
        columns[name] = [_value_at(values, share, name in whole) for share in shares]
    combinations = [
        dict(zip(grid, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    return list({json.dumps(each): each for each in combinations}.values())


def _value_at(values: Any, share: float, is_whole: bool) -> Any:
    if isinstance(values, Range):
        number = values.at(share)
        return round(number) if is_whole else float(f"{number:.{DIGITS}g}")
    return values[int(share * len(values))]
