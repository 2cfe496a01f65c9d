"""Rows that a visitor brings, to be a task: the panel under the task's field (rows.html, .css, .js), and what the server does.

    POST playground/rows   the body is the text or the file; X-Owner says whose, X-Name what the file is called (or hub:user/dataset
                           with an empty body), X-Columns source and target apart by a tab, X-Words "words", "characters" or nothing

It answers with a report (rows_reader.py): counts, the first rows, or what is wrong by the number of its line. Nothing is kept until
`use`: then the rows are kept under their content, and count against whoever brought them.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Container
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import gradio as gr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from playground.runs.addresses import CLIENT_ADDRESS, holds_share, may_hold
from playground.runs.eyes import resolve
from playground.runs.processes import Child
from playground.runs.registry import Registry
from playground.runs.run import Refused, fingerprint, size_of
from playground.tasks import ROWS
from playground.tasks.rows import CONTENT, MissingRows, RowsError, kept_about, rows_root
from playground.training.environment import env_number
from playground.training.files import way_out, write_folder

from .limits import FairPlaces, client_of
from .transfer import receive
from .transfer_slots import Transfer, TransferSlots
from .view import view
from .visit import OWNER

PATH = "/playground/rows"
RECEIVED_WITHIN = 120  # seconds
READ_WITHIN = 120  # seconds
READ_AT_ONCE = 2
MOST_IN_LINE = 8
MAX_SHOWN = 8  # kept sets that are read, or wait to be read, for `show`
MOST_READ = 32  # rows that were read and neither kept nor replaced
MOST_SETS = 50  # of one visitor
UNTOUCHED = 3600.0  # seconds for which rows are kept whatever happens
MB = 1_000_000


def rows_view() -> gr.HTML:
    """The panel. Its value is {"owner": whose page it is, "rows": the content of the rows that the form has}."""
    return view("rows", ("common.css", "rows.css"), ("common.js", "rows.js"), hidden=True)


class Bringing:
    """Reads rows for visitors, one at a time for each, and keeps those that they use.

    On a server that is open to all, a visitor may keep `own_mb`, all together `all_mb`, and those behind one address half of that.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.own_mb = env_number("DATASETS_PER_USER_MB")
        self.all_mb = env_number("DATASETS_TOTAL_MB")
        self._read: OrderedDict[str, tuple[str, Path]] = (
            OrderedDict()
        )  # by owner: content and folder of what was read last
        self._receiving: dict[str, Transfer] = {}  # by owner: what they send now
        self._slots = TransferSlots(
            MOST_IN_LINE,
            RECEIVED_WITHIN,
            "others are bringing rows just now; try again in a moment",
        )
        self._going: dict[str, Child] = {}
        self._addresses: dict[
            Path, str
        ] = {}  # by mark: of the client that chose the rows, since this server began
        self._newest: dict[str, object] = {}  # by owner: which of their questions still counts
        self._places = FairPlaces(READ_AT_ONCE, MOST_IN_LINE + MAX_SHOWN)
        self._shown: list[str] = []  # the address of each `show` that is under way
        self._lock = threading.Lock()

    def routes(self) -> list[Route]:
        return [Route(PATH, self.take, methods=["POST"])]

    # Reading

    async def take(self, request: Request) -> Response:
        """Read what was sent and tell what is in it."""
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
        if not OWNER.fullmatch(owner):
            return JSONResponse(
                {"error": "this does not say whose rows they are; reload the page and try again"},
                status_code=400,
            )
        if before := self._receiving.pop(owner, None):  # the same owner now wants this instead
            self._slots.end(before, "newer rows came meanwhile")
        try:
            async with self._slots.hold(client_of(request)) as transfer:
                return JSONResponse(
                    await self._taken(request, transfer, owner, name, columns, words)
                )
        except Refused as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        except TimeoutError:
            return JSONResponse(
                {
                    "error": transfer.reason
                    or f"the rows did not arrive within {RECEIVED_WITHIN} s; bring fewer"
                }
            )

    async def _taken(
        self,
        request: Request,
        transfer: Transfer,
        owner: str,
        name: str,
        columns: list[str],
        words: bool | None,
    ) -> dict[str, Any]:
        folder = rows_root() / f".{secrets.token_hex(8)}.tmp"
        order = {"name": name, "columns": columns, "words": words, "folder": str(folder / "rows")}
        order |= (
            {"hub": name.removeprefix("hub:")}
            if name.startswith("hub:")
            else {"file": str(folder / "sent")}
        )
        try:
            folder.mkdir(parents=True)
            await self._receive(request, transfer, owner, folder / "sent")
            answer = await self.read(owner, order)
            (folder / "sent").unlink(missing_ok=True)
        except Refused as error:
            answer = {"error": str(error)}
        except OSError as error:
            answer = {
                "error": f"the rows could not be stored: {error.strerror or error}; {way_out(error)} and try again"
            }
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        await asyncio.to_thread(self._remember, owner, answer.get("content", ""), folder)
        return answer

    async def _receive(self, request: Request, transfer: Transfer, owner: str, path: Path) -> None:
        """Write what is sent to a file.

        Raises:
            Refused: when it is too large.
        """
        self._receiving[owner] = transfer
        try:
            await receive(request, path, transfer)
            transfer.complete()
        finally:
            if self._receiving.get(owner) is transfer:
                del self._receiving[owner]

    async def read(self, owner: str, order: dict[str, Any]) -> dict[str, Any]:
        """What the reader's process answers. Whoever sends anew does not want the answer to what was sent before."""
        if before := self._going.pop(owner, None):
            before.kill()
        mine = self._newest[owner] = object()
        try:
            async with self._places.one():
                if self._newest.get(owner) is not mine:
                    return {"error": "newer rows came meanwhile"}
                future = Future[dict[str, Any]]()
                self._going[owner] = child = Child(
                    "playground.ui.rows_reader:read", "rows", order,
                    on_message=lambda answer: resolve(future, answer),
                    on_end=lambda code: resolve(future, {"error": f"the process that reads rows ended (exit code {code}); try again"}),
                )  # fmt: skip
                try:
                    return await asyncio.wait_for(asyncio.wrap_future(future), READ_WITHIN)
                except TimeoutError:
                    return {
                        "error": f"these rows could not be read within {READ_WITHIN} s; bring fewer"
                    }
                finally:
                    child.kill()
        finally:
            if self._newest.get(owner) is mine:
                del self._newest[owner]
                self._going.pop(owner, None)

    def _remember(self, owner: str, content: str, folder: Path) -> None:
        """Leave what was read where `use` finds it; what this visitor sent before goes."""
        with self._lock:
            gone = [self._read.pop(owner)[1]] if owner in self._read else []
            if content:
                self._read[owner] = content, folder
            else:
                gone.append(folder)
            while len(self._read) > MOST_READ:
                gone.append(self._read.popitem(last=False)[1][1])
        for each in gone:
            shutil.rmtree(each, ignore_errors=True)

    # Keeping

    async def answer(self, what: object, _: Request) -> dict[str, Any]:
        """What the panel asks: `use` these rows, `show` some that are kept, `list` the visitor's, `remove` some of them."""
        what = what if isinstance(what, dict) else {}
        owner, content, do = what.get("owner"), what.get("content"), what.get("do")
        if not isinstance(owner, str) or not OWNER.fullmatch(owner):
            return {"error": "this does not say whose rows they are; reload the page and try again"}
        if do == "list":
            return {"kept": await asyncio.to_thread(self.kept, owner)}
        if not isinstance(content, str) or not CONTENT.fullmatch(content):
            return {"error": "these are no rows; bring some"}
        try:
            if do == "show":
                return await self._show(owner, content)
            return await asyncio.to_thread(self.use if do == "use" else self.remove, owner, content)
        except MissingRows:
            return {"error": missing(content)}
        except (Refused, RowsError) as error:
            return {"error": str(error)}
        except OSError as error:
            return {
                "error": f"the rows could not be kept: {error.strerror or error}; {way_out(error)} and try again"
            }

    async def _show(self, owner: str, content: str) -> dict[str, Any]:
        if len(self._shown) >= MAX_SHOWN or holds_share(self._shown, MAX_SHOWN):
            return {
                "error": "other rows are being read just now; try again in a moment",
                "again": True,
            }
        self._shown.append(address := CLIENT_ADDRESS.get())
        try:
            await asyncio.to_thread(
                kept_about, content
            )  # says in a sentence where they are not here
            return await self.read(owner, {"kept": content})
        finally:
            self._shown.remove(address)

    def use(self, owner: str, content: str) -> dict[str, Any]:
        """Keep rows that were read, under the visitor's name. `again`: they must be sent once more.

        Raises:
            Refused: where the visitor, or all together, keep as much as is possible already.
        """
        with self._lock:
            read, folder = self._read.get(owner, ("", Path()))
            kept = (rows_root() / content).is_dir()
            if not kept and (read != content or not (folder / "rows").is_dir()):
                return {"again": True}
            files = (
                {}
                if kept
                else {path.name: path.read_bytes() for path in (folder / "rows").iterdir()}
            )
            mark = self._marks(owner) / content
            if not self.registry.local_owner and not mark.exists():
                more = sum(map(len, files.values()))
                self._check_room(owner, more or size_of(rows_root() / content), more)
            if files:
                write_folder(rows_root() / content, files)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            self._addresses.setdefault(mark, CLIENT_ADDRESS.get())
        return {}

    def kept(self, owner: str) -> list[dict[str, Any]]:
        """The rows that a visitor keeps here, those used last first; the owner of this machine has all."""
        own = self.registry.local_owner and secrets.compare_digest(owner, self.registry.local_owner)
        places = [
            path
            for path in (rows_root() if own else self._marks(owner)).glob("*")
            if CONTENT.fullmatch(path.name)
        ]
        listed = []
        for path in sorted(places, key=_written, reverse=True)[:MOST_SETS]:
            with suppress(RowsError, OSError):
                about = kept_about(path.name)
                listed.append({"content": path.name, "rows": about["rows"], "symbols": len(about["vocabulary"]),
                               "vocabulary": about["vocabulary"][:8], "bytes": size_of(rows_root() / path.name)})  # fmt: skip
        return listed

    def remove(self, owner: str, content: str) -> dict[str, Any]:
        """Take rows off a visitor's list; they themselves go when nobody else keeps them and no run is made of them.

        Raises:
            Refused: for rows that somebody else brought.
        """
        own = self.registry.local_owner and secrets.compare_digest(owner, self.registry.local_owner)
        with self._lock:
            mark = self._marks(owner) / content
            if not own and not mark.exists():
                raise Refused("these rows are not on your list")
            if self._in_use(content) and own:
                raise Refused("runs on this machine are made of these rows; delete those first")
            self._unmark(mark)
            if not self._in_use(content) and not any(rows_root().glob(f".owners/*/{content}")):
                shutil.rmtree(rows_root() / content, ignore_errors=True)
        return {}

    def _in_use(self, content: str) -> bool:
        return any(
            config.task.task == ROWS and config.task.rows == content
            for config in self.registry.configs()
        )

    def _marks(self, owner: str) -> Path:
        """Where it is noted which rows a visitor keeps: an empty file for each, named by its content."""
        return rows_root() / ".owners" / fingerprint(owner)[:32]

    def _check_room(self, owner: str, size: int, more: int) -> None:
        """Whether a visitor may keep rows of this size, and the server `more` bytes. Raises Refused."""
        mine = [
            size_of(rows_root() / mark.name)
            for mark in self._marks(owner).glob("*")
            if (rows_root() / mark.name).is_dir()
        ]
        if len(mine) >= MOST_SETS:
            raise Refused(
                f"you keep {MOST_SETS} sets of rows here, which is as many as can be; remove one first"
            )
        if sum(mine) + size > self.own_mb * MB:
            raise Refused(f"you keep {sum(mine) / MB:.1f} MB of rows here and these have {size / MB:.1f} MB; "
                          f"{self.own_mb:g} MB are possible, so remove some or bring fewer")  # fmt: skip
        if more and not self._made_room_for_address(more):
            raise Refused(f"rows from your address take all of the {may_hold(self.all_mb):g} MB that one address may keep here; "
                          "remove some, or try again later")  # fmt: skip
        if more and not self._made_room(more):
            raise Refused(
                "this server keeps as many rows as it can; try again later, or run the playground on your own machine"
            )

    def _made_room_for_address(self, more: int) -> bool:
        """Whether the client's address may keep so many bytes more."""
        address = CLIENT_ADDRESS.get()
        contents = {mark.name for mark, each in self._addresses.items() if each == address}
        return not address or self._made_room(more, contents, may_hold(self.all_mb))

    def _unmark(self, mark: Path) -> None:
        mark.unlink(missing_ok=True)
        self._addresses.pop(mark, None)

    def _made_room(
        self, more: int, among: Container[str] | None = None, most_mb: float | None = None
    ) -> bool:
        """Whether so many bytes more may be kept, of these contents or of all.

        Where they may not, rows go that nobody chose for long and no run is made of.
        """
        places = [
            path
            for path in rows_root().glob("[!.]*")
            if path.is_dir() and (among is None or path.name in among)
        ]
        held = {path: size_of(path) for path in places}
        over = sum(held.values()) + more - int((self.all_mb if most_mb is None else most_mb) * MB)
        if over <= 0:
            return True
        marks: dict[str, list[Path]] = {}
        for mark in rows_root().glob(".owners/*/*"):
            marks.setdefault(mark.name, []).append(mark)
        chosen = {path: max(map(_written, marks.get(path.name, [path]))) for path in held}
        now = time.time()
        idle = [
            path
            for path in sorted(held, key=chosen.__getitem__)
            if now - chosen[path] > UNTOUCHED and not self._in_use(path.name)
        ]
        if sum(held[path] for path in idle) < over:
            return False
        for path in idle:
            if over > 0:
                for mark in marks.get(path.name, []):
                    self._unmark(mark)
                shutil.rmtree(path, ignore_errors=True)
                over -= held[path]
        return True


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # removed just now
        return 0.0


def missing(content: object) -> str:
    """What a visitor is told where rows that a link or a run is made of are not here."""
    return f"This dataset ({str(content)[:12]}…) is not on this server; upload it below. Its content hash identifies it"


def panel_value(owner: str, rows: Any) -> str:
    return json.dumps(
        {"owner": owner, "rows": rows if isinstance(rows, str) and CONTENT.fullmatch(rows) else ""}
    )
