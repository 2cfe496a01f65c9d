"""The app on a desktop: its browser, its terminal output, its installation and its end."""

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest
from click.testing import CliRunner

from playground.cli.app import app
from playground.common import platform
from playground.common.platform import has_display
from tests.support.app_server import ROOT, free_port, wait_for


class Terminal:
    """`python app.py` in a terminal, with a browser that records its URL."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.visits, browser = folder / "visits", folder / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" >> {self.visits}\n')
        browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("SSH_CONNECTION", "SPACE_ID", "GRADIO_SERVER_NAME")
        }
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        parent_end, child_end = pty.openpty()
        self.screen, self.message = parent_end, ""
        self.process = subprocess.Popen(
            [sys.executable, "app.py", "--port", str(port), *arguments],
            cwd=ROOT,
            stdin=child_end,
            stdout=child_end,
            stderr=child_end,
            start_new_session=True,
            env=inherited
            | {
                "BROWSER": f"{browser} %s",
                "DISPLAY": ":9",
                "PLAYGROUND_CHECKPOINTS": str(folder / "kept"),
            }
            | environment,
        )
        os.close(child_end)

    def expected_message(self, pattern: str) -> re.Match[str]:
        def actual() -> re.Match[str] | None:
            while select.select([self.screen], [], [], 0)[0]:
                try:
                    self.message += os.read(self.screen, 10_000).decode()
                except OSError:  # it has ended
                    break
            return re.search(pattern, self.message)

        try:
            return wait_for(actual, 60, pattern)
        except TimeoutError:
            raise AssertionError(f"{pattern} is missing in: {self.message}") from None

    def get(self, path: str, data: bytes | None = None) -> str:
        with urllib.request.urlopen(self.url + path, data, timeout=60) as answer:
            return answer.read().decode()

    def end(self) -> int:
        """Send Ctrl-C to the whole process group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(120)
        self.expected_message("")
        os.close(self.screen)
        return code


def test_app_opens_browser_is_installable_and_exits_on_ctrl_c(tmp_path):
    app = Terminal(tmp_path)
    address = app.expected_message(re.escape(app.url))[0]
    line = app.expected_message(r"Training on (cpu, \d+ cores?: .*\w|cuda:0, .*GB)")[0]
    wait_for(app.visits.exists, 120, "a visit of the browser")
    (link,) = re.findall(r'<link rel="manifest" href="([^"]+)"', app.get("/"))
    manifest = json.loads(app.get(f"/{link.lstrip('/')}"))
    assert (manifest["name"], manifest["display"], manifest["start_url"]) == (
        "Transformer Playground",
        "standalone",
        "./",
    )
    (icon,) = manifest["icons"]
    assert icon["type"] == "image/svg+xml"
    drawing = (ROOT / "playground" / "ui" / "icon.svg").read_text()
    assert app.get(icon["src"]) == app.get("/favicon.ico") == drawing
    assert ElementTree.fromstring(drawing).get("viewBox") == "0 0 96 96"
    result = json.loads(app.get("/playground/api/runs/list", b"{}"))
    assert (result["device"], result["note"]) == (line, "")  # a laptop's disk lasts
    assert app.end() == 0
    assert app.visits.read_text().strip().rstrip("/") == address
    assert "Traceback" not in app.message


def test_ctrl_c_during_startup_ends_without_traceback(tmp_path):
    app = Terminal(tmp_path)
    wait_for(
        psutil.Process(app.process.pid).children,
        60,
        "the first process of its own, which imports torch for seconds",
    )
    assert app.end() in (0, 128 + signal.SIGINT)  # the latter before there is anything to save
    assert "Traceback" not in app.message


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("words", "requested"),
    [
        ([], (None, None, False, True)),
        (["--no-browser", "--port", "8000"], (None, 8000, False, False)),
        (["--share", "--host", "0.0.0.0"], ("0.0.0.0", None, True, True)),
    ],
)
def test_the_options_reach_the_server(monkeypatch, words, requested):
    calls = []
    monkeypatch.setattr(
        "playground.server.app.serve",
        lambda host, port, *, share, browser: calls.append((host, port, share, browser)),
    )
    assert CliRunner().invoke(app, words).exit_code == 0
    assert calls == [requested]


@pytest.mark.parametrize(
    ("environment", "is_terminal", "screen"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, True, True),
        ({}, True, False),
        ({"DISPLAY": ":0"}, False, False),  # started by a service, or into a file
        ({"DISPLAY": ":10", "SSH_CONNECTION": "1 2 3 4"}, True, False),
    ],
)
def test_a_browser_opens_on_a_desktop(monkeypatch, environment, is_terminal, screen):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    assert has_display() is screen
    monkeypatch.setattr(platform, "IS_MAC", True)
    assert has_display() is (is_terminal and "SSH_CONNECTION" not in environment)
