"""Download and upload checkpoints, as one zip file each.

    GET  playground/checkpoint/TICKET   the ticket of the owner is valid once and for a minute
    POST playground/checkpoint          the body is the zip file, X-Owner the owner key of the new
                                        run, and X-Name its name

The upload route of Gradio stays closed (middleware.py), because it checks neither owner nor size.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
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
from playground.jobs.executors import ProcessPerJob
from playground.jobs.policy import Policy
from playground.jobs.queue import JobQueue
from playground.models.config_fields import ConfigError
from playground.runs.export import CHECKPOINT_FILES, export_checkpoint
from playground.runs.owner_keys import OWNER_KEY_PATTERN
from playground.runs.record import MAX_NAME_LENGTH
from playground.runs.registry import Registry
from playground.runs.state import Run

from .client import resolve_client_address
from .process_calls import run_job
from .transfer_slots import Transfer, TransferSlots

CHECKPOINT_PATH = "/playground/checkpoints"
MAX_UPLOAD_BYTES = env_bytes("UPLOAD_MB")  # bytes of the zip file
MAX_EXPANSION = 3  # maximum ratio of the unpacked size to MAX_UPLOAD_BYTES
VALIDATION_TIMEOUT_S = 60  # seconds
MAX_CONCURRENT_UPLOADS, MAX_CONCURRENT_DOWNLOADS = 2, 16
UPLOAD_TIMEOUT_S, DOWNLOAD_TIMEOUT_S = 300, 600  # seconds
MAX_DIRECTORY_BYTES = 10_000  # bytes of the central directory of a zip file


def build_transfer_routes(registry: Registry) -> list[Route]:
    """Return the routes for downloads and uploads; they precede those of Gradio."""

    uploads = TransferSlots(
        MAX_CONCURRENT_UPLOADS,
        UPLOAD_TIMEOUT_S,
        "other uploads are in progress; try again in a moment",
    )
    downloads = TransferSlots(
        MAX_CONCURRENT_DOWNLOADS,
        DOWNLOAD_TIMEOUT_S,
        "Other downloads are in progress: press Download again in a moment.",
    )
    checks = JobQueue(
        ProcessPerJob({"check": "playground.runs.inspector_process:validate_checkpoint"}),
        Policy(
            process="the process that checks the checkpoint",
            nouns="uploads",
            run_timeout_s=VALIDATION_TIMEOUT_S,
            timeout_advice="upload a smaller model",
        ),
    )
    # Own threads, so that other requests never wait for a zip file.
    transfer_pool = ThreadPoolExecutor(MAX_CONCURRENT_UPLOADS + 1, "transfer")

    async def run_in_pool(function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(transfer_pool, function, *args)

    async def download(request: Request) -> Response:
        checkpoint_and_run = registry.download_tokens.redeem(request.path_params["ticket"])
        if checkpoint_and_run is None:
            return PlainTextResponse(
                "This link was used before or has expired: press Download again.", status_code=404
            )
        folder, run = checkpoint_and_run
        title = re.sub(r"[^A-Za-z0-9]+", "-", run.name).strip("-") or "run"
        name = f"{title}-step-{int(folder.name[:7])}.zip"
        return TemporaryZipResponse(
            downloads,
            resolve_client_address(request),
            lambda: run_in_pool(zip_checkpoint, folder, run),
            name,
        )

    async def upload(request: Request) -> Response:
        owner = request.headers.get("x-owner", "")
        name = " ".join(unquote(request.headers.get("x-name", ""))[:MAX_NAME_LENGTH].split())
        if not OWNER_KEY_PATTERN.fullmatch(owner):
            return JSONResponse(
                {"error": "the upload has no valid owner key; reload the page and try again"},
                status_code=400,
            )
        try:
            async with uploads.hold(resolve_client_address(request)) as transfer:
                return await import_upload(request, owner, name, transfer)
        except UserError as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        except TimeoutError:
            reason = (
                transfer.reason
                or f"the upload took longer than {UPLOAD_TIMEOUT_S} s; use a faster connection"
            )
            return JSONResponse({"error": reason}, status_code=408)

    async def import_upload(
        request: Request, owner: str, name: str, transfer: Transfer
    ) -> Response:
        try:
            folder = registry.root / "runs" / f".{secrets.token_hex(8)}.tmp"
            folder.mkdir(parents=True)
            try:
                await save_body(request, folder / "packed.zip", transfer)
                transfer.complete()
                await run_in_pool(extract_checkpoint, folder / "packed.zip", folder / "checkpoint")
                manifest = await run_in_pool(read_manifest, folder / "checkpoint")
                await run_in_pool(registry.validate_size, manifest.config)
                answer = await run_job(checks, "check", str(folder / "checkpoint"))
                if answer.get("again"):
                    return JSONResponse({"error": answer["error"]}, status_code=503)
                if "error" in answer:
                    raise CheckpointError(answer["error"])
                run = await run_in_pool(
                    registry.import_checkpoint, folder / "checkpoint", owner, name
                )
            finally:
                await run_in_pool(shutil.rmtree, folder, True)
        except zipfile.BadZipFile:
            return JSONResponse(
                {"error": "it is not a zip file; upload one that Download created"}, status_code=400
            )
        except (CheckpointError, ConfigError, UserError) as error:
            return JSONResponse(
                {"error": str(error).replace(str(folder / "checkpoint") + os.sep, "")},
                status_code=400,
            )
        except OSError as error:
            return JSONResponse(
                {"error": f"it could not be stored: {error.strerror or error}; {remedy(error)}"},
                status_code=507,
            )
        return JSONResponse({"subject": f"run:{run.id}"})

    return [
        Route(CHECKPOINT_PATH + "/{ticket}", download, methods=["GET"]),
        Route(CHECKPOINT_PATH, upload, methods=["POST"]),
    ]


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
                zip_path = await self.make_zip()
                transfer.started_at = time.monotonic()

                async def send_counted(message: Message) -> None:
                    await send(message)
                    transfer.add_bytes(len(message.get("body", b"")))

                response = FileResponse(
                    zip_path, media_type="application/zip", filename=self.filename
                )
                await response(scope, receive, send_counted)
        except UserError as error:
            await PlainTextResponse(str(error), status_code=503)(scope, receive, send)
        except TimeoutError:
            pass  # the connection ends early, and the browser reports a failed download
        except (OSError, CheckpointError) as error:
            if zip_path is not None:
                raise
            message = f"The checkpoint could not be packed, it may be deleted: {error}."
            await PlainTextResponse(message, status_code=404)(scope, receive, send)
        finally:
            if zip_path is not None:
                zip_path.unlink(missing_ok=True)


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

    Raises:
        UserError: if the body is larger than MAX_UPLOAD_BYTES.
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
            file.write(chunk)


def check_central_directory(zip_path: Path) -> None:
    """Validate the end record of a zip file before its central directory is read.

    The central directory of a hostile file may have a million entries.

    Raises:
        zipfile.BadZipFile: if it is not a zip file.
        UserError: if the directory is larger than that of a checkpoint.
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
        raise UserError(
            f"the zip file has too many entries; upload one that Download created, with "
            f"{', '.join(CHECKPOINT_FILES)}"
        )


