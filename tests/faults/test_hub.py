"""Faults of the Hub while a repository is created, or a file is uploaded, committed or downloaded.

The client gets instructions within two minutes, neither side has incomplete files, and the
checkpoint is unchanged. Every fault is tested with every operation in this process, and with one
hub task in its own process. The cases run concurrently.
"""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars, logging
from huggingface_hub.utils._http import default_client_factory

from playground.checkpoints.checkpoint import save_checkpoint
from playground.hub import transport
from playground.hub.client import Hub
from playground.hub.errors import HubError
from playground.hub.task_runner import HubTask
from playground.hub.transport import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, configure_process
from playground.runs.export import CHECKPOINT_FILES
from playground.training.trainer import Trainer
from tests.support.app_server import wait_for
from tests.support.fake_hub import FakeHub
from tests.support.hub_tasks import run_hub_task, start_hub_task
from tests.support.small_runs import start_run, tiny_config, wait_for_status

pytestmark = pytest.mark.timeout(400)

MAX_SECONDS = 120  # seconds until the client gets a message
IN_PROCESS_TIMEOUT_S = 6  # seconds that the client in this process waits for a response
BUSY_MACHINE_S = 3  # seconds that a busy machine may add; the retries of the client would take 23 s
MAX_HUB_TASKS = 3  # concurrent hub tasks in their own processes
# concurrent cases in this process; with more, a busy machine responds after the client's timeout
MAX_IN_PROCESS = 16

