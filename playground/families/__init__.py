"""Floor 2: what the Trainer trains. Families register under a name with an import string; importing this alone loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .family import Family

FAMILIES = {
    "transformer": "playground.families.encoder_decoder:EncoderDecoder",
}


def load_family(name: str) -> type[Family]:
    """The class registered under `name`; nothing but what the name says is imported."""
    if name not in FAMILIES:
        raise ValueError(f"family is {name!r}; choose one of {', '.join(FAMILIES)}")
    module, attribute = FAMILIES[name].split(":")
    return getattr(import_module(module), attribute)


__all__ = ["FAMILIES", "load_family"]
