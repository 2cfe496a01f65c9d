"""push, pull, reproduce and gallery, with a stand-in Hub.

Most commands, and their Hub tasks, run in the process of the tests; `published` and the tests of
signals and of the terminal start processes.
"""

import json
import os
import signal
import threading
from types import SimpleNamespace

import pytest
from huggingface_hub import ModelCard

from tests.support.app_server import wait_for
from tests.support.command_runner import run_here, run_in_interpreter, start_command
from tests.support.hub_tasks import run_tasks_here

TAGGED = "---\ntags: [transformer-playground]\n---\n"


def playground(hub, *arguments, run=run_here, token, **environment):
    """Run a command to its end; its output has neither a token nor a traceback."""
    done = run(*arguments, HF_TOKEN=token, **environment)
    for output in (done.stdout, done.stderr):
        assert "Traceback" not in output, output
        assert not [held for held in hub.tokens if held in output]
    return done


@pytest.fixture
def command(hub, run_task_in_process, monkeypatch, tmp_path_factory):
    """Return a function that runs a command and its Hub task in this process, for Ada."""
    run_tasks_here(monkeypatch, run_task_in_process, tmp_path_factory.mktemp("scratch"))
    return lambda *arguments, token=hub.ADA: playground(hub, *arguments, token=token)


@pytest.fixture(scope="module")
def published(hub, trained_checkpoint):
    """The first push to ada/digits: its output, and its requests to the Hub."""
    arguments = ("push", trained_checkpoint, "ada/digits")
    with hub.record_requests() as requests:
        done = playground(hub, *arguments, run=run_in_interpreter, token=hub.ADA)
    assert done.returncode == 0, done.stderr
    return done, requests


def assert_refused(done, code, *expected_message):
    """Check that stdout is empty, and that the last line of stderr has the reason."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("playground: ")
    for words in expected_message:
        assert words in last


# Publishing


def test_a_dry_run_without_a_token_lists_every_file(
    hub, command, trained_checkpoint, published_files
):
    with hub.record_requests() as requests:
        done = command("push", trained_checkpoint, "ada/dry", "--dry-run", token="")
    assert done.returncode == 0, done.stderr
    first, *files, last = done.stdout.splitlines()
    assert first == "model ada/dry (public): would be created"
    assert [line.split()[-1] for line in files] == sorted(published_files)
    assert {line.split()[0] for line in files} == {"new"}
    stored = (trained_checkpoint / "model.safetensors").stat().st_size
    assert f"{stored:,} bytes  model.safetensors" in done.stdout
    assert last == "nothing was written"
    assert "not compared with the Hub" in done.stderr
    assert requests == []


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (
            ("push", "checkpoints/reverse", "ada/x", "--license", "mine"),
            "the license 'mine' is not known to the Hub",
        ),
        (("reproduce", "noslash"), "write user/name"),
        (("pull", "ada/x", "--revision", "a b"), "'a b' is not a valid revision"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_invalid_name_is_rejected_before_a_job_starts(command, arguments, expected_message):
    done = command(*arguments)
    assert_refused(done, 2, expected_message)
    assert len(done.stderr.splitlines()) == 1  # no job has printed anything


def test_license_and_visibility_are_named_on_the_command_line(hub, command, trained_checkpoint):
    options = ("--license", "cc-by-4.0", "--private")
    done = command("push", trained_checkpoint, "ada/licensed", *options)
    assert done.returncode == 0, done.stderr
    assert "model ada/licensed (private): was created" in done.stdout
    assert hub.repo("ada/licensed").private
    card = ModelCard(hub.files("ada/licensed")["README.md"].decode())
    assert card.data.license == "cc-by-4.0"


def test_push_makes_one_commit_and_prints_the_link(hub, published, published_files):
    done, requests = published
    first, *files, last = done.stdout.splitlines()
    assert first == "model ada/digits (public): was created"
    assert [line.split()[-1] for line in files] == sorted(published_files)
    assert last == f"{hub.url}/ada/digits"
    assert len([request for request in requests if "/commit/" in request.path]) == 1
    assert hub.commit_titles("ada/digits") == ["initial commit", "Step 6"]
    assert hub.files("ada/digits") == published_files
    assert "Uploading " in done.stderr  # what it does meanwhile


# Fetching


@pytest.mark.parametrize("as_json", [False, True])
def test_pull_writes_the_checkpoint_of_a_revision(
    hub, command, trained_checkpoint, published_files, tmp_path, as_json
):
    repo, out = f"ada/moved-{as_json}", tmp_path / "there"
    commit = hub.put(repo, published_files)
    hub.put(repo, {"playground.json": None})
    out.mkdir()
    options = ("--revision", commit, "--out", out, *(["--json"] if as_json else []))
    done = command("pull", repo, *options, token="")
    assert done.returncode == 0, done.stderr
    if as_json:
        assert json.loads(done.stdout) == {"checkpoint": str(out), "commit": commit, "step": 6}
    else:
        assert (
            done.stdout == f"{out}: reverse 1–5, 1,685 parameters, step 6, commit {commit[:12]}\n"
        )
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in trained_checkpoint.iterdir()
    }
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_non_empty_folder_is_unchanged(hub, command, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with hub.record_requests() as requests:
        done = command("pull", "ada/digits", "--out", tmp_path)
    assert_refused(done, 2, f"--out {tmp_path} already exists", "choose a new or an empty folder")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("notes.txt", "mine")]
    assert not requests


# Measuring again, and looking around


def test_reproduce_prints_the_card_beside_the_measurement(hub, command, published_files):
    hub.put("ada/measured", published_files)
    done = command("reproduce", "ada/measured", token="")
    assert done.returncode == 0, done.stderr
    scores = json.loads(published_files["evaluation.json"])
    share, n = f"{scores['exact_match']:.2%}", f"{scores['n']:,}"
    assert (
        done.stdout
        == f"the card reports {share} of {n}; measured here {share} of {n} held-out sequences\n"
    )


@pytest.mark.smoke
def test_a_card_above_the_measurement_gives_code_1(hub, command, published_files):
    card = ModelCard(published_files["README.md"].decode())
    (exact_match,) = [
        result for result in card.data.eval_results if result.metric_type == "exact_match"
    ]
    honest, exact_match.metric_value = exact_match.metric_value, 0.99
    hub.put("ada/boast", published_files | {"README.md": str(card)})
    done = command("reproduce", "ada/boast", "--json", token="")
    assert done.returncode == 1, done.stderr
    (line,) = done.stdout.splitlines()
    response = json.loads(line)
    assert (response["repo"], response["commit"]) == ("ada/boast", hub.repo("ada/boast").head.oid)
    assert (response["card"]["exact_match"], response["measured"]["exact_match"]) == (0.99, honest)


@pytest.fixture
def shelf(hub):
    """Ben's models with and without the tag, and a private one of Ada."""
    hub.put("ben/tagged", {"README.md": TAGGED}, likes=7)
    hub.put("ben/other", {"README.md": "---\ntags: [digits]\n---\n"}, likes=9)
    hub.put("ada/secret", {"README.md": TAGGED}, private=True)


