"""Hostile names through every route that takes a name.

Each is rejected or escaped; nothing outside the server's folders is read, written or sent.
"""

import json
import re
from contextlib import suppress
from functools import partial
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playground.datasets.pairs import DatasetError
from playground.datasets.sources import ReadOptions, read_text
from playground.datasets.storage import load_metadata, load_pairs, store
from playground.errors import UserError
from playground.hub.client import Hub
from playground.hub.dataset_files import read_hub
from playground.hub.repo_ids import is_repo, is_revision
from playground.pretrained.loading.model_names import validate_name
from playground.server.checkpoint_transfer import CHECKPOINT_FILES, CHECKPOINT_PATH
from playground.server.routes import ROUTE_PREFIX as API_PREFIX
from playground.training.run_config import RunConfig
from tests.support.files import zip_files

NAMES = [
    *("..", "../../etc/passwd", "..\\..\\windows\\system32", "..%2f..%2fetc%2fpasswd", "a/../../b"),
    *(".", "/", "/etc/passwd", "\\\\server\\share", "C:", "~/.ssh/id_rsa", "/proc/self/environ"),
    *("small/..", "small/config.json", ".owner", ".git/config", ".small.previous", ".x.tmp"),
    *("-rf", "config.json", "CON", "x.", "; rm -rf /", "{0.__class__}", "hub:../x", "tuned:.."),
    *("=cmd|' /C calc'!A0", "cos\nsystem\n(S'id'\ntR.", "<script>alert(1)</script>"),
    *("\"><svg onload='alert(1)'>", "javascript:alert(1)", "![x](http://evil.example/x.png)"),
    *("", " ", "a\r\nSet-Cookie: x=1", "a\x00b", "\x1b[31mred", "\u202eevil", "\u2028", "\ud800"),
    *("e\u0301", "漢字", "👋🏽" * 30, "x" * 5000, "１２", "1e999"),
]
PARTS = ["..", ".", "/", "\\", "%2e", "\x00", "a", "-", "~", ":", " ", "\n", "@", "é", "refs/"]
ANY_NAME = st.lists(st.sampled_from(PARTS), max_size=6).map("".join) | st.text(max_size=12)
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|\.[a-z0-9-]+|[0-9a-f]{64}")


def tree(folder):
    """Return all files of a folder and of its parent, with their sizes."""
    return {
        path.relative_to(folder.parent).as_posix(): path.stat().st_size if path.is_file() else None
        for path in (*folder.parent.iterdir(), *folder.rglob("*"))
    }


@pytest.fixture
def watched(server, tmp_path):
    """Yield the server, and check the folders around its own.

    No file may change except in `runs` and `rows`, under names of the server.
    """
    outside = tmp_path.parent
    before = tree(tmp_path)
    server[0].root = str(tmp_path)  # which no response contains
    yield server
    after = tree(tmp_path)
    inside = tmp_path.relative_to(outside).as_posix()
    for path, _ in after.items() ^ before.items():
        assert path.startswith((f"{inside}/runs", f"{inside}/rows")), path
        parts = path.removeprefix(inside).strip("/").split("/")
        assert all(map(SAFE.fullmatch, parts)), path


def send(client, route, **request):
    response = client.post(API_PREFIX + route, content=json.dumps(request))
    assert response.status_code == 200
    assert client.root not in response.text
    assert "root:" not in response.text
    return response.json()


def test_hostile_run_names_do_not_change_file_names(watched):
    client, _, run, owner = watched
    act = partial(send, client, "runs/action", owner=owner, subject=f"run:{run.id}")
    n_accepted = 0
    for name in NAMES:
        result = act(action="rename", name=name)
        if "error" in result:
            assert len(result["error"]) < 200
            continue
        n_accepted += 1
        assert run.name.isprintable()
        assert run.name == " ".join(name.split())
        assert json.loads((run.folder / "run.json").read_text())["name"] == run.name
        token = act(action="download", checkpoint=run.checkpoints()[0][0].name)["ticket"]
        response = client.get(f"{CHECKPOINT_PATH}/{token}")
        assert response.status_code == 200
        file = response.headers["content-disposition"]
        assert re.fullmatch(r'attachment; filename="[A-Za-z0-9-]+\.zip"', file)
    # markup and code are valid names; control characters are not
    assert 20 < n_accepted < len(NAMES)


