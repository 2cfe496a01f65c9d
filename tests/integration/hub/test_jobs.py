"""Hub tasks in their own processes, with the real client."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace

import pytest

from playground.architectures import ARCHITECTURES
from playground.checkpoints.checkpoint import resume_trainer, weights_by_name
from playground.checkpoints.tensors import serialize_tensors
from playground.errors import UserError
from playground.hub import jobs as jobs_module
from playground.hub.jobs import MAX_CONCURRENT_TASKS, MAX_TASKS_PER_OWNER, HubJobs
from playground.hub.task_runner import HubTask
from playground.jobs.process import warm_up
from playground.runs.export import CHECKPOINT_FILES
from playground.runs.limits import Limits
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT, wait_for
from tests.support.fake_jobs import fake_processes
from tests.support.hub_tasks import run_hub_task, start_hub_task
from tests.support.small_runs import tiny_config

PICKLE = (
    b"\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94"
    b"\x93\x94\x8c\x04true\x94\x85\x94R\x94."
)


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Start hub tasks from a process that has torch imported, as in the app."""
    warm_up().join()


@pytest.fixture(autouse=True)
def scratch_folder(tmp_path, monkeypatch):
    """Create the folder of temporary files of hub tasks; check that it is empty after a test."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    monkeypatch.undo()
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def checkpoint(trained_checkpoint):
    return trained_checkpoint


@pytest.fixture(scope="module")
def published(hub, checkpoint):
    """Push the checkpoint; return the files of the repository."""
    job = run_hub_task(HubTask("push", "ada/digits", hub.ADA, hub.url, checkpoint=str(checkpoint)))
    assert job.status == "done", job.message
    return hub.files("ada/digits")


def read_files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def commit_titles(hub, id):
    repo = hub.repo(id)
    return [commit.title for commit in reversed(repo.history(repo.head))]


# Push and pull


@pytest.mark.smoke
def test_a_published_model_is_inspected_and_downloaded_bit_equal(
    hub, checkpoint, published, published_files, tmp_path
):
    assert commit_titles(hub, "ada/digits") == ["initial commit", "Step 6"]
    assert published == published_files  # the same checkpoint gives the same bytes

    inspected = run_hub_task(HubTask("repo_info", "ada/digits", endpoint=hub.url)).result
    assert (inspected["repo"], inspected["commit"], inspected["step"]) == (
        "ada/digits",
        hub.repo("ada/digits").head.oid,
        6,
    )
    assert (inspected["shape"], inspected["resumable"], inspected["branches"]) == (
        [1, 1, 8],
        True,
        ["main"],
    )
    assert [line["title"] for line in inspected["revisions"]] == ["Step 6", "initial commit"]
    assert {file["path"] for file in inspected["files"]} == {*published, ".gitattributes"}

    pulled = run_hub_task(
        HubTask("pull", "ada/digits", endpoint=hub.url, destination=str(tmp_path / "in"))
    )
    assert pulled.status == "done"
    assert read_files(tmp_path / "in") == read_files(checkpoint)
    original, restored = resume_trainer(checkpoint)[0], resume_trainer(tmp_path / "in")[0]
    assert original.train_step().loss == restored.train_step().loss


def test_an_old_revision_is_pulled_unchanged(
    hub, checkpoint, published, run_task_in_process, tmp_path
):
    old = hub.put("ada/older", published)
    hub.put("ada/older", dict.fromkeys(published))
    hub.put("ada/older", {"README.md": "# Given up"})
    _, message, _ = run_task_in_process(
        HubTask("repo_info", "ada/older", endpoint=hub.url), tmp_path / "work"
    )
    assert "not a model of the playground" in message
    _, result = run_task_in_process(
        HubTask(
            "pull", "ada/older", endpoint=hub.url, revision=old, destination=str(tmp_path / "in")
        ),
        tmp_path / "work",
    )
    assert result["commit"] == old
    assert read_files(tmp_path / "in") == read_files(checkpoint)


def test_push_modifies_no_local_file_and_leaks_no_token(hub, checkpoint, tmp_path):
    before, messages = read_files(checkpoint), []
    job = run_hub_task(
        HubTask("push", "ada/results", hub.ADA, hub.url, checkpoint=str(checkpoint), private=True),
        messages.append,
    )
    assert read_files(checkpoint) == before
    assert hub.repo("ada/results").private
    assert job.result["commit"] == hub.repo("ada/results").head.oid
    assert messages[0] == "Connecting to the Hub"
    assert messages[-1] == "Committing"
    assert job.arguments == ()
    assert hub.ADA not in repr([job.to_json(), messages, job])
    assert not [name for name, data in hub.files("ada/results").items() if hub.ADA.encode() in data]
    assert not [name for name, data in read_files(tmp_path).items() if hub.ADA.encode() in data]


def test_a_plan_writes_nothing_and_shows_the_card(hub, checkpoint, run_task_in_process, tmp_path):
    hub_task = HubTask("plan", "ada/planned", hub.ADA, hub.url, checkpoint=str(checkpoint))
    with hub.record_requests() as requests:
        _, result = run_task_in_process(hub_task, tmp_path / "work")
    assert result["plan"]["repo"] == "ada/planned"
    assert result["step"] == 6
    assert result["card"].startswith("---\n")
    assert "# planned" in result["card"]
    assert {request.method for request in requests} == {"GET"}
    assert ("model", "ada/planned") not in hub.repos


def test_commits_of_others_since_the_plan_are_not_overwritten(
    hub, checkpoint, published, run_task_in_process, tmp_path
):
    parent = hub.put("ada/watched", published)
    other_commit = hub.put("ada/watched", {"metrics.jsonl": None}, message="Meanwhile")
    hub_task = HubTask(
        "push",
        "ada/watched",
        hub.ADA,
        hub.url,
        checkpoint=str(checkpoint),
        expected_parent=parent,
    )
    assert run_task_in_process(hub_task, tmp_path / "first") == (
        "failed",
        "another commit was pushed after the preview, and nothing was overwritten; preview again",
        True,
    )
    assert hub.repo("ada/watched").head.oid == other_commit
    again = replace(hub_task, expected_parent=other_commit)
    assert run_task_in_process(again, tmp_path / "second")[0] == "result"
    assert hub.files("ada/watched")["metrics.jsonl"] == (checkpoint / "metrics.jsonl").read_bytes()


def test_a_published_score_is_measured_again(
    hub, checkpoint, published, run_task_in_process, tmp_path
):
    hub_task = HubTask("reproduce", "ada/digits", endpoint=hub.url)
    _, result = run_task_in_process(hub_task, tmp_path / "work")
    claimed, measured = result["card"], result["measured"]
    scores = json.loads((checkpoint / "config.json").read_text())["scores"]
    assert (claimed["n"], claimed["exact_match"]) == (scores["n"], scores["exact_match"])
    assert (measured["n"], measured["exact_match"], measured["token_accuracy"]) == (
        scores["n"],
        scores["exact_match"],
        pytest.approx(scores["token_accuracy"]),
    )


# Permissions


@pytest.mark.parametrize(
    ("user", "repo", "expected_message"),
    [
        ("", "ada/digits", "sign in first"),
        ("ADA_READS", "ada/digits", "this token is read-only: create one with write access"),
        ("CY", "ada/digits", "cy cannot publish under ada; write cy before the slash"),
        ("BEN", "attention/digits", "ben cannot publish under attention"),
        ("EXPIRED", "ada/digits", "create a new one and sign in again"),
        ("UNKNOWN", "ada/digits", "create a new one and sign in again"),
        ("ADA", "ada/a--b", "write user/name"),
    ],
)
def test_missing_permission_is_reported_before_any_file_is_written(
    hub, checkpoint, published, run_task_in_process, tmp_path, user, repo, expected_message
):
    head = hub.repo("ada/digits").head.oid
    token = getattr(hub, user) if user else ""
    hub_task = HubTask("push", repo, token, hub.url, checkpoint=str(checkpoint))
    kind, message, _ = run_task_in_process(hub_task, tmp_path / "work")
    assert kind == "failed"
    assert expected_message in message
    assert not token or token not in message
    assert [path.name for path in (tmp_path / "work").iterdir()] in ([], ["checkpoint"])
    assert hub.repo("ada/digits").head.oid == head


# Invalid repositories


def manifest_with(published, **changed):
    return json.dumps(json.loads(published["playground.json"]) | changed).encode()


def with_first_weight(weights, value):
    """Return a safetensors file with another first number and the same header."""
    (length,) = struct.unpack_from("<Q", weights)
    return weights[: 8 + length] + struct.pack("<f", value) + weights[12 + length :]


@pytest.fixture(scope="module")
def hostile(hub, published):
    """Return invalid repositories by fault: the change, and the message of the rejection."""
    weights = published["model.safetensors"]
    other_weights = serialize_tensors(weights_by_name(Trainer(tiny_config(d_model=16)).model))
    model = json.loads(published["playground.json"])["model"]
    wide_model = model | {"d_model": 65536, "d_ff": 65536, "n_heads": 1}
    metrics = [json.loads(line) for line in published["metrics.jsonl"].splitlines()]
    return {
        "no-manifest": ({"playground.json": None}, "playground.json is missing"),
        "no-weights": (
            {"model.safetensors": None, "pytorch_model.bin": PICKLE},
            "model.safetensors is missing",
        ),
        "long-manifest": (
            {"playground.json": b" " * 1_000_001},
            "playground.json of cy/long-manifest has 1,000,001 bytes",
        ),
        "garbage": (
            {"playground.json": b"\x00garbage"},
            "playground.json is not the JSON of a checkpoint",
        ),
        "deep": ({"playground.json": b"[" * 200_000}, "nested too deep"),
        "other-schema": (
            {"playground.json": manifest_with(published, schema_version=99)},
            "has schema_version 99",
        ),
        "odd-key": ({"playground.json": manifest_with(published, run="rm -rf")}, "unknown key"),
        "too-wide": ({"playground.json": manifest_with(published, model=wide_model)}, "65536"),
        "nan": (
            {"model.safetensors": with_first_weight(weights, float("nan"))},
            "holds NaN or infinity",
        ),
        "infinite": (
            {"model.safetensors": with_first_weight(weights, float("inf"))},
            "holds NaN or infinity",
        ),
        "altered": ({"model.safetensors": with_first_weight(weights, 0.5)}, "its checksum differs"),
        "other-shapes": ({"model.safetensors": other_weights}, "expected torch.float32"),
        "cut-off": ({"model.safetensors": weights[:-4]}, "not a complete safetensors file"),
        "empty": ({"model.safetensors": b""}, "not a complete safetensors file"),
        "pickle": ({"model.safetensors": PICKLE}, "its header claims"),
        "cut-state": (
            {"training.safetensors": published["training.safetensors"][:-4]},
            "not a complete safetensors file",
        ),
        "metrics": ({"metrics.jsonl": b'{"step": 1, "loss": NaN}\n'}, "metrics.jsonl, line 1"),
        "too-few-metrics": (
            {"metrics.jsonl": json.dumps(metrics[0]).encode()},
            "does not hold a line for each step",
        ),
        "too-large": (
            {"training.safetensors": bytes(3_000_000)},
            "has 3 MB; at most 2 MB are accepted here",
        ),
    }


HOSTILE = (  # names of the fixture `hostile`, for pytest
    "no-manifest",
    "no-weights",
    "long-manifest",
    "garbage",
    "deep",
    "other-schema",
    "odd-key",
    "too-wide",
    "nan",
    "infinite",
    "altered",
    "other-shapes",
    "cut-off",
    "empty",
    "pickle",
    "cut-state",
    "metrics",
    "too-few-metrics",
    "too-large",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_hub_model_is_rejected_with_reason_and_cleaned_up(
    hub, published, hostile, run_task_in_process, tmp_path, name
):
    changed_files, reason = hostile[name]
    hub.put(f"cy/{name}", published | changed_files)
    hub_task = HubTask(
        "pull",
        f"cy/{name}",
        endpoint=hub.url,
        destination=str(tmp_path / "in"),
        max_bytes=2_000_000,
    )
    kind, message, retryable = run_task_in_process(hub_task, tmp_path / "work")
    assert (kind, retryable) == ("failed", False)
    assert reason in message
    assert str(tmp_path) not in message
    assert {path.name for path in tmp_path.iterdir()} <= {"work", "scratch"}
    paths = [request.path.split("/")[-1] for request in hub.requests_with(f"cy/{name}/resolve")]
    assert not [path for path in paths if path.endswith((".py", ".bin"))]
    if name in ("no-manifest", "no-weights", "long-manifest"):
        assert paths == []
    if name in ("garbage", "deep", "other-schema", "odd-key", "too-wide", "too-large"):
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


def test_model_above_server_limits_is_rejected_before_download(
    hub, published, run_task_in_process, tmp_path
):
    before = len(hub.requests)
    for kind in ("pull", "reproduce"):
        hub_task = HubTask(
            kind,
            "ada/digits",
            endpoint=hub.url,
            destination=str(tmp_path / "in"),
            limits=Limits(d_model=4),
        )
        outcome, message, _ = run_task_in_process(hub_task, tmp_path / "work")
        assert outcome == "failed"
        assert (
            message
            == "d_model is 8: this server allows at most 4; its owner sets PLAYGROUND_MAX_D_MODEL"
        )
    assert not [request for request in hub.requests[before:] if "safetensors" in request.path]
    assert not (tmp_path / "in").exists()


def test_code_and_pickles_of_a_repository_are_neither_run_nor_fetched(
    hub, checkpoint, published, run_task_in_process, tmp_path
):
    canary = tmp_path / "canary"
    code = f"open({str(canary)!r}, 'w').write('executed')\n"
    evil = {name: code for name in published if name.endswith(".py")} | {
        "__init__.py": code,
        "sitecustomize.py": code,
        "pytorch_model.bin": PICKLE,
        "training.pt": PICKLE,
        "config.json": json.dumps(
            {
                "auto_map": {
                    "AutoModelForSeq2SeqLM": "automodel.Evil",
                    "AutoConfig": "automodel.Evil",
                }
            }
        ),
        "tokenizer_config.json": json.dumps(
            {"auto_map": {"AutoTokenizer": ["automodel.Evil", None]}}
        ),
    }
    hub.put("cy/evil", published | evil)
    for kind in ("repo_info", "pull", "reproduce"):
        hub_task = HubTask(kind, "cy/evil", endpoint=hub.url, destination=str(tmp_path / "in"))
        outcome, *message = run_task_in_process(hub_task, tmp_path / kind)
        assert outcome == "result", message
    assert not canary.exists()
    assert read_files(tmp_path / "in") == read_files(checkpoint)
    requested = {request.path.split("/")[-1] for request in hub.requests_with("cy/evil/resolve")}
    assert requested == {"playground.json", "README.md", *CHECKPOINT_FILES[1:]}


def test_an_unknown_revision_is_rejected_with_the_known_ones(
    hub, published, run_task_in_process, tmp_path
):
    hub.put("ada/single", published)
    hub_task = HubTask("repo_info", "ada/single", endpoint=hub.url, revision="v9")
    kind, message, _ = run_task_in_process(hub_task, tmp_path)
    assert kind == "failed"
    assert message == "ada/single has no revision v9; use the branch main, or the hash of a commit"


def test_hostile_or_missing_card_is_ignored(hub, published, run_task_in_process, tmp_path):
    yaml = "---\nmodel-index: &a [*a]\ntags: !!python/object/apply:os.system [true]\n---\n"
    for number, card in enumerate((yaml, "\x00" * 1000, "#" * 1_000_001, None)):
        repo = f"cy/card-{number}"
        hub.put(repo, published | {"README.md": card})
        kind, result = run_task_in_process(
            HubTask("repo_info", repo, endpoint=hub.url), tmp_path / str(number)
        )
        assert (kind, result["card"], result["step"]) == ("result", None, 6)


# Running hub tasks


def test_a_hub_task_can_be_cancelled_while_the_hub_is_silent(hub, checkpoint):
    with hub.fault(hub.UPLOAD, "silent", method="PUT") as fault:
        queue, job = start_hub_task(
            HubTask("push", "ada/cancelled", hub.ADA, hub.url, checkpoint=str(checkpoint))
        )
        wait_for(lambda: fault.hits, 60, "the first upload")
        queue.cancel(job)
        assert job.released.wait(60)
    assert (job.status, job.retryable) == ("cancelled", True)
    assert "cancelled" in job.message
    assert commit_titles(hub, "ada/cancelled") == ["initial commit"]
    assert job.arguments == ()


def test_a_hub_task_whose_process_is_killed_has_a_message(hub, published, tmp_path):
    with hub.fault(hub.STORAGE, "silent", method="GET") as fault:
        queue, job = start_hub_task(
            HubTask("pull", "ada/digits", endpoint=hub.url, destination=str(tmp_path / "in"))
        )
        wait_for(lambda: fault.hits, 60, "the first file in storage")
        queue.executor._processes[job].process.kill()
        assert job.released.wait(60)
    assert (job.status, job.retryable) == ("failed", True)
    assert "was killed, probably because the machine ran out of memory" in job.message
    assert "during: Downloading model.safetensors" in job.message
    assert not (tmp_path / "in").exists()


def test_a_silent_hub_task_is_ended(hub, monkeypatch):
    monkeypatch.setattr(jobs_module, "SILENCE_TIMEOUT_S", 3.0)
    monkeypatch.setattr(jobs_module, "LOADING_TIMEOUT_S", 60.0)
    with hub.fault(hub.WHOAMI, "silent"):
        job = HubJobs().start(HubTask("account", token=hub.ADA, endpoint=hub.url), "ada")
        assert job.released.wait(60)
    assert "the job sent no message for 3 s" in job.message
    assert job.retryable


@pytest.mark.smoke
def test_owners_can_poll_only_their_own_hub_tasks(hub):
    jobs = HubJobs()
    job_of_ada = jobs.start(HubTask("repo_info", "ada/nothing", hub.ADA, hub.url), "ada")
    job_of_ben = jobs.start(HubTask("repo_info", "ada/nothing", hub.BEN, hub.url), "ben")
    assert jobs.queue.find(job_of_ada.id, "ada") is job_of_ada
    assert jobs.queue.find(job_of_ben.id, "ben") is job_of_ben
    wrong_owners = (
        (job_of_ada.id, "ben"),
        (job_of_ada.id, ""),
        (job_of_ada.id, "ada "),
        (job_of_ada.id, "\udfff"),
        (job_of_ben.id, "ada"),
    )
    for job_id, owner in (
        *wrong_owners,
        ("", "ada"),
        (None, "ada"),
        ([job_of_ada.id], "ada"),
        ("ada", "ada"),
    ):
        assert jobs.queue.find(job_id, owner) is None
    for job in (job_of_ada, job_of_ben):
        assert job.released.wait(60)
        assert "there is no repository ada/nothing that this token can read" in job.message


def test_public_gallery_is_shared_and_private_gallery_is_not(hub):
    jobs = HubJobs()
    public = jobs.start(HubTask("gallery", endpoint=hub.url), "ada")
    assert jobs.start(HubTask("gallery", endpoint=hub.url), "ben") is public
    private = jobs.start(HubTask("gallery", token=hub.ADA, endpoint=hub.url), "ada")
    assert private is not public
    assert jobs.queue.find(public.id, "ben") is public
    assert jobs.queue.find(private.id, "ben") is None
    for job in (public, private):
        assert job.released.wait(60)


def test_the_number_of_concurrent_hub_tasks_is_limited(hub):
    jobs, started = HubJobs(), []

    def start(owner):
        started.append(jobs.start(HubTask("account", token=hub.ADA, endpoint=hub.url), owner))

    with hub.fault(hub.WHOAMI, "silent"):
        for _ in range(MAX_TASKS_PER_OWNER):
            start("ada")
        with pytest.raises(UserError, match="2 of your Hub jobs are still queued or running"):
            start("ada")
        for number in range(MAX_CONCURRENT_TASKS - MAX_TASKS_PER_OWNER):
            start(f"user {number}")
        with pytest.raises(UserError, match="too many Hub jobs"):
            start("late")
        for job in started:
            jobs.queue.cancel(job)
            assert job.released.wait(60)
        start("ada")
        jobs.queue.cancel(started[-1])
        assert started[-1].released.wait(60)


@pytest.mark.parametrize(
    ("kind", "token"), [("account", "secret"), ("gallery", "secret"), ("gallery", "")]
)
def test_one_address_has_at_most_half_of_the_hub_jobs(monkeypatch, client_address, kind, token):
    started = fake_processes(monkeypatch)
    jobs = HubJobs()
    client_address.set("192.0.2.1")
    for number in range(MAX_CONCURRENT_TASKS // 2):
        jobs.start(HubTask(kind, token=token), f"generated {number}", refresh=True)
    with pytest.raises(UserError, match="from your address are still queued or running"):
        jobs.start(HubTask(kind, token=token), "generated too", refresh=True)
    client_address.set("192.0.2.2")
    assert jobs.start(HubTask(kind, token=token), "ada", refresh=True)
    for process in started:
        process.finish()


def test_fetched_model_counts_for_the_address_of_its_job(monkeypatch, client_address):
    started, addresses = fake_processes(monkeypatch), []
    client_address.set("192.0.2.1")

    def import_result(result):
        addresses.append(client_address.get())
        return result

    HubJobs().start(HubTask("pull", token="secret"), "ada", import_result)
    client_address.set("")  # as in the thread that waits for the process
    started[0].finish()
    assert (addresses, client_address.get()) == (["192.0.2.1"], "")


def test_the_owner_of_a_local_instance_may_request_every_list(monkeypatch, client_address):
    started = fake_processes(monkeypatch)
    jobs = HubJobs(has_one_user=True)
    client_address.set("127.0.0.1")
    for _ in range(MAX_CONCURRENT_TASKS):
        jobs.start(HubTask("gallery"), "ada", refresh=True)
    with pytest.raises(UserError):
        jobs.start(HubTask("gallery"), "ada", refresh=True)
    for process in started:
        process.finish()


def test_lists_of_signed_in_users_do_not_use_slots_of_hub_tasks(hub):
    """A page that opens requests account and list; both finish when the user requests the
    list again.
    """
    jobs = HubJobs()
    with hub.fault(hub.WHOAMI, "silent"), hub.fault(hub.LIST, "silent"):
        started = [
            jobs.start(HubTask(kind, token=hub.ADA, endpoint=hub.url), "ada")
            for kind in ("account", "gallery", "gallery", "account")
        ]
        for kind in ("account", "gallery"):
            with pytest.raises(UserError):
                jobs.start(HubTask(kind, token=hub.ADA, endpoint=hub.url), "ada")
        for job in started:
            jobs.queue.cancel(job)
            assert job.released.wait(60)


def test_a_cancelled_push_has_a_message_about_its_branch(hub, checkpoint, published):
    """The message follows from the finished operations, not from their texts."""
    hub.put("ada/branching", published)
    with hub.fault(r"/branch/", "silent") as fault:
        queue, job = start_hub_task(
            HubTask(
                "push",
                "ada/branching",
                hub.ADA,
                hub.url,
                revision="next",
                checkpoint=str(checkpoint),
            )
        )
        wait_for(lambda: fault.hits or job.released.is_set(), 60, "the branch")
        queue.cancel(job)
        assert job.released.wait(60)
    assert "a new repository or branch may exist" in job.message


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
assert ("torch" in sys.modules) == (task.kind not in ("gallery", "repo_info"))
assert not late, late
"""


@pytest.mark.parametrize("kind", ["plan", "repo_info", "pull", "reproduce", "gallery"])
def test_slow_imports_are_announced_by_a_message(hub, checkpoint, published, tmp_path, kind):
    """Slow imports must not count as silence, which ends a job."""
    completed = subprocess.run(
        [
            sys.executable,
            "-c",
            IMPORT_SCRIPT,
            kind,
            "ada/digits",
            hub.ADA,
            hub.url,
            str(checkpoint),
            str(tmp_path),
        ],
        cwd=ROOT,
        env=os.environ | hub.environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
