"""Serve the dataset panel below the task field (ui/static/train/dataset_panel.js), and its routes.

    POST playground/rows   The body is the text or the file. Headers: X-Owner is the owner key,
                           X-Name the file name (or hub:user/dataset with an empty body), X-Columns
                           source and target separated by a tab, X-Words "words", "characters" or
                           empty.

The response is a report (dataset_reader.py): counts and the first rows, or errors by line number.
An upload is stored only with the action `use`, by content hash, and then counts for the quota of
the visitor.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground.common.atomic_write import remedy, write_dir
from playground.common.env import env_number
from playground.common.storage import directory_size
from playground.datasets.pairs import SHA256_PATTERN, DatasetError, DatasetNotFoundError
from playground.datasets.storage import datasets_dir, load_metadata
from playground.errors import UserError
from playground.jobs.addresses import CLIENT_ADDRESS, max_amount_per_address, uses_full_share
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.runs.owner_keys import OWNER_KEY_PATTERN
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.tasks import LOOKUP
from playground.ui.training_form import missing_dataset_message

from .checkpoint_transfer import save_body
from .client import resolve_client_address
from .transfer_slots import Transfer, TransferSlots

UPLOAD_PATH = "/playground/datasets"
UPLOAD_TIMEOUT_S = 120  # seconds
READ_TIMEOUT_S = 120  # seconds
MAX_CONCURRENT_READS = 2
MAX_PENDING_UPLOADS = 8
MAX_CONCURRENT_PREVIEWS = 8  # stored datasets that are read or queued for `show`
MAX_UNSAVED_DATASETS = 32  # uploads that were neither stored nor replaced
MAX_DATASETS_PER_OWNER = 50
MIN_RETENTION_S = 3600.0  # minimum age of an evicted dataset
MB = 1_000_000


class DatasetUploads:
    """Reads uploads, one at a time per visitor, and stores the datasets that they use.

    On a public instance, a visitor may store `own_mb`, all visitors together `all_mb`, and one
    address half of that.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.own_mb = env_number("DATASETS_PER_USER_MB")
        self.all_mb = env_number("DATASETS_TOTAL_MB")
        # by owner: content hash and folder of the latest upload
        self._pending: OrderedDict[str, tuple[str, Path]] = OrderedDict()
        self._active_uploads: dict[str, Transfer] = {}  # by owner
        self._slots = TransferSlots(
            MAX_PENDING_UPLOADS,
            UPLOAD_TIMEOUT_S,
            "others are bringing rows just now; try again in a moment",
        )
        self._read_jobs: dict[str, Job] = {}  # by owner: the latest one
        # by marker: address of the client, since the start of the server
        self._addresses: dict[Path, str] = {}
        self._read_queue = JobQueue(
            ProcessPerJob({"dataset": "playground.server.dataset_reader:read_dataset"}),
            Policy(
                process="the process that reads the dataset",
                nouns="datasets",
                max_running=MAX_CONCURRENT_READS,
                max_running_per_address=1,
                max_active=MAX_CONCURRENT_READS + MAX_PENDING_UPLOADS + MAX_CONCURRENT_PREVIEWS,
                run_timeout_s=READ_TIMEOUT_S,
                timeout_advice="use fewer pairs",
            ),
        )
        self._preview_addresses: list[str] = []  # the address of each active `show`
        self._lock = threading.Lock()

    def routes(self) -> list[Route]:
        return [Route(UPLOAD_PATH, self.upload, methods=["POST"])]

    # Reading

    async def upload(self, request: Request) -> Response:
        """Read an upload; return its report."""
        owner, name = (
            request.headers.get("x-owner", ""),
            unquote(request.headers.get("x-name", ""))[:300],
        )
        columns = [
            column
            for column in unquote(request.headers.get("x-columns", ""))[:1000].split("\t")
            if column
        ]
        words = {"words": True, "characters": False}.get(request.headers.get("x-words", ""))
        if not OWNER_KEY_PATTERN.fullmatch(owner):
            return JSONResponse(
                {"error": "the request has no owner key; reload the page and try again"},
                status_code=400,
            )
        # it replaces the earlier upload of this owner
        if previous := self._active_uploads.pop(owner, None):
            self._slots.end(previous, "a newer upload replaced this one")
        try:
            async with self._slots.hold(resolve_client_address(request)) as transfer:
                return JSONResponse(
                    await self._store_upload(request, transfer, owner, name, columns, words)
                )
        except UserError as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        except TimeoutError:
            return JSONResponse(
                {
                    "error": transfer.reason
                    or f"the upload took longer than {UPLOAD_TIMEOUT_S} s; upload fewer pairs"
                }
            )

    async def _store_upload(
        self,
        request: Request,
        transfer: Transfer,
        owner: str,
        name: str,
        columns: list[str],
        split_words: bool | None,
    ) -> dict[str, Any]:
        folder = datasets_dir() / f".{secrets.token_hex(8)}.tmp"
        read_request = {
            "name": name,
            "columns": columns,
            "words": split_words,
            "folder": str(folder / "rows"),
        }
        read_request |= (
            {"hub": name.removeprefix("hub:")}
            if name.startswith("hub:")
            else {"file": str(folder / "sent")}
        )
        try:
            folder.mkdir(parents=True)
            await self._receive(request, transfer, owner, folder / "sent")
            report = await self.read_dataset(owner, read_request)
            (folder / "sent").unlink(missing_ok=True)
        except UserError as error:
            report = {"error": str(error)}
        except OSError as error:
            report = {
                "error": f"the dataset could not be stored: {error.strerror or error}; "
                f"{remedy(error)} and try again"
            }
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        await asyncio.to_thread(self._set_pending, owner, report.get("content", ""), folder)
        return report

    async def _receive(self, request: Request, transfer: Transfer, owner: str, path: Path) -> None:
        """Write the body of a request to a file.

        Raises:
            UserError: if it is too large.
        """
        self._active_uploads[owner] = transfer
        try:
            await save_body(request, path, transfer)
            transfer.complete()
        finally:
            if self._active_uploads.get(owner) is transfer:
                del self._active_uploads[owner]

    async def read_dataset(self, owner: str, read_request: dict[str, Any]) -> dict[str, Any]:
        """Return the report of the reader process.

        A new upload of the same visitor cancels the earlier one.

        Raises:
            UserError: if too many datasets wait.
        """
        if previous := self._read_jobs.pop(owner, None):
            self._read_queue.cancel(previous, "a newer upload replaced this one")
        job = self._read_queue.submit("dataset", read_request, owner=owner)
        self._read_jobs[owner] = job
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            self._read_queue.cancel(job)
            if self._read_jobs.get(owner) is job:
                del self._read_jobs[owner]

    def _set_pending(self, owner: str, content: str, folder: Path) -> None:
        """Store an upload until `keep`; it replaces the visitor's earlier one."""
        with self._lock:
            discarded = [self._pending.pop(owner)[1]] if owner in self._pending else []
            if content:
                self._pending[owner] = content, folder
            else:
                discarded.append(folder)
            while len(self._pending) > MAX_UNSAVED_DATASETS:
                discarded.append(self._pending.popitem(last=False)[1][1])
        for path in discarded:
            shutil.rmtree(path, ignore_errors=True)

    # Storing

    async def handle_action(self, payload: object, _: Request) -> dict[str, Any]:
        """Handle an action of the panel.

        `use` stores an uploaded dataset, `show` previews a stored one, `list` lists those of the
        visitor, `remove` removes one.
        """
        payload = payload if isinstance(payload, dict) else {}
        owner, content, action = payload.get("owner"), payload.get("content"), payload.get("do")
        if not isinstance(owner, str) or not OWNER_KEY_PATTERN.fullmatch(owner):
            return {"error": "the request has no owner key; reload the page and try again"}
        if action == "list":
            return {"datasets": await asyncio.to_thread(self.list_datasets, owner)}
        if not isinstance(content, str) or not SHA256_PATTERN.fullmatch(content):
            return {"error": "these are no rows; bring some"}
        try:
            if action == "show":
                return await self._preview(owner, content)
            return await asyncio.to_thread(
                self.keep if action == "use" else self.remove, owner, content
            )
        except DatasetNotFoundError:
            return {"error": missing_dataset_message(content)}
        except (UserError, DatasetError) as error:
            return {"error": str(error)}
        except OSError as error:
            return {
                "error": f"the dataset could not be stored: {error.strerror or error}; "
                f"{remedy(error)} and try again"
            }

    async def _preview(self, owner: str, content: str) -> dict[str, Any]:
        if len(self._preview_addresses) >= MAX_CONCURRENT_PREVIEWS or uses_full_share(
            self._preview_addresses, MAX_CONCURRENT_PREVIEWS
        ):
            return {
                "error": "other datasets are being read; try again in a moment",
                "again": True,
            }
        self._preview_addresses.append(address := CLIENT_ADDRESS.get())
        try:
            # raises an error if it is not stored here
            await asyncio.to_thread(load_metadata, content)
            return await self.read_dataset(owner, {"dataset": content})
        finally:
            self._preview_addresses.remove(address)

    def keep(self, owner: str, content: str) -> dict[str, Any]:
        """Store an upload for the visitor.

        `again` in the response requests a new upload.

        Raises:
            UserError: if the quota of the visitor or of the server is used up.
        """
        with self._lock:
            pending_content, folder = self._pending.get(owner, ("", Path()))
            is_stored = (datasets_dir() / content).is_dir()
            if not is_stored and (pending_content != content or not (folder / "rows").is_dir()):
                return {"again": True}
            files = (
                {}
                if is_stored
                else {path.name: path.read_bytes() for path in (folder / "rows").iterdir()}
            )
            marker = self._owner_markers(owner) / content
            if not self.registry.single_owner and not marker.exists():
                new_bytes = sum(map(len, files.values()))
                self._ensure_quota(
                    owner, new_bytes or directory_size(datasets_dir() / content), new_bytes
                )
            if files:
                write_dir(datasets_dir() / content, files)
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
            self._addresses.setdefault(marker, CLIENT_ADDRESS.get())
        return {}

    def list_datasets(self, owner: str) -> list[dict[str, Any]]:
        """Return the stored datasets of a visitor, most recently used first.

        The owner of a local instance gets all.
        """
        owns_machine = self.registry.single_owner and secrets.compare_digest(
            owner, self.registry.single_owner
        )
        paths = [
            path
            for path in (datasets_dir() if owns_machine else self._owner_markers(owner)).glob("*")
            if SHA256_PATTERN.fullmatch(path.name)
        ]
        datasets = []
        for path in sorted(paths, key=_modified_at, reverse=True)[:MAX_DATASETS_PER_OWNER]:
            with suppress(DatasetError, OSError):
                metadata = load_metadata(path.name)
                datasets.append(
                    {
                        "content": path.name,
                        "rows": metadata["rows"],
                        "symbols": len(metadata["vocabulary"]),
                        "vocabulary": metadata["vocabulary"][:8],
                        "bytes": directory_size(datasets_dir() / path.name),
                    }
                )
        return datasets

    def remove(self, owner: str, content: str) -> dict[str, Any]:
        """Remove a dataset from a visitor's list.

        The files are deleted if no other visitor and no run uses them.

        Raises:
            UserError: for a dataset of another visitor.
        """
        owns_machine = self.registry.single_owner and secrets.compare_digest(
            owner, self.registry.single_owner
        )
        with self._lock:
            marker = self._owner_markers(owner) / content
            if not owns_machine and not marker.exists():
                raise UserError("this dataset is not yours, or was removed")
            if self._in_use(content) and owns_machine:
                raise UserError("runs on this machine use this dataset; delete those first")
            self._remove_marker(marker)
            if not self._in_use(content) and not any(datasets_dir().glob(f".owners/*/{content}")):
                shutil.rmtree(datasets_dir() / content, ignore_errors=True)
        return {}

    def _in_use(self, content: str) -> bool:
        return any(
            config.task.task == LOOKUP and config.task.dataset_sha256 == content
            for config in self.registry.all_configs()
        )

    def _owner_markers(self, owner: str) -> Path:
        """Return the folder with one empty file per dataset of the visitor.

        The files are named by content hash.
        """
        return datasets_dir() / ".owners" / owner_id(owner)[:32]

    def _ensure_quota(self, owner: str, size: int, new_bytes: int) -> None:
        """Check that a visitor may store this size, and the server `new_bytes` more.

        Raises Refused.
        """
        dataset_sizes = [
            directory_size(datasets_dir() / marker.name)
            for marker in self._owner_markers(owner).glob("*")
            if (datasets_dir() / marker.name).is_dir()
        ]
        if len(dataset_sizes) >= MAX_DATASETS_PER_OWNER:
            raise UserError(
                f"you keep {MAX_DATASETS_PER_OWNER} sets of rows here, which is as many as can be; "
                "remove one first"
            )
        if sum(dataset_sizes) + size > self.own_mb * MB:
            raise UserError(
                f"you keep {sum(dataset_sizes) / MB:.1f} MB of rows here and these "
                f"have {size / MB:.1f} MB; "
                f"{self.own_mb:g} MB are possible, so remove some or upload fewer pairs"
            )
        if new_bytes and not self._evict_for_address(new_bytes):
            raise UserError(
                f"rows from your address take all of the {max_amount_per_address(self.all_mb):g} "
                "MB that one address may keep here; remove some, or try again later"
            )
        if new_bytes and not self._evict_for(new_bytes):
            raise UserError(
                "this server keeps as many rows as it can; try again later, or run the playground "
                "on your own machine"
            )

    def _evict_for_address(self, new_bytes: int) -> bool:
        """Return whether the client address may store so many bytes more."""
        address = CLIENT_ADDRESS.get()
        contents = {
            marker.name
            for marker, marker_address in self._addresses.items()
            if marker_address == address
        }
        return not address or self._evict_for(
            new_bytes, contents, max_amount_per_address(self.all_mb)
        )

    def _remove_marker(self, marker: Path) -> None:
        marker.unlink(missing_ok=True)
        self._addresses.pop(marker, None)

    def _evict_for(
        self, new_bytes: int, contents: Container[str] | None = None, max_mb: float | None = None
    ) -> bool:
        """Return whether so many bytes more fit.

        If not, datasets are evicted that no run uses and no visitor selected for a long time.
        """
        paths = [
            path
            for path in datasets_dir().glob("[!.]*")
            if path.is_dir() and (contents is None or path.name in contents)
        ]
        size_by_path = {path: directory_size(path) for path in paths}
        excess_bytes = (
            sum(size_by_path.values())
            + new_bytes
            - int((self.all_mb if max_mb is None else max_mb) * MB)
        )
        if excess_bytes <= 0:
            return True
        markers_by_content: dict[str, list[Path]] = {}
        for marker in datasets_dir().glob(".owners/*/*"):
            markers_by_content.setdefault(marker.name, []).append(marker)
        last_used_at = {
            path: max(map(_modified_at, markers_by_content.get(path.name, [path])))
            for path in size_by_path
        }
        now = time.time()
        idle = [
            path
            for path in sorted(size_by_path, key=last_used_at.__getitem__)
            if now - last_used_at[path] > MIN_RETENTION_S and not self._in_use(path.name)
        ]
        if sum(size_by_path[path] for path in idle) < excess_bytes:
            return False
        for path in idle:
            if excess_bytes > 0:
                for marker in markers_by_content.get(path.name, []):
                    self._remove_marker(marker)
                shutil.rmtree(path, ignore_errors=True)
                excess_bytes -= size_by_path[path]
        return True


def _modified_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed meanwhile
        return 0.0
