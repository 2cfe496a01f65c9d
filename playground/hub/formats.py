"""The published form of each architecture.

BERT, GPT-2 and BART are classes of transformers and need no code. A package of another architecture
includes the code of its model. The module has only light imports, because the page's process and
the command line import it.
"""

from dataclasses import dataclass

from playground.errors import UserError

MASKED, CAUSAL, SEQ2SEQ = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"


class NotPublishableError(UserError):
    """An error for a model that the Auto classes of transformers cannot load."""


@dataclass(frozen=True)
class PackageFormat:
    """The classes that load a published model.

    auto_class         the Auto class of transformers
    model              the model class; without a `module`, of transformers
    module             the module of playground.models in the package
    config             the configuration class of the module
    needs_mask_tokens  whether an input ends with one blank token per position of the target
    """

    auto_class: str
    model: str
    module: str = ""
    config: str = ""
    needs_mask_tokens: bool = False

    @property
    def has_code(self) -> bool:
        return bool(self.module)


def _own_format(auto_class: str, module: str = "", name: str = "") -> PackageFormat:
    """Return the form of an architecture of the playground, whose classes begin with its name."""
    model = f"Playground{name}{auto_class.replace('AutoModel', '')}"
    return PackageFormat(auto_class, model, f"automodel{module}", f"Playground{name}Config")


PACKAGE_FORMATS = {
    "transformer": _own_format(SEQ2SEQ),
    "torch-transformer": _own_format(SEQ2SEQ, "_torch_transformer", "TorchTransformer"),
    "encoder-only": _own_format(MASKED, "_single_stack", "EncoderOnly"),
    "decoder-only": _own_format(CAUSAL, "_single_stack", "DecoderOnly"),
    "recurrent": _own_format(SEQ2SEQ, "_recurrent", "Recurrent"),
    "bert": PackageFormat(MASKED, "BertForMaskedLM", needs_mask_tokens=True),
    "gpt2": PackageFormat(CAUSAL, "GPT2LMHeadModel"),
    "bart": PackageFormat(SEQ2SEQ, "BartForConditionalGeneration"),
}


def package_format(family: str) -> PackageFormat:
    """Return the published form of an architecture, or raise NotPublishableError."""
    if family not in PACKAGE_FORMATS:
        raise NotPublishableError(
            f"a model of the architecture {family!r} cannot be published: transformers has no "
            f"class for it, only for {', '.join(PACKAGE_FORMATS)}. Share its folder or a report of "
            "its results instead: python -m playground report CHECKPOINT"
        )
    return PACKAGE_FORMATS[family]
