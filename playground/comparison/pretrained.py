"""Pretrained models: resolve, validate, download, cache and load them.

Only safetensors weights and the code of transformers itself are loaded, and no token is sent.
The size is checked before a download. Small files are fetched first and the weights last, so
that a model with weights in the cache is complete.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import struct
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playground import CHECKPOINTS_DIR
from playground.runs.memory import free_memory
from playground.training.environment import env_bytes
from playground.training.files import remove_folder, sweep

from .work import Cancelled, Refused, Tell, in_words

log = logging.getLogger(__name__)

SUGGESTED = ("gpt2", "bert-base-uncased")
# the oldest models have no owner
NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
TUNED = "tuned:"  # prefix of the models that were fine-tuned here
SMALL_FILES = (".json", ".txt", ".model")
CANONICAL_NAMES = {
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "gpt2": "openai-community/gpt2",
}
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
SILENT_FOR = 40.0  # seconds without a byte after which a download fails
CHUNK = 1 << 18  # bytes between two progress reports of a download
LONGEST_HEADER = 20_000_000  # bytes of a safetensors file's header
LARGEST_JSON = 2_000_000  # bytes of a config, and of an index of weight files
MOST_DIMENSIONS = 8
MOST_COUNTED = 1_000_000  # layers, heads, labels, positions
MOST_LAYERS = 200
SPARE_DISK = 100_000_000  # bytes that stay free after a download
HOSTED_SPARE_DISK = 3_000_000_000  # the same on a shared instance
# seconds for which a resolved model is not evicted, because a job may be about to load it
IN_USE_FOR = 120.0
HEADROOM = 300_000_000  # bytes besides the weights, for a forward pass
HEADS = {  # pipeline: the class of transformers that loads its model
    "text-generation": "AutoModelForCausalLM",
    "fill-mask": "AutoModelForMaskedLM",
    "text-classification": "AutoModelForSequenceClassification",
    "feature-extraction": "AutoModel",
}
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


@dataclass(frozen=True)
class Found:
    """A model whose files are on this machine.

    parameters   numbers in its weights file; stored buffers count, too
    bytes        size of the weights
    commit       of the Hub's repository; empty for a folder
    where        "directory", "cache" or "downloaded"
    """

    name: str
    folder: str
    parameters: int
    bytes: int
    commit: str
    where: str


def most_bytes() -> int:
    """Return the maximum size of a model in bytes."""
    return env_bytes("MAX_MODEL_MB")


def folders_allowed() -> bool:
    """Return whether local folders may be used as models, which a shared instance forbids."""
    return os.environ.get("PLAYGROUND_LOCAL_MODELS", "1") == "1" and "SPACE_ID" not in os.environ


def tuned_home() -> Path:
    """Return the folder of the models that were fine-tuned here."""
    return Path(os.environ.get("PLAYGROUND_CHECKPOINTS", CHECKPOINTS_DIR)) / "compared"


def _folder_named(name: str) -> Path | None:
    """Return the local folder of a model name, or None.

    It is a model that was fine-tuned here or, if those are allowed, any other folder.
    """
    if (
        name.startswith(TUNED)
        and NAME.fullmatch(own := name.removeprefix(TUNED))
        and "/" not in own
    ):
        return folder if (folder := tuned_home() / own).is_dir() else None
    path = os.path.expanduser(name)
    return Path(path) if folders_allowed() and name and os.path.isdir(path) else None


def check_name(name: object) -> str:
    """Return the name of a model, stripped.

    Raises:
        Refused: if it is neither the name of a model on the Hub nor a folder that is allowed.
    """
    text = name.strip() if isinstance(name, str) else ""
    if _folder_named(text):
        return text
    if text.startswith(TUNED):
        raise Refused(f"{text[:120]!r} is not on this machine; fine-tune the model again")
    if not NAME.fullmatch(text) or "--" in text or ".." in text or text.endswith(".git"):
        folder = ", or a folder that contains one" if folders_allowed() else ""
        raise Refused(
            f"{str(name)[:120]!r} is not the name of a model; give one of the Hub, such as gpt2 "
            f"or user/name{folder}"
        )
    return text


def find(name: str, tell: Tell, local_only: bool = False) -> Found:
    """Return a model's files on this machine; download them if necessary, unless `local_only`.

    Raises:
        Refused: with the name of the model and what to do.
        Cancelled: at most 0.2 s after the job was cancelled.
    """
    name = check_name(name)
    if folder := _folder_named(name):
        return _found(name, folder, "", "directory")
    if kept := _in_cache(name):
        if not local_only:
            _used(kept.parent.parent)
        return _found(name, kept, kept.name, "cache")
    if local_only:
        raise Refused(f"{name} is not on this machine yet{_what_is_cached()}")
    folder = _download(name, tell)
    _used(folder.parent.parent)
    return _found(name, folder, folder.name, "downloaded")


def read_config(folder: Path | str, name: str = "") -> dict[str, Any]:
    """Read a model's config.json.

    Raises:
        Refused: if it is missing, too large, not a JSON object, or has implausibly large counts.
    """
    path = Path(folder) / "config.json"
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ValueError
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError
        check_counts(config, name or str(folder))
        return config
    except Refused:
        raise
    except FileNotFoundError:
        raise Refused(
            f"{name or folder} contains no config.json, so it is not a model of transformers; "
            "choose another"
        ) from None
    except (OSError, ValueError, RecursionError, OverflowError):
        raise Refused(
            f"{name or folder}: its config.json cannot be read; choose another model, or "
            "download it again"
        ) from None


def _counted(types: object) -> dict[str, Any]:
    """Convert GPT-Neo's [[[kind, ...], count], ...] to counts of layers."""
    pairs = types if isinstance(types, list) else []
    return {
        f"attention_types[{at}]_layers": pair[1]
        for at, pair in enumerate(pairs)
        if isinstance(pair, list) and len(pair) > 1
    }


