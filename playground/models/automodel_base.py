"""Common parts of the other published architectures: configuration, limits and loss.

This file is uploaded to the Hub beside the model. It reads no file and opens no connection.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, StoppingCriteria

from .base_config import BaseConfig

PAD, SOS, EOS = 0, 1, 2  # the first three tokens of every vocabulary
# labels that the loss ignores, by transformers' convention; it ignores PAD, too
IGNORE_INDEX = -100
SPECIAL_TOKEN_IDS = {"pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS}


class ArchitectureConfig(PreTrainedConfig):
    """The sizes of an architecture, and the settings that transformers requires.

    Raises:
        ConfigError: a ValueError, for invalid sizes.
    """

    model_config_class: ClassVar[type[BaseConfig]]
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "vocab_size": "target_vocab_size",
    }
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        names = [field.name for field in dataclasses.fields(self.model_config_class)]
        sizes = self.model_config_class(
            **{name: values.pop(name) for name in names if name in values}
        )
        for name in names:
            setattr(self, name, getattr(sizes, name))
        tied: dict[str, Any] = {
            "tie_word_embeddings": getattr(sizes, "tie_output_embeddings", False)
            or getattr(sizes, "share_embeddings", False)
        }
        super().__init__(**(tied | SPECIAL_TOKEN_IDS | self.defaults | values))

    def to_model_config(self) -> Any:
        """Return the sizes as the config of the model."""
        return self.model_config_class(
            **{
                field.name: getattr(self, field.name)
                for field in dataclasses.fields(self.model_config_class)
            }
        )


class Seq2SeqConfig(ArchitectureConfig):
    """Sizes of an architecture with an encoder and a decoder."""

    defaults: ClassVar[dict[str, Any]] = {"is_encoder_decoder": True, "decoder_start_token_id": SOS}

    # transformers generates an __init__ for a class that defines none
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    def default_generation_config(self) -> GenerationConfig:
        """Return the default generation: greedy, up to the last position. SOS counts, too."""
        return GenerationConfig(
            **SPECIAL_TOKEN_IDS,
            decoder_start_token_id=SOS,
            max_length=self.max_positions + 1,
            use_cache=False,
        )


class MaxPositionsCriteria(StoppingCriteria):
    """Ends generation at the last position that the model has."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens

    def __call__(self, input_ids: Tensor, scores: Tensor, **unused: Any) -> Tensor:
        # the newest token needs no position, because nothing follows it
        full = input_ids.shape[1] > self.max_tokens
        return torch.full((len(input_ids),), full, dtype=torch.bool, device=input_ids.device)


def apply_attention_mask(input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the tokens (BS) with PAD wherever the mask is 0."""
    return input_ids if attention_mask is None else input_ids.masked_fill(attention_mask == 0, PAD)


def shift_right(labels_BT: Tensor) -> Tensor:
    """Return the decoder's input (BT) for these labels: SOS, then all labels but the last."""
    return F.pad(labels_BT.masked_fill(labels_BT == IGNORE_INDEX, PAD), (1, 0), value=SOS)[:, :-1]


def cross_entropy(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the mean cross-entropy of the labels that are neither PAD nor -100."""
    return F.cross_entropy(
        logits_BTV.transpose(1, 2),
        labels_BT.masked_fill(labels_BT == PAD, IGNORE_INDEX),
        ignore_index=IGNORE_INDEX,
    )


def check_length(name: str, tokens_BS: Tensor, max_length: int, past_length: int = 0) -> None:
    """Raise ValueError for sequences with more tokens than the model has positions for."""
    length = past_length + tokens_BS.shape[1]
    if length > max_length:
        raise ValueError(
            f"{name} has {length} tokens, but the model has positions for {max_length}; shorten "
            f"the sequence"
        )
