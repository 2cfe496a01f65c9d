"""Check the files of a pretrained model before transformers reads them.

Only safetensors weights and the code of transformers itself are accepted. Counts in a config and
in the header of a weight file are bounded.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from playground.common.env import env_bytes
from playground.common.format import format_bytes
from playground.common.strict_json import parse_strict_json, read_json
from playground.errors import UserError

from .model_names import METADATA_FILE

TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "source.spm",
)
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
SHARD_PATTERN = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
MAX_JSON_BYTES = 2_000_000  # bytes of a config, and of an index of weight files
MAX_COUNT = 1_000_000  # layers, heads, labels, positions
MAX_LAYERS = 200
MEMORY_HEADROOM_BYTES = 300_000_000  # bytes of a forward pass, in addition to the weights
CAUSAL, MASKED = "causal", "masked"
KIND_OF_TYPE = {
    "gpt2": CAUSAL,
    "gpt_neo": CAUSAL,
    "gpt_neox": CAUSAL,
    "opt": CAUSAL,
    "bloom": CAUSAL,
    "llama": CAUSAL,
    "qwen2": CAUSAL,
    "bert": MASKED,
    "roberta": MASKED,
    "distilbert": MASKED,
    "albert": MASKED,
    "electra": MASKED,
    "deberta-v2": MASKED,
}


# raises an error if a model is unsuitable, given its name and a folder that may lack its weights
Check = Callable[[str, Path], object]


@dataclass(frozen=True)
class ResolvedModel:
    """A model whose files are on this machine.

    parameters  numbers in its weights file; stored buffers count, too
    bytes       size of the weights
    commit      of the Hub's repository; empty for a folder
    location       "directory", "cache" or "downloaded"
    """

    name: str
    folder: str
    parameters: int
    bytes: int
    commit: str
    location: str


def read_config(folder: Path | str, name: str = "") -> dict[str, Any]:
    """Read a model's config.json. Raises UserError if it is missing, invalid or implausible."""
    path = Path(folder) / "config.json"
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError
        config = parse_strict_json(path.read_bytes(), allow_infinity=True)
        if not isinstance(config, dict):
            raise ValueError
        limit_layer_counts(config, name or str(folder))
        return config
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(
            f"{name or folder} contains no config.json, so it is not a model of transformers; "
            "choose another"
        ) from None
    except (OSError, ValueError):
        raise UserError(
            f"{name or folder}: its config.json cannot be read; choose another model, or "
            "download it again"
        ) from None


def _layer_counts(types: object) -> dict[str, Any]:
    """Convert GPT-Neo's [[[kind, ...], count], ...] to counts of layers."""
    pairs = types if isinstance(types, list) else []
    return {
        f"attention_types[{at}]_layers": pair[1]
        for at, pair in enumerate(pairs)
        if isinstance(pair, list) and len(pair) > 1
    }


def limit_layer_counts(config: object, name: str) -> None:
    """Raise UserError for counts for which transformers would build huge lists.

    It makes a name for each label or layer, so a few bytes of a config can exhaust the memory.
    """
    for key, value in (
        config.items()
        if isinstance(config, dict)
        else enumerate(config)
        if isinstance(config, list)
        else ()
    ):
        if key in ("label2id", "id2label"):  # free-form names, and ids that count nothing
            continue
        if isinstance(value, (dict, list)):
            limit_layer_counts(_layer_counts(value) if key == "attention_types" else value, name)
            continue
        maximum = MAX_LAYERS if re.fullmatch(r".*layers?|depths?", str(key)) else MAX_COUNT
        if (
            isinstance(value, (int, float))
            and value > maximum
            and re.match(r"(num|n)_|.*(layers?|labels|depths?)$", str(key))
        ):
            raise UserError(
                f"{name}: its config.json sets {key} to {value:.3g}; the maximum is {maximum:,}; "
                "choose another model"
            )


def kind_of(config: dict[str, Any]) -> str:
    """Return "causal" or "masked" for such a language model, or "" if it is unknown."""
    built = config.get("architectures")
    names = [each for each in built if isinstance(each, str)] if isinstance(built, list) else []
    if any(each.endswith("ForMaskedLM") or each == "BertForPreTraining" for each in names):
        return MASKED
    if any(each.endswith(("LMHeadModel", "ForCausalLM")) for each in names):
        return CAUSAL
    return KIND_OF_TYPE.get(str(config.get("model_type")), "")


def has_chat_template(folder: Path) -> bool:
    """Return whether the tokenizer of a model has a template for chats."""
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(read_json(folder / "tokenizer_config.json")["chat_template"])
    except (ValueError, KeyError, TypeError):
        return False


def memory_needed(parameters: int) -> int:
    """Return the bytes of memory that a model takes: its weights in float32, and a pass."""
    return 4 * parameters + MEMORY_HEADROOM_BYTES


def check_config(name: str, folder: Path) -> None:
    """Check that a config can be read, and that its model needs no code of its own."""
    config = read_config(folder, name)
    if "auto_map" in config and str(config.get("model_type")) not in KIND_OF_TYPE:
        raise UserError(
            f"{name} needs its own code, which is not run here; choose a model that "
            "transformers supports"
        )


def inspect_folder(name: str, folder: Path, commit: str, location: str) -> ResolvedModel:
    """Return a model with its size, after checking its weights; `check_config` comes before."""
    weights = weight_files(folder)
    if not weights:
        raise UserError(
            f"{name} contains no {WEIGHTS_FILE}; only weights in the safetensors format are "
            "supported; choose a model with those"
        )
    size = sum(path.stat().st_size for path in weights)
    ensure_size_allowed(name, size)
    return ResolvedModel(
        name,
        str(folder),
        sum(_parameter_count(path, name) for path in weights),
        size,
        commit,
        location,
    )


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a model if all of them exist."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    try:
        if (folder / INDEX_FILE).stat().st_size > MAX_JSON_BYTES:
            return []
        named = set(parse_strict_json((folder / INDEX_FILE).read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    shards = [folder / each for each in sorted(map(str, named)) if SHARD_PATTERN.fullmatch(each)]
    return (
        shards
        if shards and len(shards) == len(named) and all(each.is_file() for each in shards)
        else []
    )


def _parameter_count(path: Path, name: str) -> int:
    """Return how many numbers a safetensors file declares in its header."""
    try:
        with safe_open(path, "np") as file:
            names = file.keys()
            return sum(math.prod(file.get_slice(each).get_shape()) for each in names)
    except (OSError, SafetensorError):
        raise UserError(
            f"{name}: {path.name} is not a complete safetensors file; download it again or "
            "choose another model"
        ) from None


def ensure_size_allowed(name: str, size: int) -> None:
    if size > (maximum := env_bytes("MAX_MODEL_MB")):
        raise UserError(
            f"{name} has {format_bytes(size)} of weights, more than the maximum of "
            f"{format_bytes(maximum)}; choose a smaller model"
        )


def is_finetuned(resolved: ResolvedModel) -> bool:
    """Return whether a model was fine-tuned here."""
    return resolved.location == "directory" and (Path(resolved.folder) / METADATA_FILE).is_file()


def training_data_note(resolved: ResolvedModel) -> str:
    """Describe the training data of a model, as far as it is known."""
    if resolved.location != "directory":
        return "pretrained, never trained on this task"
    try:
        metadata = read_json(Path(resolved.folder) / METADATA_FILE)
        return (
            f"fine-tuned: {int(metadata['steps'])} steps on {str(metadata['task'])[:40]}, from "
            f"{str(metadata['from'])[:100]}"
        )
    except (ValueError, KeyError, TypeError):
        return "a folder; its training data is unknown"
