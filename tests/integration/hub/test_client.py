"""The Hub client of one user against the fake Hub."""

import os
import threading
import time
import traceback
from types import SimpleNamespace

import pytest
from huggingface_hub import constants, file_download, set_client_factory
from huggingface_hub.utils import get_session, logging
from huggingface_hub.utils._http import default_client_factory

from playground.common.env import TAG
from playground.hub.client import Hub
from playground.hub.errors import HubError, NotFoundError
from playground.hub.repo_ids import MANIFEST
from playground.hub.transport import configure_process

CARD = f"---\nlicense: mit\ntags:\n- {TAG}\n---\n# Digits turned round\n".encode()
REGULAR = {
    "README.md": CARD,
    "config.json": b'{"model_type": "playground"}\n',
    "attention.py": b"softmax = max\n",
    "metrics.jsonl": b'{"step": 1, "loss": 2.3}\n' * 40,
    MANIFEST: b'{"schema_version": 2}\n',
    "training.png": os.urandom(9_000),
}
LARGE = {"model.safetensors": os.urandom(40_000), "training.safetensors": os.urandom(80_000)}


@pytest.fixture(scope="module", autouse=True)
def configured_process(hub):
    """Configure this process as that of a hub task, and restore it afterwards."""
    before = logging.get_verbosity()
    configure_process()
    yield
    set_client_factory(default_client_factory)
    logging.set_verbosity(before)


@pytest.fixture(autouse=True)
def empty_hub(hub):
    """Empty the Hub before every test."""
    hub.clear()


@pytest.fixture
def ada(hub):
    return Hub(hub.ADA, hub.url)


@pytest.fixture
def anonymous(hub):
    return Hub("", hub.url)


