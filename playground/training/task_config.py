"""The settings of a run's task, validated in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from playground.common import messages
from playground.datasets.pair_builder import validate_vocabulary
from playground.datasets.pairs import MAX_LENGTH, SHA256_PATTERN
from playground.models.config_fields import ConfigError, config_field, short_repr, validate_fields
from playground.tasks import LOOKUP, TASKS, load_task
from playground.tasks.vocabulary import ALPHABET, normalize

if TYPE_CHECKING:
    from playground.tasks.task import Task

MIN_SOURCES = 256  # with fewer sources, hardly any would be held out
# Powers of two: what is held out with 16 is held out with each of them.
HELD_OUT_CHOICES = (2, 4, 8, 16)
DATASET_SETTINGS = ("dataset_sha256", "dataset_symbols", "max_target_length")


@dataclass(frozen=True)
class TaskConfig:
    """The task and the lengths of its sequences."""

    task: str = config_field("reverse", "The task that the model learns.", choices=(*TASKS, LOOKUP))
    n_symbols: int = config_field(
        10, "Number of different tokens: digits first, then a-z and A-Z.", bounds=(2, len(ALPHABET))
    )
    min_length: int = config_field(1, "Minimum length of a source, in tokens.", bounds=(1, 512))
    max_length: int = config_field(10, "Maximum length of a source, in tokens.", bounds=(1, 512))
    held_out_one_in: int = config_field(
        16,
        "One source in this many is held out: used for scores, not for training. 2, 4, 8 or 16.",
        bounds=(2, 16),
        role="measurement",
    )
    n_training_sources: int = config_field(
        0,
        "Distinct sequences in a fixed training set, which the run repeats in random order; 0 "
        "samples every batch anew.",
        bounds=(0, 1_000_000),
        role="treatment",
    )
    predict_eos: bool = config_field(
        True,
        "The model predicts EOS after each target, and scores count it; off, targets have no EOS.",
        role="measurement",
    )
    dataset_sha256: str = config_field("", "Task dataset only: its SHA-256.")
    dataset_symbols: str = config_field("", "Task dataset only: its symbols, separated by spaces.")
    max_target_length: int = config_field(
        1, "Task dataset only: maximum length of a target, in tokens.", bounds=(1, MAX_LENGTH)
    )

    def __post_init__(self) -> None:
        validate_fields(self)
        if self.min_length > self.max_length:
            raise ConfigError(
                "min_length",
                f"min_length is {self.min_length}, above max_length {self.max_length}; lower it or "
                f"raise max_length",
            )
        self._validate_split()
        if self.task == LOOKUP:
            self._validate_dataset()
            return
        for name in DATASET_SETTINGS:
            if getattr(self, name) != self.__dataclass_fields__[name].default:
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
                f"{spec.min_length} tokens; raise it",
            )
        if spec.num_sources(self.n_symbols, self.max_length) < MIN_SOURCES:
            min_sufficient_length = next(
                n
                for n in range(spec.min_length, 20)
                if spec.num_sources(self.n_symbols, n) >= MIN_SOURCES
            )
            has_choice = spec.n_symbols_range
            of_what = f"with {self.n_symbols} symbols" if has_choice else f"for {self.task}"
            raise ConfigError(
                "max_length",
                f"max_length is {self.max_length}: {of_what} there are too few sequences to hold "
                f"some out; use at least {min_sufficient_length}",
            )

    def _validate_split(self) -> None:
        one_in = self.held_out_one_in
        if one_in not in HELD_OUT_CHOICES:
            choices = map(str, HELD_OUT_CHOICES)
            message = messages.choose_one_of("held_out_one_in", one_in, choices)
            raise ConfigError("held_out_one_in", message)
        if not self.predict_eos and self.min_length != self.max_length:
            raise ConfigError(
                "predict_eos",
                "predict_eos is off, but the lengths differ, and only EOS ends a target; make "
                "min_length equal to max_length",
            )
        split = one_in, self.n_training_sources, self.predict_eos
        if self.task == LOOKUP and split != (HELD_OUT_CHOICES[-1], 0, True):
            raise ConfigError(
                "task",
                "a dataset has its own training set and targets with EOS; leave held_out_one_in, "
                "n_training_sources and predict_eos at their defaults",
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
        if normalize(self.dataset_symbols) != self.dataset_symbols:
            raise ConfigError(
                "dataset_symbols",
                "dataset_symbols holds a token that is not in Unicode normalization form C, so no "
                "input could contain it; add the dataset again, and train a new model on it",
            )

    @property
    def n_task_symbols(self) -> int:
        """Return the number of symbols of sources and targets, without special tokens."""
        if self.task == LOOKUP:
            return len(self.dataset_symbols.split(" "))
        return len(TASKS[self.task].alphabet(self.n_symbols))

    @property
    def max_sequence_length(self) -> int:
        """Return the maximum length of a source or a target, in tokens."""
        if self.task == LOOKUP:
            return max(self.max_length, self.max_target_length)
        return max(self.max_length, TASKS[self.task].max_target_length(self.max_length))

    def load(self) -> Task:
        """Load the task. A dataset is read only when it is first needed."""
        if self.task != LOOKUP:
            task = load_task(self.task, self.n_symbols)
            task.held_out_one_in, task.predict_eos = self.held_out_one_in, self.predict_eos
            return task
        from playground.datasets.lookup_task import LookupTask

        return LookupTask(
            self.dataset_sha256, tuple(self.dataset_symbols.split(" ")), self.max_target_length
        )