def test_hostile_upload_names_do_not_change_file_names(watched, trained_checkpoint):
    client, registry, _, owner = watched
    files = {name: (trained_checkpoint / name).read_bytes() for name in CHECKPOINT_FILES[:2]}
    archive = zip_files(files)
    known_ids = {run.id for run in registry.list_for_owner(owner)}
    for name in NAMES[::5]:
        headers = {"x-owner": owner, "x-name": quote(name, errors="replace")[:4000]}
        response = client.post(CHECKPOINT_PATH, content=archive, headers=headers)
        assert response.status_code == 200, response.text
        (run,) = (other for other in registry.list_for_owner(owner) if other.id not in known_ids)
        assert run.name.isprintable()
        assert run.name
        known_ids.add(run.id)


def test_hostile_names_find_nothing(watched):
    client, _, run, owner = watched
    own = {"owner": owner, "subject": f"run:{run.id}"}
    for name in NAMES:
        for kind in ("checkpoint:", "run:", "watch:", ""):
            subject = {"owner": owner, "subject": kind + name}
            response = send(client, "runs/poll", **subject)
            assert response.get("status") == "not-found" or "error" in response
        subject = {"owner": owner, "subject": f"checkpoint:{name}"}
        for route, fields in (
            ("runs/predict", {"text": "1"}),
            ("inspect/view", {"view": "attention", "text": "1"}),
            ("runs/details", {}),
        ):
            assert "error" in send(client, route, **subject, **fields)
        for route, fields in (
            *(
                ("runs/action", own | {"action": action, "checkpoint": name})
                for action in ("download", "remove")
            ),
            ("runs/action", own | {"action": name}),
            ("inspect/view", own | {"view": name, "text": "1"}),
            ("datasets/action", {"owner": owner, "action": "use", "sha256": name}),
            ("datasets/action", {"owner": name, "action": "list"}),
            ("jobs/submit", {"owner": owner, "kind": name}),
        ):
            assert "error" in send(client, route, **fields)
        path = f"{CHECKPOINT_PATH}/{quote(name, safe='', errors='replace')}"
        assert client.get(path).status_code in (404, 405)


@pytest.fixture
def requested_paths(monkeypatch):
    """The paths that the client of the Hub requests; each response is {}."""
    paths = []
    monkeypatch.setattr(Hub, "_get", lambda self, path, _: paths.append(path) or {})
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    return paths


@pytest.mark.smoke
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(name=ANY_NAME, is_repo_name=st.booleans())
def test_invalid_repository_names_and_revisions_cause_no_request(
    requested_paths, tmp_path, name, is_repo_name
):
    hub, before = Hub("", "http://127.0.0.1:9"), len(requested_paths)
    arguments = (name,) if is_repo_name else ("ada/x", name)
    # a model may have no owner in its name
    raw, plan = partial(hub.raw_repo_info, *arguments), partial(hub.plan, tmp_path, name)
    for call in (partial(hub.repo_info, *arguments), plan if is_repo_name else raw):
        with suppress(UserError):
            call()
    paths = requested_paths[before:]
    assert not paths or (is_repo(name) if is_repo_name else is_revision(name))
    assert all(re.fullmatch(r"[A-Za-z0-9%._/+@-]+", path) for path in paths)
    assert not [path for path in paths if ".." in path or "//" in path]


def test_hostile_names_are_no_dataset_or_model(watched, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in NAMES:
        with suppress(UserError):
            assert re.fullmatch(r"[\w.-]+(/[\w.-]+)?", validate_name(name), re.ASCII)
        with pytest.raises(DatasetError):
            read_hub(f"hub:{name}", ReadOptions())
        for read in (load_metadata, load_pairs):
            with pytest.raises((DatasetError, ValueError)):
                read(name)


def test_datasets_with_hostile_symbols_are_rejected_or_stored_by_hash(watched, tmp_path):
    n_stored = 0
    for name in NAMES:
        with suppress(DatasetError):
            text = "".join(f"{name} a{n}\t{name} b{n % 7}\n" for n in range(100))
            rows = read_text(text, ReadOptions(split_on_spaces=True))
            content = store(rows)
            n_stored += 1
            assert (tmp_path / "rows" / content / "rows.json").is_file()
            assert not re.search(r"[\x00-\x20\x7f-\x9f\ud800-\udfff]", "".join(rows.vocabulary))
            assert load_pairs(content).vocabulary == rows.vocabulary
            assert RunConfig.from_flat(rows.task_settings()).task.load()
        fields = {"task": "dataset", "dataset_sha256": name, "dataset_symbols": "a b"}
        with pytest.raises(ValueError, match="dataset_sha256"):
            RunConfig.from_flat(fields)
    assert 15 < n_stored < len(NAMES)