def check_counts(config: object, name: str) -> None:
    """Reject counts for which transformers would build huge lists while it reads a config.

    It makes a name for each label or layer, so a few bytes of a config can exhaust the memory.

    Raises:
        Refused: with the name of the setting.
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
            check_counts(_counted(value) if key == "attention_types" else value, name)
            continue
        most = MOST_LAYERS if re.fullmatch(r".*layers?|depths?", str(key)) else MOST_COUNTED
        if (
            isinstance(value, (int, float))
            and value > most
            and re.match(r"(num|n)_|.*(layers?|labels|depths?)$", str(key))
        ):
            raise Refused(
                f"{name}: its config.json sets {key} to {value:.3g}; the maximum is {most:,}; "
                "choose another model"
            )


def kind_of(config: dict[str, Any]) -> str:
    """Return "causal" or "masked" for such a language model, or "" if the config does not tell."""
    built = config.get("architectures")
    names = [each for each in built if isinstance(each, str)] if isinstance(built, list) else []
    if any(each.endswith("ForMaskedLM") or each == "BertForPreTraining" for each in names):
        return MASKED
    if any(each.endswith(("LMHeadModel", "ForCausalLM")) for each in names):
        return CAUSAL
    return KIND_OF_TYPE.get(str(config.get("model_type")), "")


# Local files


def _found(name: str, folder: Path, commit: str, where: str) -> Found:
    """Validate a model's folder: a config, a tokenizer, and weights of an accepted size."""
    config = read_config(folder, name)
    weights = _weights(folder)
    if not weights:
        raise Refused(
            f"{name} contains no {WEIGHTS}; only weights in the safetensors format are "
            "supported; choose a model with those"
        )
    if "auto_map" in config and str(config.get("model_type")) not in KIND_OF_TYPE:
        raise Refused(
            f"{name} needs its own code, which is not run here; choose a model that "
            "transformers supports"
        )
    size = sum(path.stat().st_size for path in weights)
    _check_size(name, size)
    return Found(
        name, str(folder), sum(_numbers_in(path, name) for path in weights), size, commit, where
    )


def _weights(folder: Path) -> list[Path]:
    """Return the weight files of a model if all of them exist."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    try:
        if (folder / INDEX).stat().st_size > LARGEST_JSON:
            return []
        named = set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    shards = [folder / each for each in sorted(map(str, named)) if SHARD.fullmatch(each)]
    return (
        shards
        if shards and len(shards) == len(named) and all(each.is_file() for each in shards)
        else []
    )


def _numbers_in(path: Path, name: str) -> int:
    """Return how many numbers a safetensors file declares in its header."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(LONGEST_HEADER, path.stat().st_size):
                raise ValueError
            header = json.loads(file.read(length))
        shapes = [entry["shape"] for key, entry in header.items() if key != "__metadata__"]
        for shape in shapes:  # the product of a million large numbers would take hours
            if len(shape) > MOST_DIMENSIONS or any(
                type(n) is not int or not 0 <= n < 2**40 for n in shape
            ):
                raise ValueError
        return sum(map(math.prod, shapes))
    except (
        OSError,
        struct.error,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ):
        raise Refused(
            f"{name}: {path.name} is not a complete safetensors file; download it again or "
            "choose another model"
        ) from None


