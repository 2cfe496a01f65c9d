"""Faults of the Hub while a repository is created, or a file is uploaded, committed or downloaded.

The client gets instructions within two minutes, nothing stays half written on either side, and the
checkpoint is unchanged. Every fault meets every operation in this process, and each fault meets one
hub task in a process of its own. All of them wait at the same time.
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

LONGEST = 120  # seconds until the client gets a message
HERE_WITHIN = 6  # seconds that the client in this process waits for an answer
BUSY = 3  # seconds that a busy machine may add; the client's own retries would take 23 s
CHILDREN = 3  # hub tasks that have a process at the same time
# cases in this process: with all at once, a busy machine takes longer to answer than the client
# waits
AT_ONCE = 16

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
PLACES = {  # where each operation meets it
    "create": (FakeHub.CREATE, ""),
    "upload": (FakeHub.UPLOAD, "PUT"),
    "commit": (FakeHub.COMMIT, ""),
    "download": (FakeHub.RESOLVE, "GET"),
    "find": (FakeHub.RESOLVE, "HEAD"),  # what a download begins with
}
FETCHING = ("download", "find")
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
CASES = [f"{operation}-{fault}" for operation in PLACES for fault in FAULTS]
# A process of its own meets each fault once, and each operation at least twice; the others
# would only take longer.
USUAL = {
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
    """The result of one case."""

    sentence: str = ""
    retryable: bool = False
    seconds: float = 0.0
    hits: int = 0
    # of every repository, without the Hub's own first
    commits: list[str] = field(default_factory=list)
    response: str = ""
    stored: bool = False
    left: list[str] = field(default_factory=list)


def contents(folder):
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
def prepared():
    """Configure this process as that of a hub task, and restore it afterwards."""
    verbosity = logging.get_verbosity()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        # instead of 10 s six times; hub tasks with their own process have those
        patch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 3)
        patch.setattr(transport, "READ_TIMEOUT_S", HERE_WITHIN)
        for name in ("NO_PROXY", "no_proxy"):
            patch.setenv(name, "127.0.0.1,localhost")
        # they are drawn by many threads, on a stream that pytest changes beneath them
        disable_progress_bars()
        configure_process()
        yield
        set_client_factory(default_client_factory)
        enable_progress_bars()
        logging.set_verbosity(verbosity)


def files_of(checkpoint):
    """Return the files of a package that the Hub knows."""
    files = {name: (checkpoint / name).read_bytes() for name in CHECKPOINT_FILES[1:]}
    return files | {
        "playground.json": (checkpoint / "config.json").read_bytes(),
        "README.md": b"---\nlicense: mit\n---\n# Digits\n",
    }


def commits_of(hub):
    return [
        commit.title
        for repo in hub.repos.values()
        for commit in repo.commits.values()
        if commit.title != "initial commit"
    ]


def settle(outcome, hub, fault, started):
    outcome.seconds, outcome.hits, outcome.commits = (
        time.monotonic() - started,
        fault.hits,
        commits_of(hub),
    )
    return outcome


def case_here(case, checkpoint, folder):
    """Run one fault with the client in this process."""
    operation, name = case.split("-")
    package, outcome = folder / "package", Outcome()
    package.mkdir(parents=True)
    for path, data in files_of(checkpoint).items():
        (package / path).write_bytes(data)
    before = contents(package)
    with FakeHub() as stand_in:
        client = Hub(stand_in.ADA, stand_in.url)
        if operation in FETCHING:
            stand_in.put("ada/digits", dict(before), message="Here before")
        where, method = PLACES[operation]
        started = time.monotonic()
        with stand_in.fault(where, method=method, **FAULTS[name]) as fault:
            try:
                if operation in FETCHING:
                    client.fetch(
                        "ada/digits",
                        "main",
                        {path: len(data) for path, data in before.items()},
                        folder / "in",
                    )
                else:
                    client.push(package, client.plan(package, "ada/digits"), "Step 2")
            except HubError as error:
                outcome.sentence, outcome.retryable, outcome.response = (
                    str(error),
                    error.retryable,
                    repr(error),
                )
        settle(outcome, stand_in, fault, started)
    outcome.stored = contents(package) == before
    outcome.left = (
        sorted(path for path in contents(folder / "in") if not path.startswith(".cache"))
        if (folder / "in").exists()
        else []
    )
    return outcome


def case_separate(case, checkpoint, folder, times=None, **hub_task):
    """Run one fault with a hub task in its own process, supervised as by a server."""
    operation, name = case.split("-")
    before, text_rendered, outcome = contents(checkpoint), [], Outcome()
    folder.mkdir(parents=True)
    with FakeHub() as stand_in:
        if operation in FETCHING:
            stand_in.put("ada/digits", files_of(checkpoint), message="Here before")
            requested = HubTask(
                "pull", "ada/digits", stand_in.ADA, stand_in.url, destination=str(folder / "in")
            )
        else:
            requested = HubTask(
                "push", "ada/digits", stand_in.ADA, stand_in.url, checkpoint=str(checkpoint)
            )
        where, method = PLACES[operation]
        started = time.monotonic()
        with stand_in.fault(where, method=method, times=times, **FAULTS[name]) as fault:
            job = run_hub_task(requested, text_rendered.append, LONGEST + 30)
        outcome.sentence, outcome.retryable, outcome.response = (
            job.message,
            job.retryable,
            repr([job.to_json(), text_rendered, job]),
        )
        settle(outcome, stand_in, fault, started)
    outcome.stored = contents(checkpoint) == before
    outcome.left = sorted(path.name for path in folder.iterdir())
    return outcome


@pytest.fixture(scope="module")
def outcomes(request, prepared, checkpoint, tmp_path_factory):
    """A future for each selected case; the cases mostly wait, so they run concurrently."""
    folder = tmp_path_factory.mktemp("cases")
    items = [item for item in request.session.items if item.path == Path(__file__)]
    expected = [item.callspec.params for item in items if "case" in item.fixturenames]
    with ThreadPoolExecutor(AT_ONCE) as here, ThreadPoolExecutor(CHILDREN) as separate:
        futures = {}
        for number, requested in enumerate(expected):
            case, carry_out = requested["case"], requested["carry_out"]
            pool = here if carry_out is case_here else separate
            futures[carry_out, case] = pool.submit(
                carry_out, case, checkpoint, folder / str(number)
            )
        yield futures


def separate(case):
    return pytest.param(
        case_separate, case, id=f"apart-{case}", marks=[] if case in USUAL else [pytest.mark.soak]
    )


@pytest.mark.parametrize(
    ("carry_out", "case"),
    [*(pytest.param(case_here, case, id=f"here-{case}") for case in CASES), *map(separate, CASES)],
)
def test_a_fault_of_the_hub_is_reported_and_leaves_no_partial_result(outcomes, carry_out, case):
    operation, name = case.split("-")
    outcome = outcomes[carry_out, case].result(timeout=300)
    assert outcome.hits >= 1
    assert outcome.seconds < LONGEST
    # a download that stops in the middle continues from there
    if name == "hang" and operation != "download":
        assert outcome.hits <= 2
    assert any(words in outcome.sentence for words in ADVICE[name]), outcome.sentence
    assert "unexpected error" not in outcome.sentence
    assert outcome.retryable == (name not in ("401", "403", "404")), outcome.sentence
    assert "hf_" not in outcome.sentence + outcome.response
    # What hangs is the answer: that commit was made, and whole. To try again then writes nothing
    # (below, where an answer is lost).
    assert outcome.commits == (
        ["Here before"] if operation in FETCHING else ["Step 2"] if case == "commit-hang" else []
    )
    assert outcome.stored
    assert outcome.left == []


def test_a_fault_that_passes_is_not_even_noticed(prepared, checkpoint, tmp_path):
    """One rejection, one cut and one timeout: the client retries, and the file is complete."""
    package = tmp_path / "package"
    package.mkdir()
    for path, data in files_of(checkpoint).items():
        (package / path).write_bytes(data)
    with FakeHub() as stand_in:
        client = Hub(stand_in.ADA, stand_in.url)
        for where, kind in (
            (FakeHub.BATCH, 503),
            (FakeHub.UPLOAD, "reset"),
            (FakeHub.PREUPLOAD, 500),
        ):
            stand_in.fault(where, kind, times=1)
        client.push(package, client.plan(package, "ada/digits"), "Step 2")
        assert stand_in.files("ada/digits") == contents(package)
        assert commits_of(stand_in) == ["Step 2"]
        stand_in.fault(FakeHub.RESOLVE, 503, times=1)
        stand_in.fault(FakeHub.STORAGE, "cut", times=1, method="GET")
        client.fetch(
            "ada/digits",
            "main",
            {path: len(data) for path, data in contents(package).items()},
            tmp_path / "in",
        )
    assert {path: (tmp_path / "in" / path).read_bytes() for path in contents(package)} == contents(
        package
    )


def test_a_hub_task_survives_a_temporary_fault(checkpoint, tmp_path):
    outcome = case_separate("upload-503", checkpoint, tmp_path / "case", times=1)
    assert outcome.sentence == ""
    assert outcome.commits == ["Step 2"]
    assert outcome.stored


def test_a_commit_with_a_lost_response_is_not_repeated(prepared, checkpoint, tmp_path):
    for path, data in files_of(checkpoint).items():
        (tmp_path / path).write_bytes(data)
    with FakeHub() as stand_in:
        client = Hub(stand_in.ADA, stand_in.url)
        with (
            stand_in.fault(FakeHub.COMMIT, "lost", times=1),
            pytest.raises(HubError, match="try again") as lost,
        ):
            client.push(tmp_path, client.plan(tmp_path, "ada/digits"), "Step 2")
        assert lost.value.retryable
        plan = client.plan(tmp_path, "ada/digits")
        assert not plan.has_writes
        assert client.push(tmp_path, plan, "Step 2") == stand_in.repo("ada/digits").head.oid
        assert commits_of(stand_in) == ["Step 2"]


def test_training_continues_while_the_hub_hangs(registries, checkpoint, tmp_path):
    run = start_run(registries(), "ada")
    wait_for_status(run, "training")
    with FakeHub() as stand_in, stand_in.fault(FakeHub.WHOAMI, "hang") as hang:
        queue, job = start_hub_task(
            HubTask("push", "ada/digits", stand_in.ADA, stand_in.url, checkpoint=str(checkpoint))
        )
        wait_for(lambda: hang.hits, 60, "the first request")
        before = run.step
        wait_for(lambda: run.step > before + 20, 60, "steps while it hangs")
        assert run.status == "training"
        queue.cancel(job)
        assert job.released.wait(60)


# No server at all


@pytest.fixture
def nowhere():
    """The address of a port without a server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def black_hole():
    """The address of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def timed(call, *arguments):
    started = time.monotonic()
    with pytest.raises(HubError) as refused:
        call(*arguments)
    return time.monotonic() - started, refused.value


@pytest.mark.smoke
def test_without_a_network_the_error_comes_within_three_seconds(prepared, nowhere):
    seconds, error = timed(Hub("", nowhere).connect)
    assert seconds < 3 + BUSY
    assert error.retryable
    assert "cannot be reached: Connection refused; check the network and try again" in str(error)


@pytest.mark.parametrize("trouble", ["slow", "no name", "unreachable"])
def test_an_unknown_host_or_route_fails_within_three_seconds(prepared, monkeypatch, trouble):
    over = threading.Event()

    def connect(*_):
        if trouble == "slow":
            over.wait(30)
        raise (
            socket.gaierror(-2, "Name or service not known")
            if trouble == "no name"
            else OSError(113, "No route to host")
        )

    monkeypatch.setattr(socket, "create_connection", connect)
    seconds, error = timed(Hub("", "https://hub.invalid").connect)
    over.set()
    assert CONNECT_TIMEOUT_S < 3
    assert seconds < 3 + BUSY
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
def test_no_hub_task_retries_without_a_network(checkpoint, nowhere, tmp_path, kind):
    before, text_rendered = contents(checkpoint), []
    received = []

    def on_message(sentence):
        text_rendered.append(sentence)
        received.append(time.monotonic())

    hub_task = HubTask(
        kind,
        "ada/digits",
        "hf_none",
        nowhere,
        checkpoint=str(checkpoint),
        destination=str(tmp_path / "in"),
    )
    job = run_hub_task(hub_task, on_message, 60)
    assert time.monotonic() - received[0] < 3 + 2 + BUSY  # and the end of its process
    assert (job.status, job.retryable, text_rendered) == ("failed", True, ["Connecting to the Hub"])
    assert "check the network and try again" in job.message
    assert contents(checkpoint) == before
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_never_responds_times_out_once(prepared, black_hole, tmp_path, monkeypatch):
    assert READ_TIMEOUT_S <= 12
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 2)
    (tmp_path / "README.md").write_text("# Digits")

    def user():
        """Connect to the Hub, as every hub task does first."""
        hub = Hub("hf_none", black_hole)
        hub.connect()
        return hub

    calls = {
        "account": lambda: user().account(),
        "gallery": lambda: user().gallery(),
        "repo_info": lambda: user().repo_info("ada/digits"),
        "plan": lambda: user().plan(tmp_path, "ada/digits"),
        "revisions": lambda: user().revisions("ada/digits"),
    }
    with ThreadPoolExecutor(len(calls)) as pool:
        response = dict(zip(calls, pool.map(lambda name: timed(calls[name]), calls), strict=True))
    for seconds, error in response.values():
        assert seconds < CONNECT_TIMEOUT_S + 2 + BUSY
        assert "no response from the Hub within 2 s" in str(error)
        assert error.retryable


def test_offline_mode_has_its_own_message(prepared, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with FakeHub() as stand_in, pytest.raises(HubError, match="unset it"):
        Hub("", stand_in.url).repo_info("ada/digits")
