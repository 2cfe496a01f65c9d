"""Hostile names through every route that takes a name.

Each is rejected or escaped; nothing outside the server's folders is read, written or sent.
"""

import io
import itertools
import json
import os
import re
import zipfile
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from starlette.requests import Request

from playground.datasets.hub_stream import stream_hub_columns
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import from_cli_argument, from_text
from playground.datasets.storage import load_metadata, load_pairs, store
from playground.errors import UserError as NoModel
from playground.hub.client import Hub
from playground.hub.errors import HubError
from playground.hub.repo_ids import is_repo, is_revision
from playground.pretrained.model_names import validate_name
from playground.server.api import Endpoints
from playground.server.app import build_app
from playground.server.checkpoint_transfer import (
    CHECKPOINT_FILES,
    CHECKPOINT_PATH,
    extract_checkpoint,
)
from playground.server.routes import ROUTE_PREFIX as API_PREFIX
from playground.training.config import RunConfig
from tests.faults.test_hostile_requests import checkpoint, server  # noqa: F401
from tests.support.coroutines import run_in_thread

UP = [
    "..",
    "../",
    "../..",
    "../../etc/passwd",
    "..\\..\\windows\\system32",
    "....//....//etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e",
    "%252e%252e%252f",
    "..;/",
    "..\x00/",
    "a/../../b",
    "a/..",
    "./.",
    ".",
    "./x",
    ".//",
    "/",
    "//",
    "///etc/passwd",
    "/etc/passwd",
    "\\\\server\\share",
    "C:\\Windows",
    "C:",
    "file:///etc/passwd",
    "~",
    "~root",
    "~/.ssh/id_rsa",
    "$HOME",
    "${HOME}",
    "%USERPROFILE%",
    "/proc/self/environ",
    "/dev/zero",
    "/dev/stdin",
    "runs/../../x",
    "reverse/../copy",
    "small/..",
    "..small",
    "small/.",
    "small/config.json",
]
HIDDEN = [
    ".owner",
    ".lock",
    ".git",
    ".git/config",
    ".env",
    ".small.previous",
    ".x.tmp",
    "-rf",
    "--help",
    "-",
    "_",
    "__init__.py",
    "__pycache__",
    "config.json",
    "model.safetensors",
    "run.json",
    "metrics.jsonl",
    "rows.json",
    "history",
    "CON",
    "NUL",
    "aux.txt",
    "COM1",
    "x:y",
    "x.",
    "x ",
]
CODE = [
    "; rm -rf /",
    "| cat /etc/passwd",
    "`id`",
    "$(id)",
    "&& id",
    "' OR 1=1 --",
    '"; DROP TABLE runs; --',
    "{{7*7}}",
    "${7*7}",
    "#{7*7}",
    "{0.__class__}",
    "%s%s%s%n",
    "__import__('os').system('id')",
    "os:system",
    "playground.server.app:serve",
    "x.py:main",
    "hub:../x",
    "hub:a/b/c",
    "cos\nsystem\n(S'id'\ntR.",
    "!!python/object/apply:os.system [id]",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "tuned:../x",
    "tuned:..",
    "<?php ?>",
]
MARKUP = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "data:text/html,<b>",
    "</title><script>",
    "<!--",
    "]]>",
    "&lt;b&gt;",
    "[x](javascript:alert(1))",
    "![x](http://evil.example/x.png)",
    "<b>bold</b>",
    "' onmouseover='alert(1)",
    "</script>",
    "&#60;b&#62;",
]
TEXT = [
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "a\nb",
    "a\r\nSet-Cookie: x=1",
    "a\x00b",
    "\x00",
    "\x07",
    "\x1b[31mred",
    "\x7f",
    "\x85",
    "\xa0",
    "\u200b",
    "\u200e",
    "\u202eevil",
    "\u2028",
    "\ufeff",
    "\ufffe",
    "\ud800",
    "\udfff",
    "e\u0301",
    "Å" * 200,
    "漢字",
    "👋🏽" * 30,
    "x" * 300,
    "x" * 5000,
    "a/" * 200,
    "z̷̢" * 40,
    "İ",
    "ß",
    "１２",
    "١",
    "ﬁ",
    "a\u0000/../b",
    "null",
    "undefined",
    "NaN",
    "true",
    "0",
    "-1",
    "1e999",
    "[]",
]
NAMES = [*UP, *HIDDEN, *CODE, *MARKUP, *TEXT]
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*|\.[a-z0-9-]+|[0-9a-f]{64}")


@pytest.mark.smoke
def test_there_are_150_distinct_examples():
    assert len(NAMES) == len(set(NAMES)) == 150


