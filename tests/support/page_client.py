"""A page of the app without a browser: what live.js and runs.js send, over real HTTP."""

from __future__ import annotations

import http.client
import io
import json
import secrets
import socket
import threading
import time
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from playground.training.checkpoint import save_checkpoint
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from playground.ui.visit import visited
from tests.support.app_server import AppServer
from tests.support.faults import tiny


class Page:
    """One visitor's page; with `stays` it keeps its connection until it is closed. Raises RuntimeError for whatever is not a 200."""

    def __init__(self, app: AppServer, owner: str = "", stays: bool = False) -> None:
        self.owner, self.port, self.stays = owner, app.port, stays
        self.connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Any:
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.connection.request("POST", path, body, headers)
            with self.connection.getresponse() as answer:
                text = answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{path}: {answer.status} {text[:300]!r}")
        finally:
            if not self.stays:
                self.close()
        return json.loads(text)

    def get(self, path: str) -> str:
        """The text of a GET."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def call(self, function: str, **request: Any) -> Any:
        """What a function of the live view answers."""
        body = {"owner": self.owner} | request
        return self.post(f"/playground/ask/{function}", json.dumps(body).encode(), {"Content-Type": "application/json"})

    def load(self) -> bool:
        """Send the event of a page that loads, and wait for its end."""
        config = json.loads(self.get("/config"))
        load = next(each for each in config["dependencies"] if any(target[1] == "load" for target in each["targets"]))
        session = secrets.token_hex(6)
        asked = {"data": [visited(self.owner)], "fn_index": load["id"], "session_hash": session}
        self.post("/gradio_api/queue/join", json.dumps(asked).encode(), {"Content-Type": "application/json"})
        return '"success":true' in self.get(f"/gradio_api/queue/data?session_hash={session}").replace('": ', '":')

    def poll(self, subject: str, known: int = 0, epoch: int = -1, looks: int = 0) -> dict[str, Any]:
        return self.call("poll", subject=subject, known=known, epoch=epoch, looks=looks)

    def do(self, subject: str, what: str, **more: Any) -> dict[str, Any]:
        answer = self.call("do", subject=subject, do=what, **more)
        assert "error" not in answer, answer
        return answer

    def train(self, **fields: Any) -> str:
        """Press Train on the form as it comes, but for these fields; the subject that is on show then, or why nothing was started."""
        config = json.loads(self.get("/config"))
        parts = {part["id"]: part for part in config["components"]}
        ids = {part["props"].get("elem_id"): number for number, part in parts.items()}
        press = next(each for each in config["dependencies"] if [ids["train"], "click"] in each["targets"])
        own = {ids[f"field-{name}"]: value for name, value in fields.items()}
        _visit, _speed, *form = press["inputs"]
        data = [visited(self.owner), "0", *(own.get(number, parts[number]["props"].get("value")) for number in form)]
        session = secrets.token_hex(6)
        asked = {"data": data, "fn_index": press["id"], "session_hash": session}
        self.post("/gradio_api/queue/join", json.dumps(asked).encode(), {"Content-Type": "application/json"})
        told = [
            json.loads(line[6:])
            for line in self.get(f"/gradio_api/queue/data?session_hash={session}").splitlines()
            if line.startswith("data: ")
        ]
        output = next(each["output"] for each in told if each["msg"] == "process_completed")
        if "data" not in output:
            raise RuntimeError(f"Train: {output}")
        _, shown, problem = output["data"]
        return problem or json.loads(shown)["subject"]

    def upload(self, packed: bytes) -> str:
        """Make a run of a checkpoint; the subject under which it can be begun again."""
        return self.post("/playground/checkpoint", packed, {"X-Owner": self.owner, "X-Name": "uploaded"})["subject"]

    def close(self) -> None:
        if self.connection:
            self.connection.close()
            self.connection = None


def small_checkpoint(folder: Path, config: RunConfig | None = None) -> bytes:
    """The zip file of a checkpoint at step 1."""
    trainer = Trainer(config or tiny())
    metrics = [trainer.step()]
    save_checkpoint(folder / "small", trainer, metrics)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in (folder / "small").iterdir():
            archive.write(path, path.name)
    return packed.getvalue()


def run_folders(app: AppServer) -> list[Path]:
    return [path.parent for path in sorted((app.checkpoints / "runs").glob("*/run.json"))]


class Watcher(threading.Thread):
    """A page that polls at a steady pace, as one does that has a run on show, and keeps the seconds that each answer took."""

    def __init__(self, page: Page, subject: str, a_second: float) -> None:
        super().__init__(daemon=True)
        self.page, self.subject, self.every = page, subject, 1 / a_second
        self.took: list[float] = []
        self.errors: list[str] = []
        self.steps: list[int] = []
        self.leaving = threading.Event()

    def run(self) -> None:
        known, epoch, looks = 0, -1, 0
        due = time.monotonic()
        while not self.leaving.wait(max(0.0, due - time.monotonic())):
            due = max(due + self.every, time.monotonic())
            started = time.monotonic()
            try:
                told = self.page.poll(self.subject, known, epoch, looks)
            except (OSError, RuntimeError, ValueError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                self.page.close()
                continue
            self.took.append(time.monotonic() - started)
            points = told["points"]
            if points["whole"] or told["epoch"] != epoch:
                self.steps = []
            self.steps += points["steps"]
            known, epoch, looks = points["count"], told["epoch"], told.get("looks", 0) if told.get("snapshot") else looks
        self.page.close()