@pytest.fixture
def package(tmp_path):
    """Create a package with files for the commit and files for LFS storage."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name, content in (REGULAR | LARGE).items():
        (folder / name).write_bytes(content)
    return folder


def push(hub, folder, repo, message="Step 1", **options):
    return hub.push(folder, hub.plan(folder, repo, **options), message)


def test_another_job_leaves_the_connections_of_a_download_open(hub):
    client = get_session()
    with client.stream("GET", f"{hub.url}/api/models") as response:
        configure_process()
        Hub("", hub.url).gallery()
        assert response.read()
    assert get_session() is client


def statuses_by_path(plan):
    return {change.path: change.status for change in plan.changes}


def list_writes(requests):
    return [
        f"{request.method} {request.path}"
        for request in requests
        if request.method not in ("GET", "HEAD")
    ]


def get_error(call, *arguments, **options):
    with pytest.raises(HubError) as error:
        call(*arguments, **options)
    return error.value


# Plans


@pytest.mark.smoke
def test_a_plan_lists_new_changed_equal_and_removed_files(hub, ada, package):
    push(ada, package, "ada/digits")
    hub.put("ada/digits", {"LICENSE": "MIT", "notes.txt": "a note", "cross-attention.png": b"old"})
    head = hub.repo("ada/digits").head.oid
    weights = bytearray(LARGE["model.safetensors"])
    weights[20_000] ^= 1  # the size does not change
    (package / "model.safetensors").write_bytes(weights)
    (package / "config.json").write_bytes(REGULAR["config.json"].replace(b"play", b"clay"))
    (package / "metrics.jsonl").unlink()
    (package / "evaluation.json").write_bytes(b"{}")
    with hub.record_requests() as requests:
        plan = ada.plan(package, "ada/digits")
    assert statuses_by_path(plan) == {
        "README.md": "same",
        "config.json": "changed",
        "attention.py": "same",
        MANIFEST: "same",
        "evaluation.json": "new",
        "model.safetensors": "changed",
        "training.safetensors": "same",
        "training.png": "same",
        "metrics.jsonl": "removed",
        "cross-attention.png": "removed",
    }
    assert (plan.exists, plan.parent) == (True, head)
    assert list_writes(requests) == []

    with hub.record_requests() as requests:
        commit = ada.push(package, plan, "Step 2")
    assert commit == hub.repo("ada/digits").head.oid
    assert hub.files("ada/digits") == {
        path.name: path.read_bytes() for path in package.iterdir()
    } | {"LICENSE": b"MIT", "notes.txt": b"a note"}
    assert [request.body for request in requests if request.method == "PUT"] == [bytes(weights)]
    assert hub.commit_titles("ada/digits") == ["initial commit", "Step 1", "Upload", "Step 2"]


def test_repository_with_other_content_is_not_overwritten(hub, ada, package):
    files = {"config.json": "{}", "pytorch_model.bin": b"weights", "README.md": "# Another model"}
    hub.put("ada/other", files)
    error = get_error(ada.plan, package, "ada/other")
    assert "has other content" in str(error)
    assert "choose another name" in str(error)
    assert hub.files("ada/other") == {
        name: data.encode() if isinstance(data, str) else data for name, data in files.items()
    }


# Pushes


def test_only_a_new_repository_is_made_private(hub, ada, anonymous, package):
    push(ada, package, "ada/private", private=True)
    assert hub.repo("ada/private").private
    assert ada.plan(package, "ada/private").private
    for user in (anonymous, Hub(hub.CY, hub.url)):
        assert isinstance(get_error(user.repo_info, "ada/private"), NotFoundError)
    hub.put("ada/existing", {"README.md": "# Soon"})
    push(ada, package, "ada/existing", private=True)
    assert anonymous.repo_info("ada/existing").sha == hub.repo("ada/existing").head.oid


# Permissions


def test_an_account_lists_its_writable_organizations(hub):
    ada = {"name": "ada", "orgs": ["attention"]}
    assert Hub(hub.ADA, hub.url).account() == ada | {"writes": True}
    assert Hub(hub.BEN, hub.url).account() == {"name": "ben", "orgs": [], "writes": True}
    assert Hub(hub.ADA_READS, hub.url).account() == ada | {"writes": False}


def test_an_expired_token_has_the_same_message_everywhere(hub, package):
    hub.put("ada/digits", {MANIFEST: "{}"})
    client = Hub(hub.EXPIRED, hub.url)
    calls = (
        client.account,
        client.gallery,
        lambda: client.repo_info("ada/digits"),
        lambda: client.plan(package, "ada/digits"),
    )
    for call in calls:
        error = get_error(call)
        assert "create a new one and sign in again" in str(error)
        assert not isinstance(error, NotFoundError)
        assert hub.EXPIRED not in "".join(traceback.format_exception(error))
    assert hub.commit_titles("ada/digits") == ["initial commit", "Upload"]


@pytest.mark.parametrize("token", ["hf_Secret\nhf_Other", " hf_Secret", "hf_Sécret"])
def test_an_invalid_token_is_rejected_and_not_printed(hub, token):
    with hub.record_requests() as requests:
        error = get_error(Hub, token, hub.url)
    assert "copy it again" in str(error)
    assert "ecret" not in "".join(traceback.format_exception(error)).replace(f'"{__file__}"', "")
    assert requests == []


@pytest.mark.smoke
def test_a_token_that_the_hub_echoes_is_redacted(hub, ada, package):
    for route in (hub.PREUPLOAD, hub.CREATE):
        with hub.fault(route, 403, message=f"{hub.ADA} is not welcome"):
            error = get_error(push, ada, package, "ada/digits")
        assert hub.ADA not in "".join(traceback.format_exception(error))
        assert "[token] is not welcome" in str(error)
        hub.clear()


@pytest.mark.smoke
def test_the_token_of_the_machine_is_never_used(hub, package, tmp_path, monkeypatch):
    """Set the owner's token in every place where huggingface_hub looks for one."""
    monkeypatch.setenv("HF_TOKEN", hub.OWNER)
    (tmp_path / "token").write_text(hub.OWNER)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    push(Hub(hub.ADA, hub.url), package, "ada/digits")
    sizes = {name: len(data) for name, data in (REGULAR | LARGE).items()}
    for number, token in enumerate(("", hub.CY)):
        user = Hub(token, hub.url)
        with hub.record_requests() as requests:
            user.gallery()
            user.repo_info("ada/digits")
            user.fetch("ada/digits", "main", sizes, tmp_path / f"in {number}")
            user.plan(package, "ada/digits")
            get_error(
                user.push,
                package,
                user.plan(package, "cy/new" if not token else "ada/new"),
                "Step 1",
            )
        assert {request.token for request in requests if request.host == hub.host} == {token}
    assert hub.requests_with(hub.OWNER) == []


