"""Presets: named combinations of settings with a description."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from playground.architectures import ARCHITECTURES
from playground.models.config import TransformerConfig
from playground.models.config_fields import ConfigError, short_repr

from .run_config import RunConfig, accepted_settings


@dataclass(frozen=True)
class Preset:
    """Settings that differ from the defaults; the user chooses all others."""

    title: str
    description: str
    settings: Mapping[str, Any] = field(default_factory=dict)


# What the presets of the paper and of tutorials have in common.
POST_NORM = {
    "norm_placement": "post",
    "position_type": "sinusoidal",
    "share_embeddings": False,
    "dropout": 0.1,
    "batch_size": 64,
    "eval_every": 25,
}
PRESETS = {
    "fast": Preset(
        "Fast",
        "Learns within seconds: pre-norm, learned positional embeddings, the Muon optimizer and "
        "averaged weights.",
        ARCHITECTURES["transformer"].overrides,
    ),
    "adam": Preset(
        "Adam",
        "The same model with Adam and a learning rate that decays along a cosine, without averaged "
        "weights. On the reversal of 1 to 10 digits it needs 140 to 190 steps to an exact match of "
        "99.9 % (five seeds); Fast needs 70 to 90 steps (ten seeds).",
    ),
    "one-head": Preset(
        "One head",
        "One layer with one head: small enough to interpret every figure. With few parameters, it "
        "needs more steps at a lower learning rate.",
        {
            **ARCHITECTURES["transformer"].overrides,
            "n_layers": 1,
            "n_heads": 1,
            "muon_lr_ratio": 2.5,
            "max_steps": 600,
            "lr_decay_steps": 600,
        },
    ),
    "paper": Preset(
        "The paper",
        "As in Vaswani et al. 2017, at this size: post-norm, sinusoidal positions, dropout, label "
        "smoothing. The paper has one matrix for both embeddings and the output layer; here each "
        "has its own. The 2,000 steps are the first half of the warm-up, so the learning rate only "
        "rises.",
        {
            **POST_NORM,
            "label_smoothing": 0.1,
            "lr_schedule": "noam",
            "learning_rate": 1.0,
            "warmup_steps": 4000,
            "max_steps": 2000,
        },
    ),
    "tutorial": Preset(
        "Tutorial",
        "As many tutorials build and train it: post-norm, sinusoidal positions, dropout, a "
        "constant learning rate. It learns slowly.",
        {
            **POST_NORM,
            "lr_schedule": "constant",
            "learning_rate": 1e-3,
            "warmup_steps": 0,
            "adam_beta2": 0.999,
            "adam_eps": 1e-8,
            "max_steps": 3000,
        },
    ),
    "bert": Preset(
        "Matched parameters: BERT",
        "BERT's architecture with random weights and about as many parameters as the default "
        "transformer: five bidirectional layers.",
        {"architecture": "bert", **ARCHITECTURES["bert"].overrides, "n_layers": 5},
    ),
    "gpt2": Preset(
        "Matched parameters: GPT-2",
        "GPT-2's architecture with random weights and about as many parameters as the default "
        "transformer: five causal layers.",
        {"architecture": "gpt2", **ARCHITECTURES["gpt2"].overrides, "n_layers": 5},
    ),
    "bart": Preset(
        "Matched parameters: BART",
        "BART's architecture with random weights and about as many parameters as the default "
        "transformer: an encoder and a decoder.",
        {"architecture": "bart", **ARCHITECTURES["bart"].overrides},
    ),
}


def preset_config(name: str, values: Mapping[str, Any] | None = None) -> RunConfig:
    """Build the run of a preset, with `values` on top. Raises ValueError.

    If these choose another architecture, the settings of the preset that it lacks are left out.
    """
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}; choose one of {', '.join(PRESETS)}")
    settings, values = PRESETS[name].settings, values or {}
    if values.get("architecture") in tuple(ARCHITECTURES):
        settings = accepted_settings(settings, values["architecture"])
    return RunConfig.from_flat({**settings, **values})


def architecture_preset(architecture: str, **values: Any) -> RunConfig:
    """Build a run of an architecture with its default settings, with `values` on top."""
    spec = ARCHITECTURES.get(architecture)
    overrides = spec.overrides if spec else {}
    return RunConfig.from_flat({**overrides, **values, "architecture": architecture})


def requested_config(preset: str, values: Mapping[str, Any]) -> RunConfig:
    """Build the run that a user describes, over a preset or the defaults of the architecture.

    Raises ValueError for an unknown preset, or one of another architecture, and for invalid
    settings or settings without effect.
    """
    named = values.get("architecture")
    of_preset = PRESETS[preset].settings.get("architecture") if preset in PRESETS else None
    if of_preset and named not in (None, of_preset):
        raise ConfigError(
            "preset",
            f"preset {preset} is of the architecture {of_preset}, but architecture is "
            f"{short_repr(named)}; leave one of them out",
        )
    if preset or named is None:
        config = preset_config(preset or "fast", values)
    else:
        config = architecture_preset(**values)
    config.training.check_effects()
    return config


def paper_base_config(vocab_size: int = 30_000, max_positions: int = 5_000) -> TransformerConfig:
    """Return the paper's base model (Vaswani et al. 2017, table 3).

    Each side has its own vocabulary and table; the paper has one, also for the output (section
    3.4).
    """
    return TransformerConfig(
        d_model=512,
        n_heads=8,
        n_layers=6,
        d_ff=2048,
        dropout=0.1,
        norm_placement="post",
        position_type="sinusoidal",
        source_vocab_size=vocab_size,
        target_vocab_size=vocab_size,
        max_positions=max_positions,
    )
