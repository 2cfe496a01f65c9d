"""The endpoints of the fake Hub that read: accounts, metadata, lists and files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

from .storage import signed_url
from .store import Account, Commit, Repo, git_hash
from .wire import HubError, Request, Response, error_response, json_response, range_response

if TYPE_CHECKING:
    from .hub import FakeHub


def find_repo(hub: FakeHub, request: Request, kinds: str | None, id: str) -> Repo:
    """Return a repository; those that the account of a request cannot read are hidden."""
    account = hub.account(request)
    repo = hub.repos.get(((kinds or "models").rstrip("/").removesuffix("s"), id))
    if repo is None or not repo.is_readable_by(account):
        raise HubError(404 if account else 401, code="RepoNotFound")
    return repo


def find_commit(repo: Repo, revision: str) -> Commit:
    if commit := repo.find_commit(unquote(revision)):
        return commit
    raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")


def whoami(hub: FakeHub, request: Request) -> Response:
    account = hub.account(request)
    if account is None:
        raise HubError(401)
    orgs = [{"name": name, "roleInOrg": role} for name, role in account.orgs.items()]
    auth = {"type": "access_token", "accessToken": {"role": account.role}}
    return json_response({"type": "user", "name": account.name, "orgs": orgs, "auth": auth})


def listing(hub: FakeHub, request: Request, kinds: str) -> Response:
    account = hub.account(request)
    repos = [
        repo.to_json(repo.head)
        for repo in hub.repos.values()
        if repo.kind == kinds.removesuffix("s") and repo.is_readable_by(account)
    ]
    tags = set(request.query.get("filter", []))
    repos = [repo for repo in repos if tags <= set(repo["tags"])]
    repos.sort(key=lambda repo: (repo["likes"], repo["createdAt"]), reverse=True)
    fields = {"id", *request.query.get("expand", [])}
    entries = [{key: value for key, value in repo.items() if key in fields} for repo in repos]
    return json_response(entries[: int(request.first("limit", "0")) or None])


def info(hub: FakeHub, request: Request, kinds: str, id: str, revision: str | None) -> Response:
    repo = find_repo(hub, request, kinds, id)
    return json_response(
        repo.to_json(find_commit(repo, revision or "main"), blobs=request.is_set("blobs"))
    )


def tree_entries(commit: Commit) -> dict[str, dict]:
    """Return every file and folder of a commit, by path, in the format of a tree."""
    entries: dict[str, dict] = {}
    for path, blob in commit.files.items():
        for folder in [str(parent) for parent in Path(path).parents][:-1]:
            oid = git_hash(f"{commit.oid} {folder}".encode())
            entries[folder] = {"type": "directory", "oid": oid, "size": 0, "path": folder}
        entries[path] = {"type": "file", "oid": blob.oid, "size": len(blob.data), "path": path}
        if blob.lfs:
            entries[path]["lfs"] = blob.lfs_fields()
    return entries


def tree(
    hub: FakeHub, request: Request, kinds: str, id: str, revision: str, folder: str | None
) -> Response:
    repo = find_repo(hub, request, kinds, id)
    entries, folder = tree_entries(find_commit(repo, revision)), unquote(folder or "").strip("/")
    if folder and entries.get(folder, {}).get("type") != "directory":
        raise HubError(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
    prefix = f"{folder}/" if folder else ""
    listed = [entry for path, entry in sorted(entries.items()) if path.startswith(prefix)]
    if not request.is_set("recursive"):
        listed = [entry for entry in listed if "/" not in entry["path"].removeprefix(prefix)]
    return json_response(listed)


def paths_info(hub: FakeHub, request: Request, kinds: str, id: str, revision: str) -> Response:
    repo = find_repo(hub, request, kinds, id)
    paths = parse_qs(request.body.decode()).get("paths", [])
    entries = tree_entries(find_commit(repo, revision))
    return json_response([entries[path] for path in paths if path in entries])


def resolve(
    hub: FakeHub, request: Request, kinds: str | None, id: str, revision: str, path: str
) -> Response:
    repo = find_repo(hub, request, kinds, id)
    commit = find_commit(repo, revision)
    _ensure_gate_access(repo, hub.account(request))
    headers = {"X-Repo-Commit": commit.oid}
    blob = commit.files.get(path)
    if blob is None:
        missing = error_response(request, HubError(404, "Entry not found", "EntryNotFound"))
        missing.headers |= headers
        return missing
    headers["ETag"] = f'"{blob.oid}"'
    if not blob.lfs:
        return range_response(request, blob.data, headers)
    headers |= {"X-Linked-ETag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.data))}
    headers["Location"] = signed_url(hub, "GET", repo, blob.sha256)
    return Response(302, b"Found. Redirecting", headers)


def _ensure_gate_access(repo: Repo, account: Account | None) -> None:
    if repo.gated and not repo.is_of_member(account):
        message = f"Access to {repo.kind} {repo.id} is restricted"
        raise HubError(403 if account else 401, message, "GatedRepo")
