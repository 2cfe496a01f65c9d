"""Convert a checkpoint to a package for the Hub, and a package to a checkpoint.

A package contains:

    config.json, generation_config.json       the configuration for transformers
    tokenizer.json, tokenizer_config.json     the tokenizer, without custom code
    automodel*.py and the files it imports    the model of playground/models, with the LICENSE
    model.safetensors                         copied from the checkpoint, like the next three
    training.safetensors, metrics.jsonl       optional
    playground.json                           the checkpoint's config.json, under another name
                                              because transformers uses that name

BERT, GPT-2 and BART are classes of transformers: their package has no code, and their weights have
the names of transformers. A package contains no pickle.

The playground never runs the code of a package. `checkpoint_from_package` reads only the files of
the checkpoint.
"""

import copy
import dataclasses
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.dynamic_module_utils import get_relative_import_files

from playground import ASSETS_DIR
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.checkpoints.checkpoint import expected_tensors, load_model, weights_by_name
from playground.checkpoints.manifest import read_manifest
from playground.checkpoints.tensors import load_checked_tensors, serialize_tensors
from playground.common.atomic_write import write_dir
from playground.models.config import BaseConfig
from playground.tasks import EOS, PAD, SOS, Vocabulary
from playground.tasks.vocabulary import SPECIAL_TOKENS

from .formats import CAUSAL, MASKED, PACKAGE_FORMATS, SEQ2SEQ, PackageFormat, package_format
from .repo_ids import MANIFEST

FILE_MAP = {  # file of the checkpoint: file of the package
    "config.json": MANIFEST,
    "model.safetensors": "model.safetensors",
    "training.safetensors": "training.safetensors",
    "metrics.jsonl": "metrics.jsonl",
}
WEIGHTS_FILE = "model.safetensors"
WEIGHT_PREFIX = (
    "model."  # of the weight names of an architecture that wraps a model of transformers
)
LICENSE = ASSETS_DIR / "LICENSE"


def build_package(checkpoint: Path, folder: Path) -> None:
    """Write the package of a checkpoint, which transformers alone can load, into an empty folder.

    Raises NotPublishableError if transformers has no class for the architecture, CheckpointError if
    a file of the checkpoint is missing or invalid, OSError if one cannot be read or written.
    """
    manifest, model = load_model(checkpoint)
    form, sizes = package_format(manifest.config.architecture), manifest.config.model
    for name, packaged in FILE_MAP.items():
        if (checkpoint / name).is_file():
            shutil.copyfile(checkpoint / name, folder / packaged)
    if form.has_code:
        module = import_module(f"playground.models.{form.module}")
        config = _config(module, form, sizes)
        generation = (
            config.default_generation_config()
            if hasattr(config, "default_generation_config")
            else None
        )
        for path in {module.__file__, *get_relative_import_files(module.__file__ or "")}:
            shutil.copyfile(path or "", folder / Path(path or "").name)
        if LICENSE.is_file():
            shutil.copyfile(LICENSE, folder / LICENSE.name)
    else:
        config = _native_config(model, form)
        generation = _native_generation_config(form, sizes)
        tensors = {
            name.removeprefix(WEIGHT_PREFIX): tensor
            for name, tensor in weights_by_name(model).items()
        }
        (folder / WEIGHTS_FILE).write_bytes(serialize_tensors(tensors))
    config.save_pretrained(folder)
    if generation is not None:
        generation.save_pretrained(folder)
    vocabulary = manifest.config.task.load().vocabulary
    tokenizer(vocabulary, sizes.max_positions, form).save_pretrained(folder)