FAULTS = {
    "401": {"kind": 401},
    "403": {"kind": 403},
    "404": {"kind": 404},
    "409": {"kind": 409},
    "412": {"kind": 412},
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
# Cases with hub tasks: each fault once, each operation at least twice; the others are soak tests.
DEFAULT_HUB_TASK_CASES = {
    "create-401",
    "create-503",
    "create-409",
    "upload-403",
    "upload-429",
    "upload-hang",
    "commit-412",
    "commit-500",
    "commit-tomorrow",
    "download-404",
    "download-reset",
}


@dataclass
class Outcome:
    """Result of one case."""

    message: str = ""
    retryable: bool = False
    seconds: float = 0.0
    hits: int = 0
    # of all repositories, without the initial commits
    commits: list[str] = field(default_factory=list)
    response: str = ""
    is_unchanged: bool = False
    leftovers: list[str] = field(default_factory=list)


def read_files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "0000002"
    trainer = Trainer(tiny_config(max_steps=20))
    save_checkpoint(
        folder, trainer, [trainer.train_step(), trainer.train_step()], trainer.evaluate(32)
    )
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


def package_files(checkpoint):
    """Return the files of a package that the Hub knows."""
    files = {name: (checkpoint / name).read_bytes() for name in CHECKPOINT_FILES[1:]}
    return files | {
        "playground.json": (checkpoint / "config.json").read_bytes(),
        "README.md": b"---\nlicense: mit\n---\n# Digits\n",
    }


def commit_titles(hub):
    return [
        commit.title
        for repo in hub.repos.values()
        for commit in repo.commits.values()
        if commit.title != "initial commit"
    ]


def complete_outcome(outcome, hub, fault, started):
    outcome.seconds, outcome.hits, outcome.commits = (
        time.monotonic() - started,
        fault.hits,
        commit_titles(hub),
    )
    return outcome


def run_in_process(case, checkpoint, folder):
    """Run one fault with the client in this process."""
    operation, name = case.split("-")
    package, outcome = folder / "package", Outcome()
    package.mkdir(parents=True)
    for path, data in package_files(checkpoint).items():
        (package / path).write_bytes(data)
    before = read_files(package)
    with FakeHub() as fake_hub:
        client = Hub(fake_hub.ADA, fake_hub.url)
        if operation in DOWNLOADS:
            fake_hub.put("ada/digits", dict(before), message="Existing")
        pattern, method = PATTERNS[operation]
        started = time.monotonic()
        with fake_hub.fault(pattern, method=method, **FAULTS[name]) as fault:
            try:
                if operation in DOWNLOADS:
                    client.fetch(
                        "ada/digits",
                        "main",
                        {path: len(data) for path, data in before.items()},
                        folder / "in",
                    )
                else:
                    client.push(package, client.plan(package, "ada/digits"), "Step 2")
            except HubError as error:
                outcome.message, outcome.retryable, outcome.response = (
                    str(error),
                    error.retryable,
                    repr(error),
                )
        complete_outcome(outcome, fake_hub, fault, started)
    outcome.is_unchanged = read_files(package) == before
    outcome.leftovers = (
        sorted(path for path in read_files(folder / "in") if not path.startswith(".cache"))
        if (folder / "in").exists()
        else []
    )
    return outcome


def run_as_hub_task(case, checkpoint, folder, times=None, **hub_task):
    """Run one fault with a hub task in its own process, supervised as by a server."""
    operation, name = case.split("-")
    before, messages, outcome = read_files(checkpoint), [], Outcome()
    folder.mkdir(parents=True)
    with FakeHub() as fake_hub:
        if operation in DOWNLOADS:
            fake_hub.put("ada/digits", package_files(checkpoint), message="Existing")
            task = HubTask(
                "pull", "ada/digits", fake_hub.ADA, fake_hub.url, destination=str(folder / "in")
            )
        else:
            task = HubTask(
                "push", "ada/digits", fake_hub.ADA, fake_hub.url, checkpoint=str(checkpoint)
            )
        pattern, method = PATTERNS[operation]
        started = time.monotonic()
        with fake_hub.fault(pattern, method=method, times=times, **FAULTS[name]) as fault:
            job = run_hub_task(task, messages.append, MAX_SECONDS + 30)
        outcome.message, outcome.retryable, outcome.response = (
            job.message,
            job.retryable,
            repr([job.to_json(), messages, job]),
        )
        complete_outcome(outcome, fake_hub, fault, started)
    outcome.is_unchanged = read_files(checkpoint) == before
    outcome.leftovers = sorted(path.name for path in folder.iterdir())
    return outcome


@pytest.fixture(scope="module")
def outcomes(request, configured_process, checkpoint, tmp_path_factory):
    """A future for each selected case; the cases mostly wait, so they run concurrently."""
    folder = tmp_path_factory.mktemp("cases")
    items = [item for item in request.session.items if item.path == Path(__file__)]
    expected = [item.callspec.params for item in items if "case" in item.fixturenames]
    with (
        ThreadPoolExecutor(MAX_IN_PROCESS) as in_process,
        ThreadPoolExecutor(MAX_HUB_TASKS) as separate_processes,
    ):
        futures = {}
        for number, params in enumerate(expected):
            case, carry_out = params["case"], params["carry_out"]
            pool = in_process if carry_out is run_in_process else separate_processes
            futures[carry_out, case] = pool.submit(
                carry_out, case, checkpoint, folder / str(number)
            )
        yield futures


def hub_task_param(case):
    return pytest.param(
        run_as_hub_task,
        case,
        id=f"separate-{case}",
        marks=[] if case in DEFAULT_HUB_TASK_CASES else [pytest.mark.soak],
    )


@pytest.mark.parametrize(
    ("carry_out", "case"),
    [
        *(pytest.param(run_in_process, case, id=f"in-process-{case}") for case in CASES),
        *map(hub_task_param, CASES),
    ],
)
def test_a_fault_of_the_hub_is_reported_and_leaves_no_partial_result(outcomes, carry_out, case):
    operation, name = case.split("-")
    outcome = outcomes[carry_out, case].result(timeout=300)
    assert outcome.hits >= 1
    assert outcome.seconds < MAX_SECONDS
    # a download that stops in the middle is continued
    if name == "hang" and operation != "download":
        assert outcome.hits <= 2
    assert any(advice in outcome.message for advice in ADVICE[name]), outcome.message
    assert "unexpected error" not in outcome.message
    assert outcome.retryable == (name not in ("401", "403", "404")), outcome.message
    assert "hf_" not in outcome.message + outcome.response
    # Only the response hangs: the commit is complete. A retry writes nothing (see the test of a
    # lost response below).
    assert outcome.commits == (
        ["Existing"] if operation in DOWNLOADS else ["Step 2"] if case == "commit-hang" else []
    )
    assert outcome.is_unchanged
    assert outcome.leftovers == []


def test_temporary_faults_are_retried_without_a_message(configured_process, checkpoint, tmp_path):
    """One rejection, one cut and one timeout: the client retries, and the file is complete."""
    package = tmp_path / "package"
    package.mkdir()
    for path, data in package_files(checkpoint).items():
        (package / path).write_bytes(data)
    with FakeHub() as fake_hub:
        client = Hub(fake_hub.ADA, fake_hub.url)
        for pattern, kind in (
            (FakeHub.BATCH, 503),
            (FakeHub.UPLOAD, "reset"),
            (FakeHub.PREUPLOAD, 500),
        ):
            fake_hub.fault(pattern, kind, times=1)
        client.push(package, client.plan(package, "ada/digits"), "Step 2")
        assert fake_hub.files("ada/digits") == read_files(package)
        assert commit_titles(fake_hub) == ["Step 2"]
        fake_hub.fault(FakeHub.RESOLVE, 503, times=1)
        fake_hub.fault(FakeHub.STORAGE, "cut", times=1, method="GET")
        client.fetch(
            "ada/digits",
            "main",
            {path: len(data) for path, data in read_files(package).items()},
            tmp_path / "in",
        )
    assert {
        path: (tmp_path / "in" / path).read_bytes() for path in read_files(package)
    } == read_files(package)


def test_a_hub_task_survives_a_temporary_fault(checkpoint, tmp_path):
    outcome = run_as_hub_task("upload-503", checkpoint, tmp_path / "case", times=1)
    assert outcome.message == ""
    assert outcome.commits == ["Step 2"]
    assert outcome.is_unchanged


def test_a_commit_with_a_lost_response_is_not_repeated(configured_process, checkpoint, tmp_path):
    for path, data in package_files(checkpoint).items():
        (tmp_path / path).write_bytes(data)
    with FakeHub() as fake_hub:
        client = Hub(fake_hub.ADA, fake_hub.url)
        with (
            fake_hub.fault(FakeHub.COMMIT, "lost", times=1),
            pytest.raises(HubError, match="try again") as lost,
        ):
            client.push(tmp_path, client.plan(tmp_path, "ada/digits"), "Step 2")
        assert lost.value.retryable
        plan = client.plan(tmp_path, "ada/digits")
        assert not plan.has_writes
        assert client.push(tmp_path, plan, "Step 2") == fake_hub.repo("ada/digits").head.oid
        assert commit_titles(fake_hub) == ["Step 2"]


def test_training_continues_while_the_hub_hangs(registries, checkpoint, tmp_path):
    run = start_run(registries(), "ada")
    wait_for_status(run, "training")
    with FakeHub() as fake_hub, fake_hub.fault(FakeHub.WHOAMI, "hang") as hang:
        queue, job = start_hub_task(
            HubTask("push", "ada/digits", fake_hub.ADA, fake_hub.url, checkpoint=str(checkpoint))
        )
        wait_for(lambda: hang.hits, 60, "the first request")
        before = run.step
        wait_for(lambda: run.step > before + 20, 60, "steps while it hangs")
        assert run.status == "training"
        queue.cancel(job)
        assert job.released.wait(60)


# Without a server


@pytest.fixture
def closed_port_url():
    """The address of a port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def silent_server_url():
    """The address of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def measure_error(call, *arguments):
    started = time.monotonic()
    with pytest.raises(HubError) as error:
        call(*arguments)
    return time.monotonic() - started, error.value


@pytest.mark.smoke
def test_without_a_network_the_error_comes_within_three_seconds(
    configured_process, closed_port_url
):
    seconds, error = measure_error(Hub("", closed_port_url).connect)
    assert seconds < 3 + BUSY_MACHINE_S
    assert error.retryable
    assert "cannot be reached: Connection refused; check the network and try again" in str(error)


@pytest.mark.parametrize("trouble", ["slow", "no name", "unreachable"])
def test_an_unknown_host_or_route_fails_within_three_seconds(
    configured_process, monkeypatch, trouble
):
    is_over = threading.Event()

    def connect(*_):
        if trouble == "slow":
            is_over.wait(30)
        raise (
            socket.gaierror(-2, "Name or service not known")
            if trouble == "no name"
            else OSError(113, "No route to host")
        )

    monkeypatch.setattr(socket, "create_connection", connect)
    seconds, error = measure_error(Hub("", "https://hub.invalid").connect)
    is_over.set()
    assert CONNECT_TIMEOUT_S < 3
    assert seconds < 3 + BUSY_MACHINE_S
    response = {
        "slow": "no response",
        "no name": "no internet connection, or an unknown host name",
        "unreachable": "No route to host",
    }
    assert f"cannot be reached: {response[trouble]}" in str(error)
    assert error.retryable


@pytest.mark.parametrize(
    "kind", ["account", "gallery", "repo_info", "plan", "push", "pull", "reproduce"]
)
def test_no_hub_task_retries_without_a_network(checkpoint, closed_port_url, tmp_path, kind):
    before, messages = read_files(checkpoint), []
    received_at = []

    def on_message(message):
        messages.append(message)
        received_at.append(time.monotonic())

    hub_task = HubTask(
        kind,
        "ada/digits",
        "hf_none",
        closed_port_url,
        checkpoint=str(checkpoint),
        destination=str(tmp_path / "in"),
    )
    job = run_hub_task(hub_task, on_message, 60)
    assert (
        time.monotonic() - received_at[0] < 3 + 2 + BUSY_MACHINE_S
    )  # includes the end of its process
    assert (job.status, job.retryable, messages) == ("failed", True, ["Connecting to the Hub"])
    assert "check the network and try again" in job.message
    assert read_files(checkpoint) == before
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_never_responds_times_out_once(
    configured_process, silent_server_url, tmp_path, monkeypatch
):
    assert READ_TIMEOUT_S <= 12
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 2)
    (tmp_path / "README.md").write_text("# Digits")

    def connected_hub():
        """Connect to the Hub, as every hub task does first."""
        hub = Hub("hf_none", silent_server_url)
        hub.connect()
        return hub

    calls = {
        "account": lambda: connected_hub().account(),
        "gallery": lambda: connected_hub().gallery(),
        "repo_info": lambda: connected_hub().repo_info("ada/digits"),
        "plan": lambda: connected_hub().plan(tmp_path, "ada/digits"),
        "revisions": lambda: connected_hub().revisions("ada/digits"),
    }
    with ThreadPoolExecutor(len(calls)) as pool:
        response = dict(
            zip(calls, pool.map(lambda name: measure_error(calls[name]), calls), strict=True)
        )
    for seconds, error in response.values():
        assert seconds < CONNECT_TIMEOUT_S + 2 + BUSY_MACHINE_S
        assert "no response from the Hub within 2 s" in str(error)
        assert error.retryable


def test_offline_mode_has_its_own_message(configured_process, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with FakeHub() as fake_hub, pytest.raises(HubError, match="unset it"):
        Hub("", fake_hub.url).repo_info("ada/digits")