# Concurrent pushes


@pytest.mark.smoke
def test_commits_made_since_the_plan_are_not_overwritten(hub, ada, package):
    push(ada, package, "ada/digits")
    (package / "model.safetensors").write_bytes(b"own weights")
    plan = ada.plan(package, "ada/digits")
    other_commit = hub.put(
        "ada/digits", {"model.safetensors": b"other weights"}, message="Meanwhile"
    )
    error = get_error(ada.push, package, plan, "Step 2")
    assert "another commit was pushed in the meantime, and nothing was overwritten" in str(error)
    assert error.retryable
    assert hub.repo("ada/digits").head.oid == other_commit
    assert hub.files("ada/digits")["model.safetensors"] == b"other weights"
    push(ada, package, "ada/digits", "Step 2")  # with a new plan, the push succeeds
    assert hub.commit_titles("ada/digits") == ["initial commit", "Step 1", "Meanwhile", "Step 2"]
    plan = ada.plan(package, "ada/new")
    other_commit = hub.put("ada/new", {"other.bin": b"other weights"})
    assert get_error(ada.push, package, plan, "Step 1").retryable
    assert hub.repo("ada/new").head.oid == other_commit


# Revisions


def test_every_revision_can_be_inspected_and_downloaded(hub, ada, anonymous, package, tmp_path):
    commits = []
    for step in (1, 2):
        (package / "model.safetensors").write_bytes(b"weights" * step)
        commits.append(push(ada, package, "ada/digits", f"Step {step}"))
    for step, commit in enumerate(commits, start=1):
        info = anonymous.repo_info("ada/digits", commit)
        assert info.sizes["model.safetensors"] == 7 * step
        anonymous.fetch("ada/digits", commit, {"model.safetensors": 7 * step}, tmp_path / commit)
        assert (tmp_path / commit / "model.safetensors").read_bytes() == b"weights" * step
    for revision in ("no-such-branch", "0" * 40):
        error = get_error(anonymous.repo_info, "ada/digits", revision)
        assert "no such revision; name a branch, a tag or a commit" in str(error)


def test_a_branch_may_have_slashes_in_its_name(hub, ada, anonymous, package, tmp_path):
    push(ada, package, "ada/digits")
    hub.repo("ada/digits").branches["exp/one.2"] = hub.repo("ada/digits").head.oid
    assert anonymous.repo_info("ada/digits", "exp/one.2").sizes["model.safetensors"] == len(
        LARGE["model.safetensors"]
    )
    anonymous.fetch("ada/digits", "exp/one.2", {MANIFEST: len(REGULAR[MANIFEST])}, tmp_path / "in")
    assert (tmp_path / "in" / MANIFEST).read_bytes() == REGULAR[MANIFEST]


# Temporary errors of the Hub


@pytest.fixture
def waits(monkeypatch):
    """Record the waits of the client instead of waiting; other threads still sleep."""
    waits, real_sleep, main_thread = [], time.sleep, threading.current_thread()

    def sleep(seconds):
        if threading.current_thread() is main_thread:
            waits.append(seconds)
        else:
            real_sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    return waits


@pytest.mark.smoke
def test_a_read_is_retried_once_after_a_server_error(hub, ada, package, waits):
    with hub.fault(hub.LIST, 503, times=1) as fault:
        ada.gallery()
    assert fault.hits == 1
    with hub.fault(hub.LIST, 503) as fault:
        assert "has a server error" in str(get_error(ada.gallery))
    assert fault.hits == 2
    with hub.fault(hub.COMMIT, 503) as fault:  # a write is not
        get_error(push, ada, package, "ada/digits")
    assert fault.hits == 1


# What remains after an error


