"""The architectures that the Trainer can train, registered by name with an import string."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from playground.common import messages
from playground.models.config import (
    BartSizes,
    BaseConfig,
    BertSizes,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
    GPT2Sizes,
    RecurrentConfig,
    TorchTransformerConfig,
    TransformerConfig,
)
from playground.models.config_fields import ConfigError, short_repr

if TYPE_CHECKING:
    from .seq2seq_model import Seq2SeqModel


@dataclass(frozen=True)
class ArchitectureSpec:
    """An architecture by name: its class, its settings, and the texts of forms."""

    class_path: str
    config_class: type[BaseConfig]
    title: str
    description: str
    # settings other than the defaults, with which it learns well
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def setting_names(self) -> list[str]:
        """Return the settings that this architecture takes."""
        return [each.name for each in fields(self.config_class)]


ARCHITECTURES = {
    "transformer": ArchitectureSpec(
        "playground.architectures.encoder_decoder:TransformerModel",
        TransformerConfig,
        "Transformer",
        "Encoder and decoder, as in the paper.",
        {
            "position_std": 1.2,
            "optimizer": "muon",
            "learning_rate": 3e-3,
            "momentum": 0.8,
            "warmup_steps": 5,
            "lr_decay_steps": 800,
            "weight_averaging": True,
        },
    ),
    "torch-transformer": ArchitectureSpec(
        "playground.architectures.encoder_decoder:TorchTransformerModel",
        TorchTransformerConfig,
        "Transformer, PyTorch layers",
        "The same network, built from PyTorch's own layers, as in many tutorials.",
    ),
    "encoder-only": ArchitectureSpec(
        "playground.architectures.parallel:EncoderOnlyModel",
        EncoderOnlyConfig,
        "Encoder only",
        "A single stack that attends to the whole input and predicts all tokens of the target in "
        "parallel.",
    ),
    "decoder-only": ArchitectureSpec(
        "playground.architectures.decoder_only:DecoderOnlyModel",
        DecoderOnlyConfig,
        "Decoder only",
        "A single causal stack: the target is the continuation of the source, generated token by "
        "token.",
        {"max_steps": 400, "lr_decay_steps": 400},
    ),
    "recurrent": ArchitectureSpec(
        "playground.architectures.encoder_decoder:RecurrentModel",
        RecurrentConfig,
        "Recurrent",
        "RNN, LSTM or GRU: one network reads the source, another generates the target, with or "
        "without attention to the source.",
        {"attention": "additive", "n_layers": 1, "max_steps": 1000, "lr_decay_steps": 1000},
    ),
    "bert": ArchitectureSpec(
        "playground.architectures.huggingface:Bert",
        BertSizes,
        "BERT, from scratch",
        "BERT's architecture from transformers with random weights: it predicts all blanks of the "
        "target at once.",
        {"learning_rate": 2e-3, "max_steps": 400, "lr_decay_steps": 400},
    ),
    "gpt2": ArchitectureSpec(
        "playground.architectures.huggingface:GPT2",
        GPT2Sizes,
        "GPT-2, from scratch",
        "GPT-2's architecture from transformers with random weights: it continues the source with "
        "the target.",
        {"learning_rate": 3e-3, "max_steps": 1000, "lr_decay_steps": 1000},
    ),
    "bart": ArchitectureSpec(
        "playground.architectures.huggingface:Bart",
        BartSizes,
        "BART, from scratch",
        "BART's architecture from transformers with random weights: an encoder and a decoder.",
        {"learning_rate": 3e-3, "max_steps": 300, "lr_decay_steps": 300},
    ),
}


def check_architecture(name: object) -> None:
    """Raise ConfigError for an unknown architecture."""
    if not isinstance(name, str) or name not in ARCHITECTURES:
        message = messages.choose_one_of("architecture", short_repr(name), ARCHITECTURES)
        raise ConfigError("architecture", message)


def load_architecture(name: str) -> type[Seq2SeqModel]:
    """Return the class registered under `name`; only its module is imported."""
    check_architecture(name)
    module, attribute = ARCHITECTURES[name].class_path.split(":")
    return getattr(import_module(module), attribute)


__all__ = ["ARCHITECTURES", "ArchitectureSpec", "check_architecture", "load_architecture"]
