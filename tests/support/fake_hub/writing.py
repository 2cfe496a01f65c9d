"""The endpoints of the fake Hub that write: repositories, uploads and commits."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .reading import find_repo
from .storage import signed_url
from .store import KINDS, WRITERS, Account, Blob, Repo, git_hash, is_lfs_file, read_card
from .wire import HubError, Request, Response, json_response

if TYPE_CHECKING:
    from .hub import FakeHub


def find_writer(hub: FakeHub, request: Request, namespace: str) -> Account:
    """Return the account of a request; raise HubError if it cannot write to a namespace."""
    account = hub.account(request)
    if account is None:
        raise HubError(401)
    if account.role not in WRITERS:
        raise HubError(403)
    if not account.can_write(namespace):
        raise HubError(403, f"You don't have the rights to write under {namespace}")
    return account


def writable_repo(hub: FakeHub, request: Request, kinds: str | None, id: str) -> Repo:
    repo = find_repo(hub, request, kinds, id)
    find_writer(hub, request, repo.namespace)
    return repo


def validate_yaml(hub: FakeHub, request: Request) -> Response:
    hub.account(request)
    _, errors, warnings = read_card(request.json()["content"].encode())
    messages = {
        "errors": [{"message": text} for text in errors],
        "warnings": [{"message": text} for text in warnings],
    }
    return json_response(messages, 400 if errors else 200)


def create(hub: FakeHub, request: Request) -> Response:
    body, account = request.json(), hub.account(request)
    if account is None:
        raise HubError(401)
    kind, name = body.get("type") or "model", str(body.get("name"))
    if kind not in KINDS or not re.fullmatch(r"[\w.-]{1,96}", name, re.ASCII):
        raise HubError(400, "Invalid repo name or type")
    namespace = body.get("organization") or account.name
    find_writer(hub, request, namespace)
    id = f"{namespace}/{name}"
    url = f"{hub.url}/{'' if kind == 'model' else kind + 's/'}{id}"
    if (kind, id) in hub.repos:
        raise HubError(409, f"You already created this {kind} repo: {id}", url=url)
    private = body.get("visibility") == "private" or bool(body.get("private"))
    hub.repos[kind, id] = Repo(kind, id, account.name, private)
    return json_response({"url": url, "name": id, "id": git_hash(id.encode())[:24]})


def find_branch(repo: Repo, revision: str) -> str:
    """Return the branch that receives a commit."""
    if (name := unquote(revision)) not in repo.branches:
        raise HubError(404, f"Invalid rev id: {name}", "RevisionNotFound")
    return name


def preupload(hub: FakeHub, request: Request, kinds: str, id: str, revision: str) -> Response:
    repo = writable_repo(hub, request, kinds, id)
    existing = repo.commits[repo.branches[find_branch(repo, revision)]].files
    results = []
    for file in request.json()["files"]:
        old, path = existing.get(file["path"]), file["path"]
        oid = None if old is None else old.sha256 if old.lfs else old.oid
        mode = "lfs" if is_lfs_file(path, file["size"]) else "regular"
        results.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
    return json_response({"files": results})


def batch(hub: FakeHub, request: Request, kinds: str | None, id: str) -> Response:
    repo = writable_repo(hub, request, kinds, id)
    objects = []
    for item in request.json()["objects"]:
        upload = {"href": signed_url(hub, "PUT", repo, item["oid"]), "header": {}}
        actions = {} if item["oid"] in repo.objects else {"actions": {"upload": upload}}
        objects.append({"oid": item["oid"], "size": item["size"]} | actions)
    return json_response({"transfer": "basic", "objects": objects})


def commit(hub: FakeHub, request: Request, kinds: str, id: str, revision: str) -> Response:
    repo = writable_repo(hub, request, kinds, id)
    name = find_branch(repo, revision)
    lines = [json.loads(line) for line in request.body.splitlines() if line]
    (header,) = [line["value"] for line in lines if line["key"] == "header"]
    tip = repo.branches[name]
    if header.get("parentCommit") not in (None, tip):
        raise HubError(412)
    files = dict(repo.commits[tip].files)
    for line in lines:
        if line["key"] != "header":
            _apply_operation(repo, files, line["key"], line["value"])
    if (readme := files.get("README.md")) and (errors := read_card(readme.data)[1]):
        raise HubError(400, f"Invalid metadata in README.md: {'; '.join(errors)}")
    author = find_writer(hub, request, repo.namespace).name
    done = repo.commit(name, files, header["summary"], author)
    url = f"{hub.url}/{'' if repo.kind == 'model' else repo.kind + 's/'}{id}/commit/{done.oid}"
    return json_response({"success": True, "commitOid": done.oid, "commitUrl": url})


def _apply_operation(repo: Repo, files: dict[str, Blob], key: str, value: dict) -> None:
    """Apply one operation of a commit to the files of the commit before."""
    path = value["path"]
    if any(part in ("", ".", "..", ".git") for part in path.split("/")):
        raise HubError(400, f"Invalid path: {path}")
    if key == "file":
        files[path] = Blob(base64.b64decode(value["content"]), lfs=False)
    elif key == "lfsFile":
        if value["oid"] not in repo.objects:
            raise HubError(400, "Your push was rejected: an LFS pointer's file does not exist.")
        files[path] = Blob(repo.objects[value["oid"]], lfs=True)
    elif key == "deletedFile":
        if files.pop(path, None) is None:
            raise HubError(404, "A file with this name doesn't exist", "EntryNotFound")
    else:
        raise HubError(400, f"Invalid commit: unknown operation {key}")
