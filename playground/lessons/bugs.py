"""Known bugs of transformer tutorials, each as one changed line of this source.

bugs.toml defines them; bug_injection.py builds the models. The correct version that the page
displays is the source that runs everywhere else, so the bug is the only difference.
"""

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from playground.common import messages
from playground.common.format import format_percent
from playground.common.validation import Definition, read_definitions
from playground.models.config_fields import ConfigError, short_repr

RANDOM_BUG = "random"
FIRST_SEED = 14  # of the first random bug: a missing causal mask, which raises no error

# Small enough to train the correct and the buggy copy side by side within seconds.
BUG_SETTINGS: Mapping[str, Any] = {
    "task": "reverse",
    "min_length": 1,
    "max_length": 6,
    "d_model": 32,
    "n_heads": 2,
    "n_layers": 2,
    "d_ff": 64,
    "batch_size": 64,
    "max_steps": 240,
    "lr_decay_steps": 240,
    "eval_every": 1_000_000,
    "eval_size": 64,
    "num_threads": 1,
    "device": "cpu",
}
STEPS_RANGE = (20, 1000)  # the range that a link can request


class Bug(Definition):
    """A bug in one line of the source.

    location     the function that contains it: "module:function" or "module:Class.method"
    origin       where such a bug occurs
    explanation  the effect of the bug, and how to find it
    settings     settings that make the bug visible, in addition to `BUG_SETTINGS`
    """

    title: str
    location: str
    correct_line: str
    buggy_line: str
    origin: str
    explanation: str
    settings: Mapping[str, Any] = {}


BUGS = read_definitions(Path(__file__).with_suffix(".toml"), Bug)


def resolve_bug(name: object, seed: int) -> str:
    """Return the bug that a link requests, or that the seed chooses. Raises ConfigError."""
    if name == RANDOM_BUG:
        return random.Random(seed).choice(sorted(BUGS))
    if not isinstance(name, str) or name not in BUGS:
        names = (*BUGS, RANDOM_BUG)
        raise ConfigError("bug", messages.choose_one_of("bug", short_repr(name), names))
    return name


def hint(result: Mapping[str, Any]) -> str:
    """Return a hint for a wrong guess, from the most notable of the measurements."""
    correct, buggy = result["correct"], result["buggy"]
    if failure := buggy["failure"]:
        return (
            f"Python raised an error in line {failure['line']} of {failure['file']}, "
            f"after {failure['step']} steps. Read the last line of the traceback: which "
            "shapes does it report?"
        )
    if buggy["loss"] == correct["loss"]:
        return (
            "Loss and scores are the same to the last digit, so both models "
            "compute the same results: check what they store."
        )
    if buggy["teacher_forced"] - buggy["free_running"] > 0.5:
        return (
            f"With teacher forcing it predicts {format_percent(buggy['teacher_forced'])} "
            "of the sequences correctly, free-running "
            f"{format_percent(buggy['free_running'])}: what does it have in the "
            "first case that it lacks in the second?"
        )
    tokens = result["vocab_size"]
    if buggy["loss"] > 0.9 * math.log(tokens):
        return (
            f"Its loss, {buggy['loss']:.2f}, is that of guessing among {tokens} tokens, "
            f"{math.log(tokens):.2f}: it learns nothing at all."
        )
    return (
        f"It learns, but ends at a loss of {buggy['loss']:.2f} against {correct['loss']:.4f}. Of "
        f"its outputs {format_percent(buggy['free_running'])} are correct, and "
        f"{format_percent(buggy['multiset_match'])} have the correct tokens in any order. "
        "Which of the two did it fail to learn, and how far?"
    )
