"""Download and upload checkpoints, as one zip file each.

Transfers hold slots; a slow one loses its slot when another one needs it.

    GET  playground/checkpoint/TICKET   the ticket of the owner is valid once and for a minute
    POST playground/checkpoint          the body is the zip file, X-Owner the owner key of the new
                                        run, and X-Name its name

The upload route of Gradio stays closed (middleware.py), because it checks neither owner nor size.
"""

import asyncio
import math
import re
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common.atomic_write import remedy
from playground.common.env import env_bytes
from playground.errors import UserError
from playground.jobs.admission import CLIENT_ADDRESS, Admission, Client, limit
from playground.models.config_fields import ConfigError
from playground.runs.access import RUN_PREFIX
from playground.runs.record import MAX_NAME_LENGTH
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.storage_folder import CHECKPOINT_FILES, export_checkpoint

from .asgi import json_error
from .process_calls import process_queue, run_job
from .schemas.base import require_owner_key

CHECKPOINT_PATH = "/playground/checkpoints"
MAX_UPLOAD_BYTES = env_bytes("UPLOAD_MB")  # bytes of the zip file
MAX_EXPANSION = 3  # maximum ratio of the unpacked size to MAX_UPLOAD_BYTES
VALIDATION_TIMEOUT_S = 60  # seconds
UPLOAD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S = 300, 600  # seconds
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
UNPACK_ERRORS = (RuntimeError, NotImplementedError, EOFError, ValueError, struct.error, zlib.error)
UPLOAD_A_DOWNLOAD = f"upload one that Download created, with {', '.join(CHECKPOINT_FILES)}"
MAX_DIRECTORY_BYTES = 10_000  # bytes of the central directory of a zip file
GRACE_PERIOD_S = 3.0  # before a transfer can count as slow
MIN_BYTES_PER_S = 20_000  # bytes per second


class Transfer:
    def __init__(self, address: str, deadline: asyncio.Timeout) -> None:
        self.address, self.deadline = address, deadline
        self.started_at, self.bytes, self.is_complete = time.monotonic(), 0, False
        self.reason = ""  # of an early end

    def complete(self) -> None:
        """Mark all bytes as received: the transfer has no deadline and keeps its slot."""
        self.is_complete = True
        self.deadline.reschedule(None)

    def rate(self) -> float:
        return self.bytes / max(1e-6, time.monotonic() - self.started_at)

    def is_slow(self) -> bool:
        """Return whether another transfer may take its slot."""
        is_past_grace_period = time.monotonic() - self.started_at >= GRACE_PERIOD_S
        return is_past_grace_period and not self.is_complete and self.rate() < MIN_BYTES_PER_S


class TransferSlots:
    """The transfers of one kind, each of at most `timeout_s` seconds."""

    def __init__(self, admission: Admission, timeout_s: float) -> None:
        self.admission, self.timeout_s = admission, timeout_s
        self._transfers: list[Transfer] = []

    @asynccontextmanager
    async def hold(self, address: str) -> AsyncIterator[Transfer]:
        """Hold a slot; the body runs under a deadline, which expires at once if it loses the slot.

        Raises UserError if no slot is free and no transfer is slow. Raises TimeoutError if the
        deadline expires.
        """

        def end(transfer: Transfer) -> int:
            reason = "the transfer was too slow while another one was waiting; try again"
            self.end(transfer, reason)
            return 1

        present = {each: Client(each.address) for each in self._transfers}
        slow = sorted(filter(Transfer.is_slow, present), key=Transfer.rate)
        self.admission.admit_or_evict(Client(address), present, slow, end)
        async with asyncio.timeout(self.timeout_s) as deadline:
            transfer = Transfer(address, deadline)
            self._transfers.append(transfer)
            try:
                yield transfer
            finally:
                if transfer in self._transfers:
                    self._transfers.remove(transfer)

    def end(self, transfer: Transfer, reason: str) -> None:
        """End a transfer and free its slot; its task gets TimeoutError."""
        if transfer in self._transfers:
            self._transfers.remove(transfer)
            transfer.reason = reason
            transfer.deadline.reschedule(0)


