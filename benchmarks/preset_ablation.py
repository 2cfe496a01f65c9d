"""Ablation of the fast preset: the same run without one of its settings."""

from __future__ import annotations

from typing import Any

from .accuracy import Setting, table
from .accuracy import measure as measure_settings

ABLATIONS: dict[str, dict[str, Any]] = {
    "nothing (the fast preset)": {},
    "pre-norm (post-norm instead)": {"norm_placement": "post"},
    "position_std of 1.2 (1.0 instead)": {"position_std": 1.0},
    "learned positions (sine waves instead)": {"position_type": "sinusoidal"},
    "learned positions (sine waves times 3 instead)": {
        "position_type": "sinusoidal",
        "sinusoidal_scale": 3.0,
    },
    "an embedding for each side (shared instead)": {"share_embeddings": True},
    "a separate output layer (tied instead)": {"tie_output_embeddings": True},
    "training without dropout (0.1 instead)": {"dropout": 0.1},
    "Muon (Adam at 6e-3 instead)": {"optimizer": "adam", "learning_rate": 6e-3},
    "a momentum of 0.8 (0.9 instead)": {"momentum": 0.9},
    "averaged weights": {"weight_averaging": False},
    "warm-up": {"warmup_steps": 0},
    "the falling learning rate (constant instead)": {"lr_schedule": "constant"},
    "clipping": {"max_grad_norm": 0.0},
}
SETTINGS = tuple(
    Setting(f"{lengths}: {name}", 3, None, "fast", {**fields, "min_length": low})
    for lengths, low in (("length 10", 10), ("lengths 1 to 10", 1))
    for name, fields in ABLATIONS.items()
)


def measure() -> list[dict[str, Any]]:
    return measure_settings(SETTINGS, "ingredients")


__all__ = ["measure", "table"]
