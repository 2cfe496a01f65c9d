"""Faults of the Hub while a repository is created, or a file is uploaded, committed or downloaded.

The client gets instructions, neither side has incomplete files, and the checkpoint is unchanged.
The cases run concurrently, with the client in this process. tests/integration/hub/test_jobs.py has
hub tasks in their own processes.
"""

import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from unittest.mock import Mock

import pytest
from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars, logging
from huggingface_hub.utils._http import default_client_factory

from playground.checkpoints.checkpoint import save_checkpoint
from playground.errors import UserError
from playground.hub import transport
from playground.hub.client import Hub
from playground.hub.errors import HubError
from playground.hub.jobs import SILENCE_TIMEOUT_S
from playground.hub.tasks import HubTask, run_task
from playground.hub.transport import READ_TIMEOUT_S, configure_process
from playground.jobs.progress import ProgressReporter
from playground.runs.storage_folder import CHECKPOINT_FILES
from playground.training.trainer import Trainer
from tests.support.fake_hub import FakeHub
from tests.support.files import read_files
from tests.support.small_runs import tiny_config

pytestmark = pytest.mark.timeout(400)

IN_PROCESS_TIMEOUT_S = 6  # seconds that the client in this process waits for a response
# what huggingface_hub waits for at most: requests, and the pauses between them
MAX_ATTEMPTS, PAUSES_S = 7, 1 + 2 + 4 + 8 + 8
# concurrent cases; with more, a busy machine responds after the client's timeout
MAX_CASES = 16

FAULTS = {
    **{str(status): {"kind": status} for status in (401, 403, 404, 409, 412)},
    "429": {"kind": 429, "retry_after": 1},
    "500": {"kind": 500, "page": True},
    "503": {"kind": 503},
    "reset": {"kind": "reset"},
    "hang": {"kind": "hang"},
    "tomorrow": {"kind": 503, "retry_after": 86400},
}
PATTERNS = {  # where the fault of each operation occurs
    "create": (FakeHub.CREATE, ""),
    "upload": (FakeHub.UPLOAD, "PUT"),
    "commit": (FakeHub.COMMIT, ""),
    "download": (FakeHub.RESOLVE, "GET"),
    "find": (FakeHub.RESOLVE, "HEAD"),  # the first request of a download
}
DOWNLOADS = ("download", "find")
# Parts of the instructions in the message; 404 and 401 depend on the request.
ADVICE = {
    "401": ("sign in again", "spelling"),
    "403": ("it needs write access there", "this token has no permission to"),
    "404": ("spelling", "the Hub has no such file"),
    "409": ("try again",),
    "412": ("check the repository and try again",),
    "429": ("try again in some minutes",),
    "500": ("try again later",),
    "503": ("try again later",),
    "reset": ("try again",),
    "hang": ("try again",),
    "tomorrow": ("requests a wait of 24 h",),
}
CASES = [f"{operation}-{fault}" for operation in PATTERNS for fault in FAULTS]


@dataclass
class Outcome:
    """Result of one case."""

    message: str = ""
    retryable: bool = False
    hits: int = 0
    # of all repositories, without the initial commits
    commits: list[str] = field(default_factory=list)
    is_unchanged: bool = False
    leftovers: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "0000002"
    trainer = Trainer(tiny_config(max_steps=20))
    metrics = [trainer.train_step(), trainer.train_step()]
    save_checkpoint(folder, trainer, metrics, trainer.evaluate(32))
    return folder


@pytest.fixture(scope="module")
def configured_process():
    """Configure this process as that of a hub task, and restore it afterwards."""
    verbosity = logging.get_verbosity()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        # instead of 10 s, six times; hub tasks in their own process use the default
        patch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 3)
        patch.setattr(transport, "READ_TIMEOUT_S", IN_PROCESS_TIMEOUT_S)
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost")
        # several threads draw them, on a stream that pytest replaces
        disable_progress_bars()
        configure_process()
        yield
        set_client_factory(default_client_factory)
        enable_progress_bars()
        logging.set_verbosity(verbosity)


def create_package(checkpoint, folder):
    """Write the files of a package that the Hub knows; return the folder."""
    folder.mkdir(parents=True)
    for name in CHECKPOINT_FILES[1:]:
        shutil.copyfile(checkpoint / name, folder / name)
    shutil.copyfile(checkpoint / "config.json", folder / "playground.json")
    (folder / "README.md").write_bytes(b"---\nlicense: mit\n---\n# Digits\n")
    return folder


def commit_titles(hub):
    commits = [commit for repo in hub.repos.values() for commit in repo.commits.values()]
    return [commit.title for commit in commits if commit.title != "initial commit"]


def carry_out(case, checkpoint, folder):
    """Run one fault with the client in this process."""
    operation, name = case.split("-")
    package, outcome = create_package(checkpoint, folder / "package"), Outcome()
    before, fetched = read_files(package), folder / "in"
    sizes = {path: len(data) for path, data in before.items()}
    with FakeHub() as fake_hub:
        client = Hub(fake_hub.ADA, fake_hub.url)
        if operation in DOWNLOADS:
            fake_hub.put("ada/digits", dict(before), message="Existing")
        pattern, method = PATTERNS[operation]
        with fake_hub.fault(pattern, method=method, **FAULTS[name]) as fault:
            try:
                if operation in DOWNLOADS:
                    client.fetch("ada/digits", "main", sizes, fetched)
                else:
                    client.push(package, client.plan(package, "ada/digits"), "Step 2")
            except HubError as error:
                outcome.message, outcome.retryable = str(error), error.retryable
        outcome.hits, outcome.commits = fault.hits, commit_titles(fake_hub)
    outcome.is_unchanged = read_files(package) == before
    outcome.leftovers = [path for path in read_files(fetched) if not path.startswith(".cache")]
    return outcome


