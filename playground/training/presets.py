"""Named starting points: settings that go together, each with what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.families import FAMILIES

from .config import RunConfig


@dataclass(frozen=True)
class Preset:
    """Settings that differ from the defaults. What a preset does not name (task, lengths, seed) is left to the visitor."""

    title: str
    sentence: str
    settings: Mapping[str, Any] = field(default_factory=dict)


PRESETS = {
    "fast": Preset(
        "Fast",
        "Learns within seconds: pre-norm, learned positions as loud as the symbols, a learning rate that falls.",
    ),
    "one-head": Preset(
        "One head",
        "One layer with one head: small enough that every picture can be read.",
        {"n_layers": 1, "n_heads": 1, "steps": 600, "decay_steps": 600},
    ),
    "paper": Preset(
        "The paper's recipe",
        "As in Vaswani et al. 2017, at this size: post-norm, sine waves, dropout, label smoothing, 4,000 steps of warm-up; untied.",
        {
            "norm": "post", "positions": "sinusoidal", "share_embeddings": False, "dropout": 0.1, "label_smoothing": 0.1,
            "batch_size": 64, "schedule": "noam", "learning_rate": 1.0, "warmup": 4000, "steps": 2000, "eval_every": 25,
        },
    ),
    "write-up": Preset(
        "As in the write-up",
        "As the usual tutorial builds and trains it: post-norm, sine waves, dropout, a constant learning rate. It takes its time.",
        {
            "norm": "post", "positions": "sinusoidal", "share_embeddings": False, "dropout": 0.1,
            "batch_size": 64, "schedule": "constant", "learning_rate": 1e-3, "warmup": 0,
            "beta2": 0.999, "epsilon": 1e-8, "steps": 3000, "eval_every": 25,
        },
    ),
}  # fmt: skip


def preset_config(name: str, values: Mapping[str, Any] | None = None) -> RunConfig:
    """The run that a preset stands for, with `values` laid over it.

    Raises:
        ValueError: for an unknown preset; SettingError (a ValueError) for settings that do not fit.
    """
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}; choose one of {', '.join(PRESETS)}")
    return RunConfig.from_fields({**PRESETS[name].settings, **(values or {})})


def family_config(family: str, **values: Any) -> RunConfig:
    """A run of a family as it learns well, with `values` laid over its recipe.

    Raises:
        SettingError: for an unknown family, or settings that do not fit.
    """
    recipe = FAMILIES[family].recipe if family in FAMILIES else {}
    return RunConfig.from_fields({**recipe, **values, "family": family})
