"""The settings of a run: task, model and training, validated in one place.

This file does not import torch, because forms use it too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from playground.architectures import ARCHITECTURES
from playground.common.devices import ZERO_GPU
from playground.compat import FOREIGN_DEFAULTS, upgrade_settings
from playground.datasets.pairs import MAX_LENGTH, SHA256_PATTERN, validate_vocabulary
from playground.models.base_config import BaseConfig
from playground.models.config import ModelConfig
from playground.models.config_fields import (
    ConfigError,
    config_field,
    short_repr,
    validate_fields,
)
from playground.tasks import LOOKUP, TASKS, load_task
from playground.tasks.vocabulary import ALPHABET, SPECIAL_TOKENS

if TYPE_CHECKING:
    from playground.tasks.task import Task

MAX_POSITIONS = 4096
MIN_SOURCES = 256  # with fewer sources, hardly any would be held out


@dataclass(frozen=True)
class TaskConfig:
    """The task and the lengths of its sequences."""

    task: str = config_field("reverse", "The task that the model learns.", choices=(*TASKS, LOOKUP))
    n_symbols: int = config_field(
        10,
        "Number of different symbols: digits first, then a-z and A-Z.",
        low=2,
        high=len(ALPHABET),
    )
    min_length: int = config_field(1, "Minimum length of a source, in symbols.", low=1, high=512)
    max_length: int = config_field(10, "Maximum length of a source, in symbols.", low=1, high=512)
    dataset_sha256: str = config_field("", "Task dataset only: its SHA-256.")
    dataset_symbols: str = config_field("", "Task dataset only: its symbols, separated by spaces.")
    max_target_length: int = config_field(
        1, "Task dataset only: maximum length of a target, in symbols.", low=1, high=MAX_LENGTH
    )

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.min_length > self.max_length:
            raise ConfigError(
                "min_length",
                f"min_length is {self.min_length}, above max_length {self.max_length}; lower it or "
                f"raise max_length",
            )
        if self.task == LOOKUP:
            self._validate_dataset()
            return
        for name in ("dataset_sha256", "dataset_symbols", "max_target_length"):
            if getattr(self, name) != field_named(name).default:
                raise ConfigError(
                    name,
                    f"{name} is {short_repr(getattr(self, name))}, but the task is {self.task}; "
                    "only the task dataset has this setting",
                )
        spec = TASKS[self.task]
        if self.max_length < spec.min_length:
            raise ConfigError(
                "max_length",
                f"max_length is {self.max_length}, but {self.task} has no source of fewer than "
                f"{spec.min_length} symbols; raise it",
            )
        if spec.num_sources(self.n_symbols, self.max_length) < MIN_SOURCES:
            min_sufficient_length = next(
                n
                for n in range(spec.min_length, 20)
                if spec.num_sources(self.n_symbols, n) >= MIN_SOURCES
            )
            of_what = (
                f"with {self.n_symbols} symbols" if spec.n_symbols_range else f"for {self.task}"
            )
            raise ConfigError(
                "max_length",
                f"max_length is {self.max_length}: {of_what} there are too few sequences to hold "
                f"some out; use at least {min_sufficient_length}",
            )

    def _validate_dataset(self) -> None:
        if not SHA256_PATTERN.fullmatch(self.dataset_sha256):
            raise ConfigError(
                "dataset_sha256",
                f"dataset_sha256 is {short_repr(self.dataset_sha256)}; the task dataset needs the "
                "SHA-256 of a stored dataset, so add the dataset first",
            )
        try:
            validate_vocabulary(self.dataset_symbols)
        except ValueError as error:
            raise ConfigError("dataset_symbols", f"dataset_symbols: {error}") from None

    @property
    def n_task_symbols(self) -> int:
        """Return the number of symbols of sources and targets, without special tokens."""
        return len(
            self.dataset_symbols.split(" ")
            if self.task == LOOKUP
            else TASKS[self.task].alphabet(self.n_symbols)
        )

    @property
    def max_sequence_length(self) -> int:
        """Return the maximum length of a source or a target, in symbols."""
        return max(
            self.max_length,
            self.max_target_length
            if self.task == LOOKUP
            else TASKS[self.task].max_target_length(self.max_length),
        )

    def load(self) -> Task:
        """Load the task. A dataset is read only when it is first needed."""
        if self.task != LOOKUP:
            return load_task(self.task, self.n_symbols)
        from playground.datasets.lookup_task import LookupTask

        return LookupTask(
            self.dataset_sha256, tuple(self.dataset_symbols.split(" ")), self.max_target_length
        )


@dataclass(frozen=True)
class TrainConfig:
    """Optimization and evaluation during training."""

    max_steps: int = config_field(200, "Number of training steps.", low=1, high=1_000_000)
    batch_size: int = config_field(
        128, "Sequences in each step; every batch is sampled anew.", low=1, high=65_536
    )
    learning_rate: float = config_field(
        6e-3,
        "Learning rate; with the noam schedule a factor, 1 in the paper.",
        low=1e-9,
        high=100,
    )
    lr_schedule: str = config_field(
        "cosine",
        "Learning rate after the warm-up: constant, cosine decay, or as in the paper (noam).",
        choices=("constant", "cosine", "noam"),
    )
    warmup_steps: int = config_field(
        20, "Steps of linear warm-up of the learning rate.", low=0, high=1_000_000
    )
    lr_decay_steps: int = config_field(
        160, "Cosine only: the step at which the decay ends.", low=1, high=1_000_000
    )
    min_lr_ratio: float = config_field(
        0.05, "Cosine only: final learning rate as a fraction of the maximum.", low=0, high=1
    )
    optimizer: str = config_field(
        "adam",
        "Optimizer: Adam, AdamW, SGD with momentum, or Muon for the hidden matrices with AdamW for "
        "all other weights.",
        choices=("adam", "adamw", "sgd", "muon"),
    )
    weight_decay: float = config_field(
        0.0,
        "Weight decay; Adam and SGD add it to the gradient, AdamW and Muon apply it separately.",
        low=0,
        high=10,
    )
    momentum: float = config_field(
        0.9,
        "SGD and Muon: momentum, the fraction of the last update that is kept.",
        low=0,
        high=0.9999,
    )
    muon_lr_ratio: float = config_field(
        7.5,
        "Muon only: learning rate of the hidden matrices as a multiple of the learning rate, which "
        "all other weights have.",
        low=1e-3,
        high=1000,
    )
    adam_beta1: float = config_field(
        0.9, "Adam, AdamW and Muon: decay rate of the gradient's mean.", low=0, high=0.9999
    )
    adam_beta2: float = config_field(
        0.98,
        "Adam, AdamW and Muon: decay rate of the squared gradient's mean.",
        low=0,
        high=0.999999,
    )
    adam_eps: float = config_field(
        1e-9, "Adam, AdamW and Muon: constant that prevents division by zero.", low=1e-16, high=1
    )
    label_smoothing: float = config_field(
        0.0,
        "Probability that is spread over the whole vocabulary, including special tokens.",
        low=0,
        high=0.9,
    )
    max_grad_norm: float = config_field(
        1.0,
        "Maximum gradient norm; larger gradients are scaled down. 0 turns clipping off.",
        low=0,
        high=1e6,
    )
    weight_averaging: bool = config_field(
        False,
        "Scores, the live view and saved models use a running average of the weights, in which "
        "recent steps count more.",
    )
    eval_every: int = config_field(10, "Steps between two evaluations.", low=1, high=1_000_000)
    eval_size: int = config_field(
        256,
        "Held-out sequences in each evaluation; the final one uses 2,000.",
        low=1,
        high=10_000,
    )
    stop_at_exact_match: float = config_field(
        0.0,
        "Stop early at this exact match, once confirmed on 2,000 sequences; 0 never stops.",
        low=0,
        high=1,
    )
    seed: int = config_field(
        0,
        "The same seed gives exactly the same run on the same machine.",
        low=0,
        high=2**31 - 1,
    )
    device: str = config_field(
        "auto",
        "Device: auto uses a CUDA GPU if there is one; zero uses ZeroGPU in time slices on such a "
        "Space, and is auto elsewhere.",
        choices=("auto", "cpu", "cuda", ZERO_GPU),
    )
    precision: str = config_field(
        "float32",
        "Precision of matrix products: float32, or on a GPU tf32 or bfloat16, which are faster for "
        "large models and less exact.",
        choices=("float32", "tf32", "bfloat16"),
    )
    num_threads: int = config_field(
        1,
        "CPU threads; 0 measures which number is fastest, now and then. Another number changes the "
        "last bits of the results.",
        low=0,
        high=256,
    )

    def __post_init__(self) -> None:
        validate_fields(self)


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run.

    Field names are unique across the parts, so that forms and command lines can be flat.
    """

    task: TaskConfig = field(default_factory=TaskConfig)
    model: BaseConfig = field(default_factory=ModelConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    architecture: str = "transformer"

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise ConfigError(
                "architecture",
                f"architecture is {short_repr(self.architecture)}; choose one of "
                f"{', '.join(ARCHITECTURES)}",
            )
        for name, part in (("task", TaskConfig), ("training", TrainConfig)):
            if not isinstance(value := getattr(self, name), part):
                raise ConfigError(
                    name,
                    f"{name} is {short_repr(value)}; pass a {part.__name__}, or use "
                    f"RunConfig.from_flat({{...}}) with flat settings",
                )
        if type(self.model) is not ARCHITECTURES[self.architecture].config_class:
            config_class = ARCHITECTURES[self.architecture].config_class.__name__
            raise ConfigError(
                "architecture",
                f"architecture is {self.architecture!r}, which needs a {config_class}, but the "
                f"model is a {type(self.model).__name__}",
            )
        symbols = self.task.n_task_symbols
        vocabulary = symbols + len(SPECIAL_TOKENS)
        for name in ("source_vocab_size", "target_vocab_size"):
            if getattr(self.model, name) != vocabulary:
                raise ConfigError(
                    name,
                    f"{name} is {getattr(self.model, name)}, but {symbols} symbols and 3 special "
                    f"tokens make {vocabulary}",
                )
        if self.model.max_positions > MAX_POSITIONS:
            max_positions = self.model.max_positions
            raise ConfigError(
                "max_positions",
                f"max_positions is {max_positions:,}; a run accepts at most {MAX_POSITIONS:,}",
            )
        if self.model.max_positions < self.task.max_length + 1:
            raise ConfigError(
                "max_length",
                f"max_length is {self.task.max_length}, but the model's max_positions "
                f"{self.model.max_positions} allow {self.model.max_positions - 1} symbols and EOS; "
                f"shorten the sequences or raise max_positions",
            )
        if self.model.max_positions < self.task.max_sequence_length + 1:
            max_positions, needed = self.model.max_positions, self.task.max_sequence_length + 1
            raise ConfigError(
                "max_positions",
                f"max_positions is {max_positions}, but targets of this task need {needed}; raise "
                f"max_positions",
            )

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a run from flat settings.

        Missing settings have their defaults, max_length that of its task; vocabulary sizes and
        max_positions follow from the task. Names of version 0.1.0 are accepted, too.

        Raises:
            ConfigError: for an unknown name or an invalid value; it names the field.
        """
        values = upgrade_settings(values)
        architecture = values.pop("architecture", "transformer")
        if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
            raise ConfigError(
                "architecture",
                f"architecture is {short_repr(architecture)}; choose one of "
                f"{', '.join(ARCHITECTURES)}",
            )
        config_class = ARCHITECTURES[architecture].config_class
        values = drop_foreign_defaults(values, config_class)
        foreign = sorted(
            name
            for name in values
            if section_of_field().get(name) == "model"
            and name not in config_class.__dataclass_fields__
        )
        if foreign:
            raise ConfigError(
                foreign[0],
                f"{foreign[0]} is {short_repr(values[foreign[0]])}, but the architecture "
                f"{architecture!r} does not have this setting; leave it out",
            )
        unknown = sorted(set(values) - set(section_of_field()))
        if unknown:
            unknown_name = (
                unknown[0]
                if unknown[0].isidentifier() and len(unknown[0]) < 80
                else short_repr(unknown[0])
            )
            raise ConfigError(
                unknown[0],
                f"{unknown_name} is not a setting of a run; the settings are "
                f"{', '.join(section_of_field())}",
            )
        part = {
            owner: {k: v for k, v in values.items() if section_of_field()[k] == owner}
            for owner in SECTIONS
        }
        task = TaskConfig(
            **{"max_length": default_max_length(part["task"].get("task"))} | part["task"]
        )
        derived = {
            "source_vocab_size": task.n_task_symbols + len(SPECIAL_TOKENS),
            "target_vocab_size": task.n_task_symbols + len(SPECIAL_TOKENS),
            "max_positions": task.max_sequence_length + 1,
        }
        return cls(
            task,
            config_class(**(derived | part["model"])),
            TrainConfig(**part["training"]),
            architecture,
        )

    def to_flat(self) -> dict[str, Any]:
        """Return the flat settings from which `from_flat` builds the same run."""
        parts = {
            k: v for part in SECTIONS for k, v in dataclasses.asdict(getattr(self, part)).items()
        }
        return parts | {"architecture": self.architecture}

    def replace(self, **values: Any) -> RunConfig:
        """Return this run with some settings changed."""
        return self.from_flat(self.to_flat() | values)

    def estimate_memory(self) -> int:
        """Estimate the bytes that training needs in addition to torch itself.

        They consist of weights, gradient and Adam's two averages (16 bytes for each parameter, 20
        with averaged weights), the activations of a step for its backward pass, and the evaluation
        of a chunk of held-out sequences.
        """
        m, rows = self.model, self.training.batch_size
        width = m.sequence_length(
            self.task.max_sequence_length + 1, self.task.max_sequence_length + 1
        )
        inside, d_ff, n_heads = m.layer_sizes()
        training = (
            rows
            * width
            * (
                m.n_layers * (16 * m.d_model + 24 * inside + 6 * d_ff + 10 * n_heads * width)
                + 4 * m.target_vocab_size
            )
        ) + rows * m.extra_activations(self.task.max_length + 1, self.task.max_sequence_length + 1)
        scoring = (
            m.max_batch_size(width)
            * width
            * (4 * m.d_model + 8 * inside + 2 * d_ff + 4 * n_heads * width)
        )
        bytes_per_parameter = 20 if self.training.weight_averaging else 16
        return bytes_per_parameter * m.parameter_count() + 4 * (training + scoring)


SECTIONS: dict[str, tuple[Any, ...]] = {
    "task": (TaskConfig,),
    "model": tuple(dict.fromkeys(family.config_class for family in ARCHITECTURES.values())),
    "training": (TrainConfig,),
}


@cache
def section_of_field() -> dict[str, str]:
    """Map each setting of any architecture to the part of RunConfig with it."""
    return {
        each.name: part
        for part, kinds in SECTIONS.items()
        for kind in kinds
        for each in dataclasses.fields(kind)
    }


def drop_foreign_defaults(
    values: Mapping[str, Any], config_class: type[BaseConfig]
) -> dict[str, Any]:
    """Return settings without those of other architectures that have their default value.

    So the settings of one architecture can be used for another one.
    """

    def is_foreign_default(name: str, value: Any) -> bool:
        if section_of_field().get(name) != "model" or name in config_class.__dataclass_fields__:
            return False
        defaults = [field_named(name).default, FOREIGN_DEFAULTS.get(name, ...)]
        return any(type(value) is type(default) and value == default for default in defaults)

    return {name: value for name, value in values.items() if not is_foreign_default(name, value)}


def default_max_length(task: Any) -> int:
    """Return the default max_length of a run on this task."""
    default: Any = field_named("max_length").default
    return (
        TASKS[task].default_max_length if isinstance(task, str) and task in TASKS else int(default)
    )


def field_named(name: str) -> dataclasses.Field[Any]:
    """Return the field of a setting; `metadata` has description, range and choices."""
    return next(
        each
        for kinds in SECTIONS.values()
        for kind in kinds
        for each in dataclasses.fields(kind)
        if each.name == name
    )
