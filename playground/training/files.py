"""Folders and files that are written whole or not at all, even when the power goes."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

SETTLED_WITHIN = 0.5  # seconds; two renames take far less


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put `files` into `folder`, replacing what it held, in one step as far as any reader can tell.

    Raises:
        OSError: as the system reports it; what was there before is still there.
    """
    with new_folder(folder) as fresh:
        for name, data in files.items():
            with open(fresh / name, "xb") as file:
                file.write(data)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that becomes `folder` at the end of the block, replacing what that held, in one step as far as any reader
    can tell; after an error in the block it is gone.

    It is hidden and stands beside `folder`; its files are flushed to disk before it is renamed. A folder that was there before is
    set aside under a hidden name first and removed last; `recover_folder` puts it back if the process dies between.

    Raises:
        OSError: as the system reports it; what was there before is still there.
    """
    folder = Path(os.path.abspath(folder))
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.tmp"
    try:
        fresh.mkdir()
        yield fresh
        for path in fresh.iterdir():
            with open(path, "r+b") as file:
                os.fsync(file.fileno())
        flush_folder(fresh)
        recover_folder(folder)
        if folder.exists():
            shutil.rmtree(_previous(folder), ignore_errors=True)
            os.rename(folder, _previous(folder))
        os.rename(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        recover_folder(folder)
        raise
    with suppress(
        OSError
    ):  # the content is on disk and in place; only the new name might not outlive a power cut
        flush_folder(folder.parent)
    shutil.rmtree(_previous(folder), ignore_errors=True)


def write_file(path: Path, data: bytes, *, flush: bool = True) -> None:
    """Put `data` into the file `path`, replacing what it held, in one step as far as any reader can tell. Without `flush`
    this holds against a killed process, not against a power cut.

    Raises:
        OSError: as the system reports it; what was there before is still there.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(fresh, "xb") as file:
            file.write(data)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def remove_folder(folder: Path) -> None:
    """Take a folder away in one step as far as any reader can tell; what a killed process leaves of it, `sweep` removes.

    Raises:
        OSError: as the system reports it; the folder is still there.
    """
    away = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    os.rename(folder, away)
    shutil.rmtree(away, ignore_errors=True)


def settle_folder(folder: Path) -> None:
    """For readers: wait out a replacement that is under way, and finish one that was cut off.

    A reader that stepped in at once would undo the writer between its two renames.
    """
    deadline = time.monotonic() + SETTLED_WITHIN
    while not os.path.isdir(folder) and os.path.isdir(_previous(folder)):
        if time.monotonic() > deadline:
            with suppress(OSError):
                recover_folder(folder)
            return
        time.sleep(0.01)


def recover_folder(folder: Path) -> None:
    """Bring back the previous content of a folder whose replacement was cut off between its two renames. For the one who writes."""
    folder = Path(folder)
    if not os.path.exists(folder) and os.path.isdir(_previous(folder)):
        os.rename(_previous(folder), folder)


def sweep(parent: Path, older_than: float = 0.0) -> list[str]:
    """Recover what can be recovered among a folder's folders and remove unfinished writes. Returns what it removed.

    `older_than` seconds spares what somebody else, a command line say, may be writing at this moment.
    """
    removed = []
    for path in sorted(Path(parent).glob(".*")) if os.path.isdir(parent) else []:
        if not path.name.endswith((".tmp", ".previous")):
            continue
        try:
            age = time.time() - path.lstat().st_mtime
        except OSError:  # another process has removed it meanwhile
            continue
        if age < older_than:
            continue
        with suppress(OSError):  # of a disk that can only be read, everything stays as it is
            if path.name.endswith(".tmp") and (path.is_file() or path.is_symlink()):
                path.unlink(missing_ok=True)
                removed.append(path.name)
            if path.name.endswith(".previous"):
                recover_folder(path.with_name(path.name[1 : -len(".previous")]))
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            removed += [] if path.is_dir() else [path.name]
    return removed


def is_closed(error: OSError) -> bool:
    """Whether a write failed because nothing may be written there, so that room does not help."""
    return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


def way_out(error: OSError) -> str:
    """What can be done about a folder that could not be made or written."""
    return (
        "set PLAYGROUND_CHECKPOINTS to a folder that can be written"
        if is_closed(error)
        else "make room on the disk"
    )


def flush_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut, where the system can (Windows cannot open folders)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _previous(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.previous")
