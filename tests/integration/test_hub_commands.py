"""push, pull, reproduce and gallery as processes, with a stand-in Hub."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.utils import close_session

from tests.support.app_server import ROOT, wait_for
from tests.support.command_runner import COMMAND, run_command, run_in_interpreter
from tests.support.fake_hub import FakeHub

TINY = [
    "--d-model",
    "16",
    "--n-heads",
    "2",
    "--n-layers",
    "1",
    "--d-ff",
    "16",
    "--batch-size",
    "16",
    "--eval-every",
    "20",
    "--eval-size",
    "32",
]
CHECKPOINT = ["config.json", "metrics.jsonl", "model.safetensors", "training.safetensors"]
PUBLISHED = [
    "LICENSE",
    "README.md",
    "attention.py",
    "automodel.py",
    "automodel_base.py",
    "automodel_cache.py",
    "automodel_generation.py",
    "base_config.py",
    "config.json",
    "config.py",
    "config_fields.py",
    "cross-attention.png",
    "embeddings.py",
    "evaluation.json",
    "feed_forward.py",
    "generation_config.json",
    "initialization.py",
    "layers.py",
    "metrics.jsonl",
    "model.safetensors",
    "parameter_count.py",
    "playground.json",
    "position_encoding.py",
    "stack_config.py",
    "tokenizer.json",
    "tokenizer_config.json",
    "training.png",
    "training.safetensors",
    "transformer.py",
]
TAGGED = "---\ntags: [transformer-playground]\n---\n"


class Hub(FakeHub):
    """The stand-in Hub, and the command line that uses it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def surroundings(self, token: str, **more: str) -> dict[str, str]:
        """Return the environment of a process, with or without a token."""
        return os.environ | self.environment(self.folder / "home", token=token) | more

    def playground(
        self,
        *arguments: object,
        token: str = FakeHub.ADA,
        run: Callable[..., subprocess.CompletedProcess] = run_command,
        **more: str,
    ) -> subprocess.CompletedProcess:
        """Run a command to its end; its output has neither a token nor a traceback."""
        done = run(*arguments, **self.surroundings(token, **more))
        for output in (done.stdout, done.stderr):
            assert "Traceback" not in output, output
            assert not [held for held in self.tokens if held in output]
        return done

    def commits(self, repo: str, revision: str = "main") -> list[str]:
        """Return the titles of a model's commits; the Hub's own is the last."""
        actual = self.repo(repo)
        return [commit.title for commit in actual.history(actual.find_commit(revision))]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with Hub(tmp_path_factory.mktemp("hub-commands")) as hub:
        yield hub
        close_session()


@pytest.fixture(autouse=True)
def healed(hub):
    yield
    hub.clear_faults()


@pytest.fixture(scope="module")
def trained(hub):
    """A tiny checkpoint of 30 steps, with what resuming needs."""
    out = hub.folder / "tiny"
    done = hub.playground("train", "--length", "4", "--max-steps", "30", "--out", out, *TINY)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def published(hub, trained):
    """The first push to ada/tiny: its output, and its requests to the Hub."""
    with hub.record_requests() as requests:
        done = hub.playground("push", trained, "ada/tiny", run=run_in_interpreter)
    assert done.returncode == 0, done.stderr
    return done, requests


@pytest.fixture(scope="module")
def pulled(hub, published):
    """The model ada/tiny, downloaded without a token."""
    out = hub.folder / "pulled"
    done = hub.playground(
        "pull", "ada/tiny", "--out", out, "--json", token="", run=run_in_interpreter
    )
    assert done.returncode == 0, done.stderr
    return out, done


