"""A client that sends the requests of a page (static/train) over HTTP, without a browser."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from playground.checkpoints.checkpoint import save_checkpoint
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import AppServer, wait_for
from tests.support.files import zip_files
from tests.support.small_runs import tiny_config


class PageClient:
    """The page of one user; with `keeps_connection`, all requests use one connection.

    Requests raise RuntimeError for every status except 200.
    """

    def __init__(self, app: AppServer, owner: str = "", keeps_connection: bool = False) -> None:
        self.owner, self.port, self.keeps_connection = owner, app.port, keeps_connection
        self.connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Any:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.connection.request("POST", path, body, headers)
            with self.connection.getresponse() as response:
                text = response.read()
                if response.status != 200:
                    raise RuntimeError(f"{path}: {response.status} {text[:300]!r}")
        finally:
            if not self.keeps_connection:
                self.close()
        return json.loads(text)

    def get(self, path: str) -> str:
        """Send a GET request; return the text of the response."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as response:
            return response.read().decode()

    def call(self, route: str, **fields: Any) -> Any:
        """Send a request to a route of the page; return the response."""
        body = json.dumps({"owner": self.owner} | fields).encode()
        return self.post(f"/playground/api/{route}", body, {"Content-Type": "application/json"})

    def load(self) -> bool:
        """Send the requests of a page that loads; return whether the server knows its owner."""
        opened = self.call("session/open", stored=json.dumps({"owner": self.owner}))
        return 'id="page"' in self.get("/") and opened["owner"] == self.owner

    def poll(
        self, model_ref: str, n_points: int = 0, series_id: int = -1, snapshot_version: int = 0
    ) -> dict[str, Any]:
        state = {"n_points": n_points, "series_id": series_id, "snapshot_version": snapshot_version}
        return self.call("runs/poll", subject=model_ref, **state)

    def run_action(self, model_ref: str, action: str, **fields: Any) -> dict[str, Any]:
        response = self.call("runs/action", subject=model_ref, action=action, **fields)
        assert "error" not in response, response
        return response

    def train(self, **fields: Any) -> str:
        """Submit the training form with these fields; return the subject of the run or an error."""
        response = self.call("form/start", values=fields)
        errors = "".join(response.get("errors", {}).values())
        return response.get("subject") or response.get("error") or errors

    def submit(self, kind: str, subject: str = "", **request: Any) -> dict[str, Any]:
        """Submit a job; return the response."""
        return self.call("jobs/submit", kind=kind, subject=subject, request=request)

    def run_job(self, kind: str, subject: str = "", **request: Any) -> dict[str, Any]:
        """Return the response to the submission if it is an error, else the end of the job."""
        started = self.submit(kind, subject, **request)
        return started if "error" in started else self.wait_for_end(started["job"])

    def wait_for_end(self, job: str) -> dict[str, Any]:
        """Wait until a job ends; return its last state."""
        wait_for(
            lambda: self.call("jobs/poll", job=job)["status"] not in ("waiting", "working"),
            240,
            "the end of a job",
        )
        return self.call("jobs/poll", job=job)

    def upload(self, archive_bytes: bytes) -> str:
        """Upload a checkpoint as a run; return its subject."""
        return self.post(
            "/playground/checkpoints", archive_bytes, {"X-Owner": self.owner, "X-Name": "uploaded"}
        )["subject"]

    def close(self) -> None:
        if self.connection:
            self.connection.close()
            self.connection = None


def zipped_small_checkpoint(
    folder: Path, config: RunConfig | None = None, changes: int = 0
) -> bytes:
    """Train one step; return the zip file of the checkpoint, with this many setting changes."""
    trainer = Trainer(config or tiny_config())
    checkpoint = folder / secrets.token_hex(4)
    save_checkpoint(checkpoint, trainer, [trainer.train_step()])
    if changes:
        content = json.loads((checkpoint / "config.json").read_text())
        content["changes"] = [[1, "stop_at_exact_match", 0.0]] * changes
        (checkpoint / "config.json").write_text(json.dumps(content))
    return zip_files({path.name: path.read_bytes() for path in checkpoint.iterdir()})


def run_folders(app: AppServer) -> list[Path]:
    return [path.parent for path in sorted((app.checkpoints / "runs").glob("*/run.json"))]


class PollingThread(threading.Thread):
    """Poll a run at a constant rate, as a page does, and record the response times."""

    def __init__(self, page: PageClient, model_ref: str, polls_per_second: float) -> None:
        super().__init__(daemon=True)
        self.page, self.model_ref, self.interval_s = page, model_ref, 1 / polls_per_second
        self.response_seconds: list[float] = []
        self.errors: list[str] = []
        self.steps: list[int] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        n_points, series_id, snapshot_version = 0, -1, 0
        next_poll_at = time.monotonic()
        while not self.stopping.wait(max(0.0, next_poll_at - time.monotonic())):
            next_poll_at = max(next_poll_at + self.interval_s, time.monotonic())
            started = time.monotonic()
            try:
                response = self.page.poll(self.model_ref, n_points, series_id, snapshot_version)
            except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                self.page.close()
                continue
            self.response_seconds.append(time.monotonic() - started)
            points = response["points"]
            if points["whole"] or response["series_id"] != series_id:
                self.steps = []
            self.steps += points["steps"]
            n_points, series_id = points["count"], response["series_id"]
            if response.get("snapshot"):
                snapshot_version = response.get("snapshot_version", 0)
        self.page.close()
