"""Prepared questions: an experiment each, with the sentence that says why one would ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from playground.models.config import SettingError
from playground.runs.run import fingerprint

from .experiment import GRID, LENGTHS, Experiment

MIXED: dict[str, Any] = {"task": "reverse", "min_length": 1, "max_length": 10}
LONG = MIXED | {"steps": 600, "decay_steps": 600}


@dataclass(frozen=True)
class Question:
    """A question as a person asks it, why it is worth asking, and the experiment that answers it."""

    title: str
    why: str
    base: dict[str, Any]
    grid: dict[str, list[Any]]
    kind: str = GRID
    seeds: tuple[int, ...] = (0, 1, 2)


QUESTIONS = {
    "positions": Question(
        "Which positions reach length 50?",
        "Trained on 1 to 10 symbols, asked up to 50: a learned table has rows there that no step trained, the others at least have "
        "something to say.",
        MIXED | {"steps": 1000, "decay_steps": 1000, "eval_every": 50},
        {"positions": ["learned", "sinusoidal", "rope", "alibi", "t5"]},
        LENGTHS,
    ),
    "heads": Question(
        "One head or four?",
        "The heads share d_model between them, so the number of parameters stays the same: what is bought is looking at several places "
        "at once.",
        LONG,
        {"n_heads": [1, 2, 4]},
    ),
    "warm-up": Question(
        "What does warm-up buy?",
        "With the norm after each sublayer the first gradients are large; a learning rate that rises slowly is said to be what "
        "post-norm needs and pre-norm can do without.",
        LONG,
        {"norm": ["pre", "post"], "warmup": [0, 20, 100]},
    ),
    "norm": Question(
        "Pre or post norm?",
        "The paper normalises after each sublayer, nearly everybody since before it.",
        LONG,
        {"norm": ["pre", "post"]},
    ),
    "learning-rate": Question(
        "How large a step?",
        "Too small is slow, too large does not arrive: the same model at rates from 0.0005 to 0.03.",
        LONG,
        {"learning_rate": [5e-4, 2e-3, 6e-3, 1.5e-2, 3e-2]},
    ),
    "size": Question(
        "Deeper or wider?",
        "Two ways to spend parameters on the same task.",
        LONG,
        {"n_layers": [1, 2, 3], "d_model": [32, 64]},
    ),
    "length": Question(
        "What does a longer sequence cost?",
        "Each further symbol is one more that must be right: steps to 99 % as the longest sequence grows.",
        {"task": "reverse", "min_length": 1, "steps": 1000, "decay_steps": 1000},
        {"max_length": [5, 10, 15]},
    ),
    "recurrent": Question(
        "Where do recurrent models break?",
        "The road to the transformer on one task: a state that carries everything, gates that keep it, attention that need not carry it; "
        "and where each breaks as sequences outgrow training.",
        MIXED,
        {
            "variant": [
                {"family": "recurrent", "cell": "rnn", "alignment": "none"},
                {"family": "recurrent", "cell": "lstm", "alignment": "none"},
                {"family": "recurrent", "cell": "gru", "alignment": "none"},
                {"family": "recurrent", "cell": "gru", "alignment": "additive"},
                {"family": "recurrent", "cell": "gru", "alignment": "dot"},
                {"family": "transformer", "steps": 1000, "decay_steps": 1000},
            ]
        },
        LENGTHS,
    ),
}


def spec(name: str) -> dict[str, Any]:
    """What `Laboratory.begin` takes to answer a question.

    Raises:
        SettingError: for an unknown question.
    """
    if name not in QUESTIONS:
        raise SettingError(
            "question", f"question is {name!r}; choose one of {', '.join(QUESTIONS)}"
        )
    asked = QUESTIONS[name]
    times = {"times": 3} if name == "recurrent" else {}
    return {
        "name": name,
        "question": asked.title,
        "base": dict(asked.base),
        "grid": dict(asked.grid),
        "kind": asked.kind,
        "seeds": list(asked.seeds),
        **times,
    }


def questions() -> list[dict[str, Any]]:
    """The prepared questions as plain JSON: name, title, why, spec, runs. `missing` is "" where everything that a question asks for
    is there, else the sentence that says what is not."""
    told = []
    for name, asked in QUESTIONS.items():
        line: dict[str, Any] = {
            "name": name,
            "title": asked.title,
            "why": asked.why,
            "spec": spec(name),
            "runs": 0,
            "missing": "",
        }
        try:
            line["runs"] = Experiment(owner=fingerprint("nobody"), **spec(name)).n_runs
        except SettingError as error:
            line["missing"] = str(error)
        told.append(line)
    return told
