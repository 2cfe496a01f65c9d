"""A checkpoint as the files that the Hub gets, and the way back.

    config.json, generation_config.json         what transformers needs to know
    tokenizer.json, tokenizer_config.json       symbols to tokens, without code of ours
    automodel.py and those that it imports      the model, as it stands in playground/models
    model.safetensors                           the checkpoint's own, byte for byte; so are the next three
    training.safetensors, metrics.jsonl         if it has them
    playground.json                             its config.json, whose name transformers claims

There is no pickle in it. Here its code is never run: `playground.models.automodel.register` says how transformers does without,
and whoever wants a checkpoint takes `to_checkpoint`, which reads only what a checkpoint holds.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from transformers.dynamic_module_utils import get_relative_import_files

from playground.models import automodel
from playground.models.automodel import PlaygroundConfig, PlaygroundForSeq2SeqLM
from playground.models.config import ModelConfig
from playground.tasks import EOS, PAD, SOS, Vocabulary
from playground.tasks.vocabulary import SPECIAL
from playground.training.checkpoint import load_model
from playground.training.files import write_folder
from playground.training.manifest import CheckpointError, Manifest, read_manifest

from .names import MANIFEST

KEPT = {  # a checkpoint's file: the package's
    "config.json": MANIFEST,
    "model.safetensors": "model.safetensors",
    "training.safetensors": "training.safetensors",
    "metrics.jsonl": "metrics.jsonl",
}
FAMILY = "transformer"


class CannotPublish(ValueError):
    """This checkpoint's model cannot be loaded by transformers' Auto classes; the message says why."""


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
    manifest, files = _read(Path(checkpoint))
    sizes, task = manifest.config.model, manifest.config.task
    for name, data in files.items():
        (folder / KEPT[name]).write_bytes(data)
    config = _config(sizes)
    config.save_pretrained(folder)
    config.generation().save_pretrained(folder)
    tokenizer(task.load().vocabulary, sizes.max_positions).save_pretrained(folder)
    for path in {automodel.__file__, *get_relative_import_files(automodel.__file__)}:
        shutil.copyfile(path, folder / Path(path).name)
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
        raise CheckpointError(f"this repository holds no playground model: it has no {MANIFEST}; choose one that the playground published")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is there already; name a new folder")
    # The sizes stand in transformers' config.json too. Only playground.json counts here: the weights are held against it.
    write_folder(folder, {name: (package / kept).read_bytes() for name, kept in KEPT.items() if (package / kept).is_file()})
    try:
        load_model(folder)
    except BaseException:
        shutil.rmtree(folder)
        raise


def tokenizer(vocabulary: Vocabulary, max_positions: int) -> PreTrainedTokenizerFast:
    """What `Vocabulary.encode` does, and EOS behind it, as every source and every label row ends.

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
    words.post_processor = processors.TemplateProcessing(single=f"$A {eos}", special_tokens=[(eos, EOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=pad,
        bos_token=sos,
        eos_token=eos,
        padding_side="right",
        model_max_length=max_positions,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def _read(checkpoint: Path) -> tuple[Manifest, dict[str, bytes]]:
    """A checkpoint's manifest and files, all of one state: it may be replaced at any moment by the run that writes it."""
    while True:
        family = read_manifest(checkpoint).config.family
        if family != FAMILY:
            raise CannotPublish(f"a model of the family {family!r} cannot be published in this form; only {FAMILY!r} can")
        manifest, _ = load_model(checkpoint)
        files = {name: (checkpoint / name).read_bytes() for name in KEPT if (checkpoint / name).is_file()}
        if read_manifest(checkpoint) == manifest:
            return manifest, files


def _config(sizes: ModelConfig) -> PlaygroundConfig:
    module = Path(automodel.__file__).stem
    return PlaygroundConfig(
        **dataclasses.asdict(sizes),
        architectures=[PlaygroundForSeq2SeqLM.__name__],
        auto_map={
            "AutoConfig": f"{module}.{PlaygroundConfig.__name__}",
            "AutoModelForSeq2SeqLM": f"{module}.{PlaygroundForSeq2SeqLM.__name__}",
        },
        dtype="float32",
    )
