"""The sizes of the models of transformers that are trained from random weights.

This file imports neither torch nor transformers, because forms and command lines use it too.
"""

from dataclasses import dataclass

from playground.models.config_fields import AttentionConfig, Shapes, linear


@dataclass(frozen=True)
class BertSizes(AttentionConfig):
    """The settings of transformers' BertConfig that can be chosen here."""

    has_single_vocabulary = True

    def parameter_groups(self) -> dict[str, Shapes]:
        d = self.d_model
        tables = [(self.source_vocab_size, d), (2 * self.max_positions, d), (2, d)]
        return {
            "embeddings": [*tables, (d,), (d,)],
            "encoder": self.library_layers(),
            "head": [*linear(d, d), (d,), (d,)],
            "output layer": [(self.target_vocab_size,)],
        }

    def sequence_length(self, source: int, target: int) -> int:
        return source + self.max_positions


@dataclass(frozen=True)
class GPT2Sizes(AttentionConfig):
    """The settings of transformers' GPT2Config that can be chosen here."""

    has_single_vocabulary = True

    def parameter_groups(self) -> dict[str, Shapes]:
        d = self.d_model
        return {
            "embeddings": [(self.source_vocab_size, d), (2 * self.max_positions, d)],
            "decoder": [*self.library_layers(), (d,), (d,)],
        }

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class BartSizes(AttentionConfig):
    """The settings of transformers' BartConfig that can be chosen here."""

    has_single_vocabulary = True

    def parameter_groups(self) -> dict[str, Shapes]:
        d = self.d_model
        positions = (self.max_positions + 2, d)  # the first two are never used
        return {
            "embeddings": [(self.source_vocab_size, d), positions, positions],
            "encoder": [(d,), (d,), *self.library_layers()],
            "decoder": [(d,), (d,), *self.library_layers(has_cross_attention=True)],
        }
