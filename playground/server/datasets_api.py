"""Serve the dataset panel below the task field (ui/static/train/dataset_panel.js), and its routes.

    POST playground/datasets   The body is the text or the file. Headers: X-Owner is the owner key,
                               X-Name the file name (or hub:user/dataset with an empty body;
                               none for pasted text). What the user chose, else empty: X-Columns
                               source and target separated by a tab, X-First-Line "names" or
                               "example", X-Config, X-Split. X-Hub-Token is for this request only.

The response is a report (dataset_reader.py): counts and the first pairs, or errors by line number.
An upload is stored only with the action `use` (runs/dataset_library.py).
"""

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, Self, TypedDict
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground.common import messages
from playground.common.atomic_write import storing
from playground.common.validation import parse
from playground.datasets.pairs import SHA256_PATTERN, DatasetNotFoundError
from playground.datasets.sources import HUB_PREFIX, ReadOptions
from playground.errors import UserError, error_response
from playground.jobs.admission import CLIENT_ADDRESS, Policy, limit
from playground.jobs.executors import ProcessPerJob
from playground.jobs.job import Job
from playground.jobs.queue import JobQueue
from playground.runs.dataset_library import DatasetLibrary
from playground.runs.registry import Registry

from .asgi import json_error
from .checkpoint_transfer import Transfer, TransferSlots, save_body
from .hub_token import resolve_token
from .routes import HandlerGroup, handler
from .schemas.base import OwnerRequest
from .schemas.responses import Done

UPLOAD_PATH = "/playground/datasets"
UPLOAD_TIMEOUT_S = 120  # seconds
READ_TIMEOUT_S = 120  # seconds
MAX_CONCURRENT_READS = 2
MAX_NAME_LENGTH = 300  # characters of the name of a file or of a configuration
# By header, the values of options that have two.
HAS_NAMES = {"names": True, "example": False}


def _sha256_or_empty(value: object) -> str:
    """Return a SHA-256; empty for any other value."""
    return value if isinstance(value, str) and SHA256_PATTERN.fullmatch(value) else ""


class ActOnDataset(OwnerRequest):
    """An action on a dataset, which its SHA-256 identifies."""

    action: Literal["use", "show", "list", "remove"]
    sha256: Annotated[str, BeforeValidator(_sha256_or_empty)] = ""

    @model_validator(mode="after")
    def _require_sha256(self) -> Self:
        if self.action != "list" and not self.sha256:
            raise ValueError("the request names no dataset; upload one first")
        return self


class UploadDataset(OwnerRequest):
    """The headers of an upload; the body has the pairs."""

    name: str
    columns: list[str] = Field([])
    has_names: bool | None = None  # None: the reader decides
    # of a dataset on the Hub; empty if there is one
    config: str = ""
    split: str = ""


class DatasetSummary(TypedDict):
    """The counts and the first examples of a dataset."""

    # the format, the separator and the first line, as a sentence; empty for a stored dataset
    recognized: str
    # whether the first line names the columns; null for formats without such a line
    has_names: bool | None
    columns: list[str]
    selected: list[str]  # the columns of sources and targets
    n_rows: int
    n_skipped: int
    skipped: list[str]  # why the first rows that are left out cannot be used
    n_normalized: int
    n_pairs: int
    vocab_size: int
    vocabulary: list[str]  # the first tokens
    split_on_spaces: bool  # whether a token is a word; else it is a character
    source_lengths: tuple[int, int]  # the smallest and the largest length
    target_lengths: tuple[int, int]
    n_held_out: int
    held_out_warning: str  # what a score on few held-out examples can show; else empty
    n_duplicates: int
    n_conflicts: int
    conflict_lines: list[int]  # the first lines with another target than an earlier line
    preview: list[tuple[list[str], list[str]]]


class DatasetReport(DatasetSummary):
    """The response of `datasets` for a valid dataset."""

    sha256: str


class DatasetErrors(TypedDict):
    """The same for an invalid one."""

    error: str
    retryable: NotRequired[bool]
    lines: NotRequired[list[str]]
    n_rejected: NotRequired[int]  # the number of rejected lines
    columns: NotRequired[list[str]]  # the names to choose from, if a choice is missing or wrong
    configs: NotRequired[list[str]]
    splits: NotRequired[list[str]]


class PartialDataset(DatasetSummary):
    """The same for one with valid lines beside the invalid ones."""

    error: str
    lines: list[str]
    n_rejected: int
    configs: list[str]
    splits: list[str]


class StoredDataset(TypedDict):
    sha256: str
    name: str  # the name under which the user added it; empty if there is none
    bytes: int
    n_pairs: NotRequired[int]
    vocab_size: NotRequired[int]
    vocabulary: NotRequired[list[str]]
    damaged: NotRequired[str]  # why it cannot be read; then it has no counts


class StoredDatasets(TypedDict):
    datasets: list[StoredDataset]


DatasetResponse = StoredDatasets | DatasetReport | PartialDataset | DatasetErrors | Done


