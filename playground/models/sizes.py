"""Sizes of the families beside the encoder-decoder. No torch in here: forms and command lines read it too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .config import ModelConfig


@dataclass(frozen=True)
class EncoderOnlyConfig(ModelConfig):
    """One stack of encoder layers over the source, and a symbol read off at each place (as in BERT; Devlin et al. 2019)."""

    unused: ClassVar[frozenset[str]] = frozenset({"share_embeddings", "tie_output"})

    def parameter_count(self) -> int:
        d = self.d_model
        attention = 4 * d * d + (4 * d if self.attention_bias else 0)
        layers = self.n_layers * (attention + 2 * d * self.d_ff + self.d_ff + d + 4 * d)
        positions = self.max_positions * d if self.positions == "learned" else 0
        return layers + (2 * d if self.norm == "pre" else 0) + self.source_vocabulary * d + positions + self.target_vocabulary * (d + 1)
