"""The cache of the Hub's models on this machine: look-up, disk space and eviction."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from playground.common.atomic_write import clean_up_stale, remove_dir
from playground.common.env import env_bytes
from playground.common.format import format_bytes
from playground.common.storage import evict
from playground.errors import UserError

from .model_files import TOKENIZER_FILES, weight_files
from .model_names import CANONICAL_NAMES, is_hub_model
from .pipelines import loaded_folders

MIN_FREE_DISK_BYTES = 100_000_000  # bytes that stay free after a download
SHARED_MIN_FREE_DISK_BYTES = 3_000_000_000  # the same on a shared instance
# seconds for which a resolved model is not evicted, because a job may be about to load it
IN_USE_TTL_S = 120.0


def cache_dir() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_snapshot(name: str) -> Path | None:
    """Return the newest complete snapshot of a model in the Hub's cache."""
    return _newest_snapshot(cache_dir() / _cache_folder_name(name)) or _preloaded(name)


def _preloaded(name: str) -> Path | None:
    """Return the snapshot of a model that a Space was built with (`preload_from_hub`)."""
    if "SPACE_ID" not in os.environ:
        return None
    cache = Path.home() / ".cache" / "huggingface" / "hub"
    return _newest_snapshot(cache / _cache_folder_name(CANONICAL_NAMES.get(name, name)))


def _cache_folder_name(name: str) -> str:
    return "models--" + name.replace("/", "--")


def _newest_snapshot(repo_folder: Path) -> Path | None:
    try:
        main = (repo_folder / "refs" / "main").read_text(encoding="utf-8").strip()
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
            and weight_files(folder)
        ):
            return folder
    return None


def list_cached_names() -> list[str]:
    """Return the models in the Hub's cache that can be used without a network."""
    names = [
        path.name.removeprefix("models--").replace("--", "/")
        for path in sorted(cache_dir().glob("models--*"))
    ]
    return [name for name in names if is_hub_model(name) and cached_snapshot(name)]


def describe_cache() -> str:
    """Return the models on this machine, as the end of an error message."""
    names = list_cached_names()
    return f". Already on this machine: {', '.join(names[:8])}" if names else ""


def cache_limit_bytes() -> int | None:
    """Return the maximum bytes of the model cache; None if it is not the playground's own."""
    own = os.environ.get("PLAYGROUND_MODELS")
    if not own or Path(own).absolute() != cache_dir().absolute():
        return None
    return env_bytes("MODEL_CACHE_MB")


def mark_as_used(home: Path) -> None:
    """Record that a model of the playground's own cache is used now."""
    if cache_limit_bytes() is not None:
        with suppress(OSError):
            os.utime(home)


def ensure_disk_space(name: str, size: int) -> None:
    """Check the disk and the cache limit before a download, after evicting what can be evicted."""
    limit = cache_limit_bytes()
    if limit is not None:
        _evict(name, size, limit)
    free = free_disk_bytes(cache_dir())
    if size + (MIN_FREE_DISK_BYTES if limit is None else SHARED_MIN_FREE_DISK_BYTES) > free:
        raise UserError(
            f"{name} takes {format_bytes(size)} and {format_bytes(free)} are free on this disk; "
            "free some space, or choose a smaller model",
            retryable=True,
        )


def free_disk_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder that may not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _size(home: Path) -> int:
    """Return the bytes of a model in the cache; snapshots are links, so each file counts once."""
    return sum(
        path.stat().st_size for path in home.rglob("*") if path.is_file() and not path.is_symlink()
    )


def _evict(name: str, size: int, limit: int) -> None:
    """Evict the models used least recently, but none in memory, for `size` bytes.

    Raises UserError if that does not free enough.
    """
    home = cache_dir()
    clean_up_stale(home, older_than=0)
    in_memory = {folder.parent.parent for folder in loaded_folders()}
    used = {path: path.stat().st_mtime for path in home.glob("models--*")}
    bytes_of = {path: _size(path) for path in used}
    own = home / _cache_folder_name(name)  # rest of an interrupted download
    held = sum(bytes_of.values()) - bytes_of.pop(own, 0)
    excess = max(held + size - limit, size + SHARED_MIN_FREE_DISK_BYTES - free_disk_bytes(home))

    def remove(path: Path) -> int:
        remove_dir(path)
        return bytes_of[path]

    unused = (
        path
        for path in sorted(bytes_of, key=lambda path: used[path])
        if path not in in_memory and time.time() - used[path] > IN_USE_TTL_S
    )
    held -= excess - evict(unused, excess, remove)
    if held + size > limit:
        raise UserError(
            f"{name} takes {format_bytes(size)}, and of the {format_bytes(limit)} of the model "
            f"cache {format_bytes(held)} are in use; choose a cached model, or try again in a few "
            "minutes",
            retryable=size <= limit,
        )
