"""The datasets that users store on this server, by SHA-256, and the quota of each user.

An upload waits in a folder until its user stores it. Safe to call from any thread; every method
reads or writes the disk.
"""

import shutil
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from playground.common import messages
from playground.common.env import env_number
from playground.common.platform import fsync_dir, rename
from playground.common.storage import directory_size, evict
from playground.datasets.pairs import SHA256_PATTERN, DatasetError, DatasetNotFoundError
from playground.datasets.storage import (
    UPLOADED,
    dataset_name,
    datasets_dir,
    load_metadata,
    mark_owned,
    owned_datasets_dir,
    read_marker,
)
from playground.errors import UserError, error_text
from playground.jobs.admission import CLIENT_ADDRESS, Client, limit, max_amount_per_address
from playground.tasks import LOOKUP

from .access import is_single_owner, owns_dataset
from .record import owner_id
from .registry import Registry

# Uploads that were neither stored nor replaced, in bytes; each counts as a share at least.
MAX_UNSAVED_BYTES, MIN_UNSAVED_BYTES = 320_000_000, 10_000_000
MIN_RETENTION_S = 3600.0  # minimum age of an evicted dataset
REMOVED = "removed"  # in place of an owner: datasets that runs may still use
MB = 1_000_000


class DatasetLibrary:
    """Stores datasets. On a public instance a user may store `own_mb`, all users together
    `all_mb`, and one address half of that.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.own_mb = env_number("DATASETS_PER_USER_MB")
        self.all_mb = env_number("DATASETS_TOTAL_MB")
        # by owner: SHA-256, folder, name, client address and size of the latest upload
        self._pending: OrderedDict[str, tuple[str, Path, str, str, int]] = OrderedDict()
        self._lock = threading.Lock()
        registry.storage_quota.on_delete = self.delete_removed
        self.delete_removed()

    def set_pending(self, owner: str, sha256: str, folder: Path, name: str = "") -> None:
        """Hold an upload until `store`; it replaces the user's earlier one.

        If too much is held, the address that has most loses its oldest ones.
        """
        size = max(directory_size(folder), MIN_UNSAVED_BYTES)
        with self._lock:
            discarded = [self._pending.pop(owner)[1]] if owner in self._pending else []
            if sha256:
                self._pending[owner] = sha256, folder, name, CLIENT_ADDRESS.get(), size
            else:
                discarded.append(folder)
            while len(self._pending) > 1:
                held = Counter[str]()
                for *_, address, unsaved_bytes in self._pending.values():
                    held[address] += unsaved_bytes
                if held.total() <= MAX_UNSAVED_BYTES:
                    break
                crowded = held.most_common(1)[0][0]
                oldest = next(key for key, each in self._pending.items() if each[3] == crowded)
                discarded.append(self._pending.pop(oldest)[1])
        for path in discarded:
            shutil.rmtree(path, ignore_errors=True)

    def store(self, owner: str, sha256: str) -> None:
        """Store the latest upload of a user, who becomes an owner of the dataset.

        Raises UserError if a quota is used up; retryable, if the server has no such upload.
        """
        with self._lock:
            pending_sha256, folder, name, *_ = self._pending.get(owner, ("", Path(), "", "", 0))
            stored = datasets_dir() / sha256
            is_uploaded = pending_sha256 == sha256 and (folder / "rows").is_dir()
            is_own = stored.is_dir() and owns_dataset(self.registry, owner, sha256)
            if not is_uploaded and not is_own:
                raise UserError(
                    "the server no longer has this dataset; upload it again", retryable=True
                )
            marker = self._owner_markers(owner) / sha256
            if not self.registry.single_owner and not marker.exists():
                # also if others store it already: the answer must not depend on them
                new_bytes = 0 if is_own else directory_size(folder / "rows")
                self._ensure_quota(owner, new_bytes or directory_size(stored), new_bytes)
            if not is_own and not stored.is_dir():
                (folder / "rows" / UPLOADED).touch()
                fsync_dir(folder / "rows")
                stored.parent.mkdir(parents=True, exist_ok=True)
                rename(folder / "rows", stored)
                fsync_dir(stored.parent)
            address, known_name = read_marker(marker)
            mark_owned(
                marker,
                address or self.registry.client_address(),
                name if pending_sha256 == sha256 else known_name,
            )
            _removed_marker(sha256).unlink(missing_ok=True)

    def require(self, owner: str, sha256: str) -> None:
        """Raise DatasetNotFoundError unless a dataset is stored and a user owns it."""
        if not owns_dataset(self.registry, owner, sha256):
            raise DatasetNotFoundError(messages.missing_dataset(sha256))
        load_metadata(sha256)

    def list_datasets(self, owner: str) -> list[dict[str, Any]]:
        """Return the stored datasets of a user, or of a local instance, latest use first."""
        owns_machine = is_single_owner(self.registry, owner)
        paths = [
            path
            for path in (datasets_dir() if owns_machine else self._owner_markers(owner)).glob("*")
            if SHA256_PATTERN.fullmatch(path.name)
        ]
        datasets = []
        for path in sorted(paths, key=_modified_at, reverse=True):
            if not (datasets_dir() / path.name).is_dir():  # removed meanwhile
                continue
            row: dict[str, Any] = {
                "sha256": path.name,
                "name": dataset_name(owner_id(owner), path.name),
                "bytes": directory_size(datasets_dir() / path.name),
            }
            try:
                metadata = load_metadata(path.name)
                row |= {
                    "n_pairs": metadata["rows"],
                    "vocab_size": len(metadata["vocabulary"]),
                    "vocabulary": metadata["vocabulary"][:8],
                }
            except (DatasetError, OSError) as error:
                row["damaged"] = error_text(error)
            datasets.append(row)
        return datasets

    def remove(self, owner: str, sha256: str) -> None:
        """Remove a dataset from a user's list, and its files once no user and no run uses them.

        Raises UserError for a dataset of another user.
        """
        owns_machine = is_single_owner(self.registry, owner)
        with self._lock:
            marker = self._owner_markers(owner) / sha256
            if not owns_machine and not marker.exists():
                raise UserError("this dataset is not yours, or was removed")
            is_used = self._in_use(sha256)
            if is_used and owns_machine:
                raise UserError("runs on this machine use this dataset; delete those first")
            if marker.exists():  # it counts for the address of this user until it is deleted
                _removed_marker(sha256).parent.mkdir(exist_ok=True)
                rename(marker, _removed_marker(sha256))
            if not is_used:
                self._delete_unowned(sha256, owns_machine)

    def delete_removed(self) -> None:
        """Delete the datasets that no run uses any more since their users removed them.

        Those of a local instance stay: a command may have added them again.
        """
        # a damaged run may use any dataset
        if self.registry.single_owner or self.registry.damaged:
            return
        with self._lock:
            for removed in list(owned_datasets_dir(REMOVED).glob("*")):
                if SHA256_PATTERN.fullmatch(removed.name) and not self._in_use(removed.name):
                    with suppress(OSError):
                        self._delete_unowned(removed.name)

    def _delete_unowned(self, sha256: str, owns_machine: bool = False) -> None:
        """Delete a dataset without users; one that a command stored only for the local owner."""
        removed, folder = _removed_marker(sha256), datasets_dir() / sha256
        is_deletable = owns_machine or (folder / UPLOADED).is_file()
        if is_deletable and set(datasets_dir().glob(f".owners/*/{sha256}")) <= {removed}:
            shutil.rmtree(folder, ignore_errors=True)
        removed.unlink(missing_ok=True)

    def _in_use(self, sha256: str) -> bool:
        return any(each == sha256 for each, _ in self._used_datasets())

    def _used_datasets(self) -> Iterator[tuple[str, str]]:
        """Yield the dataset and the client address of each run on a dataset."""
        for run in self.registry.all_runs():
            if run.config.task.task == LOOKUP:
                yield run.config.task.dataset_sha256, run.address

    def _owner_markers(self, owner: str) -> Path:
        return owned_datasets_dir(owner_id(owner))

    def _ensure_quota(self, owner: str, size: int, new_bytes: int) -> None:
        """Raise UserError unless a user may store this size, and the server `new_bytes` more."""
        dataset_sizes = [
            directory_size(datasets_dir() / marker.name)
            for marker in self._owner_markers(owner).glob("*")
            if (datasets_dir() / marker.name).is_dir()
        ]
        client = Client(owner=owner)
        limit("datasets").admit(client, [client] * len(dataset_sizes))
        if sum(dataset_sizes) + size > self.own_mb * MB:
            raise UserError(
                f"you store {sum(dataset_sizes) / MB:.1f} MB of datasets here and this one has "
                f"{size / MB:.1f} MB; "
                f"{self.own_mb:g} MB are possible, so remove some or upload fewer pairs"
            )
        address = self.registry.client_address()
        if new_bytes and address and not self._evict_for(new_bytes, address):
            raise UserError(
                f"datasets from your address take all of the "
                f"{max_amount_per_address(self.all_mb):g} MB that one address may store here; "
                "remove some, or try again later"
            )
        if new_bytes and not self._evict_for(new_bytes):
            raise UserError(
                "this server has no space for more datasets; try again later, or run the "
                "playground on your own machine"
            )

    def _evict_for(self, new_bytes: int, address: str = "") -> bool:
        """Return whether so many bytes more fit, in all or in the share of one address.

        Datasets make way that no run uses and no user selected for a long time; for an address,
        only those that no other one stores.
        """
        markers_by_sha256 = defaultdict[str, list[Path]](list)
        addresses = defaultdict[str, set[str]](set)
        for marker in datasets_dir().glob(".owners/*/*"):
            markers_by_sha256[marker.name].append(marker)
            addresses[marker.name].add(read_marker(marker)[0])
        # A dataset that its owner removed stays for the runs that use it.
        for sha256, user_address in self._used_datasets():
            addresses[sha256].add(user_address)
        size_by_path = {
            path: directory_size(path)
            for path in datasets_dir().glob("[!.]*")
            if path.is_dir() and (not address or address in addresses[path.name])
        }
        max_mb = max_amount_per_address(self.all_mb) if address else self.all_mb
        excess_bytes = sum(size_by_path.values()) + new_bytes - int(max_mb * MB)
        if excess_bytes <= 0:
            return True
        last_used_at = {
            path: max(map(_modified_at, markers_by_sha256[path.name] or [path]))
            for path in size_by_path
        }
        now = time.time()
        idle = [
            path
            for path in sorted(size_by_path, key=last_used_at.__getitem__)
            # a time in the future is from before the clock was set back
            if not 0 <= now - last_used_at[path] <= MIN_RETENTION_S
            and (path / UPLOADED).is_file()
            and not self._in_use(path.name)
            and (not address or addresses[path.name] == {address})
        ]
        if sum(size_by_path[path] for path in idle) < excess_bytes:
            return False

        def remove(path: Path) -> int:
            for marker in markers_by_sha256[path.name]:
                marker.unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            return size_by_path[path]

        evict(idle, excess_bytes, remove)
        return True


def _removed_marker(sha256: str) -> Path:
    """Return the file of a dataset that its user removed until it is deleted; see `mark_owned`."""
    return owned_datasets_dir(REMOVED) / sha256


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
