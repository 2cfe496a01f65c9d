"""The folder of a server: shared checkpoints directly in it, and a folder per run in `runs/`."""

import hmac
import json
import logging
import multiprocessing.util
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import filelock

from playground.checkpoints.manifest import Manifest, read_unchanged
from playground.checkpoints.metrics import read_metrics
from playground.common.atomic_write import clean_up_stale, remedy, remove_dir
from playground.common.storage import BUNDLED_CHECKPOINTS, directory_size
from playground.common.strict_json import read_json
from playground.errors import UserError, error_text
from playground.training.run_config import RunConfig

from .owner_keys import stored_key
from .weight_history import weights_path
from .worker_protocol import PINNED_SUFFIX

log = logging.getLogger(__name__)
CHECKPOINT_FILES = ("config.json", "model.safetensors", "training.safetensors", "metrics.jsonl")
RUN_FOLDER = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{6}")  # as `new_run_folder` names it
# Age in seconds at which an unfinished write is removed where commands write, too: models, and
# datasets, which take less time.
STALE_TMP_AGE_S, STALE_DATASET_AGE_S = 600.0, 2.0


@contextmanager
def locked_storage(root: Path) -> Iterator[None]:
    """Lock a storage folder for this process: the server, or a command that has a registry.

    Two registries would overwrite the records of each other. Raises UserError for the second.
    """
    lock = filelock.FileLock(root / "runs" / ".server.lock")
    try:
        (root / "runs").mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UserError(
            f"another server or command uses {root}: end it first, or choose another folder "
            "(PLAYGROUND_CHECKPOINTS for a server, --out for a command)"
        ) from None
    except (OSError, NotImplementedError):
        pass  # it cannot be written, which `StorageFolder.error` reports, or has no locks
    try:
        yield
    finally:
        lock.release()


