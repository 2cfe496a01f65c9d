"""A checkpoint as the files that the Hub gets, and the way back.

    config.json, generation_config.json         what transformers needs to know
    tokenizer.json, tokenizer_config.json       symbols to tokens, without code of ours
    automodel*.py and those that it imports     the model, as it stands in playground/models, with their LICENSE
    model.safetensors                           the checkpoint's own, byte for byte; so are the next three
    training.safetensors, metrics.jsonl         if it has them
    playground.json                             its config.json, whose name transformers claims

BERT, GPT-2 and BART are classes of transformers: their package holds no code, and the weights have the names that those give them.
There is no pickle in a package. Here its code is never run: `register` in a module of playground.models says how transformers does
without, and `to_checkpoint` makes a checkpoint again, from nothing but what a checkpoint holds.
"""

from __future__ import annotations

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
from playground.families.family import Family
from playground.models.config import ModelConfig
from playground.tasks import EOS, PAD, SOS, Vocabulary
from playground.tasks.vocabulary import SPECIAL
from playground.training.checkpoint import load_model, own_tensors, pack, read_tensors, shapes_of
from playground.training.files import write_folder
from playground.training.manifest import CheckpointError, Manifest, read_manifest

from .forms import CAUSAL, FORMS, MASKED, SEQ2SEQ, CannotPublish, Form, form_of
from .names import MANIFEST

KEPT = {  # a checkpoint's file: the package's
    "config.json": MANIFEST,
    "model.safetensors": "model.safetensors",
    "training.safetensors": "training.safetensors",
    "metrics.jsonl": "metrics.jsonl",
}
WEIGHTS = "model.safetensors"
PREFIX = "model."  # of the weights of a family that holds a model of transformers
LICENSE = ASSETS_DIR / "LICENSE"

__all__ = ["CannotPublish", "build_package", "to_checkpoint", "tokenizer"]


