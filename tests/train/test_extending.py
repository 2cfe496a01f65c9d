"""The sections of docs/extending.md, applied to a copy of the playground."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest

from tests.support.app_server import ROOT, free_port, wait_for

GUIDE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", GUIDE, re.M | re.S))
EDIT = re.compile(
    r"^(At the end of|The file|In) `([^`]+)`(?:, (below|above|instead of) "
    r"`([^`]+)`)?:\n\n```\w+\n(.*?)```",
    re.M | re.S,
)
COMMAND = re.compile(r"^```\n(python .*?)\n```", re.M)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(
        ROOT / "playground", tmp_path / "playground", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "checkpoints" / "reverse", tmp_path / "checkpoints" / "reverse")
    shutil.copy(ROOT / "app.py", tmp_path)
    return tmp_path


def apply_example(section, copy):
    """Make the edits of a section; return its command as a list."""
    for how, name, where, anchor, text in EDIT.findall(SECTIONS[section]):
        path = copy / name
        if how == "The file":
            assert not path.exists()
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            continue
        source = path.read_text(encoding="utf-8")
        if anchor:
            assert source.count(anchor + "\n") == 1, (
                f"{name} has the line {anchor!r} {source.count(anchor)} times"
            )
        put = {
            "": source + text,
            "below": f"{anchor}\n{text}",
            "above": f"{text}{anchor}\n",
            "instead of": text,
        }[where]
        path.write_text(source.replace(anchor + "\n", put) if anchor else put, encoding="utf-8")
    [command] = COMMAND.findall(SECTIONS[section])
    return [sys.executable, *command.split()[1:]]


@pytest.mark.smoke
def test_there_is_a_section_for_each_extension():
    assert list(SECTIONS) == [
        "A task",
        "A component",
        "A position encoding",
        "An architecture",
        "A tab",
    ]


@pytest.mark.smoke
def test_every_anchor_of_a_section_is_in_the_code():
    for _, name, where, anchor, _ in EDIT.findall(GUIDE):
        if where:
            assert (ROOT / name).read_text(encoding="utf-8").count(anchor + "\n") == 1, (
                name,
                anchor,
            )


@pytest.mark.parametrize(
    "section", ["A task", "A component", "A position encoding", "An architecture"]
)
def test_an_added_component_can_be_trained(section, copy):
    command = apply_example(section, copy)
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    saved = json.loads((copy / command[-1] / "config.json").read_text())
    added = {
        "A task": "tail",
        "A component": "squared",
        "A position encoding": "window",
        "An architecture": "bag",
    }[section]
    assert f'"{added}"' in json.dumps(saved)


def test_an_added_tab_is_served_and_responds(copy):
    port = free_port()
    command = [part.replace("PORT", str(port)) for part in apply_example("A tab", copy)]
    with subprocess.Popen(
        command, cwd=copy, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as server:
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/"), description="the page")
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/config").read().decode()
            [module] = re.findall(r"playground/static/[\w.+-]+/clock/main\.js", page)
            script = urllib.request.urlopen(f"http://127.0.0.1:{port}/{module}").read().decode()
            requested = urllib.request.Request(
                f"http://127.0.0.1:{port}/playground/api/clock/time",
                b"{}",
                {"Content-Type": "application/json"},
            )
            result = json.load(urllib.request.urlopen(requested))
        finally:
            server.terminate()
    assert "Show the time" in script
    assert re.fullmatch(r"\d\d:\d\d:\d\d", result["time"])


def answers(url):
    try:
        return urllib.request.urlopen(url).status == 200
    except OSError:
        return False
