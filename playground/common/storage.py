"""Find the folder of checkpoints and runs, and whether it survives a restart.

On a Space, the files beside the code are lost when the Space sleeps or is rebuilt. The files on its
persistent storage, mounted at /data, remain. This module imports no torch.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from playground import ASSETS_DIR, CHECKPOINTS_DIR, IS_INSTALLED

from .atomic_write import write_dir
from .platform import SPACE_STORAGE_DIR

Thing = TypeVar("Thing")
DEFAULT_ROOT = CHECKPOINTS_DIR
BUNDLED_CHECKPOINTS = ("copy", "reverse", "reverse-one-head")  # the bundled checkpoints
EPHEMERAL_NOTE = (
    "This Space has no persistent storage: runs and checkpoints are lost when it sleeps or "
    "restarts. Save them before: use Download under “Checkpoints of this run”, or publish them "
    "in the Hub tab."
)


@dataclass(frozen=True)
class Storage:
    """The folder of checkpoints and runs, with a warning if it does not survive a restart."""

    root: Path
    note: str = ""


def checkpoints_root() -> Path:
    """Return the folder of checkpoints, runs and datasets that this process uses."""
    return Path(os.environ.get("PLAYGROUND_CHECKPOINTS") or CHECKPOINTS_DIR)


def resolve_storage(
    storage: Path = SPACE_STORAGE_DIR, mounted: Callable[[Path], bool] = os.path.ismount
) -> Storage:
    """Choose the folder of checkpoints and runs.

    The order is: PLAYGROUND_CHECKPOINTS, the writable storage of a Space, the folder beside the
    code (for an installed package, the one in the working directory). On a Space with storage, an
    unset HF_HOME is set to that storage, so that later processes store their downloads there.
    """
    on_space = "SPACE_ID" in os.environ
    stays = on_space and mounted(storage) and os.access(storage, os.W_OK | os.X_OK)
    if stays:
        os.environ.setdefault("HF_HOME", str(storage / ".huggingface"))
    if chosen := os.environ.get("PLAYGROUND_CHECKPOINTS"):
        within = stays and Path(chosen).resolve().is_relative_to(storage.resolve())
        return Storage(Path(chosen), EPHEMERAL_NOTE if on_space and not within else "")
    if not stays:
        if IS_INSTALLED:
            _install_bundled(DEFAULT_ROOT)
        return Storage(DEFAULT_ROOT, EPHEMERAL_NOTE if on_space else "")
    root = storage / "checkpoints"
    # In every process, downloaded datasets and models use this variable too.
    os.environ["PLAYGROUND_CHECKPOINTS"] = str(root)
    _install_bundled(root)
    return Storage(root)


def _install_bundled(root: Path) -> None:
    """Copy the bundled checkpoints that are missing in this folder."""
    for name in BUNDLED_CHECKPOINTS:
        shipped = ASSETS_DIR / "checkpoints" / name
        if not (root / name).exists() and shipped.is_dir():
            with suppress(OSError):  # the server starts even if the storage is full
                write_dir(root / name, {path.name: path.read_bytes() for path in shipped.iterdir()})


def directory_size(folder: Path) -> int:
    """Return the bytes of a folder's files; one that several runs share counts in equal parts."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # the file was removed meanwhile
                about = os.stat(os.path.join(inside, name))
                total += about.st_size // max(1, about.st_nlink)
    return total


def file_version(path: Path) -> tuple[int, ...]:
    """Return time, size and inode of a file, of which a new content changes one; () without it."""
    try:
        about = os.stat(path)
    except OSError:
        return ()
    return about.st_mtime_ns, about.st_size, about.st_ino


def evict(things: Iterable[Thing], excess: int, remove: Callable[[Thing], int]) -> int:
    """Remove one thing after the other until `excess` is removed; return the rest of it.

    Args:
        things: what may go, in the order in which it goes.
        excess: bytes, or a number of things.
        remove: removes a thing, and returns how much less there is now.
    """
    for thing in things:
        if excess <= 0:
            break
        excess -= remove(thing)
    return excess