def build_package(checkpoint: Path, folder: Path) -> list[Path]:
    """Write into the empty `folder` what the Hub needs of `checkpoint` so that transformers alone loads it; the files' paths.

    Raises:
        CannotPublish: for a family without a class that transformers can load.
        CheckpointError: when anything in the checkpoint is missing or broken.
        FileExistsError: when there is something in `folder`.
        OSError: as the system reports it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; a package is built in a folder of its own")
    manifest, family, files = _read(Path(checkpoint))
    form, sizes = form_of(manifest.config.family), manifest.config.model
    for name, data in files.items():
        (folder / KEPT[name]).write_bytes(data)
    if form.has_code:
        module = import_module(f"playground.models.{form.module}")
        config = _config(module, form, sizes)
        generation = config.generation() if hasattr(config, "generation") else None
        for path in {module.__file__, *get_relative_import_files(module.__file__ or "")}:
            shutil.copyfile(path or "", folder / Path(path or "").name)
        if LICENSE.is_file():
            shutil.copyfile(LICENSE, folder / LICENSE.name)
    else:
        config, generation = _own_config(family, form), _own_generation(form, sizes)
        tensors = {
            name.removeprefix(PREFIX): tensor for name, tensor in own_tensors(family).items()
        }
        (folder / WEIGHTS).write_bytes(pack(tensors))
    config.save_pretrained(folder)
    if generation is not None:
        generation.save_pretrained(folder)
    words = tokenizer(manifest.config.task.load().vocabulary, sizes.max_positions, form)
    words.save_pretrained(folder)
    return sorted(folder.iterdir())


def to_checkpoint(package: Path, folder: Path) -> None:
    """Make a checkpoint, in the new folder `folder`, from a package: the very files that it was built from.

    The package may be anybody's: nothing in it is run, and what does not pass as a checkpoint leaves no folder behind. Its files
    are read whole, so limit their sizes before.

    Raises:
        CheckpointError: when the package holds no model of the playground, or a broken one.
        FileExistsError: when there is something in `folder`.
        OSError: as the system reports it.
    """
    package, folder = Path(package), Path(folder)
    if not (package / MANIFEST).is_file():
        raise CheckpointError(
            f"this repository holds no playground model: it has no {MANIFEST}; choose one that the playground published"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there already; name a new folder")
    # The sizes stand in transformers' config.json too. Only playground.json counts here: the weights are held against it.
    files = {
        name: (package / kept).read_bytes()
        for name, kept in KEPT.items()
        if (package / kept).is_file()
    }
    write_folder(folder, files)
    try:
        config = read_manifest(folder).config
        if config.family in FORMS and not FORMS[config.family].has_code and WEIGHTS in files:
            expected = {
                name.removeprefix(PREFIX): shape for name, shape in shapes_of(config).items()
            }
            tensors = read_tensors(folder / WEIGHTS, expected)
            (folder / WEIGHTS).write_bytes(
                pack({PREFIX + name: tensor for name, tensor in tensors.items()})
            )
        load_model(folder)
    except BaseException:
        shutil.rmtree(folder)
        raise


def tokenizer(
    vocabulary: Vocabulary, max_positions: int, form: Form = FORMS["transformer"]
) -> PreTrainedTokenizerFast:
    """What `Vocabulary.encode` does, and EOS behind it, as every source and every label row ends.

    A model that continues its row is padded in front. For one that fills in blanks, a blank for each place of the answer follows,
    as the second segment.

    As there, blanks and commas between symbols of one character are optional, words stand apart by blanks, and an unknown symbol
    is an error: there is no token for it. Special tokens are written <PAD>, <SOS> and <EOS>, which no text in symbols can hold.
    """
    pad, sos, eos = (f"<{name}>" for name in SPECIAL)
    numbers = {pad: PAD, sos: SOS, eos: EOS} | vocabulary.numbers
    words = Tokenizer(WordLevel(numbers))
    apart: list[Any] = [pre_tokenizers.WhitespaceSplit()]
    if vocabulary.compact:
        apart.append(pre_tokenizers.Split(Regex("."), behavior="isolated"))
        if "," not in vocabulary.numbers:
            words.normalizer = normalizers.Replace(",", " ")
    words.pre_tokenizer = pre_tokenizers.Sequence(apart)
    row = f"$A:0 {eos}:0" + f" {sos}:1" * (max_positions if form.blanks else 0)
    words.post_processor = processors.TemplateProcessing(
        single=row, special_tokens=[(eos, EOS), (sos, SOS)]
    )
    segments = ["token_type_ids"] if form.blanks else []
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=pad,
        bos_token=sos,
        eos_token=eos,
        padding_side="left" if form.auto == CAUSAL else "right",
        model_max_length=max_positions * (2 if form.blanks else 1),
        model_input_names=["input_ids", *segments, "attention_mask"],
        **({"mask_token": sos} if form.auto == MASKED else {}),
        clean_up_tokenization_spaces=False,
    )


def _read(checkpoint: Path) -> tuple[Manifest, Family, dict[str, bytes]]:
    """A checkpoint's manifest, model and files, all of one state: it may be replaced at any moment by the run that writes it."""
    while True:
        form_of(read_manifest(checkpoint).config.family)
        manifest, family = load_model(checkpoint)
        files = {
            name: (checkpoint / name).read_bytes() for name in KEPT if (checkpoint / name).is_file()
        }
        if read_manifest(checkpoint) == manifest:
            return manifest, family, files


def _config(module: ModuleType, form: Form, sizes: ModelConfig) -> Any:
    """Return the configuration of a model whose code travels with it."""
    names = dict.fromkeys(("AutoModel", form.auto), f"{form.module}.{form.model}")
    return getattr(module, form.config)(
        **dataclasses.asdict(sizes),
        architectures=[form.model],
        auto_map={"AutoConfig": f"{form.module}.{form.config}", **names},
        dtype="float32",
    )


def _own_config(family: Family, form: Form) -> PreTrainedConfig:
    """Return the configuration of a model that is a class of transformers."""
    config: PreTrainedConfig = copy.deepcopy(family.get_submodule("model").config)  # type: ignore[assignment]
    config.architectures, config.dtype = [form.model], "float32"
    if form.auto != MASKED:
        config.use_cache = True
    return config


def _own_generation(form: Form, sizes: ModelConfig) -> GenerationConfig | None:
    """Return the default generation of a model that is a class of transformers: greedy, as long as there are positions."""
    special = {"pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS}
    if form.auto == SEQ2SEQ:
        return GenerationConfig(
            **special, decoder_start_token_id=SOS, max_length=sizes.max_positions + 1
        )
    return (
        GenerationConfig(**special, max_new_tokens=sizes.max_positions)
        if form.auto == CAUSAL
        else None
    )
