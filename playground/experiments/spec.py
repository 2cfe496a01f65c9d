"""Define an experiment, which lists its runs: fixed settings, varied settings, and seeds."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    model_validator,
)

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.common import messages
from playground.common.validation import describe
from playground.models.config_fields import ConfigError, short_repr
from playground.runs.record import MAX_NAME_LENGTH, Fingerprint, is_valid_name
from playground.tasks import LOOKUP, TASKS
from playground.training.run_config import (
    RunConfig,
    accepted_settings,
    default_max_length,
    field_named,
    section_of_field,
    setting_role,
)

from .analysis import TARGET_SCORE, describe_planned_test
from .variant import VARIANT_KEY, Range, Variant, sample

GRID: Final = "grid"
LENGTHS: Final = "lengths"
MAX_RUNS = 10_000
DEFAULT_SEEDS = (0, 1, 2, 3, 4)
MAX_VALUES = 12  # of one setting
MAX_VARIED = 8  # settings
MAX_LENGTH = 512  # maximum sequence length in tokens, as for a task
FIXED_SETTINGS = ("seed", "max_positions", "source_vocab_size", "target_vocab_size")
MAX_QUESTION_LENGTH = 300
MIN_PER_LENGTH = 20  # minimum number of sequences to score a length
MAX_COST_FLOPS = 2e13  # cost limit of one length (`evaluation_cost`): minutes on one core
NAME_RULE = f"1 to {MAX_NAME_LENGTH} characters that can be printed"


def _check_name(name: str) -> str:
    if not is_valid_name(name):
        raise ConfigError("name", f"name is {short_repr(name)}; give {NAME_RULE}")
    return name


def _check_distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ConfigError(
            "seeds",
            f"seeds are {short_repr(seeds)}; the same seed twice gives the same run twice, "
            "remove one",
        )
    return seeds


def _check_shard(shard: tuple[int, int]) -> tuple[int, int]:
    index, n_shards = shard
    if not 0 <= index < n_shards:
        raise ConfigError(
            "shard", f"shard is {index} of {n_shards}; with n shards, give a number from 0 to n - 1"
        )
    return shard


Name = Annotated[str, AfterValidator(_check_name), Field(json_schema_extra={"accepts": NAME_RULE})]
Seed = Annotated[StrictInt, Field(ge=0, lt=2**31)]
Shard = Annotated[tuple[StrictInt, StrictInt], AfterValidator(_check_shard)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_check_distinct)]


class ExperimentSpec(BaseModel):
    """The specification of an experiment: `base`, with each combination in `grid` and each seed.

    grid     values by setting; of `variant` mappings, each of which changes several settings
    kind     "lengths" trains up to max_length, then evaluates all lengths up to `times` max_length,
             with `n` held-out sequences of each
    samples  so many combinations are sampled, and a setting may have a `Range`
    shard    (k, n): only the runs k, k + n, k + 2n, ... of the plan
    weights  shards keep the weights of their finished runs, as all runs on this machine do
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    question: str = Field("", max_length=MAX_QUESTION_LENGTH)
    base: dict[str, Any] = {}
    grid: dict[str, Any]
    samples: StrictInt | None = Field(None, ge=1, le=MAX_RUNS)
    sampling: Literal["random", "latin-hypercube"] = "random"
    seeds: Seeds = DEFAULT_SEEDS
    shard: Shard | None = None
    weights: StrictBool = False
    kind: Literal["grid", "lengths"] = GRID
    times: StrictInt = Field(5, ge=1, le=20)
    n: StrictInt = Field(200, ge=MIN_PER_LENGTH, le=2000)

    @model_validator(mode="after")
    def _check_runs(self) -> ExperimentSpec:
        self._check_grid()
        if self.n_runs > MAX_RUNS:
            raise ConfigError(
                "seeds",
                f"{len(self.combinations)} combinations with {len(self.seeds)} seeds make "
                f"{self.n_runs} runs; the maximum of one experiment is {MAX_RUNS}: use fewer "
                "values or seeds",
            )
        for variant in self.variants:
            try:
                variant.config(self.seeds[0])
            except ConfigError as error:
                raise ConfigError(error.field, f"{variant.full_label}: {error}") from None
        return self

    def _check_grid(self) -> None:
        if not 1 <= len(self.grid) <= MAX_VARIED:
            raise ConfigError(
                "grid",
                f"grid is {short_repr(self.grid)}; it must name 1 to {MAX_VARIED} settings and the "
                "values of each",
            )
        for name, values in self.grid.items():
            if isinstance(values, Mapping):
                _check_range(name, values, self.samples)
            else:
                _check_values(name, values)
        variants = self.grid.get(VARIANT_KEY, [])
        varied = {name for values in variants for name in values} | set(self.grid)
        for name in sorted(varied & set(FIXED_SETTINGS)):
            remedy = "give seeds instead" if name == "seed" else "it follows from the task"
            raise ConfigError(name, f"{name} cannot vary in an experiment; {remedy}")
        for name in sorted(varied & {"min_length", "max_length"}) if self.kind == LENGTHS else ():
            raise ConfigError(
                name, f"{name} cannot vary where schemes are compared by length; put it in base"
            )
        for name in sorted(varied & set(self.base)):
            raise ConfigError(
                name, f"{name} is both in base and in grid; remove it from one of them"
            )

    def _varied(self, *roles: str) -> list[str]:
        """Return the settings with one of these roles in which variants differ."""
        settings = [variant.config(0).to_flat() for variant in self.variants]
        names = [name for name in section_of_field() if setting_role(name) in roles]
        return [name for name in names if len({each.get(name) for each in settings}) > 1]

    @property
    def task_note(self) -> str:
        """Return a sentence if the variants are scored on different tasks; else empty."""
        varied = " and ".join(self._varied("task"))
        note = f" Variants differ in {varied}, so each is scored on sequences of its own task."
        return note if varied else ""

    def check_testable(self) -> None:
        """Raise ConfigError if no test can compare the variants."""
        if varied := self._varied("measurement", "repetition", "machine"):
            raise ConfigError(
                varied[0],
                f"{varied[0]} changes how a run is measured, where it runs or when it ends, so "
                "its values cannot be compared; set it once for all runs",
            )
        stop = self.stop_at_exact_match
        if len(self.variants) > 1 and 0 < stop < TARGET_SCORE:
            raise ConfigError(
                "stop_at_exact_match",
                f"stop_at_exact_match is {stop:g}, so runs end before the exact match that is "
                f"compared; set it to 0, or to at least {TARGET_SCORE}",
            )
        trained = {
            json.dumps(variant.config(0).to_flat() | {"max_steps": 0}) for variant in self.variants
        }
        if len(trained) < len(self.variants):
            raise ConfigError(
                "max_steps",
                "some variants differ in max_steps only, so one is the beginning of the other; "
                "set it once for all runs, and read the curve",
            )

    @property
    def stop_at_exact_match(self) -> float:
        """Return the exact match at which runs end early; 0 if they do not."""
        return self.variants[0].config(0).training.stop_at_exact_match

    @property
    def why_lengths_untestable(self) -> str:
        """Return why no test can compare lengths, which are evaluated after the last step."""
        if self.stop_at_exact_match:
            return "runs may end early, after different numbers of steps"
        has_budgets = len({variant.steps for variant in self.variants}) > 1
        return "the runs have different numbers of steps" if has_budgets else ""

    def describe_planned_test(self) -> str:
        """Return what a test of these seeds can show; empty for one variant."""
        untestable = self.why_lengths_untestable if self.kind == LENGTHS else ""
        return describe_planned_test(len(self.seeds), len(self.variants), untestable)

    @cached_property
    def smallest_budget(self) -> int:
        """Return the minimum number of steps of a run."""
        return min(variant.steps for variant in self.variants)

    @property
    def n_runs(self) -> int:
        first, every = self.shard or (0, 1)
        return len(range(first, len(self.combinations) * len(self.seeds), every))

    @cached_property
    def combinations(self) -> list[dict[str, Any]]:
        """The varied settings of each variant."""
        if self.samples is None:
            values = itertools.islice(itertools.product(*self.grid.values()), MAX_RUNS + 1)
            return [dict(zip(self.grid, each, strict=True)) for each in values]
        grid = {
            name: Range(**values) if isinstance(values, Mapping) else values
            for name, values in self.grid.items()
        }
        whole = {name for name in grid if _setting_type(name) is int}
        return sample(grid, self.samples, self.sampling, whole)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        variants = [self._variant(values) for values in self.combinations]
        has_duplicates = len({variant.short_label for variant in variants}) < len(variants)
        return tuple(replace(variant, in_full=has_duplicates) for variant in variants)

    def _variant(self, values: dict[str, Any]) -> Variant:
        """Build a variant. Where architectures vary, each omits what it does not have of `base`."""
        base = dict(self.base)
        varied = {name: value for name, value in values.items() if name != VARIANT_KEY}
        varied |= values.get(VARIANT_KEY, {})
        registered = ARCHITECTURES.get(
            varied.get("architecture", base.get("architecture", "transformer"))
        )
        if registered and "architecture" in varied:
            base = accepted_settings(base, varied["architecture"])
        settings = {**getattr(registered, "overrides", {}), **base, **varied}
        if self.kind == LENGTHS:
            if settings.get("task") == LOOKUP:
                raise ConfigError(
                    "task", "the task is a dataset, which has no other lengths; choose another task"
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
                f"{self.times} times max_length {trained} is {trained * self.times} tokens; the "
                f"maximum is {MAX_LENGTH}: lower times or max_length",
            )
        return trained * self.times

    def evaluated_lengths(self, settings: Mapping[str, Any]) -> range:
        """Return the evaluated lengths: from the minimum of the task to `max_evaluated_length`."""
        task = settings.get("task", field_named("task").default)
        return range(TASKS[task].min_length, self.max_evaluated_length(settings) + 1)

    def check_cost(self) -> None:
        """Raise ConfigError for n if the evaluation of the longest sequences costs too much."""
        for variant in self.variants if self.kind == LENGTHS else ():
            parameters = parameter_count(variant.config(self.seeds[0]).model)
            max_length = self.max_evaluated_length(variant.settings)
            if evaluation_cost(parameters, self.n, max_length) > MAX_COST_FLOPS:
                raise ConfigError(
                    "n",
                    f"{variant.full_label}: evaluating a model of {parameters:,} parameters on "
                    f"{self.n:,} sequences of {max_length} tokens takes too long here; lower "
                    "n, times or max_length, or use a smaller model",
                )

    def planned_runs(self) -> Iterator[tuple[str, Variant, int]]:
        """Yield the key, the variant and the seed of every run, seed by seed."""
        planned = (
            (f"{at}/{seed}", variant, seed)
            for seed in self.seeds
            for at, variant in enumerate(self.variants)
        )
        first, every = self.shard or (0, 1)
        yield from itertools.islice(planned, first, None, every)

    def is_equivalent(self, other: ExperimentSpec) -> bool:
        """Return whether the other experiment has the same runs and the same evaluation."""
        names = ("kind", "base", "grid", "samples", "sampling", "seeds", "shard", "times", "n")
        return all(getattr(self, name) == getattr(other, name) for name in names)


