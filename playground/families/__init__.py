"""Floor 2: what the Trainer trains. Families register under a name with an import string; importing this alone loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any

from playground.models.config import ModelConfig
from playground.models.sizes import (
    BartSizes,
    BertSizes,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
    GPT2Sizes,
    PrebuiltConfig,
    RecurrentConfig,
)

if TYPE_CHECKING:
    from .family import Family


@dataclass(frozen=True)
class Registered:
    """A family by name: where its class is, what its sizes are called, and what people read before they choose it."""

    path: str
    config: type[ModelConfig]
    title: str
    sentence: str
    recipe: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings, other than the defaults, with which it learns well

    def settings(self) -> list[str]:
        """The settings that this family listens to; the others have no meaning for it."""
        return [each.name for each in fields(self.config) if each.name not in self.config.unused]


FAMILIES = {
    "transformer": Registered(
        "playground.families.encoder_decoder:EncoderDecoder",
        ModelConfig,
        "Transformer",
        "Encoder and decoder, as in the paper: the encoder reads the sequence, the decoder writes the answer symbol by symbol.",
    ),
    "prebuilt": Registered(
        "playground.families.prebuilt:Prebuilt",
        PrebuiltConfig,
        "Transformer, prebuilt",
        "The same network put together from PyTorch's own layers, as most tutorials build it.",
    ),
    "encoder-only": Registered(
        "playground.families.encoder_only:EncoderOnly",
        EncoderOnlyConfig,
        "Encoder only",
        "One stack that sees the whole sequence and writes the whole answer at once, each symbol in its place.",
    ),
    "decoder-only": Registered(
        "playground.families.decoder_only:DecoderOnly",
        DecoderOnlyConfig,
        "Decoder only",
        "One stack that looks back only: the answer is the continuation of the sequence, symbol by symbol.",
        {"steps": 400, "decay_steps": 400},
    ),
    "recurrent": Registered(
        "playground.families.recurrent:Recurrent",
        RecurrentConfig,
        "Recurrent",
        "RNN, LSTM or GRU: one network reads symbol by symbol, another writes, and may look back at the source.",
        {"alignment": "additive", "n_layers": 1, "steps": 1000, "decay_steps": 1000},
    ),
    "bert": Registered(
        "playground.families.bert:Bert",
        BertSizes,
        "BERT, from scratch",
        "The architecture of BERT from transformers with random weights: it fills in all blanks of the answer at once.",
        {"learning_rate": 2e-3, "steps": 400, "decay_steps": 400},
    ),
    "gpt2": Registered(
        "playground.families.gpt2:GPT2",
        GPT2Sizes,
        "GPT-2, from scratch",
        "The architecture of GPT-2 from transformers with random weights: it continues the sequence with the answer.",
        {"learning_rate": 3e-3, "steps": 1000, "decay_steps": 1000},
    ),
    "bart": Registered(
        "playground.families.bart:Bart",
        BartSizes,
        "BART, from scratch",
        "The architecture of BART from transformers with random weights: an encoder reads, a decoder writes.",
        {"learning_rate": 3e-3, "steps": 300, "decay_steps": 300},
    ),
}


def load_family(name: str) -> type[Family]:
    """The class registered under `name`; nothing but what the name says is imported."""
    if name not in FAMILIES:
        raise ValueError(f"family is {name!r}; choose one of {', '.join(FAMILIES)}")
    module, attribute = FAMILIES[name].path.split(":")
    return getattr(import_module(module), attribute)


__all__ = ["FAMILIES", "Registered", "load_family"]