def _check_size(name: str, size: int) -> None:
    if size > most_bytes():
        raise Refused(
            f"{name} has {_mb(size)} of weights, more than the maximum of {_mb(most_bytes())}; "
            "choose a smaller model"
        )


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e6:.1f} MB"


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _in_cache(name: str) -> Path | None:
    """Return the newest complete snapshot of a model in the Hub's cache."""
    return _newest_snapshot(_cache() / _folder_name(name)) or _preloaded(name)


def _preloaded(name: str) -> Path | None:
    """Return the snapshot of a model that a Space was built with, in the Hub's default cache.

    See `preload_from_hub` in README.md.
    """
    if "SPACE_ID" not in os.environ:
        return None
    cache = Path.home() / ".cache" / "huggingface" / "hub"
    return _newest_snapshot(cache / _folder_name(CANONICAL_NAMES.get(name, name)))


def _folder_name(name: str) -> str:
    return "models--" + name.replace("/", "--")


def _newest_snapshot(home: Path) -> Path | None:
    try:
        main = (home / "refs" / "main").read_text().strip()
    except OSError:
        main = ""
    for folder in sorted(
        (home / "snapshots").glob("*"),
        key=lambda path: (path.name == main, path.stat().st_mtime),
        reverse=True,
    ):
        if (
            (folder / "config.json").is_file()
            and any((folder / each).is_file() for each in TOKENIZERS)
            and _weights(folder)
        ):
            return folder
    return None


def most_kept() -> int | None:
    """Return the maximum bytes of the model cache.

    None if the cache is not the playground's own; then nothing is evicted from it.
    """
    own = os.environ.get("PLAYGROUND_MODELS")
    if not own or Path(own).absolute() != _cache().absolute():
        return None
    return env_bytes("MODEL_CACHE_MB")


def _used(home: Path) -> None:
    """Record that a model of the playground's own cache is used now."""
    if most_kept() is not None:
        with suppress(OSError):
            os.utime(home)


def _size(home: Path) -> int:
    """Return the bytes of a model in the cache; snapshots are links, so each file counts once."""
    return sum(
        path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink()
    )


def _evict(name: str, size: int, most: int) -> None:
    """Evict the least recently used models from the playground's own cache for `size` bytes.

    Models in memory stay.

    Raises:
        Refused: if evicting all other models does not free enough.
    """
    home = _cache()
    sweep(home, older_than=0)
    with _lock:
        in_memory = {Path(folder).parent.parent for _, folder in _open}
    used = {path: path.stat().st_mtime for path in home.glob("models--*")}
    bytes_of = {path: _size(path) for path in used}
    own = home / ("models--" + name.replace("/", "--"))  # rest of an interrupted download
    held = sum(bytes_of.values()) - bytes_of.pop(own, 0)
    for oldest in sorted(bytes_of, key=lambda path: used[path]):
        if held + size <= most and size + HOSTED_SPARE_DISK <= _free_disk():
            return
        if oldest not in in_memory and time.time() - used[oldest] > IN_USE_FOR:
            remove_folder(oldest)
            held -= bytes_of[oldest]
    if held + size > most:
        raise Refused(
            f"{name} takes {_mb(size)}, and of the {_mb(most)} of the model cache {_mb(held)} "
            "are in use; choose a cached model, or try again in a few minutes",
            again=size <= most,
        )


def cached_names() -> list[str]:
    """Return the models in the Hub's cache that can be used without a network."""
    names = [
        path.name.removeprefix("models--").replace("--", "/")
        for path in sorted(_cache().glob("models--*"))
    ]
    return [name for name in names if NAME.fullmatch(name) and _in_cache(name)]


def _what_is_cached() -> str:
    names = cached_names()
    return (
        f". Already on this machine: {', '.join(names[:8])}"
        if names
        else ". No model is on this machine yet"
    )


# On the Hub


