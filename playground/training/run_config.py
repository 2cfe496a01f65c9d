"""All settings of a run: task, model and training, validated together."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

from playground.architectures import ARCHITECTURES, check_architecture
from playground.architectures.parameter_groups import parameter_count, parameter_groups
from playground.common.format import format_count
from playground.models.config import BaseConfig, TransformerConfig
from playground.models.config_fields import ConfigError, short_repr
from playground.tasks import TASKS
from playground.tasks.vocabulary import SPECIAL_TOKENS

from .task_config import TaskConfig
from .train_config import TrainConfig

MAX_POSITIONS = 4096
# The ends of the names of components whose weights are tables of vectors or numbers.
TABLES = ("embedding", "embeddings", "vectors", "biases")


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run.

    Field names are unique across the parts, so that forms and command lines can be flat.
    """

    task: TaskConfig = field(default_factory=TaskConfig)
    model: BaseConfig = field(default_factory=TransformerConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    architecture: str = "transformer"

    def __post_init__(self) -> None:
        check_architecture(self.architecture)
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
        max_positions, needed = self.model.max_positions, self.task.max_sequence_length + 1
        if max_positions > MAX_POSITIONS:
            raise ConfigError(
                "max_positions",
                f"max_positions is {max_positions:,}; a run accepts at most {MAX_POSITIONS:,}",
            )
        if max_positions < self.task.max_length + 1:
            raise ConfigError(
                "max_length",
                f"max_length is {self.task.max_length}, but the model's max_positions "
                f"{max_positions} allow {max_positions - 1} tokens and EOS; shorten the sequences "
                "or raise max_positions",
            )
        if max_positions < needed:
            raise ConfigError(
                "max_positions",
                f"max_positions is {max_positions}, but targets of this task need {needed}; raise "
                f"max_positions",
            )

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> RunConfig:
        """Build a run from flat settings. A ConfigError names the unknown or invalid one.

        Missing settings have their defaults, max_length that of its task; vocabulary sizes and
        max_positions follow from the task.
        """
        values = dict(values)
        architecture = values.pop("architecture", "transformer")
        check_architecture(architecture)
        config_class = ARCHITECTURES[architecture].config_class
        values = drop_foreign_defaults(values, config_class)
        _reject_unknown_settings(values, architecture)
        part: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for name, value in values.items():
            part[section_of_field()[name]][name] = value
        max_length = default_max_length(values.get("task"))
        task = TaskConfig(**{"max_length": max_length} | part["task"])
        vocabulary = ("source_vocab_size", "target_vocab_size")
        derived = dict.fromkeys(vocabulary, task.n_task_symbols + len(SPECIAL_TOKENS))
        derived["max_positions"] = task.max_sequence_length + 1
        model = config_class(**derived | part["model"])
        return cls(task, model, TrainConfig(**part["training"]), architecture)

    def to_flat(self) -> dict[str, Any]:
        """Return the flat settings from which `from_flat` builds the same run."""
        sections = (vars(getattr(self, name)) for name in SECTIONS)
        return {k: v for part in sections for k, v in part.items()} | {
            "architecture": self.architecture
        }

    def replace(self, **values: Any) -> RunConfig:
        """Return this run with some settings changed."""
        return self.from_flat(self.to_flat() | values)

    def estimate_memory(self) -> int:
        """Estimate the bytes that training needs in addition to torch itself.

        They consist of weights, gradient and Adam's two averages (16 bytes for each parameter, 20
        with averaged weights), the activations of a step for its backward pass, and the evaluation
        of a chunk of held-out sequences.
        """
        m, longest = self.model, self.task.max_sequence_length + 1
        width = m.sequence_length(longest, longest)
        inside, d_ff, n_heads = m.layer_sizes()
        layer = 16 * m.d_model + 24 * inside + 6 * d_ff + 10 * n_heads * width
        row = width * (m.n_layers * layer + 4 * m.target_vocab_size)
        row += m.extra_activations(self.task.max_length + 1, longest)
        training = self.training.batch_size * row
        scored_layer = 4 * m.d_model + 8 * inside + 2 * d_ff + 4 * n_heads * width
        scoring = m.max_batch_size(width) * width * scored_layer
        bytes_per_parameter = 20 if self.training.weight_averaging else 16
        return bytes_per_parameter * parameter_count(m) + 4 * (training + scoring)


def accepted_settings(values: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """Return the values without settings of the model that the architecture does not have."""
    config_class = ARCHITECTURES[architecture].config_class
    return {k: v for k, v in values.items() if not _is_foreign(k, config_class)}


def _is_foreign(name: str, config_class: type[BaseConfig]) -> bool:
    """Return whether only models of other architectures have this setting."""
    is_of_model = section_of_field().get(name) == "model"
    return is_of_model and name not in config_class.__dataclass_fields__


def _reject_unknown_settings(values: Mapping[str, Any], architecture: str) -> None:
    """Raise ConfigError for a name that is no setting, or no setting of this architecture."""
    foreign = sorted(set(values) - set(accepted_settings(values, architecture)))
    if foreign:
        raise ConfigError(
            foreign[0],
            f"{foreign[0]} is {short_repr(values[foreign[0]])}, but the architecture "
            f"{architecture!r} does not have this setting; leave it out",
        )
    unknown = min(set(values) - set(section_of_field()), default=None)
    if unknown is not None:
        text = unknown if unknown.isidentifier() and len(unknown) < 80 else short_repr(unknown)
        names = ", ".join(section_of_field())
        message = f"{text} is not a setting of a run; the settings are {names}"
        raise ConfigError(unknown, message)


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
    """Return settings without the defaults of those that only other architectures have."""

    def is_foreign_default(name: str, value: Any) -> bool:
        if not _is_foreign(name, config_class):
            return False
        default = field_named(name).default
        return type(value) is type(default) and value == default

    return {name: value for name, value in values.items() if not is_foreign_default(name, value)}


def default_max_length(task: Any) -> int:
    is_known = isinstance(task, str) and task in TASKS
    return TASKS[task].default_max_length if is_known else TaskConfig.max_length


def setting_role(name: str) -> str:
    """Return what a setting does in an experiment; `task`: it changes the test as well."""
    section = section_of_field().get(name)
    role = field_named(name).metadata["role"] if section else ""
    return str(role or ("task" if section == "task" else "treatment"))


def field_named(name: str) -> dataclasses.Field[Any]:
    """Return the field of a setting; `metadata` has description, range and choices."""
    kinds = chain.from_iterable(SECTIONS.values())
    return next(f[name] for kind in kinds if name in (f := kind.__dataclass_fields__))


def optimizer_groups(config: RunConfig) -> list[dict[str, Any]]:
    """Count the weights of each group that `build_optimizer` makes, without building the model."""
    training, counts = config.training, Counter[tuple[str, float]]()
    for component, shapes in parameter_groups(config.model).items():
        for shape in shapes:
            is_matrix = len(shape) == 2 and not component.endswith(TABLES)
            optimizer = training.optimizer
            if optimizer == "muon" and (not is_matrix or component == "output layer"):
                optimizer = "adamw"
            decays = is_matrix or training.weight_decay_on == "all"
            counts[optimizer, training.weight_decay if decays else 0.0] += math.prod(shape)
    return [
        {"optimizer": optimizer, "weight_decay": weight_decay, "parameters": n}
        for (optimizer, weight_decay), n in counts.items()
    ]


def describe_optimizer_groups(config: RunConfig) -> str:
    """Return a text such as "muon 65,536 parameters, adamw 3,213 parameters"."""
    return ", ".join(
        f"{group['optimizer']} {format_count(group['parameters'], 'parameter')}"
        + (f" with weight decay {group['weight_decay']:g}" if config.training.weight_decay else "")
        for group in optimizer_groups(config)
    )
