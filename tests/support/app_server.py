"""The app as a real process, for tests that speak to it over HTTP or in a browser."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# as PYTHONPATH of a process: it then sees Linux as if it were Windows
OTHER_DESKTOP = str(ROOT / "tests" / "support" / "other_desktop")
BUNDLED_CHECKPOINTS = ("reverse", "reverse-one-head", "copy")


def wait_for(
    condition: Callable[[], object], seconds: float = 120, description: str = "a condition"
) -> object:
    """Wait until `condition` returns a true value, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise TimeoutError(f"{description} did not come true within {seconds} s")


def free_port() -> int:
    """Return a free port below the system's range of outgoing ports.

    The server binds it seconds later; a port of that range may be taken by then.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class AppServer:
    """`python app.py` on a free port, with a copy of the bundled checkpoints.

    `checkout` is the code to run, `program` its command, and `command_prefix` another command that
    runs it. With `root`, the server uses the files in that folder instead of a copy.
    """

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        checkout: Path = ROOT,
        command_prefix: Sequence[str] = (),
        root: Path | None = None,
        program: Sequence[str] = (sys.executable, "app.py"),
        **environment: str,
    ) -> None:
        self.checkpoints = (root or folder) / "checkpoints"
        if root is None:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            for name in BUNDLED_CHECKPOINTS:
                shutil.copytree(
                    ROOT / "checkpoints" / name, self.checkpoints / name, dirs_exist_ok=True
                )
            environment = {"PLAYGROUND_CHECKPOINTS": str(self.checkpoints)} | environment
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "app.log"
        self.command, self.checkout, self.environment = (
            [*command_prefix, *program],
            root or checkout,
            environment,
        )
        self.start()

    def start(self) -> None:
        """Start the process; after `stop`, it uses the same files again."""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*self.command, "--port", str(self.port)],
                cwd=self.checkout,
                env=os.environ | self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for(self.is_responding, 120, "the app's page")
        except TimeoutError:
            self.process.kill()  # the caller never receives it
            self.process.wait(20)
            raise

    def is_responding(self) -> bool:
        if self.process.poll() is not None:
            raise RuntimeError(f"app.py ended: {self.log.read_text()}")
        try:
            return self.get("/")[0] == 200
        except urllib.error.URLError:
            return False

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Send a GET request; return status and text."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def request(self, name: str, payload: object) -> dict[str, Any]:
        """Send a request as the page does; return the response."""
        data = json.dumps(payload).encode()
        request = urllib.request.Request(
            f"{self.url}/playground/api/{name}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)