def checkpoint_from_package(package: Path, folder: Path) -> None:
    """Write the checkpoint of a package into a new folder, with its original files.

    The package is untrusted: none of its code is run, and an invalid checkpoint leaves no folder.
    Limit the file sizes before the call, because the files are read as a whole. Raises
    CheckpointError if the package has no valid model, OSError if a file cannot be read or written.
    """
    # The config.json of transformers repeats the sizes. Only playground.json is used here, and the
    # weights are validated against it.
    files = {
        name: (package / packaged).read_bytes()
        for name, packaged in FILE_MAP.items()
        if (package / packaged).is_file()
    }
    write_dir(folder, files)
    try:
        config = read_manifest(folder).config
        if (
            config.architecture in PACKAGE_FORMATS
            and not PACKAGE_FORMATS[config.architecture].has_code
            and WEIGHTS_FILE in files
        ):
            expected = {
                name.removeprefix(WEIGHT_PREFIX): shape
                for name, shape in expected_tensors(config).items()
            }
            tensors = load_checked_tensors(folder / WEIGHTS_FILE, expected)
            (folder / WEIGHTS_FILE).write_bytes(
                serialize_tensors(
                    {WEIGHT_PREFIX + name: tensor for name, tensor in tensors.items()}
                )
            )
        load_model(folder)
    except BaseException:
        shutil.rmtree(folder)
        raise


def tokenizer(
    vocabulary: Vocabulary, max_positions: int, form: PackageFormat = PACKAGE_FORMATS["transformer"]
) -> PreTrainedTokenizerFast:
    """Return a tokenizer that does the same as `Vocabulary.encode` and appends EOS.

    A causal model is padded on the left. The input of a masked model with blanks has one blank
    token per position of the target as its second segment.

    Spaces and commas between symbols of one character are optional, longer symbols are separated by
    spaces, and an unknown symbol is an error, because the vocabulary has no unknown token. No text
    is encoded as a special token: their names contain spaces, and are not searched for in a text.
    """
    pad, sos, eos = (f"< {name} >" for name in SPECIAL_TOKENS)
    numbers = {pad: PAD, sos: SOS, eos: EOS} | vocabulary.token_ids
    words = Tokenizer(WordLevel(numbers))
    separators = r"\x1c-\x1f"  # white space in Python, but not in `tokenizers`
    splitters: list[Any] = [pre_tokenizers.WhitespaceSplit()]
    if vocabulary.single_characters:
        splitters.append(pre_tokenizers.Split(Regex("."), behavior="isolated"))
        if "," not in vocabulary.token_ids:
            separators += ","
    words.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(f"[{separators}]"), " ")]
    )
    words.pre_tokenizer = pre_tokenizers.Sequence(splitters)
    blanks = [f"{sos}:1"] * (max_positions if form.needs_mask_tokens else 0)
    words.post_processor = processors.TemplateProcessing(
        single=["$A:0", f"{eos}:0", *blanks], special_tokens=[(eos, EOS), (sos, SOS)]
    )
    segments = ["token_type_ids"] if form.needs_mask_tokens else []
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=pad,
        bos_token=sos,
        eos_token=eos,
        padding_side="left" if form.auto_class == CAUSAL else "right",
        model_max_length=max_positions * (2 if form.needs_mask_tokens else 1),
        model_input_names=["input_ids", *segments, "attention_mask"],
        **({"mask_token": sos} if form.auto_class == MASKED else {}),
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
    )


def _config(module: ModuleType, form: PackageFormat, sizes: BaseConfig) -> Any:
    """Return the configuration of a model whose package includes its code."""
    names = dict.fromkeys(("AutoModel", form.auto_class), f"{form.module}.{form.model}")
    return getattr(module, form.config)(
        **dataclasses.asdict(sizes),
        architectures=[form.model],
        auto_map={"AutoConfig": f"{form.module}.{form.config}", **names},
        dtype="float32",
    )


def _native_config(model: Seq2SeqModel, form: PackageFormat) -> PreTrainedConfig:
    """Return the configuration of a model that is a class of transformers."""
    wrapped: Any = model.get_submodule("model")
    config: PreTrainedConfig = copy.deepcopy(wrapped.config)
    config.architectures, config.dtype = [form.model], "float32"
    if form.auto_class != MASKED:
        config.use_cache = True
    return config


def _native_generation_config(form: PackageFormat, sizes: BaseConfig) -> GenerationConfig | None:
    """Return the greedy generation defaults of a model that is a class of transformers."""
    special = {"pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS}
    if form.auto_class == SEQ2SEQ:
        return GenerationConfig(
            **special, decoder_start_token_id=SOS, max_length=sizes.max_positions + 1
        )
    return (
        GenerationConfig(**special, max_new_tokens=sizes.max_positions)
        if form.auto_class == CAUSAL
        else None
    )