def test_the_gallery_lists_tagged_models_by_likes(hub, command, published_files, shelf):
    hub.put("ada/listed", published_files)
    done = command("gallery", token="")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert next(iter(lines)) == "ben/tagged"
    assert lines["ben/tagged"].split()[1:] == ["7", "likes"]
    scores = json.loads(published_files["evaluation.json"])
    values = f"reverse 1–5 1,685 parameters {scores['exact_match']:.2%} 0 likes"
    assert lines["ada/listed"].split()[1:] == values.split()
    assert not {"ben/other", "ada/secret"} & set(lines)


# Whose token


def test_push_without_a_token_prints_instructions(hub, command):
    with hub.record_requests() as requests:
        done = command("push", "checkpoints/reverse", "ada/reverse", token="")
    assert_refused(done, 2, "run `hf auth login`, or set HF_TOKEN")
    assert len(done.stderr.splitlines()) == 1
    assert not requests


# No server, and a server that is too slow


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_hub_task(hub, monkeypatch, number):
    job = SimpleNamespace(released=threading.Event(), result=None, message="cancelled")

    def start(task, on_progress):
        signal.raise_signal(number)
        return job

    queue = SimpleNamespace(start=start, cancel=lambda job: job.released.set())
    monkeypatch.setattr("playground.hub.jobs.HubJobs", lambda fresh: queue)
    assert_refused(playground(hub, "gallery", token=""), 128 + number, "cancelled")


def test_ctrl_c_ends_a_hanging_push_without_leftovers(hub, tmp_path):
    hub.put("ada/hanging", {"README.md": "# Soon"})
    with hub.fault(hub.COMMIT, "silent") as fault:
        environment = os.environ | {"HF_TOKEN": hub.ADA, "TMPDIR": str(tmp_path)}
        words = ("push", "checkpoints/reverse-one-head", "ada/hanging")
        hanging = start_command(*words, env=environment, start_new_session=True)
        wait_for(lambda: fault.hits or hanging.poll() is not None, 100, "the commit")
        # as a terminal sends Ctrl-C: to the process of the hub task, too
        os.killpg(hanging.pid, signal.SIGINT)
        # comes when the last process that could write there has ended
        stdout, stderr = hanging.communicate(timeout=100)
    assert (hanging.returncode, stdout) == (130, ""), stderr
    assert stderr.splitlines()[-1].startswith(
        "playground: cancelled; the commit may exist: check the repository"
    )
    assert "Traceback" not in stderr
    assert hub.commit_titles("ada/hanging") == ["initial commit", "Upload"]
    assert not list(tmp_path.glob("playground-*"))  # nor is a copy of it here
