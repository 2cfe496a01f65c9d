"""What a run is: a task, a model and how it trains, validated in one place. No torch in here: forms read it too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from playground.families import FAMILIES
from playground.models.config import (
    ModelConfig,
    SettingError,
    check_setting,
    check_settings,
    setting,
    shown,
)
from playground.tasks import ROWS, TASKS, load_task
from playground.tasks.rows import CONTENT, LONGEST_ROW, check_vocabulary
from playground.tasks.vocabulary import ALPHABET, SPECIAL

from .devices import ZERO

if TYPE_CHECKING:
    from playground.tasks.task import Task

MOST_POSITIONS = 4096
FEWEST_SEQUENCES = 256  # with fewer in all, hardly any could be held out


@dataclass(frozen=True)
class TaskConfig:
    """Which sequences, and what is asked of them."""

    task: str = setting(
        "reverse", "What the model learns to do with a sequence.", choices=(*TASKS, ROWS)
    )
    symbols: int = setting(
        10,
        "How many different symbols: the digits first, then a-z and A-Z.",
        low=2,
        high=len(ALPHABET),
    )
    min_length: int = setting(1, "Shortest sequence, in symbols.", low=1, high=512)
    max_length: int = setting(10, "Longest sequence, in symbols.", low=1, high=512)
    rows: str = setting("", "Task rows only: which rows, by the SHA-256 of their content.")
    vocabulary: str = setting("", "Task rows only: their symbols, apart by blanks.")
    longest_answer: int = setting(
        1, "Task rows only: symbols of the longest target.", low=1, high=LONGEST_ROW
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.min_length > self.max_length:
            message = f"min_length is {self.min_length}, above max_length {self.max_length}; lower it or raise max_length"
            raise SettingError("min_length", message)
        if self.task == ROWS:
            self._check_rows()
            return
        for name in ("rows", "vocabulary", "longest_answer"):
            if getattr(self, name) != setting_of(name).default:
                raise SettingError(
                    name,
                    f"{name} is {shown(getattr(self, name))}, but the task is {self.task}; only the task rows has it",
                )
        about = TASKS[self.task]
        if self.max_length < about.shortest:
            message = f"max_length is {self.max_length}, but {self.task} has no sequence of fewer than {about.shortest} symbols; raise it"
            raise SettingError("max_length", message)
        if about.sources(self.symbols, self.max_length) < FEWEST_SEQUENCES:
            enough = next(
                n
                for n in range(about.shortest, 20)
                if about.sources(self.symbols, n) >= FEWEST_SEQUENCES
            )
            of_what = f"with {self.symbols} symbols" if about.symbols else f"for {self.task}"
            raise SettingError(
                "max_length",
                f"max_length is {self.max_length}: {of_what} there are too few sequences to hold some out; use at least {enough}",
            )

    def _check_rows(self) -> None:
        if not CONTENT.fullmatch(self.rows):
            message = f"rows is {shown(self.rows)}; the task rows needs the SHA-256 of rows that are kept here, so give the rows first"
            raise SettingError("rows", message)
        try:
            check_vocabulary(self.vocabulary)
        except ValueError as error:
            raise SettingError("vocabulary", f"vocabulary: {error}") from None

    @property
    def vocabulary_size(self) -> int:
        """Symbols of sources and answers together, special tokens left out."""
        return len(
            self.vocabulary.split(" ")
            if self.task == ROWS
            else TASKS[self.task].alphabet(self.symbols)
        )

    @property
    def longest(self) -> int:
        """Symbols of the longest source or answer, whichever is longer."""
        return max(
            self.max_length,
            self.longest_answer
            if self.task == ROWS
            else TASKS[self.task].answer_length(self.max_length),
        )

    def load(self) -> Task:
        """The task itself. Rows are looked for only when they are first needed."""
        if self.task != ROWS:
            return load_task(self.task, self.symbols)
        from playground.tasks.lookup import RowsTask

        return RowsTask(self.rows, tuple(self.vocabulary.split(" ")), self.longest_answer)


@dataclass(frozen=True)
class TrainConfig:
    """How the model learns, and how it is scored meanwhile."""

    steps: int = setting(200, "Updates of the weights until the run ends.", low=1, high=1_000_000)
    batch_size: int = setting(
        128, "Sequences in each update; every batch is drawn afresh.", low=1, high=65_536
    )
    learning_rate: float = setting(
        6e-3,
        "Size of an update; with the noam schedule a factor, 1 in the paper.",
        low=1e-9,
        high=100,
    )
    schedule: str = setting(
        "cosine",
        "How the learning rate goes on after warm-up: constant, falling along a cosine, or as in the paper (noam).",
        choices=("constant", "cosine", "noam"),
    )
    warmup: int = setting(
        20, "Steps over which the learning rate rises from zero.", low=0, high=1_000_000
    )
    decay_steps: int = setting(
        160, "Cosine only: the step at which it has reached its floor.", low=1, high=1_000_000
    )
    final_share: float = setting(
        0.05, "Cosine only: its floor, as a share of the learning rate.", low=0, high=1
    )
    optimizer: str = setting(
        "adam",
        "What turns gradients into updates: Adam, AdamW or SGD with momentum.",
        choices=("adam", "adamw", "sgd"),
    )
    weight_decay: float = setting(
        0.0,
        "Pull of every weight towards zero; Adam and SGD add it to the gradient, AdamW applies it by itself.",
        low=0,
        high=10,
    )
    momentum: float = setting(
        0.9, "SGD: share of the last update that goes on in the next one.", low=0, high=0.9999
    )
    beta1: float = setting(
        0.9, "Adam and AdamW: memory of the gradient's mean.", low=0, high=0.9999
    )
    beta2: float = setting(
        0.98, "Adam and AdamW: memory of the gradient's square.", low=0, high=0.999999
    )
    epsilon: float = setting(
        1e-9, "Adam and AdamW: keeps the division from blowing up.", low=1e-16, high=1
    )
    label_smoothing: float = setting(
        0.0,
        "Share of the target probability spread over all symbols, special ones too.",
        low=0,
        high=0.9,
    )
    clip: float = setting(
        1.0,
        "Largest gradient norm; longer gradients are shortened to it. 0 turns clipping off.",
        low=0,
        high=1e6,
    )
    eval_every: int = setting(
        10, "Steps between two looks at the held-out sequences.", low=1, high=1_000_000
    )
    eval_n: int = setting(
        256,
        "Held-out sequences in each of these looks; the last one takes 2,000.",
        low=1,
        high=10_000,
    )
    until: float = setting(
        0.0,
        "End early once this exact match is reached and confirmed on 2,000 sequences; 0 never.",
        low=0,
        high=1,
    )
    seed: int = setting(
        0,
        "The same seed gives the same run, to the bit, on the same machine.",
        low=0,
        high=2**31 - 1,
    )
    device: str = setting(
        "auto",
        "Where it trains: auto takes a CUDA GPU where there is one; zero takes ZeroGPU's in slices on such a Space, and is auto elsewhere.",
        choices=("auto", "cpu", "cuda", ZERO),
    )
    precision: str = setting(
        "float32",
        "Numbers in matrix products: float32 throughout, or on a GPU tf32 or bfloat16, which large models compute quicker and coarser.",
        choices=("float32", "tf32", "bfloat16"),
    )
    threads: int = setting(
        1,
        "Processor threads; 0 tries out which number is quickest, now and then. Another number changes the last bits.",
        low=0,
        high=256,
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class RunConfig:
    """Everything a run needs. Field names are unique across the parts, so that forms and command lines can be flat."""

    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    family: str = "transformer"

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise SettingError(
                "family", f"family is {shown(self.family)}; choose one of {', '.join(FAMILIES)}"
            )
        for name, part in (("task", TaskConfig), ("training", TrainConfig)):
            if not isinstance(value := getattr(self, name), part):
                message = f"{name} is {shown(value)}; give a {part.__name__}, or use RunConfig.from_fields({{...}}) with flat settings"
                raise SettingError(name, message)
        if type(self.model) is not FAMILIES[self.family].config:
            wanted = FAMILIES[self.family].config.__name__
            raise SettingError(
                "family",
                f"family is {self.family!r}, which needs a {wanted}, but the model is a {type(self.model).__name__}",
            )
        symbols = self.task.vocabulary_size
        vocabulary = symbols + len(SPECIAL)
        for name in ("source_vocabulary", "target_vocabulary"):
            if getattr(self.model, name) != vocabulary:
                raise SettingError(
                    name,
                    f"{name} is {getattr(self.model, name)}, but {symbols} symbols and 3 special tokens make {vocabulary}",
                )
        if self.model.max_positions > MOST_POSITIONS:
            given = self.model.max_positions
            raise SettingError(
                "max_positions",
                f"max_positions is {given:,}; a run takes at most {MOST_POSITIONS:,}",
            )
        if self.model.max_positions < self.task.max_length + 1:
            raise SettingError(
                "max_length",
                f"max_length is {self.task.max_length}, but the model's max_positions {self.model.max_positions} hold "
                f"{self.model.max_positions - 1} symbols and EOS; shorten the sequences or raise max_positions",
            )
        if self.model.max_positions < self.task.longest + 1:
            given, needed = self.model.max_positions, self.task.longest + 1
            raise SettingError(
                "max_positions",
                f"max_positions is {given}, but answers of this task need {needed}; raise max_positions",
            )

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> RunConfig:
        """A run from flat settings; whatever is missing has its default, max_length that of its task, and the model's vocabulary and
        positions fit the task.

        Raises:
            SettingError: for an unknown name or a value that does not fit, naming the field.
        """
        values = dict(values)
        family = values.pop("family", "transformer")
        if not isinstance(family, str) or family not in FAMILIES:
            raise SettingError(
                "family", f"family is {shown(family)}; choose one of {', '.join(FAMILIES)}"
            )
        sizes = FAMILIES[family].config
        foreign = sorted(
            name
            for name in values
            if field_owner().get(name) == "model" and name not in sizes.__dataclass_fields__
        )
        if foreign:
            raise SettingError(
                foreign[0], f"{foreign[0]} is no setting of the family {family!r}; leave it out"
            )
        unknown = sorted(set(values) - set(field_owner()))
        if unknown:
            given = (
                unknown[0]
                if unknown[0].isidentifier() and len(unknown[0]) < 80
                else shown(unknown[0])
            )
            raise SettingError(
                unknown[0],
                f"{given} is no setting of a run; the settings are {', '.join(field_owner())}",
            )
        part = {
            owner: {k: v for k, v in values.items() if field_owner()[k] == owner} for owner in PARTS
        }
        task = TaskConfig(**{"max_length": default_length(part["task"].get("task"))} | part["task"])
        fitting = {
            "source_vocabulary": task.vocabulary_size + len(SPECIAL),
            "target_vocabulary": task.vocabulary_size + len(SPECIAL),
            "max_positions": task.longest + 1,
        }
        return cls(
            task, sizes(**(fitting | part["model"])), TrainConfig(**part["training"]), family
        )

    def to_fields(self) -> dict[str, Any]:
        """The flat settings from which `from_fields` makes this run again."""
        parts = {k: v for part in PARTS for k, v in dataclasses.asdict(getattr(self, part)).items()}
        return parts | {"family": self.family}

    def replace(self, **values: Any) -> RunConfig:
        """This run with some settings changed."""
        return self.from_fields(self.to_fields() | values)

    def memory_estimate(self) -> int:
        """Bytes that training needs beside what torch itself takes: weights, gradient and Adam's two averages (16 bytes a
        parameter), what one step keeps for its backward pass, and what scoring a chunk of held-out sequences takes."""
        m, rows = self.model, self.training.batch_size
        width = m.row_width(self.task.longest + 1, self.task.longest + 1)
        inside = max(
            m.d_model, m.n_heads * max(m.key_size, m.value_size)
        )  # all heads together may be wider than the vectors
        d_ff = 2 * m.d_ff if m.activation == "swiglu" else m.d_ff
        training = (
            rows
            * width
            * (
                m.n_layers * (16 * m.d_model + 24 * inside + 6 * d_ff + 10 * m.n_heads * width)
                + 4 * m.target_vocabulary
            )
        ) + rows * m.kept_beside(self.task.max_length + 1, self.task.longest + 1)
        scoring = (
            m.rows_at_a_time(width)
            * width
            * (4 * m.d_model + 8 * inside + 2 * d_ff + 4 * m.n_heads * width)
        )
        return 16 * m.parameter_count() + 4 * (training + scoring)


# What may change while a run goes on. Speed is no setting of the run: it only says how fast one wants to watch.
CHANGEABLE = ("learning_rate", "steps", "until", "speed", "threads")
IN_PASSING = ("speed", "threads")  # those of which what is learned does not depend
MOST_CHANGES = 1000  # of one run
FASTEST = 1000.0  # steps a second beyond which slow motion is none


@dataclass(frozen=True)
class Change:
    """A setting that changed on the way: from the update after `step` on, `setting` is `value`.

    `learning_rate` is the schedule's base, `steps` the length of the run, `until` where it may end early, `speed` the most steps
    a second (0: as many as can be).

    Raises:
        SettingError: for another setting, or a value that it does not take.
    """

    step: int
    setting: str
    value: float

    def __post_init__(self) -> None:
        if self.setting not in CHANGEABLE:
            raise SettingError(
                "setting",
                f"{shown(self.setting)} cannot change while a run goes on; these can: {', '.join(CHANGEABLE)}",
            )
        if type(self.step) is not int or not 0 <= self.step < 2**31:
            raise SettingError(
                "step",
                f"step is {shown(self.step)}; it must be a whole number from 0 to 2,147,483,647",
            )
        value = self.value
        if self.setting == "speed":
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not 0 <= value <= FASTEST
            ):
                raise SettingError(
                    "speed",
                    f"speed is {shown(value)}; it must be a number of steps a second from 0 (full speed) to 1,000",
                )
            value = float(value)
        else:
            value = check_setting(TrainConfig.__dataclass_fields__[self.setting], value)
        object.__setattr__(self, "value", value)

    @classmethod
    def read(cls, lines: Any) -> list[Change]:
        """Changes out of what `to_list` wrote, or out of anything else.

        Raises:
            ValueError: for what is no list of changes.
        """
        if isinstance(lines, list) and len(lines) > MOST_CHANGES:
            raise ValueError(f"there are {len(lines):,} changes; at most {MOST_CHANGES:,} are kept")
        if not isinstance(lines, list) or not all(
            isinstance(line, list) and len(line) == 3 for line in lines
        ):
            raise ValueError(
                f"changes are {shown(lines)}; they must be a list of [step, setting, value]"
            )
        return sorted((cls(*line) for line in lines), key=lambda change: change.step)

    def to_list(self) -> list[Any]:
        return [self.step, self.setting, self.value]


def with_change(changes: Iterable[Change], change: Change) -> list[Change]:
    """Changes in order with one more; what was still to come for the same setting no longer comes."""
    kept = [each for each in changes if each.setting != change.setting or each.step < change.step]
    return sorted([*kept, change], key=lambda each: each.step)


def settings_at(training: TrainConfig, changes: Iterable[Change], step: int) -> TrainConfig:
    """The settings in force for the update after `step`; speed is none of them."""
    values: dict[str, Any] = {
        c.setting: c.value for c in changes if c.step <= step and c.setting != "speed"
    }
    return dataclasses.replace(training, **values) if values else training


PARTS: dict[str, tuple[Any, ...]] = {
    "task": (TaskConfig,),
    "model": tuple(dict.fromkeys(family.config for family in FAMILIES.values())),
    "training": (TrainConfig,),
}


@cache
def field_owner() -> dict[str, str]:
    """For each setting of any family, the part of RunConfig that holds it, in the order of their definition."""
    return {
        each.name: part
        for part, kinds in PARTS.items()
        for kind in kinds
        for each in dataclasses.fields(kind)
    }


def default_length(task: Any) -> int:
    """Return the max_length of a run on this task that names none."""
    default: Any = setting_of("max_length").default
    return TASKS[task].longest if isinstance(task, str) and task in TASKS else int(default)


def setting_of(name: str) -> dataclasses.Field[Any]:
    """The field that defines a setting: its default, and its sentence, range and choices in `metadata`."""
    return next(
        each
        for kinds in PARTS.values()
        for kind in kinds
        for each in dataclasses.fields(kind)
        if each.name == name
    )
