"""What one hostile client can send to a server that others use, as loops that a test or a benchmark runs for a while.

Attackers connect from 127.0.0.2, other visitors from 127.0.0.1: the server tells clients apart by their address.
"""

from __future__ import annotations

import http.client
import io
import json
import secrets
import socket
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from playground.training.checkpoint import save_checkpoint
from playground.training.trainer import Trainer
from playground.ui.visit import new_owner
from tests.support.app_server import AppServer
from tests.support.faults import tiny

ATTACKER = "127.0.0.2"
JSON = {"Content-Type": "application/json"}


class Attacker:
    """One hostile client: runs loops in threads until it is told to stop, and counts the statuses of its responses."""

    def __init__(self, app: AppServer) -> None:
        self.app, self.statuses, self.stopping = app, Counter[int](), threading.Event()
        self.threads: list[threading.Thread] = []
        self.connections: set[http.client.HTTPConnection] = set()
        self.owner = new_owner()

    def send(self, path: str, body: bytes, headers: dict[str, str] | None = None, method: str = "POST") -> tuple[int, bytes]:
        """Send one request from the attacker's address. Returns status and body; status 0 where the connection ended."""
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.app.port, timeout=60, source_address=(ATTACKER, 0))) as connection:
                self.connections.add(connection)
                try:
                    connection.request(method, path, body, JSON | (headers or {}))
                    with connection.getresponse() as response:
                        status, answer = response.status, response.read()
                finally:
                    self.connections.discard(connection)
        except (OSError, http.client.HTTPException):
            status, answer = 0, b""
        if status or not self.stopping.is_set():  # `stop` ends requests as well
            self.statuses[status] += 1
        return status, answer

    def ask(self, name: str, **request: Any) -> dict[str, Any]:
        """Ask a route of the page. An empty response where it is refused."""
        status, answer = self.send("/playground/ask/" + name, json.dumps({"owner": self.owner} | request).encode())
        return json.loads(answer) if status == 200 else {}

    def repeat(self, work: Callable[[], object], threads: int = 1) -> None:
        """Do this again and again, in so many threads."""

        def loop() -> None:
            while not self.stopping.is_set():
                work()

        for _ in range(threads):
            self.threads.append(threading.Thread(target=loop, daemon=True))
            self.threads[-1].start()

    def stop(self) -> None:
        """End every loop, and the requests that wait for a response."""
        self.stopping.set()
        for connection in self.connections.copy():
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(90)

    def connect(self) -> socket.socket:
        """Open a plain connection from the attacker's address."""
        return socket.create_connection(("127.0.0.1", self.app.port), timeout=60, source_address=(ATTACKER, 0))


def packed_checkpoint(folder: Path, config: Any = None, changes: int = 0) -> bytes:
    """A checkpoint as a zip file, with so many entries in its list of changes."""
    trainer = Trainer(config or tiny())
    metrics = [trainer.step()]
    name = folder / secrets.token_hex(4)
    save_checkpoint(name, trainer, metrics)
    if changes:
        content = json.loads((name / "config.json").read_text())
        content["changes"] = [[1, "until", 0.0]] * changes
        (name / "config.json").write_text(json.dumps(content))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in name.iterdir():
            archive.write(path, path.name)
    return packed.getvalue()


def upload(attacker: Attacker, packed: bytes) -> str:
    """Send a checkpoint. Returns the subject of its run; empty where it is refused."""
    status, answer = attacker.send("/playground/checkpoint", packed, {"X-Owner": attacker.owner, "X-Name": "x"})
    return json.loads(answer)["subject"] if status == 200 else ""


def huge_lists(attacker: Attacker, folder: Path) -> None:
    """Send a checkpoint with 65,000 changes, again and again, and poll what comes of it."""
    packed = packed_checkpoint(folder, changes=65_000)
    subjects: list[str] = []

    def send() -> None:
        if subject := upload(attacker, packed):
            subjects.append(subject)

    def poll() -> None:
        if subjects:
            attacker.ask("poll", subject=subjects[-1], known=0, epoch=-1, looks=0)
        else:
            time.sleep(0.1)

    attacker.repeat(send)
    attacker.repeat(poll, 4)