def refused(done: subprocess.CompletedProcess, code: int, *expected_message: str) -> None:
    """Check that stdout is empty, and that the last line of stderr has the reason."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("playground: ")
    for words in expected_message:
        assert words in last


# Publishing


def test_a_dry_run_lists_every_file_and_writes_nothing(hub, trained):
    with hub.record_requests() as requests:
        done = hub.playground("push", trained, "ada/dry", "--dry-run")
    first, *files, last = done.stdout.splitlines()
    assert first == "model ada/dry (public, branch main): would be created"
    assert [line.split()[-1] for line in files] == PUBLISHED
    assert {line.split()[0] for line in files} == {"new"}
    stored = (trained / "model.safetensors").stat().st_size
    assert f"{stored:,} bytes  model.safetensors" in done.stdout
    assert last == "nothing was written"
    assert {request.method for request in requests} <= {"GET", "HEAD"}
    assert ("model", "ada/dry") not in hub.repos


def test_a_dry_run_without_a_token_needs_no_network(hub, trained):
    with socket.socket() as used, hub.record_requests() as requests:
        used.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{used.getsockname()[1]}"
        done = hub.playground(
            "push", trained, "ada/dry", "--dry-run", token="", HF_ENDPOINT=address
        )
    assert done.returncode == 0, done.stderr
    first, *files, last = done.stdout.splitlines()
    assert first == "model ada/dry (public, branch main): would be created"
    assert [line.split()[-1] for line in files] == PUBLISHED
    assert last == "nothing was written"
    assert "not compared with the Hub" in done.stderr
    assert not requests


@pytest.mark.parametrize(
    ("arguments", "expected_message"),
    [
        (("push", "checkpoints/reverse", "noslash"), "write user/name"),
        (("push", "checkpoints/reverse", "ada/x", "--branch", "../x"), "--branch '../x'"),
        (
            ("push", "checkpoints/reverse", "ada/x", "--license", "mine"),
            "--license 'mine' is not known to the Hub",
        ),
        (("reproduce", "noslash"), "write user/name"),
        (("pull", "ada/x", "--revision", "a b"), "--revision 'a b' is not valid"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_invalid_name_is_rejected_before_a_job_starts(hub, arguments, expected_message):
    done = hub.playground(*arguments)
    refused(done, 2, expected_message)
    assert len(done.stderr.splitlines()) == 1  # no job has printed anything


def test_an_unknown_revision_is_rejected_with_the_known_ones(hub, published, tmp_path):
    done = hub.playground(
        "pull", "ada/tiny", "--revision", "v9", "--out", tmp_path / "out", token=""
    )
    refused(done, 1, "ada/tiny has no revision v9; use ", "main", "or the hash of a commit")


def test_a_license_is_named_on_the_command_line(hub, trained):
    done = hub.playground(
        "push", trained, "ada/licensed", "--license", "cc-by-4.0", "--branch", "exp/1"
    )
    assert done.returncode == 0, done.stderr
    card = ModelCard(hub.files("ada/licensed", "exp/1")["README.md"].decode())
    assert card.data.license == "cc-by-4.0"
    assert 'revision="exp/1"' in card.text


@pytest.mark.smoke
def test_push_makes_one_commit_and_prints_the_link(hub, trained, published):
    done, requests = published
    first, *files, last = done.stdout.splitlines()
    assert first == "model ada/tiny (public, branch main): was created"
    assert [line.split()[-1] for line in files] == PUBLISHED
    assert last == f"{hub.url}/ada/tiny"
    assert len([request for request in requests if "/commit/" in request.path]) == 1
    assert hub.commits("ada/tiny") == ["Step 30", "initial commit"]
    there = hub.files("ada/tiny")
    assert sorted(there) == sorted(PUBLISHED)
    assert there["model.safetensors"] == (trained / "model.safetensors").read_bytes()
    assert "Uploading model.safetensors" in done.stderr  # what it does meanwhile


def test_pushed_again_nothing_is_different(hub, trained, published):
    head = hub.repo("ada/tiny").head.oid
    with hub.record_requests() as requests:
        done = hub.playground("push", trained, "ada/tiny", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    response = json.loads(line)
    assert (response["url"], response["commit"], response["step"]) == (
        f"{hub.url}/ada/tiny",
        head,
        30,
    )
    changes = response["plan"]["changes"]
    assert [change["path"] for change in changes] == PUBLISHED
    assert {change["status"] for change in changes} == {"same"}
    assert {request.method for request in requests} <= {"GET", "HEAD"}
    assert hub.repo("ada/tiny").head.oid == head


def test_a_branch_gets_the_commit_and_main_stays(hub, published):
    main = hub.files("ada/tiny")
    done = hub.playground(
        "push", "checkpoints/reverse-one-head", "ada/tiny", "--branch", "one-head"
    )
    assert done.returncode == 0, done.stderr
    assert "model ada/tiny (public, branch one-head): exists" in done.stdout
    assert done.stdout.splitlines()[-1] == f"{hub.url}/ada/tiny/tree/one-head"
    assert hub.files("ada/tiny") == main
    there = hub.files("ada/tiny", "one-head")
    assert (
        there["model.safetensors"]
        == (ROOT / "checkpoints/reverse-one-head/model.safetensors").read_bytes()
    )
    # of the other model: shipped checkpoints hold weights only
    assert "training.safetensors" not in there
    assert hub.commits("ada/tiny", "one-head")[1:] == hub.commits("ada/tiny")


# Fetching


def test_a_pulled_checkpoint_is_the_published_one_to_the_bit(hub, trained, pulled):
    out, done = pulled
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == {
        "checkpoint": str(out),
        "commit": hub.repo("ada/tiny").head.oid,
        "step": 30,
    }
    assert sorted(path.name for path in out.iterdir()) == CHECKPOINT
    for name in CHECKPOINT:
        assert (out / name).read_bytes() == (trained / name).read_bytes()
    assert not list(out.parent.glob(".*"))


def test_a_downloaded_checkpoint_predicts_is_evaluated_and_resumes(hub, pulled, tmp_path):
    out, _ = pulled
    message = hub.playground("predict", out, "3 1 4 1")
    assert message.returncode == 0, message.stderr
    assert set(message.stdout.split()) <= set("0123456789")
    scored = json.loads(hub.playground("evaluate", out, "--json").stdout)
    assert (
        scored["exact_match"]
        == json.loads((out / "config.json").read_text())["scores"]["exact_match"]
    )
    resumed = hub.playground(
        "train", "--resume", out, "--max-steps", "35", "--out", tmp_path / "on", "--json"
    )
    assert json.loads(resumed.stdout)["steps"] == 35, resumed.stderr
    assert len((tmp_path / "on" / "metrics.jsonl").read_text().splitlines()) == 35


def test_a_revision_is_fetched_by_its_commit_into_an_empty_folder(hub, published, tmp_path):
    first = hub.repo("ada/tiny").head.oid
    hub.put("ada/moved", hub.files("ada/tiny"))
    then = hub.repo("ada/moved").head.oid
    hub.put("ada/moved", {"playground.json": None})
    assert then != first
    out = tmp_path / "there"
    out.mkdir()
    done = hub.playground("pull", "ada/moved", "--revision", then, "--out", out, token="")
    assert done.stdout == f"{out}: reverse 4, 5,373 parameters, step 30, commit {then[:12]}\n", (
        done.stderr
    )
    assert sorted(path.name for path in out.iterdir()) == CHECKPOINT


@pytest.mark.parametrize("name", ["config.json", "notes.txt"])
def test_a_non_empty_folder_is_unchanged(hub, tmp_path, name):
    out = tmp_path / "mine"
    out.mkdir()
    (out / name).write_text("mine")
    with hub.record_requests() as requests:
        done = hub.playground("pull", "ada/tiny", "--out", out)
    refused(done, 2, f"--out {out} already exists", "choose a new or an empty folder")
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [(name, "mine")]
    assert not requests


@pytest.mark.parametrize(
    ("repo", "changed", "expected_message"),
    [
        ("ben/bert", None, "playground.json is missing"),
        ("ben/manifest", {"playground.json": b'{"format": 1}'}, "schema_version None"),
        ("ben/weights", {"model.safetensors": b"\x00" * 26_140}, "model.safetensors"),
        ("ben/nowhere", {}, "there is no repository ben/nowhere"),
    ],
)
def test_a_foreign_model_is_rejected_without_leftovers(
    hub, published, tmp_path, repo, changed, expected_message
):
    if changed is None:
        hub.put(repo, {"config.json": '{"model_type": "bert"}', "pytorch_model.bin": b"\x80\x02."})
    elif changed:
        hub.put(repo, hub.files("ada/tiny") | changed)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = hub.playground("pull", repo, "--out", tmp_path / "out", TMPDIR=str(scratch))
    refused(done, 1, expected_message)
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]
    assert not list(scratch.glob("playground-*"))
    assert not [request for request in hub.requests if request.path.endswith("pytorch_model.bin")]


# Measuring again, and looking around


def test_reproduce_prints_the_card_beside_the_measurement(hub, published):
    done = hub.playground("reproduce", "ada/tiny", token="", run=run_in_interpreter)
    assert done.returncode == 0, done.stderr
    scores = json.loads(hub.files("ada/tiny")["evaluation.json"])
    share, n = f"{scores['exact_match']:.2%}", f"{scores['n']:,}"
    assert (
        done.stdout
        == f"the card reports {share} of {n}; measured here {share} of {n} held-out sequences\n"
    )


def test_a_card_above_the_measurement_gives_code_1(hub, published):
    files = hub.files("ada/tiny")
    hub.put("ada/boast", files)
    card = ModelCard(files["README.md"].decode())
    (exact_match,) = [
        result for result in card.data.eval_results if result.metric_type == "exact_match"
    ]
    honest, exact_match.metric_value = exact_match.metric_value, 0.99
    HfApi(endpoint=hub.url, token=hub.ADA).upload_file(
        path_or_fileobj=str(card).encode(),
        path_in_repo="README.md",
        repo_id="ada/boast",
        commit_message="Better",
    )
    assert hub.commits("ada/boast")[0] == "Better"
    done = hub.playground("reproduce", "ada/boast", "--json", token="")
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


def test_the_gallery_lists_tagged_models_by_likes(hub, published, shelf):
    done = hub.playground("gallery", token="", run=run_in_interpreter)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert next(iter(lines)) == "ben/tagged"
    assert lines["ben/tagged"].split()[1:] == ["7", "likes"]
    scores = json.loads(hub.files("ada/tiny")["evaluation.json"])
    assert lines["ada/tiny"].split()[1:] == [
        "reverse",
        "4",
        "5,373",
        "parameters",
        f"{scores['exact_match']:.2%}",
        "0",
        "likes",
    ]
    assert not {"ben/other", "ada/secret"} & set(lines)


# Whose token


def test_push_without_a_token_prints_instructions(hub):
    with hub.record_requests() as requests:
        done = hub.playground("push", "checkpoints/reverse", "ada/reverse", token="")
    refused(done, 2, "run `hf auth login`, set HF_TOKEN, or add --ask-token")
    assert len(done.stderr.splitlines()) == 1
    assert not requests


@pytest.mark.parametrize(
    ("token", "repo", "expected_message"),
    [
        (FakeHub.ADA_READS, "ada/mine", "this token is read-only"),
        (FakeHub.BEN, "ada/theirs", "ben cannot publish under ada"),
        (FakeHub.EXPIRED, "ada/late", "which may have expired: create a new one"),
    ],
)
def test_token_without_write_access_is_rejected_before_packaging(
    hub, token, repo, expected_message
):
    done = hub.playground("push", "checkpoints/reverse", repo, token=token)
    refused(done, 1, expected_message)
    assert "Building the package" not in done.stderr
    assert ("model", repo) not in hub.repos


def test_token_prompt_has_no_echo_and_overrides_machine_token(hub, shelf):
    parent_end, child_end = pty.openpty()
    with hub.record_requests() as requests:
        requesting = subprocess.Popen(
            [*COMMAND, "gallery", "--ask-token", "--json"],
            cwd=ROOT,
            stdin=child_end,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=hub.surroundings(hub.OWNER),
            start_new_session=True,
        )
        os.close(child_end)
        wait_for(
            lambda: not termios.tcgetattr(parent_end)[3] & termios.ECHO,
            60,
            "a prompt that shows nothing",
        )
        os.write(parent_end, hub.ADA.encode() + b"\n")
        stdout, stderr = requesting.communicate(timeout=100)
    assert requesting.returncode == 0, stderr
    assert stderr.startswith("Token:")
    (line,) = stdout.splitlines()
    assert "ada/secret" in [
        model["repo"] for model in json.loads(line)
    ]  # so the request had Ada's token
    assert {request.token for request in requests} == {hub.ADA}
    os.set_blocking(parent_end, False)
    try:
        rendered = os.read(parent_end, 10_000).decode()  # what the terminal got to show
    except OSError:  # nothing, or the other end has closed
        rendered = ""
    os.close(parent_end)
    assert hub.ADA not in stdout + stderr + rendered


# No server, and a server that is too slow


@pytest.mark.parametrize(
    "arguments",
    [
        ("push", "checkpoints/reverse", "ada/far"),
        ("pull", "ada/tiny", "--out", "{}"),
        ("reproduce", "ada/tiny"),
        ("gallery",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_a_network_it_prints_a_message_and_ends(hub, tmp_path, arguments):
    with socket.socket() as used:  # bound and not listening: connections are refused
        used.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{used.getsockname()[1]}"
        started = time.monotonic()
        done = hub.playground(
            *(argument.format(tmp_path / "out") for argument in arguments), HF_ENDPOINT=address
        )
    refused(
        done,
        1,
        f"the Hub ({address}) cannot be reached: Connection refused; check the network and try "
        "again",
    )
    # the client's own retries would take 23 s beyond a process's start
    assert time.monotonic() - started < 60
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_hanging_push_without_leftovers(hub, published, tmp_path, number):
    before = hub.files("ada/tiny")
    with hub.fault(hub.COMMIT, "silent") as fault:
        hanging = subprocess.Popen(
            [*COMMAND, "push", "checkpoints/reverse-one-head", "ada/tiny"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=hub.surroundings(hub.ADA, TMPDIR=str(tmp_path)),
            start_new_session=True,
        )
        wait_for(lambda: fault.hits or hanging.poll() is not None, 100, "the commit")
        if number == signal.SIGINT:
            # as a terminal sends Ctrl-C: to the process of the hub task, too
            os.killpg(hanging.pid, number)
        else:
            hanging.send_signal(number)
        # comes when the last process that could write there has ended
        stdout, stderr = hanging.communicate(timeout=100)
    assert (hanging.returncode, stdout) == (128 + number, ""), stderr
    assert stderr.splitlines()[-1].startswith(
        "playground: cancelled; the commit may exist: check the repository"
    )
    assert "Traceback" not in stderr
    assert hub.files("ada/tiny") == before
    assert hub.commits("ada/tiny") == ["Step 30", "initial commit"]
    assert not list(tmp_path.glob("playground-*"))  # nor is a copy of it here


def test_ctrl_c_before_the_hub_task_starts_prints_one_line_too(hub):
    """Its process is only just starting then, and must not die of the signal itself, with a
    traceback.
    """
    command = [sys.executable, "-c", EARLY]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        env=hub.surroundings(""),
        start_new_session=True,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "playground: cancelled; nothing was written\n"


EARLY = """
import os, signal, threading, time
from playground import __main__ as training_command
from playground.hub import jobs

def submit(queue, *arguments, **settings):
    job = real(queue, *arguments, **settings)

    def interrupt():
        while queue.executor._processes[job].process.pid is None:
            time.sleep(0.001)
        os.killpg(0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    return job

if __name__ == "__main__":
    real, jobs.submit_task = jobs.submit_task, submit
    training_command.run(["gallery"])
"""