class Experiment(ExperimentSpec):
    """A specification with its id, its time, and the hash of its owner's key."""

    owner: str
    id: str = Field(default_factory=lambda: secrets.token_urlsafe(12))
    created: float = Field(default_factory=time.time, strict=True)


class StoredExperiment(Experiment):
    """The content of a file; `runs` has the ids of the started runs, by key."""

    model_config = ConfigDict(extra="ignore")  # later versions may add fields

    version: Literal[1] = 1
    owner: Fingerprint
    runs: dict[str, str]
    summarized: tuple[str, ...] = ()  # the ids of the runs with stored results
    cancelled: bool
    address: str = ""  # `ExperimentState.address_id`


# The fields of a request.
SPEC_FIELDS = tuple(ExperimentSpec.model_fields)


def parse_experiment(values: Mapping[str, Any], owner: str) -> Experiment:
    """Build an experiment from a specification; a ConfigError names the invalid field."""
    try:
        spec = ExperimentSpec.model_validate(values)
    except ValidationError as error:
        message, field = describe(error, ExperimentSpec)
        raise ConfigError(field, message) from None
    spec.check_testable()
    return Experiment.model_construct(**dict(spec), owner=owner)  # the fields are validated


def _check_values(name: str, values: object) -> None:
    """Raise ConfigError if these cannot be the values of a setting in a grid."""
    if name not in ("architecture", VARIANT_KEY) and name not in section_of_field():
        raise ConfigError("grid", messages.unknown_setting(short_repr(name), section_of_field()))
    if not isinstance(values, list | tuple) or not 1 <= len(values) <= MAX_VALUES:
        raise ConfigError(
            name, f"{name} has the values {short_repr(values)}; give a list of 1 to {MAX_VALUES}"
        )
    if name == VARIANT_KEY and not all(isinstance(each, Mapping) and each for each in values):
        raise ConfigError(
            name, f"variant has the values {short_repr(values)}; each must be settings by name"
        )
    if len({json.dumps(value) for value in values}) < len(values):
        raise ConfigError(
            name, f"{name} has the values {short_repr(values)}; one value occurs twice; remove it"
        )


def _setting_type(name: str) -> type | None:
    """Return the type of a setting; None if no setting has this name."""
    return type(field_named(name).default) if name in section_of_field() else None


def _check_range(name: str, values: Mapping[str, Any], samples: int | None) -> None:
    """Raise ConfigError if this cannot be the range of a setting."""
    if _setting_type(name) not in (int, float):
        raise ConfigError(name, f"{name} has a range, but it is no number; give a list of values")
    if samples is None:
        raise ConfigError(
            name, f"{name} has a range; set samples, the number of combinations, or give a list"
        )
    try:
        Range.model_validate(values)
    except ValidationError as error:
        raise ConfigError(name, f"{name}: {describe(error, Range)[0]}") from None


def evaluation_cost(parameters: int, n: int, length: int) -> float:
    """Return the relative cost of evaluating `n` sequences of a length, which it squares."""
    return float(parameters) * n * length**2


def positions_for(settings: Mapping[str, Any], length: int) -> int:
    """Return the number of positions for sources of this length and their targets."""
    of_task = {
        name: value for name, value in settings.items() if section_of_field().get(name) == "task"
    }
    of_task |= {"architecture": settings.get("architecture", "transformer")}
    return RunConfig.from_flat(of_task | {"max_length": length}).model.max_positions