def slow_inspections(attacker: Attacker, folder: Path) -> None:
    """Ask for the most expensive views of a large model, and ask a shipped one from 30 connections."""
    subject = upload(attacker, packed_checkpoint(folder, tiny(d_model=64, n_heads=64, d_ff=64, n_layers=4, max_length=128)))
    for view in ("away", "heads", "away", "heads"):
        attacker.repeat(lambda view=view: attacker.ask("inspect", subject=subject, view=view, text="1 2 3", options={}))
    attacker.repeat(lambda: attacker.ask("try", subject="checkpoint:reverse", text="3 1 4"), 30)


def api_calls(attacker: Attacker, folder: Path) -> None:
    """Call endpoints without a session, and wait for a job that does not exist."""
    attacker.repeat(lambda: attacker.send("/gradio_api/run/models", b'{"data": [""]}'), 6)
    attacker.repeat(lambda: attacker.send("/gradio_api/run/job", b'{"data": ["compare:x", "' + b"a" * 32 + b'", 240]}'), 6)


def large_bodies(attacker: Attacker, folder: Path) -> None:
    """Send a megabyte of nested lists."""
    body = b'{"a": [' + b"[]," * 330_000 + b"[]]}"
    attacker.repeat(lambda: attacker.send("/playground/ask/poll", body), 2)
    attacker.repeat(lambda: attacker.send("/playground/ask/compare-begin", body), 2)


def form_events(attacker: Attacker, folder: Path) -> None:
    """Fill Gradio's queue with the cheap events of the form."""
    status, answer = attacker.send("/config", b"", method="GET")
    while status != 200 and not attacker.stopping.wait(1):  # the limits still count the attack before this one
        status, answer = attacker.send("/config", b"", method="GET")
    config = json.loads(answer)
    values = {part["id"]: part["props"].get("value") for part in config["components"]}
    events = [each for each in config["dependencies"] if len(each["inputs"]) > 20 and len(each["outputs"]) == 2]
    body = {"data": [values.get(each) for each in events[0]["inputs"]], "fn_index": events[0]["id"]}

    def join() -> None:
        attacker.send("/gradio_api/queue/join", json.dumps(body | {"session_hash": secrets.token_hex(5)}).encode())

    attacker.repeat(join, 24)


def slow_transfers(attacker: Attacker, folder: Path) -> None:
    """Hold every slot for uploads and datasets with bytes that dribble, and for downloads that are not read."""

    def dribble(path: str) -> None:
        with suppress(OSError), closing(attacker.connect()) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Owner: {new_owner()}\r\nContent-Length: 900000\r\n\r\n"
            connection.sendall(head.encode())
            for _ in range(600):
                if attacker.stopping.wait(0.1):
                    return
                connection.sendall(b"P")

    attacker.repeat(lambda: dribble("/playground/checkpoint"), 2)
    attacker.repeat(lambda: dribble("/playground/rows"), 8)
    subject = ""
    for _ in range(3):  # a slot of one's own may be taken by one's own dribbling
        subject = subject or upload(attacker, packed_checkpoint(folder))

    def download() -> None:
        listed = attacker.ask("about", subject=subject).get("checkpoints", [])
        ticket = attacker.ask("do", subject=subject, do="download", checkpoint=listed[0]["name"] if listed else "").get("ticket", "x")
        with suppress(OSError), closing(attacker.connect()) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(f"GET /playground/checkpoint/{ticket} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            attacker.stopping.wait(10)

    attacker.repeat(download, 16)


def waiting_runs(attacker: Attacker, folder: Path) -> None:
    """Fill the queue of runs under many owners."""
    owners = [new_owner() for _ in range(8)]
    packed = packed_checkpoint(folder, tiny(steps=1_000_000))
    subjects = {}
    for owner in owners:
        status, answer = attacker.send("/playground/checkpoint", packed, {"X-Owner": owner, "X-Name": "x"})
        if status == 200:
            subjects[owner] = json.loads(answer)["subject"]

    def again() -> None:
        for owner, subject in subjects.items():
            attacker.ask("do", owner=owner, subject=subject, do="again")
            attacker.ask("runs", owner=owner)

    attacker.repeat(again, 2)


ATTACKS = {
    "huge lists in a checkpoint": huge_lists,
    "slow inspections of a large model": slow_inspections,
    "calls of the API": api_calls,
    "bodies of a megabyte": large_bodies,
    "events of the form": form_events,
    "slow transfers": slow_transfers,
    "runs that wait": waiting_runs,
}
