"""How each family is published. Imports nothing heavy: the page's process and the command line use it too.

BERT, GPT-2 and BART are transformers' own classes and need no code beside them. The other families bring the code of their model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MASKED, CAUSAL, SEQ2SEQ = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"


class CannotPublish(ValueError):
    """transformers' Auto classes cannot load this model; the message says why, and what else can be done."""


@dataclass(frozen=True)
class Form:
    """What loads a published model.

    auto     the Auto class of transformers
    module   the module of playground.models that travels with it; empty for a class of transformers
    config   its configuration class
    model    its model class
    blanks   whether a row ends with one blank for each place of the answer
    """

    auto: str
    module: str = ""
    config: str = ""
    model: str = ""
    blanks: bool = False

    @property
    def has_code(self) -> bool:
        return bool(self.module)


FORMS = {
    "transformer": Form(SEQ2SEQ, "automodel", "PlaygroundConfig", "PlaygroundForSeq2SeqLM"),
    "prebuilt": Form(
        SEQ2SEQ, "automodel_prebuilt", "PlaygroundPrebuiltConfig", "PlaygroundPrebuiltForSeq2SeqLM"
    ),
    "encoder-only": Form(
        MASKED,
        "automodel_encoder_only",
        "PlaygroundEncoderOnlyConfig",
        "PlaygroundEncoderOnlyForMaskedLM",
    ),
    "decoder-only": Form(
        CAUSAL,
        "automodel_decoder_only",
        "PlaygroundDecoderOnlyConfig",
        "PlaygroundDecoderOnlyForCausalLM",
    ),
    "recurrent": Form(
        SEQ2SEQ,
        "automodel_recurrent",
        "PlaygroundRecurrentConfig",
        "PlaygroundRecurrentForSeq2SeqLM",
    ),
    "bert": Form(MASKED, model="BertForMaskedLM", blanks=True),
    "gpt2": Form(CAUSAL, model="GPT2LMHeadModel"),
    "bart": Form(SEQ2SEQ, model="BartForConditionalGeneration"),
}


def form_of(family: str) -> Form:
    """Return how a family is published.

    Raises:
        CannotPublish: for a family that has no form here.
    """
    if family not in FORMS:
        raise CannotPublish(
            f"a model of the family {family!r} cannot be published: transformers has no class for it, only for {', '.join(FORMS)}. "
            "Share its folder instead, or a page of its results: python -m playground report CHECKPOINT"
        )
    return FORMS[family]


def code_lines(package: Path) -> tuple[int, int]:
    """Return how many lines of Python a package holds, and in how many files."""
    files = sorted(package.glob("*.py"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files), len(files)
