"""Download and upload checkpoints, as one zip file each.

    GET  playground/checkpoint/TICKET   the ticket of the owner is valid once and for a minute
    POST playground/checkpoint          the body is the zip file, X-Owner the owner key of the new
                                        run, and X-Name its name

The upload route of Gradio stays closed (hosts.py), because it checks neither owner nor size.
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

from playground.models.config import SettingError
from playground.runs.gather import FILES, gather
from playground.runs.registry import Registry
from playground.runs.run import LONGEST_NAME, Refused, Run
from playground.training.environment import env_bytes
from playground.training.files import way_out
from playground.training.manifest import CheckpointError, read_manifest

from .limits import client_of
from .transfer_slots import Transfer, TransferSlots
from .visit import OWNER

PATH = "/playground/checkpoint"
LARGEST_UPLOAD = env_bytes("UPLOAD_MB")  # bytes of the zip file
UNPACKED = 3  # maximum ratio of the unpacked size to LARGEST_UPLOAD
CHECKED_WITHIN = 60  # seconds
RECEIVED_AT_ONCE, GIVEN_AT_ONCE = 2, 16
RECEIVED_WITHIN, SENT_WITHIN = 300, 600  # seconds
LARGEST_DIRECTORY = 10_000  # bytes of the central directory of a zip file


def routes(registry: Registry) -> list[Route]:
    """Return the routes for downloads and uploads; they precede those of Gradio."""

    uploads = TransferSlots(
        RECEIVED_AT_ONCE,
        RECEIVED_WITHIN,
        "other uploads are in progress; try again in a moment",
    )
    downloads = TransferSlots(
        GIVEN_AT_ONCE,
        SENT_WITHIN,
        "Other downloads are in progress: press Download again in a moment.",
    )
    # Own threads, so that other requests never wait for a zip file.
    workers = ThreadPoolExecutor(RECEIVED_AT_ONCE + 1, "transfer")

    async def on_its_own(work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(workers, work, *arguments)

    async def give(request: Request) -> Response:
        found = registry.tickets.redeem(request.path_params["ticket"])
        if found is None:
            return PlainTextResponse(
                "This link was used before or has expired: press Download again.", status_code=404
            )
        folder, run = found
        title = re.sub(r"[^A-Za-z0-9]+", "-", run.name).strip("-") or "run"
        name = f"{title}-step-{int(folder.name[:7])}.zip"
        return Download(
            downloads, client_of(request), lambda: on_its_own(pack_checkpoint, folder, run), name
        )

    async def take(request: Request) -> Response:
        owner = request.headers.get("x-owner", "")
        name = " ".join(unquote(request.headers.get("x-name", ""))[:LONGEST_NAME].split())
        if not OWNER.fullmatch(owner):
            return JSONResponse(
                {"error": "the upload has no valid owner key; reload the page and try again"},
                status_code=400,
            )
        try:
            async with uploads.hold(client_of(request)) as transfer:
                return await checked(request, owner, name, transfer)
        except Refused as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        except TimeoutError:
            reason = (
                transfer.reason
                or f"the upload took longer than {RECEIVED_WITHIN} s; use a faster connection"
            )
            return JSONResponse({"error": reason}, status_code=408)

    async def checked(request: Request, owner: str, name: str, transfer: Transfer) -> Response:
        try:
            folder = registry.root / "runs" / f".{secrets.token_hex(8)}.tmp"
            folder.mkdir(parents=True)
            try:
                await receive(request, folder / "packed.zip", transfer)
                transfer.complete()
                await on_its_own(unpack, folder / "packed.zip", folder / "checkpoint")
                manifest = await on_its_own(read_manifest, folder / "checkpoint")
                await on_its_own(registry.check_size, manifest.config)
                answer = await asyncio.wait_for(
                    asyncio.wrap_future(registry.checker.ask("check", folder / "checkpoint")),
                    CHECKED_WITHIN,
                )
                if "error" in answer:
                    raise CheckpointError(answer["error"])
                run = await on_its_own(registry.adopt, folder / "checkpoint", owner, name)
            finally:
                await on_its_own(shutil.rmtree, folder, True)
        except zipfile.BadZipFile:
            return JSONResponse(
                {"error": "it is not a zip file; upload one that Download created"}, status_code=400
            )
        except (CheckpointError, SettingError, Refused) as error:
            return JSONResponse(
                {"error": str(error).replace(str(folder / "checkpoint") + os.sep, "")},
                status_code=400,
            )
        except TimeoutError:
            if not transfer.is_complete:
                raise
            registry.checker.close()
            return JSONResponse(
                {"error": f"its validation took longer than {CHECKED_WITHIN} s; try again"},
                status_code=503,
            )
        except OSError as error:
            return JSONResponse(
                {"error": f"it could not be stored: {error.strerror or error}; {way_out(error)}"},
                status_code=507,
            )
        return JSONResponse({"subject": f"run:{run.id}"})

    return [Route(PATH + "/{ticket}", give, methods=["GET"]), Route(PATH, take, methods=["POST"])]


class Download(Response):
    """A response that packs a checkpoint into a zip file, sends it and removes it.

    It holds a slot for downloads.
    """

    def __init__(
        self, slots: TransferSlots, address: str, pack: Callable[[], Awaitable[Path]], filename: str
    ) -> None:
        super().__init__(media_type="application/zip")
        self.slots, self.address, self.pack, self.filename = slots, address, pack, filename

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        packed: Path | None = None
        try:
            async with self.slots.hold(self.address) as transfer:
                packed = await self.pack()
                transfer.started_at = time.monotonic()

                async def counted(message: Message) -> None:
                    await send(message)
                    transfer.count(len(message.get("body", b"")))

                response = FileResponse(
                    packed, media_type="application/zip", filename=self.filename
                )
                await response(scope, receive, counted)
        except Refused as error:
            await PlainTextResponse(str(error), status_code=503)(scope, receive, send)
        except TimeoutError:
            pass  # the connection ends early, and the browser reports a failed download
        except (OSError, CheckpointError) as error:
            if packed is not None:
                raise
            message = f"The checkpoint could not be packed, it may be deleted: {error}."
            await PlainTextResponse(message, status_code=404)(scope, receive, send)
        finally:
            if packed is not None:
                packed.unlink(missing_ok=True)


def pack_checkpoint(folder: Path, run: Run) -> Path:
    """Pack a checkpoint with its metrics into a temporary file, which the caller removes."""
    with (
        tempfile.NamedTemporaryFile(suffix=".zip", delete=False) as packed,
        tempfile.TemporaryDirectory() as scratch,
    ):
        try:
            whole = gather(folder, run.folder, Path(scratch) / "checkpoint")
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for path in sorted(whole.iterdir()):
                    archive.write(path, path.name)
        except BaseException:
            os.unlink(packed.name)
            raise
    return Path(packed.name)


async def receive(request: Request, path: Path, transfer: Transfer | None = None) -> None:
    """Write the body of a request to a file, and count its bytes for the transfer.

    Raises:
        Refused: if the body is larger than LARGEST_UPLOAD.
    """
    received = 0
    with open(path, "wb") as file:
        async for chunk in request.stream():
            received += len(chunk)
            if transfer:
                transfer.count(len(chunk))
            if received > LARGEST_UPLOAD:
                raise Refused(
                    f"the file is too large; at most {LARGEST_UPLOAD // 1_000_000} MB are accepted"
                )
            file.write(chunk)


def check_directory(packed: Path) -> None:
    """Validate the end record of a zip file before its central directory is read.

    The central directory of a hostile file may have a million entries.

    Raises:
        zipfile.BadZipFile: if it is not a zip file.
        Refused: if the directory is larger than that of a checkpoint.
    """
    with open(packed, "rb") as file:
        file.seek(max(0, packed.stat().st_size - 42))
        data = file.read()
    if len(data) < 22 or data[-22:-18] != b"PK\5\6":
        raise zipfile.BadZipFile("the end record is missing, or has a comment")
    size, offset = struct.unpack("<LL", data[-10:-2])
    if offset + size + 22 > packed.stat().st_size:
        raise zipfile.BadZipFile("the central directory is outside of the file")
    if size > LARGEST_DIRECTORY or b"PK\6\7" in data[:-22]:
        raise Refused(
            f"the zip file has too many entries; upload one that Download created, with "
            f"{', '.join(FILES)}"
        )


def unpack(packed: Path, folder: Path) -> None:
    """Extract the files of a checkpoint from an untrusted zip file.

    Raises:
        Refused: if it has another file, lacks a file, or is too large.
        zipfile.BadZipFile: if it is not a zip file.
    """
    folder.mkdir()
    left = UNPACKED * LARGEST_UPLOAD
    check_directory(packed)
    with zipfile.ZipFile(packed) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        names = [member.filename.rpartition("/")[2] for member in members]
        odd = next((name for name in names if name not in FILES), None)
        if odd is not None or len(set(names)) != len(names):
            what = f"the file {odd[:60]!r}" if odd is not None else "a file twice"
            raise Refused(
                f"the zip file contains {what}; upload one that Download created, with "
                f"{', '.join(FILES)}"
            )
        if missing := set(FILES[:2]) - set(names):
            raise Refused(
                f"the zip file lacks {sorted(missing)[0]}; upload one that Download created, with "
                f"{', '.join(FILES)}"
            )
        if any(
            member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            for member in members
        ):
            raise Refused(
                "the zip file has an unsupported compression; pack it with deflate or without "
                "compression"
            )
        for member, name in zip(members, names, strict=True):
            try:
                with archive.open(member) as source, open(folder / name, "xb") as target:
                    while chunk := source.read(min(1_000_000, left + 1)):
                        left -= len(chunk)
                        if left < 0:
                            most = UNPACKED * LARGEST_UPLOAD // 1_000_000
                            raise Refused(
                                f"the unpacked files are too large; at most {most} MB are accepted"
                            )
                        target.write(chunk)
            except Refused:
                raise
            except (
                RuntimeError,
                NotImplementedError,
                EOFError,
                ValueError,
                struct.error,
                zlib.error,
            ) as error:
                raise Refused(
                    f"{name} cannot be unpacked ({error}); pack it again, without a password"
                ) from None
