"""The tour: eight stops, each with runs to train and a question whose answer is measured on them. No torch in here.

Nothing in this file knows an answer. A stop says which settings are trained, which function of measuring.py looks at the runs, and how
near a prediction has to come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.models.config import SettingError, shown
from playground.tasks.vocabulary import UnknownSymbol, Vocabulary
from playground.training.config import RunConfig

Settings = dict[str, Any]
NUMBER, CHOICE = "number", "choice"
TRAINED_TO, ASKED_TO = 5, 20  # symbols, at the stop about longer sequences
LONGEST_TEXT = 10  # symbols
POSITIONS = ("learned", "sinusoidal", "rope", "alibi", "t5")
SCHEMES = {name: name for name in POSITIONS}


@dataclass(frozen=True)
class Stop:
    """One stop of the tour.

    trains    the settings of its runs by what they are called, given the options
    measure   the function of measuring.py that answers the question
    low, high, within    of a number: what may be predicted, and how far off still counts as right
    choices   of a choice: what may be predicted, each with its words
    options   what the visitor may change, each with its usual value; `option_words` says what it is
    """

    title: str
    teaches: str
    do: str
    question: str
    kind: str
    trains: Callable[[Settings], dict[str, Settings]]
    measure: str
    low: int = 0
    high: int = 0
    unit: str = ""
    within: float = 0
    choices: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    option_words: Mapping[str, str] = field(default_factory=dict)


def _default(options: Settings) -> dict[str, Settings]:
    return {"the default model": {}}


def _short(options: Settings) -> dict[str, Settings]:
    settings = {
        "max_length": TRAINED_TO,
        "max_positions": ASKED_TO + 1,
        "positions": options["positions"],
    }
    return {f"trained to {TRAINED_TO}": settings}


STOPS = {
    "stop-1": Stop(
        "Watch it learn",
        "The model reads up to ten digits and has to write them backwards. It begins with random weights and is never told a rule: it sees "
        "examples, 128 at a time, and every update makes its last answers a little less wrong. An answer counts as right when every symbol "
        "of it is.",
        "Train it, and watch the curve.",
        "At which step will it answer half of the held-out sequences exactly right?",
        NUMBER, _default, "crossing", 0, 200, "step", 20,
    ),
    "stop-2": Stop(
        "See where it looks",
        "Cross-attention is how the decoder reads the source while it writes: for every symbol of the answer, each head spreads a weight "
        "of one over the positions of the source. Rows below are what is being written, columns what is looked at.",
        "Type digits of your own, and think of the first symbol of the answer.",
        "While the first symbol of the answer is written, which position of the source gets most of the weight, on average over all "
        "cross-attention heads? The first symbol is position 1; behind the last one stands EOS.",
        NUMBER, _default, "first_look", 1, LONGEST_TEXT + 1, "position", 0,
        options={"text": "3 1 4 1 5"}, option_words={"text": "Sequence"},
    ),
    "stop-3": Stop(
        "Take the positions away",
        "Attention compares vectors; it does not know which came first. What tells the model where a symbol stands is a position vector "
        "that is added to it. Here the same model is trained without any.",
        "Predict what is lost, then train it.",
        "What will the answers be like?",
        CHOICE, lambda _: {"with positions": {}, "without positions": {"positions": "none"}}, "without_positions",
        choices={
            "nothing": "as good as before",
            "order": "mostly the right symbols, mostly in the wrong order",
            "both": "mostly not even the right symbols",
        },
    ),
    "stop-4": Stop(
        "One head against four",
        "Several heads look at several places at once; one head of the same width has more numbers to do it with. Both models below have "
        "the same number of weights.",
        "Predict which is ahead, then train both.",
        "Which one reaches 99 % exact match in fewer steps?",
        CHOICE, lambda _: {"four heads": {}, "one head": {"n_heads": 1}}, "sooner",
        choices={"four heads": "four heads", "one head": "one head", "same": "neither: at most 10 steps apart, or not at all"},
    ),
    "stop-5": Stop(
        "Change the learning rate on the way",
        "The learning rate is the size of an update. A constant one stays as large at the end as it was at the beginning; a cosine lets it "
        "fall, from long strides to fine corrections.",
        "Predict which ends lower, then train both.",
        "Which schedule ends with the lower training loss, over the last 20 steps?",
        CHOICE, lambda _: {"cosine": {}, "constant": {"schedule": "constant"}}, "lower_loss",
        choices={"cosine": "the cosine", "constant": "the constant one", "same": "neither: less than a tenth apart"},
    ),
    "stop-6": Stop(
        "Switch heads off",
        "A picture of attention shows where a head looks, not what for. What it is worth shows when it is gone: its output is set to zero, "
        "and the same sequences are asked again. The model has 24 heads of three kinds.",
        "Predict where the model is most easily hurt, then switch off every head, one at a time.",
        "Of which kind is the head whose loss costs the right answers most of their probability?",
        CHOICE, _default, "most_missed",
        choices={
            "encoder": "encoder self-attention: the source looks at itself",
            "decoder": "decoder self-attention: the answer looks at what is written",
            "cross": "cross-attention: the answer looks at the source",
        },
    ),
    "stop-7": Stop(
        "Train short, test long",
        f"This model sees sequences of up to {TRAINED_TO} digits and is then asked longer ones, to {ASKED_TO}. Whether it has learned to "
        "reverse, or to reverse what it has seen, depends on how it is told positions.",
        "Choose how positions are told, predict how far it gets, then train and ask it.",
        f"At which length does exact match first fall below 50 %? Write {ASKED_TO + 1} for: at none up to {ASKED_TO}.",
        NUMBER, _short, "falls_at", 1, ASKED_TO + 1, "length", 1,
        options={"positions": "learned"}, option_words={"positions": "Positions"},
    ),
    "stop-8": Stop(
        "Teach it doubt",
        "With label smoothing the target is not one symbol but nearly one: here a tenth of the probability is spread over all 13 tokens of "
        "the vocabulary. The model is trained towards being less than sure.",
        "Predict how sure it will be, then train it with and without.",
        "Trained with label smoothing 0.1, how probable will it hold the symbol it chooses, on average?",
        NUMBER, lambda _: {"without smoothing": {}, "with smoothing": {"label_smoothing": 0.1}}, "sureness", 0, 100, "%", 3,
    ),
}  # fmt: skip


def find(name: object) -> Stop:
    """The stop of this name.

    Raises:
        SettingError: for another name.
    """
    if not isinstance(name, str) or name not in STOPS:
        raise SettingError("stop", f"stop is {shown(name)}; choose one of {', '.join(STOPS)}")
    return STOPS[name]


def checked_options(stop: Stop, given: object) -> Settings:
    """The options of a stop out of what a page sends, with the usual value for what is missing, and a seed.

    Raises:
        SettingError: naming the option.
    """
    given = given if isinstance(given, dict) else {}
    seed = given.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise SettingError(
            "seed", f"seed is {shown(seed)}; it must be a whole number from 0 to 2,147,483,647"
        )
    options: Settings = {name: given.get(name, usual) for name, usual in stop.options.items()}
    if "positions" in options and options["positions"] not in SCHEMES:
        raise SettingError(
            "positions",
            f"positions is {shown(options['positions'])}; choose one of {', '.join(SCHEMES)}",
        )
    if "text" in options:
        options["text"] = _checked_text(options["text"])
    return options | {"seed": seed}


def _checked_text(text: object) -> str:
    if not isinstance(text, str) or len(text) > 100:
        raise SettingError(
            "text", f"the sequence is {shown(text)}; type 1 to {LONGEST_TEXT} digits"
        )
    try:
        n = len(Vocabulary("0123456789").encode(text))
    except UnknownSymbol as error:
        raise SettingError("text", str(error)) from None
    if not 1 <= n <= LONGEST_TEXT:
        raise SettingError("text", f"the sequence has {n} symbols; type 1 to {LONGEST_TEXT} digits")
    return text


def checked_prediction(stop: Stop, given: object) -> float | str:
    """A prediction out of what a page sends.

    Raises:
        SettingError: for none, or one that the stop does not take.
    """
    if stop.kind == CHOICE:
        if not isinstance(given, str) or given not in stop.choices:
            raise SettingError(
                "prediction", "choose what you expect first; it is compared with what is measured"
            )
        return given
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not stop.low <= given <= stop.high
    ):
        told = "" if given is None else f"your prediction is {shown(given)}; "
        raise SettingError(
            "prediction",
            f"{told}write a number from {stop.low} to {stop.high} first; it is compared with what is measured",
        )
    return given


def configs(
    stop: Stop, options: Settings, base: Mapping[str, Any] | None = None
) -> dict[str, RunConfig]:
    """The runs of a stop by what they are called. `base`: settings that lie beneath those of the stop."""
    seed = {"seed": options["seed"]}
    return {
        label: RunConfig.from_fields({**(base or {}), **settings, **seed})
        for label, settings in stop.trains(options).items()
    }


def is_right(stop: Stop, prediction: float | str, answer: float | str | None) -> bool:
    """Whether a prediction is what was measured, as near as the stop asks for. Where nothing was to be measured, none is."""
    if stop.kind == CHOICE or answer is None:
        return answer is not None and prediction == answer
    return abs(float(prediction) - float(answer)) <= stop.within
