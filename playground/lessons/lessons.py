"""The lessons: their runs and a question that is answered by measurement.

lessons.toml defines them, without answers. A lesson names the settings to train, the measurement of
the runs, and how near a guess must be. The page compares the guess with what is measured.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from playground.architectures import ARCHITECTURES
from playground.common import messages
from playground.common.validation import Definition, parse, read_definitions
from playground.experiments.spec import ExperimentSpec
from playground.experiments.variant import VARIANT_KEY
from playground.models.config_fields import ConfigError, short_repr
from playground.tasks.vocabulary import Vocabulary
from playground.training.run_config import field_named

Settings = dict[str, Any]
Guess = list[int] | int | str  # the points of a curve in percent; a number; a choice
MAX_INTERVALS = 20  # between the points of a curve; also in ui/static/learn/guess.js
# An experiment has the settings with which its architecture learns best, unless it names others.
PRESET_ADAM = {name: field_named(name).default for name in ARCHITECTURES["transformer"].overrides}
MAX_TEXT_LENGTH = 10  # tokens
MAX_OPTION_LENGTH = 200  # characters


def _check_digits(text: str) -> str:
    n = len(Vocabulary("0123456789").encode(text))
    if not 1 <= n <= MAX_TEXT_LENGTH:
        raise ConfigError(
            "text", f"the sequence has {n} tokens; enter 1 to {MAX_TEXT_LENGTH} digits"
        )
    return text


Digits = Annotated[str, Field(max_length=100), AfterValidator(_check_digits)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Option(Definition):
    """An option of the user: its accepted values (none for a text), and the setting it changes."""

    label: str
    default: str
    choices: tuple[str, ...] = ()
    setting: str = ""


class Lesson(Definition):
    """One lesson.

    base            the settings of all runs, over those of the preset Adam
    runs            the settings in which each run differs, by label
    measure         the function of measurements.py that measures the result
    kind            of a guess: the exact match at each x of a curve, in percent; a number; a choice
    low, high       the axis of a curve or of a number, and `unit` its name
    tolerance       the largest error of a number, or the mean one of a curve, in points
    choices         what can be guessed, each with its label
    pretrained_job  a job of the model `pretrained` on the `prompt`, both options; its result is the
                    option `pretrained_result`
    sources         the heading of the section of the notebook on the same subject
    """

    title: str
    introduction: str
    instruction: str
    question: str
    kind: Literal["curve", "number", "choice"]
    base: Mapping[str, Any] = {}
    runs: dict[str, Settings]
    measure: str
    low: int = 0
    high: int = 0
    unit: str = ""
    tolerance: int = 0
    choices: Mapping[str, str] = {}
    options: Mapping[str, Option] = {}
    pretrained_job: Literal["", "translate", "next-token"] = ""
    sources: str = ""

    @cached_property
    def options_type(self) -> type[BaseModel]:
        """Return the model of the options and the seed; a job validates a sentence further."""

        def accepted(name: str, option: Option) -> Any:
            if option.choices:
                return Literal[option.choices]
            return Digits if name == "text" else Annotated[str, Field(max_length=MAX_OPTION_LENGTH)]

        fields: dict[str, Any] = {
            name: (accepted(name, option), option.default) for name, option in self.options.items()
        }
        return create_model("Options", __config__=ConfigDict(strict=True), seed=(Seed, 0), **fields)

    @cached_property
    def guess_type(self) -> type[BaseModel]:
        """Return the model of a guess."""
        percent = Annotated[int, Field(ge=0, le=100)]
        n_points = min(self.high - self.low, MAX_INTERVALS) + 1
        accepted: dict[str, Any] = {
            "curve": Annotated[list[percent], Field(min_length=n_points, max_length=n_points)],
            "number": Annotated[int, Field(ge=self.low, le=self.high)],
            "choice": Literal[tuple(self.choices) or ("",)],
        }
        config = ConfigDict(strict=True)
        return create_model("Guess", __config__=config, guess=(accepted[self.kind], ...))


LESSONS = read_definitions(Path(__file__).with_suffix(".toml"), Lesson)


def find(name: object) -> Lesson:
    """Return the lesson with this name, or raise ConfigError."""
    if not isinstance(name, str) or name not in LESSONS:
        raise ConfigError("lesson", messages.choose_one_of("lesson", short_repr(name), LESSONS))
    return LESSONS[name]


def validate_options(lesson: Lesson, request: object) -> Settings:
    """Return the valid options of a request with the defaults and the seed, or raise UserError."""
    return dict(parse(lesson.options_type, request if isinstance(request, dict) else {}))


def validate_guess(lesson: Lesson, guess: object) -> Guess:
    """Return a valid guess that a pupil sends to a class, or raise UserError."""
    return parse(lesson.guess_type, {"guess": guess}).guess  # type: ignore[attr-defined]


def experiment(
    lesson: Lesson, options: Settings, base: Mapping[str, Any] | None = None
) -> ExperimentSpec:
    """Return the experiment of a lesson, over the settings `base`: a variant for each run."""
    chosen = {each.setting: options[name] for name, each in lesson.options.items() if each.setting}
    return ExperimentSpec.model_validate(
        {
            "name": lesson.title,
            "base": {**PRESET_ADAM, **(base or {}), **lesson.base, **chosen},
            "grid": {VARIANT_KEY: list(lesson.runs.values())},
            "seeds": (options["seed"],),
        }
    )