class CheckpointTransfer:
    """The routes for downloads and uploads; they precede those of Gradio."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.uploads = TransferSlots(limit("uploads"), UPLOAD_TIMEOUT_S)
        self.downloads = TransferSlots(limit("downloads"), DOWNLOAD_TIMEOUT_S)
        self.checks = process_queue(
            {"check": "playground.runs.inspector_process:validate_checkpoint"},
            admission=limit("checkpoint-checks"),
            process="the process that checks the checkpoint",
            run_timeout_s=VALIDATION_TIMEOUT_S,
            timeout_advice="upload a smaller model",
        )
        # Own threads, so that other requests never wait for a zip file.
        self._pool = ThreadPoolExecutor((limit("uploads").total or 1) + 1, "transfer")

    def routes(self) -> list[Route]:
        return [
            Route(CHECKPOINT_PATH + "/{ticket}", self.download, methods=["GET"]),
            Route(CHECKPOINT_PATH, self.upload, methods=["POST"]),
        ]

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        # with the context of the request, which has the address of the client
        run_in_context = copy_context().run
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, run_in_context, function, *args)

    async def download(self, http_request: Request) -> Response:
        """Send the checkpoint of a download token as a zip file."""
        token = http_request.path_params["ticket"]
        tokens = self.registry.download_tokens
        checkpoint_and_run = tokens.redeem(token)
        if checkpoint_and_run is None:
            return PlainTextResponse(
                "This link was used before or has expired: press Download again.", status_code=404
            )
        folder, run = checkpoint_and_run
        title = re.sub(r"[^A-Za-z0-9]+", "-", run.name).strip("-") or "run"
        return TemporaryZipResponse(
            self.downloads,
            lambda new: self._pool.submit(zip_checkpoint, folder, run, new),
            self.registry.storage.new_scratch(),
            f"{title}-step-{int(folder.name[:7])}.zip",
        )

    async def upload(self, http_request: Request) -> Response:
        """Import a zip file as a run."""
        headers = http_request.headers
        name = " ".join(unquote(headers.get("x-name", ""))[:MAX_NAME_LENGTH].split())
        try:
            owner = require_owner_key(headers.get("x-owner", ""))
        except ValueError as error:
            return json_error(error, 400)
        try:
            async with self.uploads.hold(CLIENT_ADDRESS.get()) as transfer:
                return await self._import_upload(http_request, owner, name, transfer)
        except UserError as error:
            return json_error(error, 503)
        except TimeoutError:
            timeout_message = (
                f"the upload took longer than {UPLOAD_TIMEOUT_S} s; use a faster connection"
            )
            return json_error(UserError(transfer.reason or timeout_message), 408)

    async def _import_upload(
        self, http_request: Request, owner: str, name: str, transfer: Transfer
    ) -> Response:
        folder = self.registry.storage.new_scratch()
        try:
            await self._run(lambda: folder.mkdir(parents=True))
            try:
                await save_body(http_request, folder / "packed.zip", transfer)
                transfer.complete()
                run = await self._import_zip(folder, owner, name)
            finally:
                await self._run(shutil.rmtree, folder, True)
        except zipfile.BadZipFile:
            message = "it is not a zip file; upload one that Download created"
            return json_error(UserError(message), 400)
        except (ConfigError, UserError) as error:
            message = str(error).replace("checkpoint/", "")
            is_temporary = getattr(error, "retryable", False)
            return json_error(UserError(message), 503 if is_temporary else 400)
        except OSError as error:
            message = f"it could not be stored: {error.strerror or error}; {remedy(error)}"
            return json_error(UserError(message), 507)
        return JSONResponse({"subject": RUN_PREFIX + run.id})

    async def _import_zip(self, folder: Path, owner: str, name: str) -> Run:
        """Unpack and validate the zip file in a folder, and import it as a run."""
        checkpoint = folder / "checkpoint"
        await self._run(extract_checkpoint, folder / "packed.zip", checkpoint)
        manifest = await self._run(read_manifest, checkpoint)
        await self._run(self.registry.check, manifest.config, owner)
        await run_job(self.checks, "check", str(checkpoint))
        run: Run = await self._run(self.registry.import_checkpoint, checkpoint, owner, name)
        return run


class TemporaryZipResponse(Response):
    """A response that packs a checkpoint, sends it and removes it, and holds a slot meanwhile.

    `start_packing` packs it into a new folder, in a thread that continues after a cancellation.
    """

    def __init__(
        self,
        slots: TransferSlots,
        start_packing: Callable[[Path], Future[Path]],
        folder: Path,
        filename: str,
    ) -> None:
        super().__init__(media_type="application/zip")
        self.slots, self.filename = slots, filename
        self.start_packing, self.folder = start_packing, folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        packing: Future[Path] | None = None
        is_packed = False
        try:
            async with self.slots.hold(CLIENT_ADDRESS.get()) as transfer:
                transfer.started_at = math.inf  # a client is not slow before the first byte
                packing = self.start_packing(self.folder)
                zip_path = await asyncio.wrap_future(packing)
                is_packed, transfer.started_at = True, time.monotonic()

                async def send_counted(message: Message) -> None:
                    await send(message)
                    transfer.bytes += len(message.get("body", b""))

                response = FileResponse(
                    zip_path, media_type="application/zip", filename=self.filename
                )
                await response(scope, receive, send_counted)
        except (FileNotFoundError, CheckpointError):
            if is_packed:
                raise
            message = "This checkpoint was deleted or is damaged: select another one."
            await PlainTextResponse(message, status_code=404)(scope, receive, send)
        except UserError as error:
            await PlainTextResponse(str(error), status_code=503)(scope, receive, send)
        except TimeoutError:
            pass  # the connection ends early, and the browser reports a failed download
        except OSError as error:
            if is_packed:
                raise
            message = f"The server could not pack it: {error.strerror or error}; try again later."
            await PlainTextResponse(message, status_code=507)(scope, receive, send)
        finally:
            if packing:
                packing.add_done_callback(lambda _: shutil.rmtree(self.folder, True))


def zip_checkpoint(checkpoint: Path, run: Run, folder: Path) -> Path:
    """Pack a checkpoint with its metrics into a zip file in a new folder."""
    exported = export_checkpoint(checkpoint, run.folder, folder / "checkpoint")
    zip_path = folder / "packed.zip"
    with zipfile.ZipFile(zip_path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(exported.iterdir()):
            archive.write(path, path.name)
    return zip_path


async def save_body(request: Request, path: Path, transfer: Transfer) -> None:
    """Write a body to a file; raise UserError if it is larger than MAX_UPLOAD_BYTES."""
    with open(path, "wb") as file:
        async for chunk in request.stream():
            transfer.bytes += len(chunk)
            if transfer.bytes > MAX_UPLOAD_BYTES:
                raise UserError(
                    f"the file is too large; at most {MAX_UPLOAD_BYTES // 1_000_000} MB are "
                    "accepted"
                )
            await asyncio.to_thread(file.write, chunk)


def check_central_directory(zip_path: Path) -> None:
    """Check the end record of a zip file: that of a hostile one may name a million entries."""
    with open(zip_path, "rb") as file:
        file.seek(max(0, zip_path.stat().st_size - 42))
        data = file.read()
    if len(data) < 22 or data[-22:-18] != b"PK\5\6":
        raise zipfile.BadZipFile("the end record is missing, or has a comment")
    size, offset = struct.unpack("<LL", data[-10:-2])
    if offset + size + 22 > zip_path.stat().st_size:
        raise zipfile.BadZipFile("the central directory is outside of the file")
    if size > MAX_DIRECTORY_BYTES or b"PK\6\7" in data[:-22]:
        raise UserError(f"the zip file has too many entries; {UPLOAD_A_DOWNLOAD}")


def extract_checkpoint(zip_path: Path, folder: Path) -> None:
    """Extract an untrusted zip file of a checkpoint, or raise UserError or BadZipFile."""
    folder.mkdir()
    remaining_bytes = MAX_EXPANSION * MAX_UPLOAD_BYTES
    check_central_directory(zip_path)
    with zipfile.ZipFile(zip_path) as archive:
        for member, name in _checkpoint_members(archive):
            try:
                with archive.open(member) as source, open(folder / name, "xb") as target:
                    while chunk := source.read(min(1_000_000, remaining_bytes + 1)):
                        remaining_bytes -= len(chunk)
                        if remaining_bytes < 0:
                            max_mb = MAX_EXPANSION * MAX_UPLOAD_BYTES // 1_000_000
                            raise UserError(
                                f"the unpacked files are too large; at most {max_mb} MB are "
                                "accepted"
                            )
                        target.write(chunk)
            except UserError:
                raise
            except UNPACK_ERRORS as error:
                raise UserError(
                    f"{name} cannot be unpacked ({error}); pack it again, without a password"
                ) from None


def _checkpoint_members(archive: zipfile.ZipFile) -> list[tuple[zipfile.ZipInfo, str]]:
    """Return the files of a checkpoint in a zip file with their names, or raise UserError."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    names = [member.filename.rpartition("/")[2] for member in members]
    unexpected = next((name for name in names if name not in CHECKPOINT_FILES), None)
    if unexpected is not None or len(set(names)) != len(names):
        description = f"the file {unexpected[:60]!r}" if unexpected is not None else "a file twice"
        raise UserError(f"the zip file contains {description}; {UPLOAD_A_DOWNLOAD}")
    if missing := set(CHECKPOINT_FILES[:2]) - set(names):
        raise UserError(f"the zip file lacks {sorted(missing)[0]}; {UPLOAD_A_DOWNLOAD}")
    if any(member.compress_type not in COMPRESSIONS for member in members):
        raise UserError(
            "the zip file has an unsupported compression; pack it with deflate or without "
            "compression"
        )
    return list(zip(members, names, strict=True))
