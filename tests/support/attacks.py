"""Requests of one hostile client to a shared server, as loops for a test or a benchmark.

Attackers connect from 127.0.0.2, other users from 127.0.0.1, because the server distinguishes
clients by their address.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from playground.runs.owner_keys import new_owner_key
from tests.support.app_server import AppServer
from tests.support.page_client import zipped_small_checkpoint
from tests.support.small_runs import tiny_config

ATTACKER_ADDRESS = "127.0.0.2"
JSON_HEADERS = {"Content-Type": "application/json"}
REJECTION_STATUSES = (413, 429, 503)


class Attacker:
    """A hostile client that runs loops in threads until `stop`, and counts response statuses.

    Attributes:
        rejections: what limits answered: statuses, and "busy" for a response that advises a retry.
    """

    def __init__(self, app: AppServer) -> None:
        self.app, self.statuses, self.stopping = app, Counter[int](), threading.Event()
        self.rejections = Counter[int | str]()
        self.threads: list[threading.Thread] = []
        self.connections: set[http.client.HTTPConnection] = set()
        self.owner = new_owner_key()

    def send(
        self, path: str, body: bytes, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> tuple[int, bytes]:
        """Send one request from the attacker's address.

        Returns status and body; the status is 0 if the connection ended.
        """
        try:
            with closing(
                http.client.HTTPConnection(
                    "127.0.0.1", self.app.port, timeout=60, source_address=(ATTACKER_ADDRESS, 0)
                )
            ) as connection:
                self.connections.add(connection)
                try:
                    connection.request(method, path, body, JSON_HEADERS | (headers or {}))
                    with connection.getresponse() as response:
                        status, response_body = response.status, response.read()
                finally:
                    self.connections.discard(connection)
        except (OSError, http.client.HTTPException):
            status, response_body = 0, b""
        if status or not self.stopping.is_set():  # `stop` ends requests as well
            self.statuses[status] += 1
            self.count_rejection(status, response_body)
        return status, response_body

    def count_rejection(self, status: int, body: bytes = b"") -> None:
        """Count a response if a limit of the server rejected the request."""
        if status in REJECTION_STATUSES:
            self.rejections[status] += 1
        elif b'"error"' in body and b'"retryable"' in body:
            self.rejections["busy"] += 1

    def request(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a request to a route of the page; return {} if it is rejected."""
        status, body = self.send(
            "/playground/api/" + name, json.dumps({"owner": self.owner} | fields).encode()
        )
        return json.loads(body) if status == 200 else {}

    def repeat(self, action: Callable[[], object], threads: int = 1) -> None:
        """Repeat a call in this many threads."""

        def loop() -> None:
            while not self.stopping.is_set():
                action()

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
        return socket.create_connection(
            ("127.0.0.1", self.app.port), timeout=60, source_address=(ATTACKER_ADDRESS, 0)
        )


def upload(attacker: Attacker, archive_bytes: bytes) -> str:
    """Upload a checkpoint; return the name of its run, or "" if it is rejected."""
    status, body = attacker.send(
        "/playground/checkpoints", archive_bytes, {"X-Owner": attacker.owner, "X-Name": "x"}
    )
    return json.loads(body)["subject"] if status == 200 else ""


def huge_lists(attacker: Attacker, folder: Path) -> None:
    """Upload a checkpoint with 65,000 changes repeatedly, and poll its run."""
    archive_bytes = zipped_small_checkpoint(folder, changes=65_000)
    model_refs: list[str] = []

    def send() -> None:
        if model_ref := upload(attacker, archive_bytes):
            model_refs.append(model_ref)

    def poll() -> None:
        if model_refs:
            attacker.request("runs/poll", subject=model_refs[-1], known=0, epoch=-1, attends=0)
        else:
            time.sleep(0.1)

    attacker.repeat(send)
    attacker.repeat(poll, 4)


