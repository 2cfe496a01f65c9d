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
BUNDLED_CHECKPOINTS = ("reverse", "reverse-one-head", "copy")


def wait_for(
    condition: Callable[[], object], seconds: float = 120, description: str = "a condition"
) -> object:
    """Wait until `condition` gives something true, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise TimeoutError(f"{description} did not come true within {seconds} s")


def free_port() -> int:
    """Return a free port below the range from which the system takes those of outgoing connections.

    The server binds it seconds later: one of that range may be taken by then.
    """
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class AppServer:
    """`python app.py` on a free port, over a copy of the shipped checkpoints; of another checkout,
    or by way of another command; or as it
    stands in another `root`, over what lies there."""

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        checkout: Path = ROOT,
        command_prefix: Sequence[str] = (),
        root: Path | None = None,
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
            [*command_prefix, sys.executable, "app.py"],
            root or checkout,
            environment,
        )
        self.start()

    def start(self) -> None:
        """Start the process on its port; again after `stop`, over the same files."""
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
        """Status and text of a GET; `Host` may be given as any other header."""
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def request(self, name: str, payload: object) -> dict[str, Any]:
        """What the server answers a page's script."""
        data = json.dumps(payload).encode()
        request = urllib.request.Request(
            f"{self.url}/playground/api/{name}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)
