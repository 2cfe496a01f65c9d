"""What holds for every command: its arguments, its outputs, its streams and its environment.

The commands, their arguments and their outputs are those of the parser.
"""

import errno
import io
import json
import os
import socket
import subprocess

import click
import pytest
from huggingface_hub import constants

from playground.__main__ import main, run
from playground.common.env import ENV_NUMBERS, ENV_TEXTS
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT
from tests.support.command_runner import COMMAND, run_here, run_in_interpreter
from tests.support.files import read_files
from tests.support.hub_tasks import run_tasks_here

ARGUMENTS = {
    "checkpoint": "checkpoints/reverse-one-head",
    "sequence": "3 1 4",
    "sequences": "3 1 4",
    "model": "gpt2",
    "repo": "ada/digits",
    "task": "README.md",
    "question": "heads",
    "folder": "README.md",
    "spec": "README.md",
}
OUTPUTS = [
    (name, parameter)
    for name, command in main.commands.items()
    for parameter in command.params
    if isinstance(parameter, click.Option) and isinstance(parameter.type, click.Path)
]


def assert_refused(done):
    """Check that a command ended with exit code 2 and one sentence."""
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    assert line.startswith("playground: ")


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """The folder of checkpoints of the commands."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "checkpoints"))
    return tmp_path / "checkpoints"


@pytest.mark.parametrize("options", [(), ("--json",)], ids=" ".join)
@pytest.mark.parametrize("name", main.commands)
def test_a_command_without_arguments_ends_well(
    hub, run_task_in_process, monkeypatch, storage, tmp_path, name, options
):
    run_tasks_here(monkeypatch, run_task_in_process, tmp_path)
    monkeypatch.setattr(Trainer, "should_continue", lambda trainer: False)
    monkeypatch.setattr("playground.server.app.serve", lambda *words, **options: None)
    done = run_here(name, *options)
    if done.returncode:
        assert_refused(done)
        assert not storage.exists()
    elif options:
        json.loads(done.stdout)  # one document, and nothing else


def fail(*words, **options):
    raise AssertionError("work began")


def complete_words(name, tmp_path, without=""):
    """Return a command with all its arguments and required options, except one."""
    words = [name]
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Argument):
            words.append(ARGUMENTS[parameter.name])
        elif parameter.required and parameter.opts[0] != without:
            words += [parameter.opts[0], tmp_path / "required"]
    return words


PROBLEMS = {  # root cannot write there either
    "below a missing folder": "missing/file",
    "a folder": "folder",
    "a file": "file",
    "below a file": "file/new",
    "in a read-only folder": "/proc/new",
    "a device": "/dev/full",
    "a long name": "long" * 99,
}
FOR_FILES, FOR_FOLDERS = ("a file", "a device"), ("below a missing folder", "a folder")
WORK = (
    "playground.training.trainer.Trainer.train_step",
    "playground.runs.registry.Registry.__init__",
    "playground.pretrained.jobs.run",
    "playground.hub.jobs.HubJobs.start",
    "playground.inspection.views.figure_data.build_report",
    "playground.reports.report.write_report",
)


@pytest.mark.parametrize(
    ("name", "option", "problem"),
    [
        (name, parameter.opts[0], problem)
        for name, parameter in OUTPUTS
        for problem in PROBLEMS
        if problem not in (FOR_FOLDERS if parameter.type.dir_okay else FOR_FILES)
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    storage, tmp_path, monkeypatch, name, option, problem
):
    (tmp_path / "folder").mkdir()
    for file in ("file", "folder/kept"):
        (tmp_path / file).write_text("kept")
    for work in WORK:
        monkeypatch.setattr(work, fail)
    before, words = read_files(tmp_path), complete_words(name, tmp_path, without=option)
    assert_refused(run_here(*words, option, tmp_path / PROBLEMS[problem], HF_TOKEN="hf_none"))
    assert read_files(tmp_path) == before
    assert not storage.exists()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, command in main.commands.items()
        if "checkpoint" in [parameter.name for parameter in command.params]
    ],
)
def test_a_checkpoint_that_cannot_be_used_is_refused(storage, tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    for file in ("file", "half/config.json"):
        (tmp_path / file).write_text("")
    words = complete_words(name, tmp_path)
    for checkpoint in ("unknown", "empty", "file", "half", "long" * 99):
        words[words.index(ARGUMENTS["checkpoint"])] = str(tmp_path / checkpoint)
        assert_refused(run_here(*words))
        words = complete_words(name, tmp_path)
    assert not (tmp_path / "required").exists()


# Streams

PRINTS = ("predict", "checkpoints/reverse-one-head", "3 1 4")


@pytest.mark.parametrize(
    ("words", "redirection", "code", "message"),
    [
        (PRINTS, ">/dev/full", 2, os.strerror(errno.ENOSPC)),
        ((), ">/dev/full", 2, os.strerror(errno.ENOSPC)),
        (PRINTS, "| true", 1, ""),
        ((), "| true", 1, ""),
        (("predict", "checkpoints/reverse-one-head", "-"), "<&- >&-", 0, ""),
        (("train", "--max-steps", "1", "--eval-size", "8"), "2>&- >/dev/null", 0, ""),
    ],
)
def test_a_stream_that_is_closed_or_full_gives_no_traceback(
    storage, words, redirection, code, message
):
    command = f'set -o pipefail; "$@" {redirection}'
    done = subprocess.run(
        ["bash", "-c", command, "bash", *COMMAND, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert len(done.stderr.splitlines()) == bool(message), done.stderr
    assert message in done.stderr


# The Hub


@pytest.mark.parametrize(
    "words",
    [
        ("dataset", "hub:ada/pairs"),
        ("train", "--task", "hub:ada/pairs"),
        ("pull", "ada/digits"),
        ("push", "checkpoints/reverse", "ada/offline"),
        ("reproduce", "ada/digits"),
        ("gallery",),
    ],
    ids=lambda words: words[0],
)
def test_offline_mode_is_named_as_the_cause(
    hub, run_task_in_process, monkeypatch, storage, tmp_path, words
):
    run_tasks_here(monkeypatch, run_task_in_process, tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with hub.record_requests() as requests:
        done = run_here(*words, HF_TOKEN=hub.ADA)
    assert (done.returncode in (1, 2), done.stdout, requests) == (True, "", [])
    assert "HF_HUB_OFFLINE" in done.stderr.splitlines()[-1]
    assert "unset the variable" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (" https://hub.example/ ", "https://hub.example"),
        ("http://127.0.0.1:80//", "http://127.0.0.1:80"),
        ("https://hub.example/a/b/", "https://hub.example/a/b"),
        (" ", None),
        ("hub.example", "it must be the address of a Hub"),
        ("https://", "it must be the address of a Hub"),
        ("ftp://hub.example", "it must be the address of a Hub"),
        ("https://user:secret@hub.example", "it must be the address of a Hub"),
    ],
)
def test_the_address_of_the_hub_is_normalized_or_refused(value, expected):
    seen = []

    @click.command
    def command():
        seen.append(os.environ.get("HF_ENDPOINT"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(main.commands, "probe", command)
        done = run_here("probe", HF_ENDPOINT=value)
    if done.returncode:
        assert_refused(done)
        assert expected in done.stderr
    else:
        assert seen == [expected]


# The environment and the address of the app


@pytest.mark.parametrize("name", [*ENV_NUMBERS, *ENV_TEXTS])
def test_a_variable_with_a_wrong_value_is_refused_in_one_sentence(monkeypatch, name):
    monkeypatch.setattr("playground.server.app.serve", fail)
    for value in ("wrong value", "https://"):
        done = run_here("app", **{f"PLAYGROUND_{name}": value})
        assert_refused(done)
        assert done.stderr.startswith(f"playground: PLAYGROUND_{name} is ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--host", "no.such.host.invalid"), "is not known; use an address of this machine"),
        (("--host", "a..b"), "is not known"),
        (("--host", "192.0.2.1"), "is not an address of this machine"),
        (("--port", "0"), "is not in the range"),
        (("--port", "99999"), "is not in the range"),
        (("--port", "seven"), "is not a valid integer"),
    ],
)
def test_an_address_that_cannot_be_served_is_refused(monkeypatch, words, message):
    monkeypatch.setattr("playground.server.app.serve", fail)
    done = run_here("app", *words)
    assert_refused(done)
    assert message in done.stderr


@pytest.mark.parametrize("host", [(), ("--host", "0.0.0.0"), ("--host", "localhost")])
def test_a_port_in_use_is_refused_before_the_server_is_imported(monkeypatch, host):
    monkeypatch.setattr("playground.server.app.serve", fail)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run_here("app", "--port", port, *host)
    assert_refused(done)
    assert f"--port {port} is in use" in done.stderr


def test_app_py_reports_errors_as_the_command_does():
    script = run_in_interpreter("app", "--port", "0")
    done = subprocess.run(
        [COMMAND[0], "app.py", "--port", "0"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert_refused(done)
    assert done.stderr == script.stderr


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "latin-1", "utf-8"])
def test_a_console_without_a_character_gets_an_escape(monkeypatch, encoding):
    @click.command()
    def speak():
        click.echo("3 → 1 ☃")

    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr("sys.stdout", screen)
    run([], command=speak)
    screen.flush()
    expected = "3 → 1 ☃\n".encode(encoding, "backslashreplace")
    assert screen.buffer.getvalue() == expected
