"""The folder of a server: shared checkpoints directly in it, and a folder per run in `runs/`."""

import hmac
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import filelock

from playground.checkpoints.manifest import Manifest
from playground.common.atomic_write import clean_up_stale, remedy
from playground.training.config import RunConfig

from .owner_keys import stored_key
from .weight_history import weights_path
from .worker_protocol import PINNED_SUFFIX

STALE_TMP_AGE_S = 600.0  # age in seconds at which an unfinished write is removed
RUN_FOLDER = re.compile(r"\d{8}-\d{6}-.+-[0-9a-f]{6}")  # as `new_run_folder` names it


class StorageFolder:
    def __init__(self, root: Path) -> None:
        self.root, self.runs = root, root / "runs"
        self._server_lock: filelock.BaseFileLock | None = None
        for folder in (root, *(root / name for name in ("runs", "rows", "compared"))):
            clean_up_stale(folder, STALE_TMP_AGE_S)

    def error(self) -> str:
        """Return why this folder cannot store runs and what to do; empty if it can."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.runs):
                return ""
        except OSError as error:
            return (
                f"{self.runs} cannot be written ({error.strerror or error}): models can be "
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
        """Return the checkpoints that all users may inspect, by name.

        They are the folders directly under the root.
        """
        return {
            folder.name: folder
            for folder in _subfolders(self.root)
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

    def import_files(self, folder: Path, manifest: Manifest) -> tuple[Path, bool]:
        """Move the files of a checkpoint into the folder of a new run.

        Returns:
            the folder of the run, and whether its training can be resumed.

        Raises:
            OSError: if a file cannot be written; the new folder is removed then.
        """
        target = self.new_run_folder(manifest.config)
        checkpoint = target / "checkpoints" / f"{manifest.step:07d}{PINNED_SUFFIX}"
        try:
            checkpoint.parent.mkdir(parents=True)
            shutil.move(folder, checkpoint)
            (target / "history").mkdir()
            weights = weights_path(target, manifest.step)
            shutil.copyfile(checkpoint / "model.safetensors", weights)
            if (checkpoint / "metrics.jsonl").is_file():
                shutil.move(checkpoint / "metrics.jsonl", target / "metrics.jsonl")
        except OSError:
            shutil.rmtree(target, ignore_errors=True)
            raise
        return target, (checkpoint / "training.safetensors").is_file()


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder by name, also those that cannot be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if name[0] != "." and os.path.isdir(folder / name)]