def extract_checkpoint(zip_path: Path, folder: Path) -> None:
    """Extract the files of a checkpoint from an untrusted zip file.

    Raises:
        UserError: if it has another file, lacks a file, or is too large.
        zipfile.BadZipFile: if it is not a zip file.
    """
    folder.mkdir()
    remaining_bytes = MAX_EXPANSION * MAX_UPLOAD_BYTES
    check_central_directory(zip_path)
    with zipfile.ZipFile(zip_path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        names = [member.filename.rpartition("/")[2] for member in members]
        unexpected = next((name for name in names if name not in CHECKPOINT_FILES), None)
        if unexpected is not None or len(set(names)) != len(names):
            description = (
                f"the file {unexpected[:60]!r}" if unexpected is not None else "a file twice"
            )
            raise UserError(
                f"the zip file contains {description}; upload one that Download created, with "
                f"{', '.join(CHECKPOINT_FILES)}"
            )
        if missing := set(CHECKPOINT_FILES[:2]) - set(names):
            raise UserError(
                f"the zip file lacks {sorted(missing)[0]}; upload one that Download created, with "
                f"{', '.join(CHECKPOINT_FILES)}"
            )
        if any(
            member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            for member in members
        ):
            raise UserError(
                "the zip file has an unsupported compression; pack it with deflate or without "
                "compression"
            )
        for member, name in zip(members, names, strict=True):
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
            except (
                RuntimeError,
                NotImplementedError,
                EOFError,
                ValueError,
                struct.error,
                zlib.error,
            ) as error:
                raise UserError(
                    f"{name} cannot be unpacked ({error}); pack it again, without a password"
                ) from None