@pytest.fixture(scope="module")
def outcomes(configured_process, checkpoint, tmp_path_factory):
    """A future for each case; the cases mostly wait, so they run concurrently."""
    folder = tmp_path_factory.mktemp("cases")
    with ThreadPoolExecutor(MAX_CASES) as pool:
        yield {case: pool.submit(carry_out, case, checkpoint, folder / case) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_a_fault_of_the_hub_is_reported_and_leaves_no_partial_result(outcomes, case):
    operation, name = case.split("-")
    outcome = outcomes[case].result(timeout=300)
    assert outcome.hits >= 1
    assert outcome.hits <= MAX_ATTEMPTS * (2 if operation == "upload" else 1)  # of two files
    assert any(advice in outcome.message for advice in ADVICE[name]), outcome.message
    assert "unexpected error" not in outcome.message
    assert outcome.retryable == (name not in ("401", "403", "404")), outcome.message
    assert "hf_" not in outcome.message
    # Only the response hangs: the commit is complete. A retry writes nothing (see the test of a
    # lost response below).
    commits = ["Existing"] if operation in DOWNLOADS else []
    assert outcome.commits == (["Step 2"] if case == "commit-hang" else commits)
    assert outcome.is_unchanged
    assert outcome.leftovers == []


def test_temporary_faults_are_retried_without_a_message(configured_process, checkpoint, tmp_path):
    """One rejection, one cut and one timeout: the client retries, and the file is complete."""
    package = create_package(checkpoint, tmp_path / "package")
    with FakeHub() as fake_hub:
        client = Hub(fake_hub.ADA, fake_hub.url)
        faults = {FakeHub.BATCH: 503, FakeHub.UPLOAD: "reset", FakeHub.PREUPLOAD: 500}
        for pattern, kind in faults.items():
            fake_hub.fault(pattern, kind, times=1)
        client.push(package, client.plan(package, "ada/digits"), "Step 2")
        assert fake_hub.files("ada/digits") == read_files(package)
        assert commit_titles(fake_hub) == ["Step 2"]
        fake_hub.fault(FakeHub.RESOLVE, 503, times=1)
        fake_hub.fault(FakeHub.STORAGE, "cut", times=1, method="GET")
        sizes = {path: len(data) for path, data in read_files(package).items()}
        client.fetch("ada/digits", "main", sizes, tmp_path / "in")
    assert read_files(tmp_path / "in").items() >= read_files(package).items()


def test_a_commit_with_a_lost_response_is_not_repeated(configured_process, checkpoint, tmp_path):
    package = create_package(checkpoint, tmp_path / "package")
    with FakeHub() as fake_hub:
        client = Hub(fake_hub.ADA, fake_hub.url)
        with (
            fake_hub.fault(FakeHub.COMMIT, "lost", times=1),
            pytest.raises(HubError, match="try again") as lost,
        ):
            client.push(package, client.plan(package, "ada/digits"), "Step 2")
        assert lost.value.retryable
        plan = client.plan(package, "ada/digits")
        assert not plan.has_writes
        assert client.push(package, plan, "Step 2") == fake_hub.repo("ada/digits").head.oid
        assert commit_titles(fake_hub) == ["Step 2"]


# Without a server


@pytest.fixture
def closed_port_url():
    """The address of a port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.smoke
def test_a_missing_network_is_reported(configured_process, closed_port_url):
    with pytest.raises(HubError) as error:
        Hub("", closed_port_url).gallery()
    assert error.value.retryable
    message = "cannot be reached: Connection refused; check the network and try again"
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (TimeoutError("timed out"), "no response"),
        (socket.gaierror(-2, "Unknown"), "no internet connection, or an unknown host name"),
        (OSError(113, "No route to host"), "No route to host"),
    ],
    ids=["slow", "no name", "unreachable"],
)
def test_an_unknown_host_or_route_is_reported(configured_process, monkeypatch, trouble, message):
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=trouble))
    with pytest.raises(HubError, match=f"cannot be reached: {message}; check the netw") as error:
        Hub("", "https://hub.invalid").gallery()
    assert error.value.retryable


def test_no_hub_task_retries_without_a_network(
    configured_process, checkpoint, closed_port_url, monkeypatch, tmp_path
):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    folders = {"checkpoint": str(checkpoint), "destination": str(tmp_path / "in")}
    task = HubTask("", "ada/digits", "hf_none", closed_port_url, **folders)
    for kind in ("account", "gallery", "repo_info", "plan", "push", "pull", "reproduce"):
        scratch = tmp_path / kind
        scratch.mkdir()
        with pytest.raises(UserError, match="check the network and try again") as error:
            run_task(replace(task, kind=kind), ProgressReporter(scratch=scratch))
        assert error.value.retryable
    assert not (tmp_path / "in").exists()


def test_a_server_that_never_responds_gets_one_request(configured_process, tmp_path, monkeypatch):
    assert MAX_ATTEMPTS * READ_TIMEOUT_S + PAUSES_S < SILENCE_TIMEOUT_S
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 0.3)
    with FakeHub() as fake_hub, fake_hub.fault(fake_hub.ANY_PATH, "silent") as fault:
        hub = Hub(fake_hub.ADA, fake_hub.url)
        calls = (
            hub.account,
            hub.gallery,
            lambda: hub.repo_info("ada/digits"),
            lambda: hub.plan(tmp_path, "ada/digits"),
        )
        for number, call in enumerate(calls, start=1):
            with pytest.raises(HubError, match=r"no response from the Hub within 0\.3 s") as error:
                call()
            assert error.value.retryable
            assert fault.hits == number
