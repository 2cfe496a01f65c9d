"""Drive an unmodified Firefox by its Marionette protocol; Playwright needs a Firefox of its own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.app_server import wait_for

FIREFOX_NAMES = ("firefox-esr", "firefox")


def find_firefox() -> str | None:
    return next(filter(None, map(shutil.which, FIREFOX_NAMES)), None)


class Marionette:
    """A session of one window. A message is its length, a colon, and JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._replies = connection.makefile("rb")
        self._read()
        self.call("WebDriver:NewSession", capabilities={})

    def _read(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self._replies.read(1)
        return json.loads(self._replies.read(int(size[:-1])))

    def call(self, command: str, **arguments: Any) -> Any:
        """Run a command, and return its result.

        Raises:
            RuntimeError: with the error of Firefox.
        """
        message = json.dumps([0, 0, command, arguments]).encode()
        self._connection.sendall(str(len(message)).encode() + b":" + message)
        _, _, error, result = self._read()
        if error:
            raise RuntimeError(error["message"])
        return result

    def evaluate(self, expression: str) -> Any:
        arguments = {"script": f"return {expression}", "args": []}
        return self.call("WebDriver:ExecuteScript", **arguments)["value"]


@contextmanager
def started_firefox(path: str, profile: Path) -> Iterator[Marionette]:
    """Start Firefox with a new profile, on a free port."""
    profile.mkdir()
    (profile / "user.js").write_text('user_pref("marionette.port", 0);\n')
    options = ["--headless", "--marionette", "--no-remote", "--profile", str(profile)]
    process = subprocess.Popen(
        [path, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        port_file = profile / "MarionetteActivePort"
        wait_for(
            lambda: port_file.is_file() and port_file.read_text().strip(),
            description="the port of Firefox",
        )
        with socket.create_connection(("127.0.0.1", int(port_file.read_text()))) as connection:
            yield Marionette(connection)
    finally:
        process.kill()
        process.wait()