class StorageFolder:
    """The folder of checkpoints and runs."""

    bundled: Path | None = None  # the folder of the bundled checkpoints, if it is another one

    def __init__(self, root: Path) -> None:
        self.root, self.runs = root, root / "runs"
        self.scratch = self.runs / ".scratch"  # of this server; what an earlier one left goes
        shutil.rmtree(self.scratch, ignore_errors=True)
        for folder in (self.runs, *(root / "rows").glob(".owners/*")):
            clean_up_stale(folder)  # only the owner of the lock writes there
        clean_up_stale(root / "rows", STALE_DATASET_AGE_S)
        for folder in (root, root / "compared"):
            clean_up_stale(folder, STALE_TMP_AGE_S)
        self._remove_orphans()

    def _remove_orphans(self) -> None:
        """Remove the folders of runs that never got a record, and have nothing to show."""
        for folder in self.runs.glob("*") if self.runs.is_dir() else ():
            if RUN_FOLDER.fullmatch(folder.name) and not any(
                path.is_file() and path.name != ".lock" for path in folder.rglob("*")
            ):
                shutil.rmtree(folder, ignore_errors=True)

    def new_scratch(self) -> Path:
        """Return the path of a new temporary folder, which the caller creates and removes."""
        return self.scratch / secrets.token_hex(8)

    def use_scratch(self) -> None:
        """Write the temporary files of this process below the scratch folder from now on.

        Multiprocessing keeps its sockets, whose paths must be short, where they are.
        """
        multiprocessing.util.get_temp_dir()
        self.scratch.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = str(self.scratch)

    def error(self) -> str:
        """Return why this folder cannot store runs and what to do; empty if it can."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.runs):
                return ""
        except OSError as error:
            return (
                f"the storage folder cannot be written ({error.strerror or error}): models can be "
                f"inspected, but not trained; {remedy(error)}"
            )

    @cached_property
    def _address_key(self) -> bytes:
        return stored_key(self.runs / ".address-key").encode()

    def address_id(self, address: str) -> str:
        """Return what identifies a client address in records: a hash with a key of this folder."""
        if not address:
            return ""
        data = address.encode("utf-8", "replace")
        return hmac.digest(self._address_key, data, "sha256").hex()[:32]

    def list_checkpoints(self) -> dict[str, Path]:
        """Return the checkpoints in the root, and the bundled ones of other names, by name."""
        bundled = [self.bundled / name for name in BUNDLED_CHECKPOINTS] if self.bundled else []
        return {
            folder.name: folder
            for folder in [*bundled, *_subfolders(self.root)]
            if os.path.lexists(folder / "config.json")
        }

    def run_folders(self) -> Iterator[Path]:
        """Yield the folders of the runs of earlier servers, without their unfinished writes."""
        for folder in _subfolders(self.runs):
            has_record = os.path.lexists(folder / "run.json")
            if not has_record and not RUN_FOLDER.fullmatch(folder.name):
                continue
            with (
                suppress(filelock.Timeout, OSError),
                filelock.FileLock(folder / ".lock", timeout=0),
            ):
                for each in (folder, folder / "checkpoints", folder / "history"):
                    clean_up_stale(each)  # no process writes there, as the lock is free
            yield folder

    def new_run_folder(self, config: RunConfig) -> Path:
        """Return the folder of a new run: its date, its task and a random suffix."""
        date = time.strftime("%Y%m%d-%H%M%S")
        return self.runs / f"{date}-{config.task.task}-{secrets.token_hex(3)}"


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name, also those that cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if name[0] != "." and os.path.isdir(folder / name)]


def move_checkpoint(checkpoint: Path, manifest: Manifest, run: Path) -> bool:
    """Move the files of a checkpoint into the folder of a new run.

    Returns whether training can resume. Raises OSError.
    """
    target = run / "checkpoints" / f"{manifest.step:07d}{PINNED_SUFFIX}"
    target.parent.mkdir()
    shutil.move(checkpoint, target)
    (run / "history").mkdir()
    shutil.copyfile(target / "model.safetensors", weights_path(run, manifest.step))
    if (target / "metrics.jsonl").is_file():
        shutil.move(target / "metrics.jsonl", run / "metrics.jsonl")
    return (target / "training.safetensors").is_file()


def export_checkpoint(checkpoint: Path, run: Path | None, destination: Path) -> Path:
    """Copy the checkpoint files, and no other file, into a new folder.

    The metrics are those of the run up to its step. The run may continue to train meanwhile. Raises
    CheckpointError or OSError.
    """

    def copy(manifest: Manifest) -> None:
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir(parents=True)
        for name in CHECKPOINT_FILES:
            if (checkpoint / name).is_file():
                shutil.copyfile(checkpoint / name, destination / name)

    step = read_unchanged(checkpoint, copy)[0].step
    if run is not None and not (destination / "metrics.jsonl").is_file():
        with open(destination / "metrics.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in read_metrics(run, step))
    return destination


@dataclass(frozen=True)
class Damaged:
    """A folder or a file with a damaged record.

    `reason` is a sentence, and `owner` the fingerprint of its owner, empty if it is unknown.
    """

    path: Path
    reason: str
    owner: str
    n_bytes: int

    def remove(self) -> None:
        """Remove the folder or the file. Raises OSError; then it is still there."""
        if self.path.is_dir() and not self.path.is_symlink():
            remove_dir(self.path)
        else:
            self.path.unlink(missing_ok=True)


def describe_damage(path: Path, record: Path, error: Exception) -> Damaged:
    """Log and return a damaged record, which is `path` or a file below it."""
    log.warning("%s is not listed: %s", path, error)
    owner, n_bytes = "", 0
    with suppress(ValueError, AttributeError, TypeError):
        owner = str(read_json(record).get("owner", ""))
    with suppress(OSError):
        n_bytes = directory_size(path) if path.is_dir() else path.lstat().st_size
    return Damaged(path, error_text(error), owner, n_bytes)