def test_message_names_a_repository_that_remains_empty(hub, ada, package):
    with hub.fault(hub.COMMIT, 413):
        error = get_error(push, ada, package, "ada/empty")
        assert hub.files("ada/empty") == {}
        assert (
            "the public repository ada/empty was created before the error and may be empty"
            in str(error)
        )
        hub.put("ada/existing", {MANIFEST: "{}"})
        assert "was created" not in str(get_error(push, ada, package, "ada/existing"))
    push(ada, package, "ada/empty")  # the next attempt succeeds
    assert hub.files("ada/empty") == REGULAR | LARGE


def test_on_a_space_a_rejection_explains_what_signing_in_permits(hub, ada, package, monkeypatch):
    with hub.fault(hub.CREATE, 403):
        assert "created from it" not in str(get_error(push, ada, package, "ada/digits"))
        monkeypatch.setenv("SPACE_ID", "ada/space")
        assert "only: choose a new name" in str(get_error(push, ada, package, "ada/digits"))


def test_license_of_the_repository_is_not_overwritten(hub, ada, package):
    (package / "LICENSE").write_text("MIT License")
    push(ada, package, "ada/digits")
    hub.put("ada/digits", {"LICENSE": "Own license"})
    plan = ada.plan(package, "ada/digits")
    assert not plan.has_writes
    (package / "metrics.jsonl").write_bytes(b"")
    push(ada, package, "ada/digits", "Step 2")
    assert hub.files("ada/digits")["LICENSE"] == b"Own license"


# Gallery and downloads


def test_the_gallery_has_the_models_with_our_tag_most_liked_first(hub, ada, anonymous):
    hub.put("ada/liked", {"README.md": CARD}, likes=7)
    hub.put("cy/new", {"README.md": CARD})
    hub.put("ben/best", {"README.md": CARD}, likes=9)
    hub.put("ada/secret", {"README.md": CARD}, private=True)
    hub.put("ben/bert", {"README.md": CARD.replace(TAG.encode(), b"transformers")}, likes=99)
    hub.put("ada/untagged", {MANIFEST: "{}"})
    hub.put("ada/data", {"README.md": CARD}, kind="dataset", likes=99)
    assert [model["id"] for model in anonymous.gallery()] == ["ben/best", "ada/liked", "cy/new"]
    assert {model["id"] for model in ada.gallery()} == {
        "ben/best",
        "ada/liked",
        "cy/new",
        "ada/secret",
    }


def test_missing_and_private_repositories_have_different_messages(hub, ada, anonymous, tmp_path):
    hub.put("ben/gated", {MANIFEST: "{}"}, gated="manual")
    assert "no repository ada/nothing that is public" in str(
        get_error(anonymous.repo_info, "ada/nothing")
    )
    assert "no repository ada/nothing that this token can read" in str(
        get_error(ada.repo_info, "ada/nothing")
    )
    for user in (anonymous, ada):
        error = get_error(user.fetch, "ben/gated", "main", {MANIFEST: 2}, tmp_path / "in")
        assert f"request access on its page, {hub.url}/ben/gated" in str(error)
        assert not (tmp_path / "in" / MANIFEST).exists()


@pytest.mark.parametrize(
    ("name", "route"), [("model.safetensors", "STORAGE"), ("metrics.jsonl", "RESOLVE")]
)
def test_repeatedly_truncated_file_is_rejected(hub, anonymous, tmp_path, monkeypatch, name, route):
    # skip the waits between the client's attempts
    monkeypatch.setattr(file_download, "time", SimpleNamespace(sleep=lambda _: None))
    files = REGULAR | LARGE
    hub.put("ada/digits", files)
    with hub.fault(getattr(hub, route), "cut", method="GET"):
        error = get_error(anonymous.fetch, "ada/digits", "main", {name: len(files[name])}, tmp_path)
    assert "try again" in str(error)
    assert error.retryable
    assert not (tmp_path / name).exists()


@pytest.mark.smoke
@pytest.mark.parametrize("size", [39_999, 40_001])
def test_file_with_an_unexpected_size_is_rejected(hub, anonymous, tmp_path, size):
    hub.put("ada/digits", LARGE)
    error = get_error(anonymous.fetch, "ada/digits", "main", {"model.safetensors": size}, tmp_path)
    assert f"arrived with 40,000 of {size:,} bytes; try again" in str(error)
