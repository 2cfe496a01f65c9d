"""The sizes of the models of transformers that are trained from random weights."""

from dataclasses import dataclass

from playground.models.config import AttentionConfig


@dataclass(frozen=True)
class BertSizes(AttentionConfig):
    """The settings of transformers' BertConfig that can be chosen here."""

    has_single_vocabulary = True

    def sequence_length(self, source: int, target: int) -> int:
        return source + self.max_positions


@dataclass(frozen=True)
class GPT2Sizes(AttentionConfig):
    """The settings of transformers' GPT2Config that can be chosen here."""

    has_single_vocabulary = True

    def sequence_length(self, source: int, target: int) -> int:
        return source + target


@dataclass(frozen=True)
class BartSizes(AttentionConfig):
    """The settings of transformers' BartConfig that can be chosen here."""

    has_single_vocabulary = True