def _hub() -> Any:
    """Return a client of the Hub that sends no token, after a connection check.

    Raises:
        Refused: within 3 s without a network, with the models on this machine.
    """
    from huggingface_hub import constants

    from playground.hub.client import Hub, HubError, prepare

    prepare()
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK
    try:
        if constants.HF_HUB_OFFLINE:
            raise HubError(
                "HF_HUB_OFFLINE is set on this machine: unset it and restart the playground",
                again=True,
            )
        hub = Hub("", os.environ.get("HF_ENDPOINT", ""))
        hub.reach()
        return hub
    except HubError as error:
        raise Refused(f"{error}{_what_is_cached()}", again=True) from None


def _ask(hub: Any, name: str) -> dict[str, Any]:
    """Return a model's metadata: its commit, its files with their sizes, whether it is gated."""
    from playground.hub.client import HubError

    try:
        told: dict[str, Any] = hub.described(name)
    except HubError as error:
        raise Refused(
            _named(name, error) + (_what_is_cached() if error.again else ""), again=error.again
        ) from None
    if told.get("gated"):
        raise Refused(
            f"{name} is gated: its owners must grant access, and this playground sends no "
            "token; choose another model, or download it with `hf download` and give its "
            "folder"
        )
    return told


def _named(name: str, error: Exception) -> str:
    return str(error) if name in str(error) else f"{name}: {error}"


def _wanted(told: dict[str, Any], name: str) -> dict[str, int]:
    """Return the files of a model to download with their sizes, the weights last.

    Raises:
        Refused: if there are no safetensors weights, or the files are too large.
    """
    sizes = {
        str(each["rfilename"]): int(each.get("size") or 0)
        for each in told.get("siblings") or []
        if isinstance(each, dict) and isinstance(each.get("rfilename"), str)
    }
    small = {
        path: size
        for path, size in sizes.items()
        if "/" not in path and path.endswith(SMALL_FILES) and path != INDEX
    }
    weights = (
        {WEIGHTS: sizes[WEIGHTS]}
        if WEIGHTS in sizes
        else {path: size for path, size in sizes.items() if SHARD.fullmatch(path)}
    )
    if not weights or "config.json" not in small:
        what = "config.json" if weights else "weights in the safetensors format"
        raise Refused(f"{name} has no {what}, which is required; choose another model")
    if WEIGHTS not in sizes:
        if INDEX not in sizes:
            raise Refused(
                f"{name} has weights in several files but no {INDEX}; choose another model"
            )
        small[INDEX] = sizes[INDEX]
    _check_size(name, sum(weights.values()))
    if sum(small.values()) > 100_000_000:
        raise Refused(
            f"{name} has {_mb(sum(small.values()))} of files besides its weights, more than the "
            "maximum; choose another model"
        )
    return small | weights