class DatasetHandlers(HandlerGroup):
    """Reads uploads, one at a time per user, and stores the datasets that they use."""

    def __init__(self, registry: Registry) -> None:
        self.library = DatasetLibrary(registry)
        self._active_uploads: dict[str, Transfer] = {}  # by owner
        self._slots = TransferSlots(limit("dataset-uploads"), UPLOAD_TIMEOUT_S)
        # the latest one, by owner and by what it reads
        self._read_jobs: dict[tuple[str, str], Job] = {}
        policy = Policy(
            process="the process that reads the dataset",
            max_running=MAX_CONCURRENT_READS,
            max_running_per_address=1,
            admission=limit("dataset-reads"),
            run_timeout_s=READ_TIMEOUT_S,
            timeout_advice="use fewer pairs",
        )
        self._read_queue = JobQueue(
            ProcessPerJob("playground.server.dataset_reader:read_dataset"),
            policy,
            {"preview": replace(policy, max_running=1, admission=limit("dataset-previews"))},
        )

    def routes(self) -> list[Route]:
        return [Route(UPLOAD_PATH, self.upload, methods=["POST"])]

    # Reading

    async def upload(self, http_request: Request) -> Response:
        try:
            request = parse(UploadDataset, _header_fields(http_request.headers))
            token = await self._resolve_token(request, http_request)
        except UserError as error:
            return json_error(error, 400)
        # it replaces the earlier upload of this owner
        if previous := self._active_uploads.pop(request.owner, None):
            self._slots.end(previous, "a newer upload replaced this one")
        try:
            async with self._slots.hold(CLIENT_ADDRESS.get()) as transfer:
                # before the first wait, so that an upload which starts now finds this one
                self._active_uploads[request.owner] = transfer
                try:
                    return JSONResponse(
                        await self._read_upload(request, http_request, transfer, token)
                    )
                finally:
                    if self._active_uploads.get(request.owner) is transfer:
                        del self._active_uploads[request.owner]
        except UserError as error:
            return json_error(error, 503)
        except TimeoutError:
            timeout_message = (
                f"the upload took longer than {UPLOAD_TIMEOUT_S} s; upload fewer pairs"
            )
            return json_error(UserError(transfer.reason or timeout_message))

    async def _resolve_token(self, request: UploadDataset, http_request: Request) -> str | None:
        """Return the token for a dataset on the Hub, or ""; None for another upload."""
        if not request.name.startswith(HUB_PREFIX):
            return None
        return await asyncio.to_thread(
            resolve_token,
            unquote(http_request.headers.get("x-hub-token", "")),
            http_request.scope.get("session", {}),
            bool(self.library.registry.single_owner),
        )

    async def _read_upload(
        self, request: UploadDataset, http_request: Request, transfer: Transfer, token: str | None
    ) -> dict[str, Any]:
        """Return the report of an upload, and keep the dataset until its user stores it."""
        owner = request.owner
        folder = self.library.registry.storage.new_scratch()
        read_request = {
            "name": request.name,
            "options": ReadOptions(**request.model_dump(exclude={"owner", "name"})),
            "folder": str(folder / "rows"),
        }
        read_request |= {"file": str(folder / "upload")} if token is None else {"token": token}
        try:
            with storing("the dataset"):
                await asyncio.to_thread(folder.mkdir, parents=True)
                await save_body(http_request, folder / "upload", transfer)
                transfer.complete()
                report = await self.read_dataset(owner, read_request)
                await asyncio.to_thread((folder / "upload").unlink, missing_ok=True)
        except UserError as error:
            report = error_response(error)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        await asyncio.to_thread(
            self.library.set_pending,
            owner,
            report.get("sha256", ""),
            folder,
            report.pop("name", ""),
        )
        return report

    async def read_dataset(self, owner: str, read_request: dict[str, Any]) -> dict[str, Any]:
        """Return the report of the reader process; a newer upload or preview ends this one."""
        key = (owner, "preview" if "dataset" in read_request else "upload")
        if previous := self._read_jobs.pop(key, None):
            self._read_queue.cancel(previous, f"a newer {key[1]} replaced this one")
        job = self._read_queue.submit(key[1], read_request, owner=owner)
        self._read_jobs[key] = job
        try:
            return await asyncio.wrap_future(job.future)
        finally:
            self._read_queue.cancel(job)
            if self._read_jobs.get(key) is job:
                del self._read_jobs[key]

    # Storing

    @handler("datasets/action", ActOnDataset, DatasetResponse)
    async def act_on_dataset(self, request: ActOnDataset) -> dict[str, Any]:
        owner, sha256 = request.owner, request.sha256
        if request.action == "list":
            return {"datasets": await asyncio.to_thread(self.library.list_datasets, owner)}
        try:
            if request.action == "show":
                # raises an error if it is not stored here
                await asyncio.to_thread(self.library.require, owner, sha256)
                return await self.read_dataset(owner, {"dataset": sha256})
            store_or_remove = self.library.store if request.action == "use" else self.library.remove
            with storing("the dataset"):
                await asyncio.to_thread(store_or_remove, owner, sha256)
        except DatasetNotFoundError:
            raise UserError(messages.missing_dataset(sha256)) from None
        return {}


def _header_fields(headers: Mapping[str, str]) -> dict[str, Any]:
    def text(name: str) -> str:
        return unquote(headers.get(name, ""))

    return {
        "owner": headers.get("x-owner", ""),
        "name": text("x-name")[:MAX_NAME_LENGTH],
        "columns": [column for column in text("x-columns")[:1000].split("\t") if column],
        "has_names": HAS_NAMES.get(headers.get("x-first-line", "")),
        "config": text("x-config")[:MAX_NAME_LENGTH],
        "split": text("x-split")[:MAX_NAME_LENGTH],
    }
