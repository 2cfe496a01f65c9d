"""The published form of each architecture.

BERT, GPT-2 and BART are classes of transformers and need no code. A package of another architecture
includes the code of its model. The module has only light imports, because the page's process and
the command line import it.
"""

from dataclasses import dataclass
from pathlib import Path

from playground.errors import UserError

MASKED, CAUSAL, SEQ2SEQ = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"


class NotPublishableError(UserError):
    """An error for a model that the Auto classes of transformers cannot load."""


@dataclass(frozen=True)
class PackageFormat:
    """The classes that load a published model.

    auto_class         the Auto class of transformers
    module             the module of playground.models in the package; empty for a class of
                       transformers
    config             the configuration class
    model              the model class
    needs_mask_tokens  whether an input ends with one blank token per position of the target
    """

    auto_class: str
    module: str = ""
    config: str = ""
    model: str = ""
    needs_mask_tokens: bool = False

    @property
    def has_code(self) -> bool:
        return bool(self.module)


PACKAGE_FORMATS = {
    "transformer": PackageFormat(
        SEQ2SEQ, "automodel", "PlaygroundConfig", "PlaygroundForSeq2SeqLM"
    ),
    "torch-transformer": PackageFormat(
        SEQ2SEQ,
        "automodel_torch_transformer",
        "PlaygroundTorchTransformerConfig",
        "PlaygroundTorchTransformerForSeq2SeqLM",
    ),
    "encoder-only": PackageFormat(
        MASKED,
        "automodel_single_stack",
        "PlaygroundEncoderOnlyConfig",
        "PlaygroundEncoderOnlyForMaskedLM",
    ),
    "decoder-only": PackageFormat(
        CAUSAL,
        "automodel_single_stack",
        "PlaygroundDecoderOnlyConfig",
        "PlaygroundDecoderOnlyForCausalLM",
    ),
    "recurrent": PackageFormat(
        SEQ2SEQ,
        "automodel_recurrent",
        "PlaygroundRecurrentConfig",
        "PlaygroundRecurrentForSeq2SeqLM",
    ),
    "bert": PackageFormat(MASKED, model="BertForMaskedLM", needs_mask_tokens=True),
    "gpt2": PackageFormat(CAUSAL, model="GPT2LMHeadModel"),
    "bart": PackageFormat(SEQ2SEQ, model="BartForConditionalGeneration"),
}


def package_format(family: str) -> PackageFormat:
    """Return the published form of an architecture.

    Raises NotPublishableError if the architecture has no form.
    """
    if family not in PACKAGE_FORMATS:
        raise NotPublishableError(
            f"a model of the architecture {family!r} cannot be published: transformers has no "
            f"class for it, only for {', '.join(PACKAGE_FORMATS)}. Share its folder or a report of "
            "its results instead: python -m playground report CHECKPOINT"
        )
    return PACKAGE_FORMATS[family]


def code_lines(package: Path) -> tuple[int, int]:
    """Return the numbers of Python lines and Python files in a package."""
    files = sorted(package.glob("*.py"))
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files), len(files)
