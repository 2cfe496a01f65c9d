"""Define the lessons: their runs and a question that is answered by measurement.

This file contains no answers. A lesson names the settings to train, the function of measures.py
that evaluates the runs, and the tolerance of a prediction. This module does not import torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.common import messages
from playground.models.config_fields import ConfigError, short_repr
from playground.tasks.vocabulary import UnknownSymbolError, Vocabulary
from playground.training.config import RunConfig

Settings = dict[str, Any]
NUMBER, CHOICE = "number", "choice"
TRAIN_MAX_LENGTH, EVAL_MAX_LENGTH = 5, 20  # tokens, in the lesson on length generalization
MAX_TEXT_LENGTH = 10  # tokens
MAX_OPTION_LENGTH = 200  # characters
EXAMPLE_TEXT = "3 1 4 1 5"
POSITIONS = ("learned", "sinusoidal", "rope", "alibi", "t5")
SCHEMES = {name: name for name in POSITIONS}


@dataclass(frozen=True)
class Lesson:
    """One lesson.

    runs            a function from the options to the settings of each run, by label
    measure         the name of the function of measures.py that measures the result
    low, high       for a number: the accepted range
    tolerance       for a number: the largest error of a correct prediction
    choices         for a choice: the accepted predictions, each with its label
    options         the options that the user can change, each with its default
    option_labels   the labels of the options
    has_translation whether a pretrained encoder-decoder translates the option `sentence`; the
                    measurement gets the result as the option `translation`
    sources         the section of the notebook on the same subject, by its heading
    """

    title: str
    introduction: str
    instruction: str
    question: str
    kind: str
    runs: Callable[[Settings], dict[str, Settings]]
    measure: str
    low: int = 0
    high: int = 0
    unit: str = ""
    tolerance: float = 0
    choices: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    option_labels: Mapping[str, str] = field(default_factory=dict)
    has_translation: bool = False
    sources: str = ""


def _default_run(options: Settings) -> dict[str, Settings]:
    return {"preset Adam": {}}


def _short_run(options: Settings) -> dict[str, Settings]:
    settings = {
        "max_length": TRAIN_MAX_LENGTH,
        "max_positions": EVAL_MAX_LENGTH + 1,
        "position_type": options["positions"],
    }
    return {f"trained to {TRAIN_MAX_LENGTH}": settings}


LESSONS = {
    "learning": Lesson(
        "Watch it learn",
        "The model reads up to ten digits and has to output them in reverse order. It "
        "starts with random weights and receives no rule, only examples. Each training step uses "
        "128 of them and changes the weights to reduce the error. The settings are those of the "
        "preset Adam in the Train tab. Held-out sequences are not used for training. An output "
        "counts as correct only when every token in it is correct.",
        "Train the model and watch the curve.",
        "At which step will the model first generate half of the held-out sequences exactly right?",
        NUMBER,
        _default_run,
        "half_accuracy_step",
        0,
        200,
        "step",
        20,
    ),
    "attention": Lesson(
        "See what it attends to",
        "The decoder generates the output. Through cross-attention it reads the source, which is "
        "the input sequence. For every output token, each attention head assigns weights to the "
        "source positions; they sum to 1. Each output token has a query vector, and each source "
        "position has a key vector. The larger their dot product, the larger the weight. In the "
        "figure, rows are output tokens (queries) and columns are source positions (keys).",
        "Enter your own digits, and think about the first output token.",
        "When the model generates the first output token, which source position receives "
        "the largest attention weight, averaged over all cross-attention heads? The "
        "first token is at position 1; EOS (end of sequence) follows the last one.",
        NUMBER,
        _default_run,
        "first_token_attention",
        1,
        MAX_TEXT_LENGTH + 1,
        "position",
        0,
        options={"text": EXAMPLE_TEXT},
        option_labels={"text": "Sequence"},
        sources="Six steps",
    ),
    "no-positions": Lesson(
        "Remove positional encoding",
        "Attention compares vectors; their order has no effect on it. This model "
        "therefore adds a position vector to each token embedding. Here you train the same model "
        "without position vectors. Only the causal mask of the decoder, which hides later tokens, "
        "still depends on the order.",
        "Predict what the model loses, then train it.",
        "What will the outputs look like?",
        CHOICE,
        lambda _: {"with positions": {}, "without positions": {"position_type": "none"}},
        "without_positions",
        choices={
            "nothing": "as good as before",
            "order": "mostly the right tokens, mostly in the wrong order",
            "both": "mostly not even the right tokens",
        },
        sources="Word order",
    ),
    "heads": Lesson(
        "One head against four",
        "Each head has its own attention weights, so several heads can use several "
        "attention patterns for the same token. A single head has one pattern, but compares "
        "vectors in four times as many dimensions. Both models have the same number of parameters.",
        "Predict which model learns faster, then train both.",
        "Which one reaches 99 % exact match in fewer steps?",
        CHOICE,
        lambda _: {"four heads": {}, "one head": {"n_heads": 1}},
        "faster_run",
        choices={
            "four heads": "four heads",
            "one head": "one head",
            "same": "neither: at most 10 steps apart, or neither reaches it",
        },
        sources="Four kinds of attention",
    ),
    "ablation": Lesson(
        "Ablate heads",
        "A plot of attention shows what a head attends to, but not what the head is "
        "needed for. An ablation measures that: it sets the output of the head to zero "
        "and runs the same sequences again. The model has 24 heads of three kinds.",
        "Predict which kind of head the model depends on most, then ablate every head, "
        "one at a time.",
        "Which kind contains the most important head, the one whose ablation lowers the "
        "probability of the correct tokens most?",
        CHOICE,
        _default_run,
        "rank_heads",
        choices={
            "cross": "cross-attention: the output attends to the source",
            "encoder": "encoder self-attention: the source attends to itself",
            "decoder": "decoder self-attention: the output attends to the tokens before it",
        },
    ),
    "lengths": Lesson(
        "Length generalization",
        f"This model is trained on sequences of up to {TRAIN_MAX_LENGTH} digits and then tested on "
        f"longer ones, up to {EVAL_MAX_LENGTH}. It may have learned to reverse any sequence, or "
        "only sequences of the lengths in training. This depends on its position encoding, too. "
        "Learned and sinusoidal encodings add a vector for each position. In rope, alibi and t5, "
        "the distance between two positions changes their attention weight.",
        "Choose a position encoding, predict how far the model generalizes, then train "
        "and test it.",
        f"At which length does exact match first fall below 50 %? Enter {EVAL_MAX_LENGTH + 1} if "
        f"it stays at 50 % or above for all lengths up to {EVAL_MAX_LENGTH}.",
        NUMBER,
        _short_run,
        "failure_length",
        1,
        EVAL_MAX_LENGTH + 1,
        "length",
        1,
        options={"positions": "learned"},
        option_labels={"positions": "Positions"},
        sources="Sine waves for positions",
    ),
}

RECURRENT, ATTENTION, TRANSFORMER = "recurrent", "recurrent with attention", "transformer"
HISTORY_SETTINGS = {"max_steps": 400, "lr_decay_steps": 400}
RECURRENT_SETTINGS = {**HISTORY_SETTINGS, "architecture": "recurrent", "n_layers": 1}
SEQUENCE_OPTION = {"text": EXAMPLE_TEXT}
SEQUENCE_LABEL = {"text": "Sequence"}

# From recurrent networks to the transformer, with the same sequence in all of them.
LESSONS |= {
    "one-vector": Lesson(
        "Before attention: one vector",
        "Before transformers, a recurrent network read the source token by token. Its state after "
        "the last token is one vector of 64 numbers, whatever the length of the source. The "
        "decoder generates the output from this vector alone.",
        "Predict at which length one vector is no longer enough, then train the model on "
        "sequences of up to 10 digits.",
        "At which length does exact match first fall below 50 %? Enter 11 if it stays at 50 % or "
        "above for all lengths up to 10.",
        NUMBER,
        lambda _: {RECURRENT: {**RECURRENT_SETTINGS, "attention": "none"}},
        "bottleneck_length",
        1,
        11,
        "length",
        1,
        options=SEQUENCE_OPTION,
        option_labels=SEQUENCE_LABEL,
        sources="Recurrent cells",
    ),
    "read-again": Lesson(
        "Attention: read the source again",
        "With attention, the decoder receives more than the last state. For each output token, it "
        "compares its own state with every state of the encoder. Each comparison gives a score, "
        "and a softmax turns the scores into weights that sum to 1. The decoder then receives the "
        "weighted sum of the encoder states (Bahdanau, Cho and Bengio, 2015).",
        "Make a prediction, then train the model of the previous lesson, now with attention. All "
        "other settings are the same.",
        "What percentage of the longest sequences, those of 10 digits, does the model with "
        "attention generate exactly right?",
        NUMBER,
        lambda _: {
            RECURRENT: {**RECURRENT_SETTINGS, "attention": "none"},
            ATTENTION: {**RECURRENT_SETTINGS, "attention": "additive"},
        },
        "attention_gain",
        0,
        100,
        "%",
        10,
        options=SEQUENCE_OPTION,
        option_labels=SEQUENCE_LABEL,
        sources="One head",
    ),
    "only-attention": Lesson(
        "Only attention: the transformer",
        "A recurrent network reads the source in order: each state needs the state before it. The "
        "transformer keeps the attention and removes the recurrence. Self-attention connects all "
        "positions at once, and position vectors represent the order (Vaswani et al., 2017).",
        "Predict which model learns faster, then train both for 400 steps.",
        "Which one reaches 99 % exact match in fewer steps?",
        CHOICE,
        lambda _: {
            ATTENTION: {**RECURRENT_SETTINGS, "attention": "additive"},
            TRANSFORMER: HISTORY_SETTINGS,
        },
        "recurrent_or_transformer",
        choices={
            ATTENTION: "the recurrent network with attention",
            TRANSFORMER: "the transformer",
            "same": "neither: at most 10 steps apart, or neither reaches it",
        },
        options=SEQUENCE_OPTION,
        option_labels=SEQUENCE_LABEL,
        sources="The same task with other networks",
    ),
}

LESSONS |= {
    "pretrained": Lesson(
        "Cross-attention of a pretrained model",
        "T5 (Raffel et al., 2020) is an encoder-decoder, like your model. Its authors trained it "
        "on text from the web, and on tasks such as translation. To generate a word, a translator "
        "needs the source word that it translates. Your model needs the digit that it copies. The "
        "measurement compares the cross-attention heads of both models on one sequence each.",
        "The server downloads the pretrained model once. Choose a "
        "sentence whose translation keeps the order of the words.",
        "Averaged over all cross-attention heads of the pretrained model, where is the largest "
        "share of the attention?",
        CHOICE,
        _default_run,
        "pretrained_alignment",
        choices={
            "aligned": "on the translated token: within one position of it",
            "last": "on the last token: the end of the sentence",
            "elsewhere": "elsewhere: on other source tokens",
        },
        options={
            "pretrained": "google-t5/t5-small",
            "sentence": "translate English to German: The book is old and the story is long.",
        },
        option_labels={"pretrained": "Encoder-decoder", "sentence": "Sentence"},
        has_translation=True,
        sources="A pretrained encoder",
    ),
}


def find(name: object) -> Lesson:
    """Return the lesson with this name.

    Raises:
        ConfigError: when no lesson has this name.
    """
    if not isinstance(name, str) or name not in LESSONS:
        raise ConfigError("lesson", messages.choose_one_of("lesson", short_repr(name), LESSONS))
    return LESSONS[name]


def validate_options(lesson: Lesson, request: object) -> Settings:
    """Validate the options of a request and add the defaults and the seed.

    Raises:
        ConfigError: when an option is invalid; `field` names the option.
    """
    request = request if isinstance(request, dict) else {}
    seed = request.get("seed", 0)
    if type(seed) is not int or not 0 <= seed < 2**31:
        raise ConfigError("seed", messages.invalid_seed(short_repr(seed)))
    options: Settings = {
        name: request.get(name, default) for name, default in lesson.options.items()
    }
    if "positions" in options and options["positions"] not in SCHEMES:
        raise ConfigError(
            "positions",
            f"positions is {short_repr(options['positions'])}; choose one of {', '.join(SCHEMES)}",
        )
    if "text" in options:
        options["text"] = _validate_text(options["text"])
    for name in ("pretrained", "sentence"):  # the job that translates validates them further
        value = options.get(name, "")
        if not isinstance(value, str) or len(value) > MAX_OPTION_LENGTH:
            raise ConfigError(
                name,
                f"{name} is {short_repr(value)}; enter a text of at most {MAX_OPTION_LENGTH} "
                "characters",
            )
    return options | {"seed": seed}


def _validate_text(text: object) -> str:
    if not isinstance(text, str) or len(text) > 100:
        raise ConfigError(
            "text", f"the sequence is {short_repr(text)}; enter 1 to {MAX_TEXT_LENGTH} digits"
        )
    try:
        n = len(Vocabulary("0123456789").encode(text))
    except UnknownSymbolError as error:
        raise ConfigError("text", str(error)) from None
    if not 1 <= n <= MAX_TEXT_LENGTH:
        raise ConfigError(
            "text", f"the sequence has {n} tokens; enter 1 to {MAX_TEXT_LENGTH} digits"
        )
    return text


def validate_prediction(lesson: Lesson, prediction: object) -> float | str:
    """Validate the prediction of a request.

    Raises:
        ConfigError: when the prediction is missing or the lesson does not accept it.
    """
    if lesson.kind == CHOICE:
        if not isinstance(prediction, str) or prediction not in lesson.choices:
            raise ConfigError(
                "prediction", "enter your prediction first; it is compared with the measurement"
            )
        return prediction
    if (
        isinstance(prediction, bool)
        or not isinstance(prediction, int | float)
        or not lesson.low <= prediction <= lesson.high
    ):
        result = "" if prediction is None else f"your prediction is {short_repr(prediction)}; "
        raise ConfigError(
            "prediction",
            f"{result}enter a number from {lesson.low} to {lesson.high} first; it is compared "
            "with the measurement",
        )
    return prediction


def configs(
    lesson: Lesson, options: Settings, base: Mapping[str, Any] | None = None
) -> dict[str, RunConfig]:
    """Return the configuration of each run of a lesson, by its label.

    `base` contains defaults, which the settings of the lesson override.
    """
    seed = {"seed": options["seed"]}
    return {
        label: RunConfig.from_flat({**(base or {}), **settings, **seed})
        for label, settings in lesson.runs(options).items()
    }


def is_correct(lesson: Lesson, prediction: float | str, measured: float | str | None) -> bool:
    """Return whether a prediction agrees with the measured value, within the tolerance.

    No prediction is correct when there is no measured value.
    """
    if lesson.kind == CHOICE or measured is None:
        return measured is not None and prediction == measured
    return abs(float(prediction) - float(measured)) <= lesson.tolerance
