"""Floor 2: what the Trainer trains. Families register under a name with an import string; importing this alone loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING

from playground.models.config import ModelConfig
from playground.models.sizes import EncoderOnlyConfig

if TYPE_CHECKING:
    from .family import Family


@dataclass(frozen=True)
class Registered:
    """A family by name: where its class is, what its sizes are called, and what people read before they choose it."""

    path: str
    config: type[ModelConfig]
    title: str
    sentence: str

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
    "encoder-only": Registered(
        "playground.families.encoder_only:EncoderOnly",
        EncoderOnlyConfig,
        "Encoder only",
        "One stack that sees the whole sequence and writes the whole answer at once, each symbol in its place.",
    ),
}


def load_family(name: str) -> type[Family]:
    """The class registered under `name`; nothing but what the name says is imported."""
    if name not in FAMILIES:
        raise ValueError(f"family is {name!r}; choose one of {', '.join(FAMILIES)}")
    module, attribute = FAMILIES[name].path.split(":")
    return getattr(import_module(module), attribute)


__all__ = ["FAMILIES", "Registered", "load_family"]