def tree(folder):
    """Return all files of a folder and of its parent, with their sizes."""
    return {
        path.relative_to(folder.parent).as_posix(): path.stat().st_size if path.is_file() else None
        for path in (*folder.parent.iterdir(), *folder.rglob("*"))
    }


@pytest.fixture
def watched(server, tmp_path):  # noqa: F811
    """Yield the server, and check the folders around its own.

    No file may change except in `runs` and `rows`, under names of the server.
    """
    outside = tmp_path.parent
    before = tree(tmp_path)
    yield server
    after = tree(tmp_path)
    inside = tmp_path.relative_to(outside).as_posix()
    for path in after.keys() ^ before.keys() | {
        path for path in after.keys() & before.keys() if after[path] != before[path]
    }:
        assert path.startswith((f"{inside}/runs", f"{inside}/rows")), path
        assert all(
            SAFE.fullmatch(part) for part in path.removeprefix(inside).strip("/").split("/")
        ), path


def send(client, route, **request):
    response = client.post(API_PREFIX + route, content=json.dumps(request))
    assert response.status_code == 200
    return response.json()


def test_hostile_run_names_do_not_change_file_names(watched):
    client, _, run, owner = watched
    n_accepted = 0
    for name in NAMES:
        result = send(
            client, "runs/action", owner=owner, subject=f"run:{run.id}", action="rename", name=name
        )
        if "error" in result:
            assert len(result["error"]) < 200
            continue
        n_accepted += 1
        assert run.name.isprintable()
        assert run.name == " ".join(name.split())
        assert json.loads((run.folder / "run.json").read_text())["name"] == run.name
        token = send(
            client,
            "runs/action",
            owner=owner,
            subject=f"run:{run.id}",
            action="download",
            checkpoint=run.checkpoints()[0][0].name,
        )["ticket"]
        response = client.get(f"{CHECKPOINT_PATH}/{token}")
        assert response.status_code == 200
        assert re.fullmatch(
            r'attachment; filename="[A-Za-z0-9-]+\.zip"', response.headers["content-disposition"]
        )
    # markup and code are valid names; control characters are not
    assert 50 < n_accepted < 140


def test_hostile_upload_names_do_not_change_file_names(watched, checkpoint):  # noqa: F811
    client, registry, _, owner = watched
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in CHECKPOINT_FILES[:2]:
            archive.write(checkpoint / name, name)
    known_ids = {run.id for run in registry.list_for_owner(owner)}
    for name in NAMES[::5]:
        header = quote(name, errors="replace")[:4000]
        response = client.post(
            CHECKPOINT_PATH, content=buffer.getvalue(), headers={"x-owner": owner, "x-name": header}
        )
        assert response.status_code == 200, response.text
        (run,) = (other for other in registry.list_for_owner(owner) if other.id not in known_ids)
        assert run.name.isprintable()
        assert run.name
        known_ids.add(run.id)


def test_hostile_names_find_nothing(watched):
    client, _, run, owner = watched
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
        for action in ("download", "remove"):
            assert "error" in send(
                client,
                "runs/action",
                owner=owner,
                subject=f"run:{run.id}",
                action=action,
                checkpoint=name,
            )
        assert "error" in send(
            client, "runs/action", owner=owner, subject=f"run:{run.id}", action=name
        )
        assert "error" in send(
            client, "inspect/view", owner=owner, subject=f"run:{run.id}", view=name, text="1"
        )
        assert "error" in send(client, "datasets/action", owner=owner, action="use", sha256=name)
        assert "error" in send(client, "datasets/action", owner=name, action="list")
        assert "error" in send(client, "jobs/submit", owner=owner, kind=name)
        assert client.get(
            f"{CHECKPOINT_PATH}/{quote(name, safe='', errors='replace')}"
        ).status_code in (404, 405)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zip_members_are_not_extracted_outside_of_the_folder(watched, tmp_path):
    for number, name in enumerate(NAMES):
        folder = tmp_path / "runs" / f"unpacked{number}"
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / "packed", "w") as archive, suppress(ValueError, IndexError):
            archive.writestr(name + "/config.json", b"{}")
            archive.writestr(name.replace("/", "") + "\\..\\model.safetensors", b"x")
            archive.writestr(name, b"x")
        # test_checkpoint_transfer.py tests which files are rejected, and how
        with suppress(Exception):
            extract_checkpoint(folder / "packed", folder / "inside")
        assert {path.relative_to(folder).as_posix() for path in folder.rglob("*")} <= {
            "packed",
            "inside",
            *(f"inside/{f}" for f in CHECKPOINT_FILES),
        }


