"""Hub tasks with the real client: in this process, in their own ones, and in the queue."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

import pytest
from huggingface_hub import ModelCard

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import resume_trainer
from playground.common.env import PAGE_MARK
from playground.errors import UserError
from playground.hub.jobs import HubJobs
from playground.hub.repo_ids import Phase
from playground.hub.tasks import HubTask
from playground.jobs.process import warm_up
from playground.runs.limits import Limits
from tests.support.app_server import ROOT, wait_for
from tests.support.fake_jobs import fake_processes
from tests.support.files import read_files
from tests.support.hub_tasks import start_hub_task


@pytest.fixture(scope="module")
def checkpoint(trained_checkpoint):
    return trained_checkpoint


@pytest.fixture(scope="module")
def published(hub, published_files):
    """Put the published checkpoint on the Hub; return the files of the repository."""
    hub.put("ada/digits", published_files, message="Step 6")
    return published_files


@pytest.fixture
def run(hub, run_task_in_process, tmp_path_factory):
    """Return a function that runs a hub task in this process, with the token of a user."""

    def run(kind, repo, user="", **fields):
        task = HubTask(kind, repo, getattr(hub, user, ""), hub.url, **fields)
        return run_task_in_process(task, tmp_path_factory.mktemp("work") / "scratch")

    return run


@pytest.fixture
def push(run, checkpoint):
    """Return a function that publishes the checkpoint for Ada; other kinds only plan it."""
    return lambda repo, kind="push", user="ADA", **fields: run(
        kind, repo, user, checkpoint=str(checkpoint), **fields
    )


# Push and pull


@pytest.mark.smoke
def test_a_published_model_is_downloaded_bit_equal(
    hub, checkpoint, published_files, push, run, tmp_path
):
    outcome, result = push("ada/pushed")
    assert (outcome, result["commit"]) == ("result", hub.repo("ada/pushed").head.oid)
    assert hub.commit_titles("ada/pushed") == ["initial commit", "Step 6"]
    files = hub.files("ada/pushed")
    assert files | {"README.md": published_files["README.md"]} == published_files
    outcome, *message = run("pull", "ada/pushed", destination=str(tmp_path / "in"))
    assert outcome == "result", message
    assert read_files(tmp_path / "in") == read_files(checkpoint)
    original, restored = resume_trainer(checkpoint)[0], resume_trainer(tmp_path / "in")[0]
    assert original.train_step().loss == restored.train_step().loss


@pytest.mark.parametrize(
    ("readme", "chosen", "license", "is_unchanged", "note"),
    [
        (b"---\nlicense: gpl-3.0\n---\n", "", "gpl-3.0", False, "license of the repository stays"),
        (b"---\nlicense: gpl-3.0\n---\n", "isc", "isc", False, ""),
        (b"---\nlicense: gpl-3.0\n---\n# Mine\n", "", "gpl-3.0", True, "README.md was written"),
    ],
)
def test_a_push_keeps_what_the_owner_wrote_in_the_card(
    hub, push, readme, chosen, license, is_unchanged, note
):
    hub.put("ada/owned", {"README.md": readme})
    outcome, planned = push("ada/owned", "plan", license=chosen)
    assert (outcome, [note in each for each in planned["notes"]]) == ("result", [True] * bool(note))
    outcome, result = push("ada/owned", license=chosen)
    assert (outcome, result["notes"]) == ("result", planned["notes"])
    card = hub.files("ada/owned")["README.md"]
    assert card == planned["card"].encode()
    assert (f"license: {license}\n".encode() in card, card == readme) == (True, is_unchanged)
    push("ada/owned")
    assert hub.files("ada/owned")["README.md"] == card


def test_commits_of_others_since_the_plan_are_not_overwritten(hub, checkpoint, published, push):
    parent = hub.put("ada/watched", published)
    other_commit = hub.put("ada/watched", {"metrics.jsonl": None}, message="Meanwhile")
    assert push("ada/watched", expected_parent=parent) == (
        "failed",
        "another commit was pushed after the preview, and nothing was overwritten; preview again",
        True,
    )
    assert hub.repo("ada/watched").head.oid == other_commit
    assert push("ada/watched", expected_parent=other_commit)[0] == "result"
    assert hub.files("ada/watched")["metrics.jsonl"] == (checkpoint / "metrics.jsonl").read_bytes()


def test_an_inspected_model_has_its_facts(hub, published, run):
    _, inspected = run("repo_info", "ada/digits")
    assert (inspected["repo"], inspected["commit"], inspected["step"]) == (
        "ada/digits",
        hub.repo("ada/digits").head.oid,
        6,
    )
    assert (inspected["shape"], inspected["resumable"]) == ([1, 1, 8], True)


# The interactive page


@pytest.fixture
def push_with_page(push):
    return lambda repo, kind="push", **fields: push(repo, kind, **{"page": True} | fields)


def test_a_page_is_published_as_a_static_space(hub, published_files, push_with_page):
    for _ in range(2):
        outcome, result = push_with_page("ada/paged")
        assert outcome == "result", result
        assert result["space"]["url"] == f"{hub.url}/spaces/ada/paged"
    assert hub.files("ada/paged").keys() == published_files.keys()
    space = hub.files("ada/paged", kind="space")
    assert space.keys() == {"index.html", "README.md"}
    assert b"<title>paged: break this transformer</title>" in space["index.html"]
    card = ModelCard(space["README.md"].decode())
    assert card.data.to_dict() == {
        "title": "paged",
        "emoji": "🔀",
        "colorFrom": "blue",
        "colorTo": "green",
        "sdk": "static",
        "app_file": "index.html",
        "license": "mit",
        "models": ["ada/paged"],
        "tags": ["transformer-playground"],
        "short_description": "Switch off parts of a transformer",
    }
    assert card.text.strip() == f"The model [ada/paged]({hub.url}/ada/paged) runs in this page."


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("exists", [True, False])
def test_a_plan_names_the_space_and_its_visibility(hub, push_with_page, exists, private):
    repo = f"ada/named-{exists}-{private}"
    if exists:
        card = {"README.md": "---\nsdk: static\n---\n"}
        hub.put(repo, card, kind="space", private=private)
    outcome, result = push_with_page(repo, kind="plan", private=private)
    assert outcome == "result", result
    space = result["space"]
    assert space["url"] == f"{hub.url}/spaces/{repo}"
    assert (space["exists"], space["private"]) == (exists, private)
    assert {each["path"]: each["status"] for each in space["changes"]} == {
        "README.md": "same" if exists else "new",
        "index.html": "new",
    }
    assert ("model", repo) not in hub.repos


def test_the_card_of_an_existing_space_stays(hub, push_with_page):
    files = {"README.md": "---\nsdk: static\n---\n# Mine\n", "index.html": PAGE_MARK}
    hub.put("ada/edited", files, kind="space")
    assert push_with_page("ada/edited")[0] == "result"
    space = hub.files("ada/edited", kind="space")
    assert space["README.md"].decode() == files["README.md"]
    assert space["index.html"] != files["index.html"].encode()


def test_a_space_that_failed_is_written_by_the_next_push(hub, push_with_page):
    with hub.fault(r"/api/spaces/ada/late/commit", 400):
        outcome, message, *_ = push_with_page("ada/late")
    assert outcome == "failed"
    assert message.startswith("the model was published, but its Space was not: could not")
    model = hub.repo("ada/late").head.oid
    outcome, result = push_with_page("ada/late", expected_parent=model)
    assert (outcome, result["commit"]) == ("result", model)
    assert {each["status"] for each in result["plan"]["changes"]} == {"same"}
    assert PAGE_MARK.encode() in hub.files("ada/late", kind="space")["index.html"]
    space = hub.repo("ada/late", "space").head.oid
    assert push_with_page("ada/late")[0] == "result"
    assert hub.repo("ada/late", "space").head.oid == space


def test_the_page_of_a_private_model_never_gets_into_a_public_space(hub, push_with_page):
    outcome, *result = push_with_page("ada/secret")
    assert outcome == "result", result
    hub.repo("ada/secret").private = True
    commits = len(hub.repo("ada/secret", "space").commits)
    outcome, message, *_ = push_with_page("ada/secret", private=True)
    assert (outcome, "the Space ada/secret is public" in message) == ("failed", True)
    assert len(hub.repo("ada/secret", "space").commits) == commits


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"index.html": "mine"}, "other content (index.html), which stays unchanged"),
        # a duplicate of the playground's own Space has the tag of its pages, too
        (
            {"README.md": "---\ntags: [transformer-playground]\n---\n", "app.py": "mine"},
            "has other content (app.py)",
        ),
        ({"README.md": "---\nsdk: docker\n---\n# Mine\n"}, "does not have the line “sdk: static”"),
    ],
)
def test_a_space_with_other_content_stays_and_nothing_is_published(
    hub, push_with_page, files, message
):
    repo = f"ada/taken-{len(files)}-{len(message)}"
    hub.put(repo, files, kind="space")
    before = hub.files(repo, kind="space")
    outcome, text, *_ = push_with_page(repo)
    assert (outcome, message in text) == ("failed", True)
    assert hub.files(repo, kind="space") == before
    assert ("model", repo) not in hub.repos


# Permissions


@pytest.mark.parametrize(
    ("user", "repo", "expected_message"),
    [
        ("", "ada/digits", "sign in first"),
        ("ADA_READS", "ada/digits", "this token is read-only: create one with write access"),
        ("BEN", "attention/digits", "ben cannot publish under attention; write ben before"),
    ],
)
def test_missing_permission_is_reported_before_any_file_is_written(
    hub, checkpoint, run_task_in_process, tmp_path, user, repo, expected_message
):
    task = HubTask("push", repo, getattr(hub, user, ""), hub.url, checkpoint=str(checkpoint))
    with hub.record_requests() as requests:
        kind, message, _ = run_task_in_process(task, tmp_path / "work")
    assert kind == "failed"
    assert expected_message in message
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["checkpoint"]
    assert {request.method for request in requests} <= {"GET"}


# Invalid repositories


def with_first_weight(weights, value):
    """Return a safetensors file with another first number and the same header."""
    (length,) = struct.unpack_from("<Q", weights)
    return weights[: 8 + length] + struct.pack("<f", value) + weights[12 + length :]


@pytest.fixture(scope="module")
def hostile(published):
    """Return invalid repositories by fault: the change, and the message of the rejection."""
    weights, manifest = published["model.safetensors"], json.loads(published["playground.json"])
    manifest["model"] |= {"d_model": 65536, "d_ff": 65536, "n_heads": 1}
    return {
        "no-manifest": ({"playground.json": None}, "playground.json is missing"),
        "long-manifest": (
            {"playground.json": b" " * 1_000_001},
            "playground.json of cy/long-manifest has 1,000,001 bytes",
        ),
        "deep": ({"playground.json": b"[" * 200_000}, "nested too deep"),
        "too-wide": ({"playground.json": json.dumps(manifest)}, "65536"),
        "too-large": (
            {"training.safetensors": bytes(3_000_000)},
            "has 3 MB; at most 2 MB are accepted here",
        ),
        "nan": (
            {"model.safetensors": with_first_weight(weights, float("nan"))},
            "holds NaN or infinity",
        ),
        "altered": ({"model.safetensors": with_first_weight(weights, 0.5)}, "its checksum differs"),
        "cut-state": (
            {"training.safetensors": published["training.safetensors"][:-4]},
            "not a complete safetensors file",
        ),
        "metrics": ({"metrics.jsonl": b'{"step": 1, "loss": NaN}\n'}, "metrics.jsonl, line 1"),
    }


# names of the fixture `hostile`, for pytest: from the listing, from two small files, from all files
UNREAD = ("no-manifest", "long-manifest")
REJECTED_BY_MANIFEST = ("deep", "too-wide", "too-large")
REJECTED_AFTER_DOWNLOAD = ("nan", "altered", "cut-state", "metrics")
HOSTILE = (*UNREAD, *REJECTED_BY_MANIFEST, *REJECTED_AFTER_DOWNLOAD)


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_hub_model_is_rejected_with_reason_and_cleaned_up(
    hub, published, hostile, run, tmp_path, name
):
    changed_files, reason = hostile[name]
    hub.put(f"cy/{name}", published | changed_files)
    fields = {"destination": str(tmp_path / "in"), "max_bytes": 2_000_000}
    kind, message, retryable = run("pull", f"cy/{name}", **fields)
    assert (kind, retryable) == ("failed", False)
    assert reason in message
    assert str(tmp_path.parent) not in message
    assert list(tmp_path.iterdir()) == []
    paths = [request.path.split("/")[-1] for request in hub.requests_with(f"cy/{name}/resolve")]
    if name in UNREAD:
        assert paths == []
    if name in REJECTED_BY_MANIFEST:
        assert set(paths) == {"playground.json", "README.md"}


def test_unpublishable_architecture_is_rejected_before_network_use(
    run_task_in_process, checkpoint, tmp_path, monkeypatch
):
    # registers an architecture, as docs/extending.md describes
    monkeypatch.setitem(ARCHITECTURES, "tail", ARCHITECTURES["transformer"])
    unpublishable = shutil.copytree(checkpoint, tmp_path / "other")
    manifest = json.loads((unpublishable / "config.json").read_text())
    (unpublishable / "config.json").write_text(json.dumps(manifest | {"architecture": "tail"}))
    # no server listens at this address
    hub_task = HubTask(
        "push", "ada/tail", "hf_none", "http://127.0.0.1:9", checkpoint=str(unpublishable)
    )
    kind, message, retryable = run_task_in_process(hub_task, tmp_path / "work")
    assert (kind, retryable) == ("failed", False)
    assert "'tail' cannot be published" in message
    assert "python -m playground report" in message


@pytest.mark.smoke
def test_model_above_server_limits_is_rejected_before_download(hub, published_files, run, tmp_path):
    hub.put("ada/wide", published_files)
    fields = {"destination": str(tmp_path / "in"), "limits": Limits(d_model=4)}
    assert run("pull", "ada/wide", **fields) == (
        "failed",
        "d_model is 8: this server allows at most 4; its owner sets PLAYGROUND_MAX_D_MODEL",
        False,
    )
    assert not [each for each in hub.requests_with("ada/wide") if "safetensors" in each.path]
    assert not (tmp_path / "in").exists()


def test_hostile_or_missing_card_is_ignored(hub, published, run):
    yaml = "---\nmodel-index: &a [*a]\ntags: !!python/object/apply:os.system [true]\n---\n"
    for number, card in enumerate((yaml, "\x00" * 1000, "#" * 1_000_001, None)):
        repo = f"cy/card-{number}"
        hub.put(repo, published | {"README.md": card})
        kind, result = run("repo_info", repo)
        assert (kind, result["card"], result["step"]) == ("result", None, 6)


# Running hub tasks


def test_a_hub_task_can_be_cancelled_while_the_hub_is_silent(
    hub, checkpoint, tmp_path, monkeypatch
):
    warm_up().join()  # as in the app, its process is forked from one that has imported torch
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with hub.fault(hub.UPLOAD, "silent", method="PUT") as fault:
        queue, job = start_hub_task(
            HubTask("push", "ada/cancelled", hub.ADA, hub.url, checkpoint=str(checkpoint))
        )
        wait_for(lambda: fault.hits and job.phase is Phase.WRITING, 150, "the first upload")
        queue.cancel(job)
        assert job.released.wait(100)
    assert (job.status, job.error["retryable"]) == ("cancelled", True)
    assert job.message == (
        "cancelled; existing content is unchanged; a new repository may exist, without any new "
        "model"
    )
    assert hub.commit_titles("ada/cancelled") == ["initial commit"]
    assert job.arguments == ()
    assert not list(tmp_path.glob("playground-*"))


@pytest.fixture
def started(monkeypatch):
    """The fake processes of the hub tasks of a test."""
    started = fake_processes(monkeypatch)
    yield started
    for process in started:
        process.finish()


def test_public_gallery_is_shared_and_private_gallery_is_not(started):
    jobs = HubJobs()
    public = jobs.start(HubTask("gallery"), "ada")
    assert jobs.start(HubTask("gallery"), "ben") is public
    private = jobs.start(HubTask("gallery", token="secret"), "ada")
    assert private is not public
    assert jobs.find(public.id, "ben") is public
    assert jobs.find(private.id, "ben") is None


def test_the_owner_of_a_local_instance_may_request_every_list(started, client_address):
    jobs = HubJobs(has_one_user=True)
    client_address.set("127.0.0.1")
    for _ in range(4):
        jobs.start(HubTask("gallery"), "ada", refresh=True)
    with pytest.raises(UserError):
        jobs.start(HubTask("gallery"), "ada", refresh=True)


def test_lists_of_signed_in_users_do_not_use_slots_of_hub_tasks(started):
    """A page that opens requests account and list; both finish when the user requests the
    list again.
    """
    jobs = HubJobs()
    for kind in ("account", "gallery", "gallery", "account"):
        jobs.start(HubTask(kind, token="secret"), "ada")
    for kind in ("account", "gallery"):
        with pytest.raises(UserError):
            jobs.start(HubTask(kind, token="secret"), "ada")


IMPORT_SCRIPT = """
import sys
from pathlib import Path
from playground.hub import tasks
from playground.jobs.entry import last_message
from playground.jobs.progress import ProgressReporter

HEAVY = ("torch", "transformers", "matplotlib")
messages = [("message", "", 0.0, None)]
late = []

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in HEAVY and messages[-1][2] < 300:
            late.append((name, messages[-1][1]))

sys.meta_path.insert(0, Watch())
paths = {"checkpoint": sys.argv[5], "destination": sys.argv[6] + "/in"}
task = tasks.HubTask(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], **paths)
scratch = Path(sys.argv[6], "work")
scratch.mkdir()
reporter = ProgressReporter(lambda *message: messages.append(message), scratch=scratch)
last = last_message(lambda: tasks.run_task(task, reporter))
assert last[0] == "result", last
assert ("torch" in sys.modules) == (task.kind != "repo_info")
assert not late, late
"""


@pytest.mark.parametrize("kind", ["plan", "repo_info", "reproduce"])
def test_slow_imports_are_announced_by_a_message(hub, checkpoint, published, tmp_path, kind):
    """Slow imports must not count as silence, which ends a job."""
    words = (kind, "ada/digits", hub.ADA, hub.url, str(checkpoint), str(tmp_path))
    completed = subprocess.run(
        [sys.executable, "-c", IMPORT_SCRIPT, *words],
        cwd=ROOT,
        env=os.environ | hub.environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
