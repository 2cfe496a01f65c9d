"""The sections of docs/extending.md, applied to a copy of the playground."""

import json
import re
import shlex
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


ADDED = {
    "A task": "tail",
    "A component": "squared",
    "A position encoding": "window",
    "An architecture": "bag",
    "A setting": "gradient_noise",
}
N_FILES = dict.fromkeys(ADDED, 2) | {"A setting": 3, "A kind of job": 2, "A tab": 4}
RUN_ALL = """
import json, sys
from contextlib import suppress
from pathlib import Path
from playground.__main__ import run
from playground.inspection.inspected_model import NotApplicableError, load_inspected_model
from playground.inspection.views import render_view
for arguments in json.loads(sys.argv[1]):
    run(arguments)
    subject = load_inspected_model(Path(arguments[-1]))
    for view in ("attention", "trace", "embeddings"):
        with suppress(NotApplicableError):
            render_view(subject, view, {"text": "3 1 4", "head": 1})
"""


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the playground with the edits of all sections."""
    copy = tmp_path_factory.mktemp("extended")
    shutil.copytree(
        ROOT / "playground", copy / "playground", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / "checkpoints" / "reverse", copy / "checkpoints" / "reverse")
    shutil.copy(ROOT / "app.py", copy)
    for how, name, where, anchor, text in EDIT.findall(GUIDE):
        apply_edit(copy / name, how, where, anchor, text)
    return copy


def apply_edit(path, how, where, anchor, text):
    if how == "The file":
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    source = path.read_text(encoding="utf-8")
    assert anchor + "\n" in source, (path.name, anchor)
    put = {
        "": source + text,
        "below": f"{anchor}\n{text}",
        "above": f"{text}{anchor}\n",
        "instead of": text,
    }[where]
    path.write_text(source.replace(anchor + "\n", put) if anchor else put, encoding="utf-8")


def command_of(section):
    """Return the arguments of the command of a section, after python."""
    [command] = COMMAND.findall(SECTIONS[section])
    return command.split()[1:]


@pytest.mark.smoke
def test_there_is_a_section_for_each_extension():
    assert list(SECTIONS) == [*ADDED, "A kind of job", "A tab"]


@pytest.mark.smoke
def test_an_extension_touches_few_files():
    touched = {
        section: {name for _, name, *_ in EDIT.findall(text)} for section, text in SECTIONS.items()
    }
    assert {section: len(names) for section, names in touched.items()} == N_FILES
    assert len(touched["A tab"] - {"playground/ui/page.py"}) == 3  # its JSON route


@pytest.mark.smoke
def test_every_anchor_of_a_section_is_in_the_code():
    for _, name, where, anchor, _ in EDIT.findall(GUIDE):
        if where:
            assert (ROOT / name).read_text(encoding="utf-8").count(anchor + "\n") == 1, (
                name,
                anchor,
            )


def test_what_each_section_adds_can_be_trained_and_inspected(extended):
    commands = [command_of(section)[2:] for section in ADDED]
    command = [sys.executable, "-c", RUN_ALL, json.dumps(commands)]
    done = subprocess.run(command, cwd=extended, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for arguments, added in zip(commands, ADDED.values(), strict=True):
        saved = (extended / arguments[-1] / "config.json").read_text()
        assert f'"{added}"' in saved


def test_an_added_kind_of_job_runs_and_the_page_may_submit_it(extended):
    [command] = COMMAND.findall(SECTIONS["A kind of job"])
    script = shlex.split(command)[2]
    script += "; from playground.server.jobs_api import RIGHTS_BY_KIND; print(*RIGHTS_BY_KIND)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=extended, capture_output=True, text=True, check=True
    )
    result, kinds = done.stdout.splitlines()
    assert result == "{'words': [['a', 'n'], ['o', 'x']]}"
    assert "spelling" in kinds.split()


def test_an_added_tab_is_served_and_responds(extended):
    port = free_port()
    command = [sys.executable, *command_of("A tab")[:-1], str(port)]
    with subprocess.Popen(
        command, cwd=extended, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ) as server:
        try:
            wait_for(lambda: answers(f"http://127.0.0.1:{port}/"), description="the page")
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read().decode()
            [static] = set(re.findall(r"playground/static/[\w.+-]+/", page))
            module = f"http://127.0.0.1:{port}/{static}clock/main.js"
            script = urllib.request.urlopen(module).read().decode()
            requested = urllib.request.Request(
                f"http://127.0.0.1:{port}/playground/api/clock/time",
                b"{}",
                {"Content-Type": "application/json"},
            )
            result = json.load(urllib.request.urlopen(requested))
        finally:
            server.terminate()
    assert 'id="panel-clock"' in page
    assert "Show the time" in script
    assert re.fullmatch(r"\d\d:\d\d:\d\d", result["time"])


def answers(url):
    try:
        return urllib.request.urlopen(url).status == 200
    except OSError:
        return False
