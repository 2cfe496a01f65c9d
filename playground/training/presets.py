"""Presets: named combinations of settings with a description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.architectures import ARCHITECTURES

from .config import RunConfig


@dataclass(frozen=True)
class Preset:
    """Settings that differ from the defaults; the user chooses all others."""

    title: str
    description: str
    settings: Mapping[str, Any] = field(default_factory=dict)


PRESETS = {
    "fast": Preset(
        "Fast",
        "Learns within seconds: pre-norm, learned positions at the scale of the token embeddings, "
        "cosine learning rate.",
    ),
    "one-head": Preset(
        "One head",
        "One layer with one head: small enough to interpret every figure.",
        {"n_layers": 1, "n_heads": 1, "steps": 600, "decay_steps": 600},
    ),
    "paper": Preset(
        "The paper",
        "As in Vaswani et al. 2017, at this size: post-norm, sinusoidal positions, dropout, label "
        "smoothing, 4,000 warm-up steps; output weights not tied.",
        {
            "norm": "post",
            "positions": "sinusoidal",
            "share_embeddings": False,
            "dropout": 0.1,
            "label_smoothing": 0.1,
            "batch_size": 64,
            "schedule": "noam",
            "learning_rate": 1.0,
            "warmup": 4000,
            "steps": 2000,
            "eval_every": 25,
        },
    ),
    "write-up": Preset(
        "Tutorial",
        "As most tutorials build and train it: post-norm, sinusoidal positions, dropout, a "
        "constant learning rate. It learns slowly.",
        {
            "norm": "post",
            "positions": "sinusoidal",
            "share_embeddings": False,
            "dropout": 0.1,
            "batch_size": 64,
            "schedule": "constant",
            "learning_rate": 1e-3,
            "warmup": 0,
            "beta2": 0.999,
            "epsilon": 1e-8,
            "steps": 3000,
            "eval_every": 25,
        },
    ),
    "bert": Preset(
        "Matched parameters: BERT",
        "BERT's architecture with random weights and about as many parameters as the default "
        "transformer: five bidirectional layers.",
        {"family": "bert", **ARCHITECTURES["bert"].overrides, "n_layers": 5},
    ),
    "gpt2": Preset(
        "Matched parameters: GPT-2",
        "GPT-2's architecture with random weights and about as many parameters as the default "
        "transformer: five causal layers.",
        {"family": "gpt2", **ARCHITECTURES["gpt2"].overrides, "n_layers": 5},
    ),
    "bart": Preset(
        "Matched parameters: BART",
        "BART's architecture with random weights and about as many parameters as the default "
        "transformer: an encoder and a decoder.",
        {"family": "bart", **ARCHITECTURES["bart"].overrides},
    ),
}


def preset_config(name: str, values: Mapping[str, Any] | None = None) -> RunConfig:
    """Build the run of a preset, with `values` on top.

    Raises:
        ValueError: for an unknown preset; ConfigError (a ValueError) for invalid settings.
    """
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}; choose one of {', '.join(PRESETS)}")
    return RunConfig.from_flat({**PRESETS[name].settings, **(values or {})})


def architecture_preset(family: str, **values: Any) -> RunConfig:
    """Build a run of an architecture with its default settings, with `values` on top.

    Raises:
        ConfigError: for an unknown architecture, or invalid settings.
    """
    overrides = ARCHITECTURES[family].overrides if family in ARCHITECTURES else {}
    return RunConfig.from_flat({**overrides, **values, "family": family})
