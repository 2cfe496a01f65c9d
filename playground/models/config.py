"""Sizes and options of the transformer, validated in one place.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import dataclass

from .config_fields import ConfigError, config_field
from .parameter_count import count_stack
from .stack_config import StackConfig


@dataclass(frozen=True)
class ModelConfig(StackConfig):
    """An encoder-decoder transformer as in "Attention Is All You Need" (Vaswani et al. 2017).

    Options add later variants. The defaults learn the playground's tasks fast: pre-norm, learned
    positions, separate embeddings for source and target, no dropout (benchmarks/RESULTS.md measures
    each choice).
    """

    randomized_range: int = config_field(
        0,
        "Randomized positions only: the number of positions to sample from; 0 means four times "
        "max_positions.",
        low=0,
        high=1_000_000,
    )
    share_embeddings: bool = config_field(False, "Source and target share one table of embeddings.")
    tie_output_embeddings: bool = config_field(
        False, "The output layer uses the target's token embeddings as its weights."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                "share_embeddings",
                f"share_embeddings needs equal vocabularies, but source_vocab_size is "
                f"{self.source_vocab_size} and target_vocab_size {self.target_vocab_size}; make "
                f"them equal or turn share_embeddings off",
            )
        if self.position_type == "randomized" and self.n_position_vectors < self.max_positions:
            raise ConfigError(
                "randomized_range",
                f"randomized_range is {self.randomized_range}, which is less than max_positions "
                f"{self.max_positions}; make it at least as large, or 0",
            )

    @property
    def n_position_vectors(self) -> int:
        if self.position_type == "randomized":
            return self.randomized_range or 4 * self.max_positions
        return super().n_position_vectors

    def parameter_count(self) -> int:
        """Count the trainable parameters of the model without building it."""
        n_tables = self.target_vocab_size
        n_tables += 0 if self.share_embeddings else self.source_vocab_size
        n_tables += 0 if self.tie_output_embeddings else self.target_vocab_size
        n_tables += 0 if self.position_type == "sinusoidal" else 2 * self.n_position_vectors
        output_bias = self.target_vocab_size if self.has_output_bias else 0
        stacks = count_stack(self) + count_stack(self, has_cross_attention=True)
        return stacks + n_tables * self.d_model + output_bias


def paper_base_config(vocab_size: int = 30_000, max_positions: int = 5_000) -> ModelConfig:
    """Return the paper's base model (Vaswani et al. 2017, table 3).

    The paper also uses one table for source, target and output (section 3.4). Here these are
    `share_embeddings` and `tie_output_embeddings`. They are off, because each side has its own
    vocabulary.
    """
    return ModelConfig(
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
