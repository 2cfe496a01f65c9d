"""Directories and files that are written atomically, even if the power fails."""

import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from playground.errors import UserError

from .platform import fsync_dir, rename

REPLACEMENT_TIMEOUT_S = 0.5  # two renames take much less


def write_dir(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace the content of `folder` by `files` as `replacing_dir` does. Raises OSError."""
    with replacing_dir(folder) as staging:
        for name, data in files.items():
            with open(staging / name, "xb") as file:
                file.write(data)


@contextmanager
def replacing_dir(folder: Path) -> Iterator[Path]:
    """Yield an empty directory that replaces `folder` at the end of the block, atomically.

    It is hidden and next to `folder`; its files are flushed to disk before it is renamed. The
    previous directory first gets a hidden name and is removed last; `restore_previous` restores it
    if the process dies in between. After an error the previous content is still there.
    """
    folder = Path(os.path.abspath(folder))
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.tmp"
    try:
        staging.mkdir()
        yield staging
        for path in staging.rglob("*"):
            if path.is_dir():
                fsync_dir(path)
                continue
            with open(path, "r+b") as file:
                os.fsync(file.fileno())
        fsync_dir(staging)
        restore_previous(folder)
        if folder.exists():
            shutil.rmtree(_previous(folder), ignore_errors=True)
            rename(folder, _previous(folder))
        rename(staging, folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        restore_previous(folder)
        raise
    # The content is on disk and in place; at worst a power failure undoes the rename.
    with suppress(OSError):
        fsync_dir(folder.parent)
    shutil.rmtree(_previous(folder), ignore_errors=True)


def write_file(path: Path, data: bytes, *, flush: bool = True, mode: int = 0o666) -> None:
    """Replace the content of the file `path` by `data`, atomically for readers.

    Without `flush` it is safe against a killed process, but not against a power failure. After an
    OSError the previous content is still there. `mode` has the permissions, without the umask's.
    """
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(staging, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(data)
            if flush:
                file.flush()
                os.fsync(file.fileno())
        rename(staging, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staging)
        raise


def append(path: Path, data: bytes, at: int) -> None:
    """Write data into an existing file at an offset, unbuffered.

    Raises OSError when it cannot be written in full; the file then ends at the offset.
    """
    with open(path, "r+b", buffering=0) as file:
        file.seek(at)
        try:
            if file.write(data) != len(data):
                # Raises the error that interrupted the first write.
                file.write(data[file.tell() - at :])
        except OSError:
            file.truncate(at)
            raise


def remove_dir(folder: Path) -> None:
    """Remove a directory atomically; after an OSError it is still there.

    `clean_up_stale` removes what a killed process leaves.
    """
    trash = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    rename(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)


def wait_for_replacement(folder: Path) -> None:
    """Wait for a replacement in progress, and finish an interrupted one. Readers call this.

    A reader that restored the directory at once would undo the writer between its two renames.
    """
    deadline = time.monotonic() + REPLACEMENT_TIMEOUT_S
    while not os.path.isdir(folder) and os.path.isdir(_previous(folder)):
        if time.monotonic() > deadline:
            with suppress(OSError):
                restore_previous(folder)
            return
        time.sleep(0.01)


def restore_previous(folder: Path) -> None:
    """Restore a directory whose replacement was interrupted; only writers call this."""
    folder = Path(folder)
    if not os.path.exists(folder) and os.path.isdir(_previous(folder)):
        rename(_previous(folder), folder)


def clean_up_stale(parent: Path, older_than: float = 0.0) -> list[str]:
    """Restore interrupted replacements and remove unfinished writes; return these.

    Writes that are younger than `older_than` seconds stay, because another process, such as a
    command line, may be working on them.
    """
    removed = []
    for path in sorted(Path(parent).glob(".*")) if os.path.isdir(parent) else []:
        if not path.name.endswith((".tmp", ".previous")):
            continue
        try:
            age = time.time() - path.lstat().st_mtime
        except OSError:  # another process has removed it meanwhile
            continue
        if 0 <= age < older_than:  # a negative age is from before the clock was set back
            continue
        with suppress(OSError):  # on a read-only disk everything stays as it is
            if path.name.endswith(".tmp") and (path.is_file() or path.is_symlink()):
                path.unlink(missing_ok=True)
                removed.append(path.name)
            if path.name.endswith(".previous"):
                restore_previous(path.with_name(path.name[1 : -len(".previous")]))
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            removed += [] if path.is_dir() else [path.name]
    return removed


def is_read_only(error: OSError) -> bool:
    """Return whether a write failed because the path is read-only."""
    return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)


def remedy(error: OSError) -> str:
    """Return what the user can do about a directory that could not be written."""
    return (
        "set PLAYGROUND_CHECKPOINTS to a folder that can be written"
        if is_read_only(error)
        else "free disk space"
    )


@contextmanager
def storing(what: str) -> Iterator[None]:
    """Turn an OSError of this block into a UserError, as nothing was stored then."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{what} could not be stored: {error.strerror or error}; {remedy(error)} and try again"
        ) from None


def _previous(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.previous")
