"""The settings of the other architectures whose code is published.

This file does not import torch, because forms and command lines use it too.
"""

from dataclasses import dataclass

from .config import AttentionConfig, BaseConfig, Shapes, linear
from .config_fields import config_field

GATES_PER_CELL = {"rnn": 1, "lstm": 4, "gru": 3}


@dataclass(frozen=True)
class TorchTransformerConfig(AttentionConfig):
    """Sizes of the encoder-decoder from PyTorch's own layers."""

    counts_from_first_column = True  # its positions

    norm_placement: str = config_field(
        "pre",
        "Layer norm before each sublayer (pre), or after the residual sum (post, the paper's).",
        choices=("pre", "post"),
    )

    def parameter_groups(self) -> dict[str, Shapes]:
        d = self.d_model
        final_norms: Shapes = [(d,)] * 4 if self.norm_placement == "pre" else []
        return {
            "source token embedding": [(self.source_vocab_size, d)],
            "source position vectors": [(self.max_positions, d)],
            "target token embedding": [(self.target_vocab_size, d)],
            "target position vectors": [(self.max_positions + 1, d)],
            "encoder": self.library_layers(),
            "decoder": self.library_layers(has_cross_attention=True) + final_norms,
            "output layer": linear(d, self.target_vocab_size),
        }


@dataclass(frozen=True)
class RecurrentConfig(BaseConfig):
    """Sizes of a recurrent encoder and decoder; d_model is the size of the hidden state."""

    cell: str = config_field(
        "gru",
        "Type of the recurrent cell, each as in PyTorch: plain RNN, LSTM or GRU.",
        choices=tuple(GATES_PER_CELL),
    )
    attention: str = config_field(
        "none",
        "Attention of the decoder to the source: none, additive (a small network) or dot product.",
        choices=("none", "additive", "dot"),
    )

    def parameter_groups(self) -> dict[str, Shapes]:
        d, gates = self.d_model, GATES_PER_CELL[self.cell]
        cells = self.n_layers * (linear(d, gates * d) + linear(d, gates * d))
        context_input: Shapes = [(gates * d, d)] if self.attention == "additive" else []
        attention: dict[str, Shapes] = {
            "none": [],
            "additive": [*linear(d, d), (d, d), (1, d)],
            "dot": linear(2 * d, d),
        }
        return {
            "source token embedding": [(self.source_vocab_size, d)],
            "target token embedding": [(self.target_vocab_size, d)],
            "encoder": cells,
            "decoder": cells + context_input,  # the first input contains the context, too
            "cross-attention": attention[self.attention],
            "output layer": linear(d, self.target_vocab_size),
        }

    def extra_activations(self, source: int, target: int) -> int:
        # the hidden layer of the additive attention, for each pair of positions
        return source * target * self.d_model if self.attention == "additive" else 0
