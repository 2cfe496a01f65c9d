"""Define the prepared experiments, each with its question and its motivation."""

import math
from dataclasses import dataclass
from typing import Any, TypedDict

from playground.models.config_fields import ConfigError

from .analysis import min_seeds
from .spec import DEFAULT_SEEDS, GRID, LENGTHS, MAX_RUNS, parse_experiment

BASE_SETTINGS: dict[str, Any] = {"task": "reverse", "min_length": 1, "max_length": 10}
LONG_SETTINGS = BASE_SETTINGS | {"max_steps": 600, "lr_decay_steps": 600}


@dataclass(frozen=True)
class ExperimentPreset:
    """A question, its motivation and the experiment that answers it."""

    title: str
    why: str
    base: dict[str, Any]
    grid: dict[str, list[Any]]
    kind: str = GRID


class ListedPreset(TypedDict):
    """A prepared experiment for JSON.

    `unavailable_reason` is "" when it can run, otherwise the reason why it cannot.
    """

    name: str
    title: str
    why: str
    spec: dict[str, Any]
    runs: int
    unavailable_reason: str


EXPERIMENT_PRESETS = {
    "positions": ExperimentPreset(
        "Which position encoding reaches length 50?",
        "The models train on 1 to 10 tokens and are tested on up to 50. Learned position vectors "
        "beyond length 10 are never trained; the other encodings are defined for every position.",
        BASE_SETTINGS | {"max_steps": 1000, "lr_decay_steps": 1000, "eval_every": 50},
        {"position_type": ["learned", "sinusoidal", "rope", "alibi", "t5"]},
        LENGTHS,
    ),
    "heads": ExperimentPreset(
        "One head or four?",
        "Each head has d_model / n_heads dimensions, so the number of parameters stays the "
        "same. With more heads, a layer has several attention patterns at once.",
        LONG_SETTINGS,
        {"n_heads": [1, 2, 4]},
    ),
    "warm-up": ExperimentPreset(
        "Does training need a warm-up?",
        "With the norm after each sublayer, the first gradients near the output are large. Xiong "
        "et al. (2020) report that post-norm models need a learning rate that rises slowly, and "
        "pre-norm models do not.",
        LONG_SETTINGS,
        {"norm_placement": ["pre", "post"], "warmup_steps": [0, 20, 100]},
    ),
    "norm": ExperimentPreset(
        "Pre or post norm?",
        "The paper, BERT and BART normalize after each sublayer. GPT-2, T5, LLaMA and most models "
        "since 2019 normalize before it.",
        LONG_SETTINGS,
        {"norm_placement": ["pre", "post"]},
    ),
    "learning-rate": ExperimentPreset(
        "Which learning rate?",
        "With a small learning rate, training is slow; with a large one, it may not "
        "converge. This experiment trains the same model at rates from 0.0005 to 0.03.",
        LONG_SETTINGS,
        {"learning_rate": [5e-4, 2e-3, 6e-3, 1.5e-2, 3e-2]},
    ),
    "size": ExperimentPreset(
        "Deeper or wider?",
        "More layers and wider layers both add parameters. This experiment compares them on the "
        "same task.",
        LONG_SETTINGS,
        {"n_layers": [1, 2, 3], "d_model": [32, 64]},
    ),
    "length": ExperimentPreset(
        "What does a longer sequence cost?",
        "Exact match counts a sequence only if every token is correct. This experiment "
        "measures the steps to 99 % exact match as the maximum length grows.",
        {"task": "reverse", "min_length": 1, "max_steps": 1000, "lr_decay_steps": 1000},
        {"max_length": [5, 10, 15]},
    ),
    "recurrent": ExperimentPreset(
        "Where do recurrent models break?",
        "Five recurrent models, two of them with attention, and a transformer learn the same task. "
        "The experiment measures the length at which each of them fails.",
        BASE_SETTINGS,
        {
            "variant": [
                {"architecture": "recurrent", "cell": "rnn", "attention": "none"},
                {"architecture": "recurrent", "cell": "lstm", "attention": "none"},
                {"architecture": "recurrent", "cell": "gru", "attention": "none"},
                {"architecture": "recurrent", "cell": "gru", "attention": "additive"},
                {"architecture": "recurrent", "cell": "gru", "attention": "dot"},
                {"architecture": "transformer", "max_steps": 1000, "lr_decay_steps": 1000},
            ]
        },
        LENGTHS,
    ),
}


def default_seeds(n_variants: int) -> list[int]:
    """Return five seeds, or as many as a difference between so many variants needs."""
    enough = max(len(DEFAULT_SEEDS), min_seeds(n_variants))
    return list(range(min(enough, MAX_RUNS // n_variants)))


def spec(name: str) -> dict[str, Any]:
    """Return the specification of a prepared experiment, for `ExperimentService.submit`.

    Raises:
        ConfigError: when the name is unknown.
    """
    if name not in EXPERIMENT_PRESETS:
        raise ConfigError(
            "question", f"question is {name!r}; choose one of {', '.join(EXPERIMENT_PRESETS)}"
        )
    preset = EXPERIMENT_PRESETS[name]
    times = {"times": 3} if name == "recurrent" else {}
    return {
        "name": name,
        "question": preset.title,
        "base": dict(preset.base),
        "grid": dict(preset.grid),
        "kind": preset.kind,
        "seeds": default_seeds(math.prod(map(len, preset.grid.values()))),
        **times,
    }


def list_presets() -> list[ListedPreset]:
    """Return the prepared experiments."""
    presets = []
    for name, preset in EXPERIMENT_PRESETS.items():
        line: ListedPreset = {
            "name": name,
            "title": preset.title,
            "why": preset.why,
            "spec": spec(name),
            "runs": 0,
            "unavailable_reason": "",
        }
        try:
            line["runs"] = parse_experiment(spec(name), owner="").n_runs
        except ConfigError as error:
            line["unavailable_reason"] = str(error)
        presets.append(line)
    return presets
