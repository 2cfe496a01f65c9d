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

from playground.common.atomic_write import clean_up_stale, remove_dir
from playground.common.env import env_bytes
from playground.common.storage import checkpoints_root
from playground.runs.memory import free_memory

from .process import JobCancelled, JobError, ProgressReporter, to_job_error

log = logging.getLogger(__name__)

DEFAULT_MODELS = ("gpt2", "bert-base-uncased")
# the oldest models have no owner
NAME_PATTERN = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
FINETUNED_PREFIX = "tuned:"  # prefix of the models that were fine-tuned here
SMALL_FILES = (".json", ".txt", ".model")
CANONICAL_NAMES = {
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "gpt2": "openai-community/gpt2",
}
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
    "sentencepiece.bpe.model",
)
WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"
SHARD_PATTERN = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
SILENCE_TIMEOUT_S = 40.0  # seconds without a byte after which a download fails
CHUNK_BYTES = 1 << 18  # bytes between two progress reports of a download
MAX_HEADER_BYTES = 20_000_000  # bytes of a safetensors file's header
MAX_JSON_BYTES = 2_000_000  # bytes of a config, and of an index of weight files
MAX_DIMENSIONS = 8
MAX_COUNT = 1_000_000  # layers, heads, labels, positions
MAX_LAYERS = 200
MIN_FREE_DISK_BYTES = 100_000_000  # bytes that stay free after a download
SHARED_MIN_FREE_DISK_BYTES = 3_000_000_000  # the same on a shared instance
# seconds for which a resolved model is not evicted, because a job may be about to load it
IN_USE_TTL_S = 120.0
MEMORY_HEADROOM_BYTES = 300_000_000  # bytes besides the weights, for a forward pass
AUTO_CLASS_BY_TASK = {  # pipeline: the class of transformers that loads its model
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
class ResolvedModel:
    """A model whose files are on this machine.

    parameters  numbers in its weights file; stored buffers count, too
    bytes       size of the weights
    commit      of the Hub's repository; empty for a folder
    where       "directory", "cache" or "downloaded"
    """

    name: str
    folder: str
    parameters: int
    bytes: int
    commit: str
    where: str


def max_model_bytes() -> int:
    """Return the maximum size of a model in bytes."""
    return env_bytes("MAX_MODEL_MB")


def local_paths_allowed() -> bool:
    """Return whether local folders may be used as models, which a shared instance forbids."""
    return os.environ.get("PLAYGROUND_LOCAL_MODELS", "1") == "1" and "SPACE_ID" not in os.environ


def finetuned_dir() -> Path:
    """Return the folder of the models that were fine-tuned here."""
    return checkpoints_root() / "compared"


def _local_folder(name: str) -> Path | None:
    """Return the local folder of a model name, or None.

    It is a model that was fine-tuned here or, if those are allowed, any other folder.
    """
    if (
        name.startswith(FINETUNED_PREFIX)
        and NAME_PATTERN.fullmatch(own := name.removeprefix(FINETUNED_PREFIX))
        and "/" not in own
    ):
        return folder if (folder := finetuned_dir() / own).is_dir() else None
    path = os.path.expanduser(name)
    return Path(path) if local_paths_allowed() and name and os.path.isdir(path) else None


def validate_name(name: object) -> str:
    """Return the name of a model, stripped.

    Raises:
        JobError: if it is neither the name of a model on the Hub nor a folder that is allowed.
    """
    text = name.strip() if isinstance(name, str) else ""
    if _local_folder(text):
        return text
    if text.startswith(FINETUNED_PREFIX):
        raise JobError(f"{text[:120]!r} is not on this machine; fine-tune the model again")
    if not NAME_PATTERN.fullmatch(text) or "--" in text or ".." in text or text.endswith(".git"):
        folder = ", or a folder that contains one" if local_paths_allowed() else ""
        raise JobError(
            f"{str(name)[:120]!r} is not the name of a model; give one of the Hub, such as gpt2 "
            f"or user/name{folder}"
        )
    return text


def resolve(name: str, progress: ProgressReporter, local_only: bool = False) -> ResolvedModel:
    """Return a model's files on this machine; download them if necessary, unless `local_only`.

    Raises:
        JobError: with the name of the model and what to do.
        JobCancelled: at most 0.2 s after the job was cancelled.
    """
    name = validate_name(name)
    if folder := _local_folder(name):
        return _inspect_folder(name, folder, "", "directory")
    if cached_folder := _cached_snapshot(name):
        if not local_only:
            _touch(cached_folder.parent.parent)
        return _inspect_folder(name, cached_folder, cached_folder.name, "cache")
    if local_only:
        raise JobError(f"{name} is not on this machine yet{_scan_cache()}")
    folder = _download(name, progress)
    _touch(folder.parent.parent)
    return _inspect_folder(name, folder, folder.name, "downloaded")


def read_config(folder: Path | str, name: str = "") -> dict[str, Any]:
    """Read a model's config.json.

    Raises:
        JobError: if it is missing, too large, not a JSON object, or has implausibly large counts.
    """
    path = Path(folder) / "config.json"
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError
        limit_layer_counts(config, name or str(folder))
        return config
    except JobError:
        raise
    except FileNotFoundError:
        raise JobError(
            f"{name or folder} contains no config.json, so it is not a model of transformers; "
            "choose another"
        ) from None
    except (OSError, ValueError, RecursionError, OverflowError):
        raise JobError(
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
    """Reject counts for which transformers would build huge lists while it reads a config.

    It makes a name for each label or layer, so a few bytes of a config can exhaust the memory.

    Raises:
        JobError: with the name of the setting.
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
            raise JobError(
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


# Local files


def _inspect_folder(name: str, folder: Path, commit: str, where: str) -> ResolvedModel:
    """Validate a model's folder: a config, a tokenizer, and weights of an accepted size."""
    config = read_config(folder, name)
    weights = _weights(folder)
    if not weights:
        raise JobError(
            f"{name} contains no {WEIGHTS_FILE}; only weights in the safetensors format are "
            "supported; choose a model with those"
        )
    if "auto_map" in config and str(config.get("model_type")) not in KIND_OF_TYPE:
        raise JobError(
            f"{name} needs its own code, which is not run here; choose a model that "
            "transformers supports"
        )
    size = sum(path.stat().st_size for path in weights)
    _ensure_size_allowed(name, size)
    return ResolvedModel(
        name,
        str(folder),
        sum(_parameter_count(path, name) for path in weights),
        size,
        commit,
        where,
    )


def _weights(folder: Path) -> list[Path]:
    """Return the weight files of a model if all of them exist."""
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    try:
        if (folder / INDEX_FILE).stat().st_size > MAX_JSON_BYTES:
            return []
        named = set(
            json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))["weight_map"].values()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(MAX_HEADER_BYTES, path.stat().st_size):
                raise ValueError
            header = json.loads(file.read(length))
        shapes = [entry["shape"] for key, entry in header.items() if key != "__metadata__"]
        for shape in shapes:  # the product of a million large numbers would take hours
            if len(shape) > MAX_DIMENSIONS or any(
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
        raise JobError(
            f"{name}: {path.name} is not a complete safetensors file; download it again or "
            "choose another model"
        ) from None


def _ensure_size_allowed(name: str, size: int) -> None:
    if size > max_model_bytes():
        raise JobError(
            f"{name} has {_format_mb(size)} of weights, more than the maximum of "
            f"{_format_mb(max_model_bytes())}; choose a smaller model"
        )


def _format_mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e6:.1f} MB"


def _cache_dir() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _cached_snapshot(name: str) -> Path | None:
    """Return the newest complete snapshot of a model in the Hub's cache."""
    return _newest_snapshot(_cache_dir() / _cache_folder_name(name)) or _preloaded(name)


def _preloaded(name: str) -> Path | None:
    """Return the snapshot of a model that a Space was built with, in the Hub's default cache.

    See `preload_from_hub` in README.md.
    """
    if "SPACE_ID" not in os.environ:
        return None
    cache = Path.home() / ".cache" / "huggingface" / "hub"
    return _newest_snapshot(cache / _cache_folder_name(CANONICAL_NAMES.get(name, name)))


def _cache_folder_name(name: str) -> str:
    return "models--" + name.replace("/", "--")


def _newest_snapshot(repo_folder: Path) -> Path | None:
    try:
        main = (repo_folder / "refs" / "main").read_text().strip()
    except OSError:
        main = ""
    for folder in sorted(
        (repo_folder / "snapshots").glob("*"),
        key=lambda path: (path.name == main, path.stat().st_mtime),
        reverse=True,
    ):
        if (
            (folder / "config.json").is_file()
            and any((folder / each).is_file() for each in TOKENIZER_FILES)
            and _weights(folder)
        ):
            return folder
    return None


def cache_limit_bytes() -> int | None:
    """Return the maximum bytes of the model cache.

    None if the cache is not the playground's own; then nothing is evicted from it.
    """
    own = os.environ.get("PLAYGROUND_MODELS")
    if not own or Path(own).absolute() != _cache_dir().absolute():
        return None
    return env_bytes("MODEL_CACHE_MB")


def _touch(home: Path) -> None:
    """Record that a model of the playground's own cache is used now."""
    if cache_limit_bytes() is not None:
        with suppress(OSError):
            os.utime(home)


def _size(home: Path) -> int:
    """Return the bytes of a model in the cache; snapshots are links, so each file counts once."""
    return sum(
        path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink()
    )


def _evict(name: str, size: int, limit: int) -> None:
    """Evict the least recently used models from the playground's own cache for `size` bytes.

    Models in memory stay.

    Raises:
        JobError: if evicting all other models does not free enough.
    """
    home = _cache_dir()
    clean_up_stale(home, older_than=0)
    with _lock:
        in_memory = {Path(folder).parent.parent for _, folder in _loaded}
    used = {path: path.stat().st_mtime for path in home.glob("models--*")}
    bytes_of = {path: _size(path) for path in used}
    own = home / ("models--" + name.replace("/", "--"))  # rest of an interrupted download
    held = sum(bytes_of.values()) - bytes_of.pop(own, 0)
    for oldest in sorted(bytes_of, key=lambda path: used[path]):
        if held + size <= limit and size + SHARED_MIN_FREE_DISK_BYTES <= _free_disk():
            return
        if oldest not in in_memory and time.time() - used[oldest] > IN_USE_TTL_S:
            remove_dir(oldest)
            held -= bytes_of[oldest]
    if held + size > limit:
        raise JobError(
            f"{name} takes {_format_mb(size)}, and of the {_format_mb(limit)} of the model cache "
            f"{_format_mb(held)} are in use; choose a cached model, or try again in a few minutes",
            retryable=size <= limit,
        )


def list_cached_names() -> list[str]:
    """Return the models in the Hub's cache that can be used without a network."""
    names = [
        path.name.removeprefix("models--").replace("--", "/")
        for path in sorted(_cache_dir().glob("models--*"))
    ]
    return [name for name in names if NAME_PATTERN.fullmatch(name) and _cached_snapshot(name)]


def _scan_cache() -> str:
    names = list_cached_names()
    return (
        f". Already on this machine: {', '.join(names[:8])}"
        if names
        else ". No model is on this machine yet"
    )


# On the Hub


def _hub_client() -> Any:
    """Return a client of the Hub that sends no token, after a connection check.

    Raises:
        JobError: within 3 s without a network, with the models on this machine.
    """
    from huggingface_hub import constants

    from playground.hub.client import Hub, HubError, configure_process

    configure_process()
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    try:
        if constants.HF_HUB_OFFLINE:
            raise HubError(
                "HF_HUB_OFFLINE is set on this machine: unset it and restart the playground",
                retryable=True,
            )
        hub = Hub("", os.environ.get("HF_ENDPOINT", ""))
        hub.connect()
        return hub
    except HubError as error:
        raise JobError(f"{error}{_scan_cache()}", retryable=True) from None


def _hub_info(hub: Any, name: str) -> dict[str, Any]:
    """Return a model's metadata: its commit, its files with their sizes, whether it is gated."""
    from playground.hub.client import HubError

    try:
        info: dict[str, Any] = hub.raw_repo_info(name)
    except HubError as error:
        raise JobError(
            _download_error(name, error) + (_scan_cache() if error.retryable else ""),
            retryable=error.retryable,
        ) from None
    if info.get("gated"):
        raise JobError(
            f"{name} is gated: its owners must grant access, and this playground sends no token; "
            "choose another model, or download it with `hf download` and give its folder"
        )
    return info


def _download_error(name: str, error: Exception) -> str:
    return str(error) if name in str(error) else f"{name}: {error}"


def _files_to_download(info: dict[str, Any], name: str) -> dict[str, int]:
    """Return the files of a model to download with their sizes, the weights last.

    Raises:
        JobError: if there are no safetensors weights, or the files are too large.
    """
    sizes = {
        str(each["rfilename"]): int(each.get("size") or 0)
        for each in info.get("siblings") or []
        if isinstance(each, dict) and isinstance(each.get("rfilename"), str)
    }
    small = {
        path: size
        for path, size in sizes.items()
        if "/" not in path and path.endswith(SMALL_FILES) and path != INDEX_FILE
    }
    weights = (
        {WEIGHTS_FILE: sizes[WEIGHTS_FILE]}
        if WEIGHTS_FILE in sizes
        else {path: size for path, size in sizes.items() if SHARD_PATTERN.fullmatch(path)}
    )
    if not weights or "config.json" not in small:
        problem = "config.json" if weights else "weights in the safetensors format"
        raise JobError(f"{name} has no {problem}, which is required; choose another model")
    if WEIGHTS_FILE not in sizes:
        if INDEX_FILE not in sizes:
            raise JobError(
                f"{name} has weights in several files but no {INDEX_FILE}; choose another model"
            )
        small[INDEX_FILE] = sizes[INDEX_FILE]
    _ensure_size_allowed(name, sum(weights.values()))
    if sum(small.values()) > 100_000_000:
        raise JobError(
            f"{name} has {_format_mb(sum(small.values()))} of files besides its weights, more than "
            "the maximum; choose another model"
        )
    return small | weights


def _download(name: str, progress: ProgressReporter) -> Path:
    """Download a model into the Hub's cache and return its folder there."""
    progress.message(f"Connecting to the Hub for {name}")
    fetched: list[Path] = []
    counter = {"bytes": 0.0, "total": 0.0, "at": time.monotonic()}
    problem: list[Exception] = []
    cancelled = threading.Event()

    class Counter:
        """A progress bar for huggingface_hub that counts bytes, and aborts a cancelled download."""

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __enter__(self) -> Counter:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, n: float = 1) -> None:
            counter["bytes"] += n
            counter["at"] = time.monotonic()
            if cancelled.is_set():
                raise JobCancelled

        def close(self) -> None:
            pass

    def fetch() -> None:
        try:
            hub = _hub_client()
            files = _files_to_download(_hub_info(hub, name), name)
            total = sum(files.values())
            _ensure_disk_space(name, total)
            progress.message(
                f"Downloading {name}: {_format_mb(total)} in {len(files)} files, to this machine's "
                "cache"
            )
            counter["total"] = total
            for path in files:
                progress.raise_if_cancelled()
                with hub.translating_errors(f"fetch {path} of", name):
                    fetched.append(Path(hub.api.hf_hub_download(name, path, tqdm_class=Counter)))
                counter["at"] = time.monotonic()
        except Exception as error:
            problem.append(error)

    # a hanging thread is abandoned, because its client times out soon
    thread = threading.Thread(target=fetch, name=f"fetch {name}", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            if counter["total"]:
                progress.progress(
                    min(counter["bytes"], counter["total"]), counter["total"], "bytes"
                )
            progress.raise_if_cancelled()
            if time.monotonic() - counter["at"] > SILENCE_TIMEOUT_S:
                raise JobError(
                    f"{name}: the Hub sent no data for {SILENCE_TIMEOUT_S:.0f} s; check the "
                    "network and try again",
                    retryable=True,
                )
    finally:
        cancelled.set()
    progress.raise_if_cancelled()
    if problem:
        if isinstance(problem[0], JobError | JobCancelled):
            raise problem[0]
        if type(problem[0]).__name__ not in ("HubError", "NotFoundError"):
            log.error("The download of %r failed", name, exc_info=problem[0])
        raise JobError(
            _download_error(name, problem[0]), retryable=getattr(problem[0], "retryable", True)
        ) from None
    if len({path.parent for path in fetched}) != 1:
        raise JobError(f"{name} changed on the Hub during the download; try again", retryable=True)
    return fetched[0].parent


def _ensure_disk_space(name: str, size: int) -> None:
    """Check the disk and the cache limit before a download, after evicting what can be evicted."""
    limit = cache_limit_bytes()
    if limit is not None:
        _evict(name, size, limit)
    free = _free_disk()
    if size + (MIN_FREE_DISK_BYTES if limit is None else SHARED_MIN_FREE_DISK_BYTES) > free:
        raise JobError(
            f"{name} takes {_format_mb(size)} and {_format_mb(free)} are free on this disk; free "
            "some space, or choose a smaller model",
            retryable=True,
        )


def _free_disk() -> int:
    """Return the free bytes on the disk of the cache."""
    home = _cache_dir()
    while not home.exists() and home != home.parent:
        home = home.parent
    return shutil.disk_usage(home).free


# Pipelines


@dataclass(frozen=True)
class LoadedPipeline:
    """A loaded pipeline, its newly initialized weights, and the growth of the process in bytes."""

    pipe: Any
    newly_initialized: list[str]
    memory_delta: int


_lock = threading.Lock()  # one load at a time
# by pipeline and folder; the least recently used one first
_loaded: OrderedDict[tuple[str, str], LoadedPipeline] = OrderedDict()


def open_pipeline(task: str, resolved: ResolvedModel, progress: ProgressReporter) -> Any:
    """Load the pipeline of a model once, and cache it while there is memory.

    Attention is the eager implementation, which returns its weights. Numbers are float32. The
    model is in evaluation mode.

    Raises:
        JobError: if it does not fit, is invalid, or is not a model of this kind.
    """
    if task not in AUTO_CLASS_BY_TASK:
        raise JobError(
            f"{task[:40]!r} is not a supported pipeline; choose one of "
            f"{', '.join(AUTO_CLASS_BY_TASK)}"
        )
    import torch

    from playground.common.devices import usable_cores

    torch.set_num_threads(max(1, usable_cores() // 2))  # the other half is for training
    key = (task, resolved.folder)
    while not _lock.acquire(timeout=0.1):
        progress.raise_if_cancelled()
    try:
        if key not in _loaded:
            _evict_until_fits(resolved)
            progress.message(f"Loading {resolved.name}")
            memory_before = memory_used()
            try:
                pipe, newly_initialized = _load(task, resolved)
                _loaded[key] = LoadedPipeline(
                    pipe, newly_initialized, memory_used() - memory_before
                )
            except (JobError, JobCancelled):
                raise
            except Exception as error:
                raise _load_error(error, resolved.name, task) from error
        _loaded.move_to_end(key)
        return _loaded[key].pipe
    finally:
        _lock.release()


def newly_initialized_weights(task: str, resolved: ResolvedModel) -> list[str]:
    """Return the names of a loaded model's newly initialized weights."""
    loaded = _loaded.get((task, resolved.folder))
    return list(loaded.newly_initialized) if loaded else []


def memory_delta(task: str, resolved: ResolvedModel) -> int:
    """Return by how many bytes this process grew when a model was loaded."""
    loaded = _loaded.get((task, resolved.folder))
    return loaded.memory_delta if loaded else 0


def memory_used() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def unload(name_or_folder: str = "") -> None:
    """Unload one model, or all of them, to free their memory."""
    with _lock:
        for key in [key for key in _loaded if not name_or_folder or key[1] == name_or_folder]:
            _unload(key)


def _unload(key: tuple[str, str]) -> None:
    import gc

    del _loaded[key]
    gc.collect()


def _evict_until_fits(resolved: ResolvedModel) -> None:
    """Unload models until this one fits. The caller holds the lock."""
    needed = 4 * resolved.parameters + MEMORY_HEADROOM_BYTES
    while needed > 0.9 * free_memory() and _loaded:
        _unload(next(iter(_loaded)))
    if needed > 0.9 * free_memory():
        free = f"{free_memory() / 1e9:.1f} GB are free"
        raise JobError(
            f"{resolved.name} needs about {needed / 1e9:.1f} GB and {free}; choose a smaller "
            "model, or end a run",
            retryable=True,
        )


def device() -> str:
    """Return the device of the pretrained models."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _load(task: str, resolved: ResolvedModel) -> tuple[Any, list[str]]:
    """Load a pipeline; return it and the names of the newly initialized weights."""
    import torch
    import transformers
    from transformers import AutoConfig, AutoTokenizer, pipeline

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = AutoConfig.from_pretrained(resolved.folder, trust_remote_code=False)
    auto = getattr(transformers, AUTO_CLASS_BY_TASK[task])
    _validate_config(auto, config, resolved)
    model, loading_info = auto.from_pretrained(
        resolved.folder,
        config=config,
        dtype=torch.float32,
        use_safetensors=True,
        trust_remote_code=False,
        attn_implementation="eager",
        output_loading_info=True,
    )
    missing = sorted(loading_info["missing_keys"])
    if missing and task in ("fill-mask", "text-generation"):
        raise JobError(
            f"{resolved.name} lacks {missing[0]}{' and others' if len(missing) > 1 else ''}, which "
            f"{task} needs, so its predictions would be random; choose a model that was trained "
            "for it"
        )
    if not all(bool(torch.isfinite(weight).all()) for weight in model.parameters()):
        raise JobError(
            f"{resolved.name} has weights that are not finite; download it again, or choose "
            "another model"
        )
    tokenizer = AutoTokenizer.from_pretrained(resolved.folder, trust_remote_code=False)
    loaded = pipeline(  # type: ignore[call-overload]
        task, model=model.eval(), tokenizer=tokenizer, device=device()
    )
    return loaded, missing


def _validate_config(auto: Any, config: Any, resolved: ResolvedModel) -> None:
    """Reject sizes that contradict the weights, for which transformers would allocate memory."""
    import torch

    layers = [getattr(config, field, 0) for field in ("num_hidden_layers", "n_layer", "num_layers")]
    if any(isinstance(each, int) and not 0 <= each <= MAX_LAYERS for each in layers):
        raise JobError(
            f"{resolved.name}: its config.json has {max(layers, key=abs)} layers; choose another "
            "model"
        )
    with torch.device("meta"):
        n_parameters = sum(
            each.numel() for each in auto.from_config(config, trust_remote_code=False).parameters()
        )
    if n_parameters > 1.5 * resolved.parameters + 10_000_000:
        raise JobError(
            f"{resolved.name}: its config.json describes {n_parameters:,} parameters and its "
            f"weights contain {resolved.parameters:,}; choose another model"
        )


def _load_error(error: Exception, name: str, task: str) -> JobError:
    if isinstance(error, MemoryError) or "memory" in str(error).lower():
        return to_job_error(MemoryError(), name)
    log.warning("The model %r cannot be loaded for %s", name, task, exc_info=error)
    first_line = str(error).strip().split("\n")[0][:160]
    return JobError(
        f"{name} cannot be loaded for {task} ({type(error).__name__}: {first_line}); choose "
        "another model"
    )


# Jobs


def describe_models(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Describe models without a download. `request`: {"models": [names]}.

    For each: name, where ("directory", "cache", "hub" or empty), bytes, parameters, kind
    (causal, masked or empty), a sentence if it cannot be used, and whether that is because the
    Hub was `unreached`.
    """
    names = request.get("models", [request.get("name")])
    info: list[dict[str, Any]] = []
    hub: Any = None
    for name in (names if isinstance(names, list) else [])[:8]:
        progress.raise_if_cancelled()
        row: dict[str, Any] = {
            "name": str(name)[:200],
            "where": "",
            "bytes": None,
            "parameters": None,
            "kind": "",
            "message": "",
        }
        row["unreached"] = False
        try:
            try:
                resolved = resolve(name, progress, local_only=True)
                row |= {
                    key: value
                    for key, value in asdict(resolved).items()
                    if key in ("name", "where", "bytes", "parameters", "commit")
                }
                row["kind"] = kind_of(read_config(resolved.folder, resolved.name))
            except JobError:
                row["name"] = checked = validate_name(name)
                if _cached_snapshot(checked) or _local_folder(checked):
                    raise
                row["unreached"] = hub is None
                hub = hub or _hub_client()
                row["unreached"] = False
                response = _hub_info(hub, checked)
                files = _files_to_download(response, checked)
                numbers = response.get("safetensors")
                row |= {
                    "where": "hub",
                    "bytes": sum(files.values()),
                    "commit": str(response.get("sha") or ""),
                }
                row["parameters"] = (
                    numbers.get("total")
                    if isinstance(numbers, dict) and type(numbers.get("total")) is int
                    else None
                )
                config = response.get("config")
                row["kind"] = kind_of(config) if isinstance(config, dict) else ""
        except JobError as error:
            row["message"] = str(error)
        info.append(row)
        progress.row(row)
    return {"models": info, "max_bytes": max_model_bytes(), "folders": local_paths_allowed()}


def list_cached(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Return the models that can be used without a network, and those in memory."""
    rows = []
    for name in list_cached_names():
        try:
            resolved = resolve(name, progress, local_only=True)
        except JobError:
            continue
        rows.append(
            {
                "name": name,
                "bytes": resolved.bytes,
                "parameters": resolved.parameters,
                "commit": resolved.commit,
                "kind": kind_of(read_config(resolved.folder, name)),
            }
        )
    return {
        "models": rows,
        "suggested": list(DEFAULT_MODELS),
        "max_bytes": max_model_bytes(),
        "folders": local_paths_allowed(),
    }