def _download(name: str, tell: Tell) -> Path:
    """Download a model into the Hub's cache and return its folder there."""
    tell.say(f"Connecting to the Hub for {name}")
    fetched: list[Path] = []
    counted = {"bytes": 0.0, "total": 0.0, "at": time.monotonic()}
    problem: list[Exception] = []
    given_up = threading.Event()

    class Counter:
        """A progress bar for huggingface_hub that counts bytes, and aborts a cancelled download."""

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: float = 1) -> None:
            counted["bytes"] += n
            counted["at"] = time.monotonic()
            if given_up.is_set():
                raise Cancelled

        def close(self) -> None:
            pass

    def fetch() -> None:
        try:
            hub = _hub()
            files = _wanted(_ask(hub, name), name)
            total = sum(files.values())
            _check_disk(name, total)
            tell.say(
                f"Downloading {name}: {_mb(total)} in {len(files)} files, to this machine's cache"
            )
            counted["total"] = total
            for path in files:
                tell.check()
                with hub.plainly(f"fetch {path} of", name):
                    fetched.append(Path(hub.api.hf_hub_download(name, path, tqdm_class=Counter)))
                counted["at"] = time.monotonic()
        except Exception as error:
            problem.append(error)

    # a hanging thread is abandoned, because its client times out soon
    thread = threading.Thread(target=fetch, name=f"fetch {name}", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            if counted["total"]:
                tell.share(min(counted["bytes"], counted["total"]), counted["total"], "bytes")
            tell.check()
            if time.monotonic() - counted["at"] > SILENT_FOR:
                raise Refused(
                    f"{name}: the Hub sent no data for {SILENT_FOR:.0f} s; check the network "
                    "and try again",
                    again=True,
                )
    finally:
        given_up.set()
    tell.check()
    if problem:
        if isinstance(problem[0], Refused | Cancelled):
            raise problem[0]
        if type(problem[0]).__name__ not in ("HubError", "Missing"):
            log.error("The download of %r failed", name, exc_info=problem[0])
        raise Refused(_named(name, problem[0]), again=getattr(problem[0], "again", True)) from None
    if len({path.parent for path in fetched}) != 1:
        raise Refused(f"{name} changed on the Hub during the download; try again", again=True)
    return fetched[0].parent


def _check_disk(name: str, size: int) -> None:
    """Check the disk and the cache limit before a download, after evicting what can be evicted."""
    most = most_kept()
    if most is not None:
        _evict(name, size, most)
    free = _free_disk()
    if size + (SPARE_DISK if most is None else HOSTED_SPARE_DISK) > free:
        raise Refused(
            f"{name} takes {_mb(size)} and {_mb(free)} are free on this disk; free some space, "
            "or choose a smaller model",
            again=True,
        )


def _free_disk() -> int:
    """Return the free bytes on the disk of the cache."""
    home = _cache()
    while not home.exists() and home != home.parent:
        home = home.parent
    return shutil.disk_usage(home).free


# Pipelines


@dataclass(frozen=True)
class Opened:
    """A loaded pipeline, its newly initialized weights, and the growth of the process in bytes."""

    pipe: Any
    fresh: list[str]
    grown: int


_lock = threading.Lock()  # one load at a time
# by pipeline and folder; the least recently used one first
_open: OrderedDict[tuple[str, str], Opened] = OrderedDict()


def open_pipeline(task: str, found: Found, tell: Tell) -> Any:
    """Load the pipeline of a model once, and cache it while there is memory.

    Attention is the eager implementation, which returns its weights. Numbers are float32. The
    model is in evaluation mode.

    Raises:
        Refused: if it does not fit, is invalid, or is not a model of this kind.
    """
    if task not in HEADS:
        raise Refused(
            f"{task[:40]!r} is not a supported pipeline; choose one of {', '.join(HEADS)}"
        )
    import torch

    from playground.runs.processes import usable_cores

    torch.set_num_threads(max(1, usable_cores() // 2))  # the other half is for training
    key = (task, found.folder)
    while not _lock.acquire(timeout=0.1):
        tell.check()
    try:
        if key not in _open:
            _make_room(found)
            tell.say(f"Loading {found.name}")
            before = memory_used()
            try:
                pipe, fresh = _load(task, found)
                _open[key] = Opened(pipe, fresh, memory_used() - before)
            except (Refused, Cancelled):
                raise
            except Exception as error:
                raise _unloadable(error, found.name, task) from error
        _open.move_to_end(key)
        return _open[key].pipe
    finally:
        _lock.release()


def fresh_weights(task: str, found: Found) -> list[str]:
    """Return the names of a loaded model's newly initialized weights."""
    opened = _open.get((task, found.folder))
    return list(opened.fresh) if opened else []


def growth(task: str, found: Found) -> int:
    """Return by how many bytes this process grew when a model was loaded."""
    opened = _open.get((task, found.folder))
    return opened.grown if opened else 0


def memory_used() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def let_go(name_or_folder: str = "") -> None:
    """Unload one model, or all of them, to free their memory."""
    with _lock:
        for key in [key for key in _open if not name_or_folder or key[1] == name_or_folder]:
            _drop(key)


def _drop(key: tuple[str, str]) -> None:
    import gc

    del _open[key]
    gc.collect()


def _make_room(found: Found) -> None:
    """Unload models until this one fits. The caller holds the lock."""
    needed = 4 * found.parameters + HEADROOM
    while needed > 0.9 * free_memory() and _open:
        _drop(next(iter(_open)))
    if needed > 0.9 * free_memory():
        free = f"{free_memory() / 1e9:.1f} GB are free"
        raise Refused(
            f"{found.name} needs about {needed / 1e9:.1f} GB and {free}; choose a smaller "
            "model, or end a run",
            again=True,
        )


def device() -> str:
    """Return the device of the pretrained models."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(task: str, found: Found) -> tuple[Any, list[str]]:
    """Load a pipeline; return it and the names of the newly initialized weights."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoTokenizer, pipeline

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(found.folder, trust_remote_code=False)
    auto = getattr(transformers, HEADS[task])
    _check_config(auto, config, found)
    model, told = auto.from_pretrained(
        found.folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        attn_implementation="eager",
        output_loading_info=True,
    )
    missing = sorted(told["missing_keys"])
    if missing and task in ("fill-mask", "text-generation"):
        raise Refused(
            f"{found.name} lacks {missing[0]}{' and others' if len(missing) > 1 else ''}, which "
            f"{task} needs, so its predictions would be random; choose a model that was trained "
            "for it"
        )
    if not all(bool(torch.isfinite(weight).all()) for weight in model.parameters()):
        raise Refused(
            f"{found.name} has weights that are not finite; download it again, or choose "
            "another model"
        )
    tokenizer = AutoTokenizer.from_pretrained(found.folder, trust_remote_code=False)
    loaded = pipeline(  # type: ignore[call-overload]
        task, model=model.eval(), tokenizer=tokenizer, device=device()
    )
    return loaded, missing


def _check_config(auto: Any, config: Any, found: Found) -> None:
    """Reject sizes that contradict the weights, for which transformers would allocate memory."""
    import torch

    layers = [getattr(config, field, 0) for field in ("num_hidden_layers", "n_layer", "num_layers")]
    if any(isinstance(each, int) and not 0 <= each <= MOST_LAYERS for each in layers):
        raise Refused(
            f"{found.name}: its config.json has {max(layers, key=abs)} layers; choose another model"
        )
    with torch.device("meta"):
        asked = sum(
            each.numel() for each in auto.from_config(config, trust_remote_code=False).parameters()
        )
    if asked > 1.5 * found.parameters + 10_000_000:
        raise Refused(
            f"{found.name}: its config.json describes {asked:,} parameters and its weights "
            f"contain {found.parameters:,}; choose another model"
        )


def _unloadable(error: Exception, name: str, task: str) -> Refused:
    if isinstance(error, MemoryError) or "memory" in str(error).lower():
        return in_words(MemoryError(), name)
    log.warning("The model %r cannot be loaded for %s", name, task, exc_info=error)
    said = str(error).strip().split("\n")[0][:160]
    return Refused(
        f"{name} cannot be loaded for {task} ({type(error).__name__}: {said}); choose another model"
    )


# Jobs


def about(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Describe models without a download. `what`: {"models": [names]}.

    For each: name, where ("directory", "cache", "hub" or empty), bytes, parameters, kind
    (causal, masked or empty), a sentence if it cannot be used, and whether that is because the
    Hub was `unreached`.
    """
    names = what.get("models", [what.get("name")])
    told: list[dict[str, Any]] = []
    hub: Any = None
    for name in (names if isinstance(names, list) else [])[:8]:
        tell.check()
        row: dict[str, Any] = {
            "name": str(name)[:200],
            "where": "",
            "bytes": None,
            "parameters": None,
            "kind": "",
            "sentence": "",
        }
        row["unreached"] = False
        try:
            try:
                found = find(name, tell, local_only=True)
                row |= {
                    key: value
                    for key, value in asdict(found).items()
                    if key in ("name", "where", "bytes", "parameters", "commit")
                }
                row["kind"] = kind_of(read_config(found.folder, found.name))
            except Refused:
                row["name"] = checked = check_name(name)
                if _in_cache(checked) or _folder_named(checked):
                    raise
                row["unreached"] = hub is None
                hub = hub or _hub()
                row["unreached"] = False
                answer = _ask(hub, checked)
                files = _wanted(answer, checked)
                numbers = answer.get("safetensors")
                row |= {
                    "where": "hub",
                    "bytes": sum(files.values()),
                    "commit": str(answer.get("sha") or ""),
                }
                row["parameters"] = (
                    numbers.get("total")
                    if isinstance(numbers, dict) and type(numbers.get("total")) is int
                    else None
                )
                config = answer.get("config")
                row["kind"] = kind_of(config) if isinstance(config, dict) else ""
        except Refused as error:
            row["sentence"] = str(error)
        told.append(row)
        tell.row(row)
    return {"models": told, "most_bytes": most_bytes(), "folders": folders_allowed()}


def cached(what: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Return the models that can be used without a network, and those in memory."""
    rows = []
    for name in cached_names():
        try:
            found = find(name, tell, local_only=True)
        except Refused:
            continue
        rows.append(
            {
                "name": name,
                "bytes": found.bytes,
                "parameters": found.parameters,
                "commit": found.commit,
                "kind": kind_of(read_config(found.folder, name)),
            }
        )
    return {
        "models": rows,
        "suggested": list(SUGGESTED),
        "most_bytes": most_bytes(),
        "folders": folders_allowed(),
    }