def slow_inspections(attacker: Attacker, folder: Path) -> None:
    """Request the most expensive views of a large model, and of a bundled one on 30 connections."""
    model_ref = upload(
        attacker,
        zipped_small_checkpoint(
            folder, tiny_config(d_model=64, n_heads=64, d_ff=64, n_layers=4, max_length=128)
        ),
    )
    for view in ("ablation", "heads", "ablation", "heads"):
        attacker.repeat(
            lambda view=view: attacker.request(
                "inspect/view", subject=model_ref, view=view, text="1 2 3", options={}
            )
        )
    attacker.repeat(
        lambda: attacker.request("runs/predict", subject="checkpoint:reverse", text="3 1 4"), 30
    )


def api_calls(attacker: Attacker, folder: Path) -> None:
    """Call endpoints without a session, and wait for a job that does not exist."""
    attacker.repeat(lambda: attacker.send("/gradio_api/run/models", b'{"data": [""]}'), 6)
    attacker.repeat(
        lambda: attacker.send("/gradio_api/run/job", b'{"data": ["x", "' + b"a" * 32 + b'", 240]}'),
        6,
    )


def large_bodies(attacker: Attacker, folder: Path) -> None:
    """Send a megabyte of nested lists."""
    body = b'{"a": [' + b"[]," * 330_000 + b"[]]}"
    attacker.repeat(lambda: attacker.send("/playground/api/runs/poll", body), 2)
    attacker.repeat(lambda: attacker.send("/playground/api/jobs/submit", body), 2)


def form_checks(attacker: Attacker, folder: Path) -> None:
    """Check the form of a run again and again."""
    attacker.repeat(lambda: attacker.request("form/check", values={"n_layers": 4}), 24)


def slow_transfers(attacker: Attacker, folder: Path) -> None:
    """Hold every slot for uploads and datasets with slow requests, and for unread downloads."""

    def send_slowly(path: str) -> None:
        with suppress(OSError), closing(attacker.connect()) as connection:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Owner: "
                f"{new_owner_key()}\r\nContent-Length: 900000\r\n\r\n"
            )
            connection.sendall(head.encode())
            connection.settimeout(0.1)
            for _ in range(600):
                if attacker.stopping.is_set():
                    return
                connection.sendall(b"P")
                with suppress(TimeoutError):  # no response yet
                    if not (response := connection.recv(4096)):
                        attacker.stopping.wait(0.2)
                        return
                    if response.startswith(b"HTTP/1.1 "):
                        attacker.count_rejection(int(response[9:12]))

    attacker.repeat(lambda: send_slowly("/playground/checkpoints"), 2)
    attacker.repeat(lambda: send_slowly("/playground/datasets"), 8)
    model_ref = ""
    for _ in range(3):  # the attacker's own slow requests may hold the slot
        model_ref = model_ref or upload(attacker, zipped_small_checkpoint(folder))

    def download() -> None:
        checkpoints = attacker.request("runs/details", subject=model_ref).get("checkpoints", [])
        ticket = attacker.request(
            "runs/action",
            subject=model_ref,
            action="download",
            checkpoint=checkpoints[0]["name"] if checkpoints else "",
        ).get("ticket", "x")
        with suppress(OSError), closing(attacker.connect()) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.sendall(
                f"GET /playground/checkpoints/{ticket} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            )
            attacker.stopping.wait(10)

    attacker.repeat(download, 16)


def queued_runs(attacker: Attacker, folder: Path) -> None:
    """Fill the queue of runs under many owners."""
    owners = [new_owner_key() for _ in range(8)]
    archive_bytes = zipped_small_checkpoint(folder, tiny_config(max_steps=1_000_000))
    model_ref_by_owner = {}
    for owner in owners:
        status, body = attacker.send(
            "/playground/checkpoints", archive_bytes, {"X-Owner": owner, "X-Name": "x"}
        )
        if status == 200:
            model_ref_by_owner[owner] = json.loads(body)["subject"]

    def rerun_all() -> None:
        for owner, model_ref in model_ref_by_owner.items():
            attacker.request("runs/action", owner=owner, subject=model_ref, action="rerun")
            attacker.request("runs/list", owner=owner)

    attacker.repeat(rerun_all, 2)


ATTACKS = {
    "huge lists in a checkpoint": huge_lists,
    "slow inspections of a large model": slow_inspections,
    "calls of the API": api_calls,
    "bodies of a megabyte": large_bodies,
    "checks of the form": form_checks,
    "slow transfers": slow_transfers,
    "runs that wait": queued_runs,
}