@pytest.mark.smoke
def test_invalid_repository_names_and_revisions_cause_no_request(watched, tmp_path, monkeypatch):
    requested_paths = []
    hub = Hub("", "http://127.0.0.1:9")
    monkeypatch.setattr(Hub, "_get", lambda self, path, _: requested_paths.append(path) or {})
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    (tmp_path / "runs" / "push").mkdir()
    for name, repo in itertools.product(NAMES, (True, False)):
        arguments = (name,) if repo else ("ada/x", name)
        calls = [partial(hub.repo_info, *arguments), partial(hub.revisions, *arguments)]
        calls.append(
            partial(hub.plan, tmp_path / "runs" / "push", name)
            if repo
            else partial(hub.raw_repo_info, *arguments)
        )
        for call in calls:
            before = len(requested_paths)
            with suppress(HubError):
                call()
            is_valid = is_repo(name) if repo else is_revision(name)
            assert is_valid or len(requested_paths) == before, name
    assert all(
        re.fullmatch(r"[A-Za-z0-9%._/+@-]+", path) and ".." not in path and "//" not in path
        for path in requested_paths
    )
    # a valid repository id, and some names are valid branches
    assert [name for name in NAMES if is_repo(name)] == ["small/config.json"]
    assert sum(map(is_revision, NAMES)) < 25


def test_hostile_names_are_no_dataset_or_model(watched, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_LOCAL_MODELS", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in NAMES:
        with pytest.raises(DatasetError):
            next(stream_hub_columns(name, (), lambda names, _: names))
        with suppress(NoModel):
            assert re.fullmatch(r"[\w.-]+(/[\w.-]+)?", validate_name(name), re.ASCII)
        with pytest.raises(DatasetError):
            from_cli_argument(f"hub:{name}")
        for read in (load_metadata, load_pairs):
            with pytest.raises((DatasetError, ValueError)):
                read(name)


def test_datasets_with_hostile_symbols_are_rejected_or_stored_by_hash(watched, tmp_path):
    n_stored = 0
    for name in NAMES:
        with suppress(DatasetError):
            rows = from_text(
                "".join(f"{name} a{n}\t{name} b{n % 7}\n" for n in range(100)), split_on_spaces=True
            )
            content = store(rows)
            n_stored += 1
            assert (tmp_path / "rows" / content / "rows.json").is_file()
            assert all(symbol.isprintable() and not symbol.isspace() for symbol in rows.vocabulary)
            assert load_pairs(content).vocabulary == rows.vocabulary
            assert RunConfig.from_flat(rows.task_settings()).task.load()
        with pytest.raises(ValueError, match="dataset_sha256"):
            RunConfig.from_flat(
                {"task": "dataset", "dataset_sha256": name, "dataset_symbols": "a b"}
            )
    assert 40 < n_stored < 140


def test_a_link_with_markup_shows_it_escaped(watched):
    _, registry, _, _ = watched

    # run in an event loop that is closed afterwards: Gradio does not close its own
    async def open_links():
        page = build_app(registry, Endpoints(registry, {}, is_public=False))
        on_load = next(
            item.fn for item in page.fns.values() if getattr(item.fn, "__name__", "") == "on_load"
        )
        expected = [
            name.encode("utf-8", "replace").decode() for name in NAMES
        ]  # as decoded from a query
        queries = [
            {"inspect": item, "settings": json.dumps({item: 1}), "watch": item} for item in expected
        ]
        without_cookies = Request({"type": "http", "headers": []})
        return [
            (
                query["inspect"],
                on_load(
                    query["inspect"], SimpleNamespace(query_params=query, request=without_cookies)
                ),
            )
            for query in queries
        ]

    result = run_in_thread(open_links())
    for expected, (*views, inspect, live, problem) in (
        (expected, values[:7]) for expected, values in result
    ):
        assert json.loads(inspect)["link"] == expected
        assert json.loads(live)["subject"] == ""  # the page reads the link
        assert all(set(json.loads(view)) == {"owner"} for view in views)
        assert problem.startswith("The form ignores the settings of this link")
        assert not set("<>\"'") & set(problem)


ROUTES = (
    "runs/poll",
    "runs/predict",
    "runs/details",
    "inspect/view",
    "runs/action",
    "hub/submit",
    "jobs/submit",
    "experiments/submit",
)


def test_responses_contain_no_path_of_the_server(watched):
    client, _, run, owner = watched
    root_path = os.fspath(run.folder.parent.parent)
    for name, route in zip(NAMES, itertools.cycle(ROUTES), strict=False):
        result = json.dumps(
            send(
                client,
                route,
                owner=owner,
                subject=f"checkpoint:{name}",
                text=name,
                action=name,
                kind=name,
                repo=name,
            )
        )
        assert root_path not in result
        assert "root:" not in result
