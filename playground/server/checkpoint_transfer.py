"""Download and upload checkpoints, as one zip file each.

    GET  playground/checkpoint/TICKET   the ticket of the owner is valid once and for a minute
    POST playground/checkpoint          the body is the zip file, X-Owner the owner key of the new
                                        run, and X-Name its name

The upload route of Gradio stays closed (middleware.py), because it checks neither owner nor size.
"""

import asyncio
import math
import os
import re
import shutil
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
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
from playground.jobs.admission import limit
from playground.models.config_fields import ConfigError
from playground.runs.access import RUN_PREFIX
from playground.runs.record import MAX_NAME_LENGTH
from playground.runs.registry import Registry
from playground.runs.state import Run
from playground.runs.storage_folder import CHECKPOINT_FILES, export_checkpoint

from .asgi import json_error
from .client import resolve_client_address
from .process_calls import process_queue, run_job
from .schemas.base import require_owner_key
from .transfer_slots import Transfer, TransferSlots

CHECKPOINT_PATH = "/playground/checkpoints"
MAX_UPLOAD_BYTES = env_bytes("UPLOAD_MB")  # bytes of the zip file
MAX_EXPANSION = 3  # maximum ratio of the unpacked size to MAX_UPLOAD_BYTES
VALIDATION_TIMEOUT_S = 60  # seconds
UPLOAD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S = 300, 600  # seconds
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
UNPACK_ERRORS = (RuntimeError, NotImplementedError, EOFError, ValueError, struct.error, zlib.error)
UPLOAD_A_DOWNLOAD = f"upload one that Download created, with {', '.join(CHECKPOINT_FILES)}"
MAX_DIRECTORY_BYTES = 10_000  # bytes of the central directory of a zip file


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
        if http_request.method == "HEAD" and tokens.is_valid(token):
            return Response(media_type="application/zip")
        checkpoint_and_run = tokens.redeem(token)
        if checkpoint_and_run is None:
            return PlainTextResponse(
                "This link was used before or has expired: press Download again.", status_code=404
            )
        folder, run = checkpoint_and_run
        title = re.sub(r"[^A-Za-z0-9]+", "-", run.name).strip("-") or "run"
        return TemporaryZipResponse(
            self.downloads,
            resolve_client_address(http_request),
            lambda: self._run(zip_checkpoint, folder, run),
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
            async with self.uploads.hold(resolve_client_address(http_request)) as transfer:
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
    """A response that packs a checkpoint into a zip file, sends it and removes it.

    It holds a slot for downloads.
    """

    def __init__(
        self,
        slots: TransferSlots,
        address: str,
        make_zip: Callable[[], Awaitable[Path]],
        filename: str,
    ) -> None:
        super().__init__(media_type="application/zip")
        self.slots, self.address, self.make_zip, self.filename = slots, address, make_zip, filename

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        zip_path: Path | None = None
        try:
            async with self.slots.hold(self.address) as transfer:
                transfer.started_at = math.inf  # a client is not slow before the first byte
                zip_path = await self._pack()
                transfer.started_at = time.monotonic()

                async def send_counted(message: Message) -> None:
                    await send(message)
                    transfer.add_bytes(len(message.get("body", b"")))

                response = FileResponse(
                    zip_path, media_type="application/zip", filename=self.filename
                )
                await response(scope, receive, send_counted)
        except (FileNotFoundError, CheckpointError):
            if zip_path is not None:
                raise
            message = "This checkpoint was deleted or is damaged: select another one."
            await PlainTextResponse(message, status_code=404)(scope, receive, send)
        except UserError as error:
            await PlainTextResponse(str(error), status_code=503)(scope, receive, send)
        except TimeoutError:
            pass  # the connection ends early, and the browser reports a failed download
        except OSError as error:
            if zip_path is not None:
                raise
            message = f"The server could not pack it: {error.strerror or error}; try again later."
            await PlainTextResponse(message, status_code=507)(scope, receive, send)
        finally:
            if zip_path is not None:
                zip_path.unlink(missing_ok=True)

    async def _pack(self) -> Path:
        """Return the zip file.

        The thread that packs continues after a cancellation; its file is then removed.
        """
        packing = asyncio.ensure_future(self.make_zip())
        try:
            return await asyncio.shield(packing)
        except asyncio.CancelledError:
            packing.add_done_callback(_remove_zip)
            raise


def _remove_zip(packing: asyncio.Future[Path]) -> None:
    if not packing.cancelled() and packing.exception() is None:
        packing.result().unlink(missing_ok=True)


def zip_checkpoint(folder: Path, run: Run) -> Path:
    """Pack a checkpoint with its metrics into a temporary file, which the caller removes."""
    with (
        tempfile.NamedTemporaryFile(suffix=".zip", delete=False) as zip_file,
        tempfile.TemporaryDirectory() as scratch,
    ):
        try:
            export_folder = export_checkpoint(folder, run.folder, Path(scratch) / "checkpoint")
            with zipfile.ZipFile(zip_file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for path in sorted(export_folder.iterdir()):
                    archive.write(path, path.name)
        except BaseException:
            os.unlink(zip_file.name)
            raise
    return Path(zip_file.name)


async def save_body(request: Request, path: Path, transfer: Transfer | None = None) -> None:
    """Write the body of a request to a file, and count its bytes for the transfer.

    Raises UserError if the body is larger than MAX_UPLOAD_BYTES.
    """
    received = 0
    with open(path, "wb") as file:
        async for chunk in request.stream():
            received += len(chunk)
            if transfer:
                transfer.add_bytes(len(chunk))
            if received > MAX_UPLOAD_BYTES:
                raise UserError(
                    f"the file is too large; at most {MAX_UPLOAD_BYTES // 1_000_000} MB are "
                    "accepted"
                )
            await asyncio.to_thread(file.write, chunk)


def check_central_directory(zip_path: Path) -> None:
    """Validate the end record of a zip file before its central directory is read.

    The central directory of a hostile file may have a million entries. Raises zipfile.BadZipFile if
    it is not a zip file. Raises UserError if the directory is larger than that of a checkpoint.
    """
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
    """Extract the files of a checkpoint from an untrusted zip file.

    Raises UserError if it has another file, lacks a file, or is too large. Raises
    zipfile.BadZipFile if it is not a zip file.
    """
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
    """Return the files of a checkpoint in a zip file, each with its name without folders.

    Raises UserError if it has another file, lacks a file, or uses another compression.
    """
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
