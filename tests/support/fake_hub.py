"""A fake Hugging Face Hub for tests: the HTTP API of huggingface_hub 2.4, with faults.

    with FakeHub() as hub:
        api = HfApi(endpoint=hub.url, token=hub.ADA)
        hub.put("ben/counting", {"README.md": b"...", "model.safetensors": weights})
        with hub.fault(hub.COMMIT, 503, times=1): ...  # the next commit fails
        with hub.record_requests() as requests: ...
        assert not hub.requests_with(hub.OWNER)  # this token was never sent

As on the real Hub, another host stores the LFS files and receives no token: the Hub is `127.0.0.1`,
the storage is `localhost`, and the storage rejects a request with a token and a signed URL. The
client treats some errors differently over https (a 401 for a repository is a
RepositoryNotFoundError); for these, the fake Hub sends the `X-Error-Code` with the same effect.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import select
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.fake_hub_store import (
    KINDS,
    LFS_SUFFIXES,
    WRITERS,
    Blob,
    Commit,
    Repo,
    Token,
    User,
    card_data,
    format_timestamp,
    git_hash,
)

ANONYMOUS_MESSAGE = "Invalid username or password."
INVALID_TOKEN_MESSAGE = "Invalid credentials in Authorization header"
MESSAGE_BY_STATUS = {
    401: ANONYMOUS_MESSAGE,
    403: "Forbidden: you must use a write token to upload to a repository.",
    404: "Repository not found",
    409: "Another operation is in progress",
    412: "A commit has happened since. Please refresh and try again.",
    429: "We had to rate limit your IP. To continue using our service, create a HF account or "
    "login.",
    500: "Internal Error - We're working hard to fix this as soon as possible!",
    503: "Service Unavailable",
}
LFS_MIN_BYTES = 10_000_000  # larger files are stored in LFS
DROP_KINDS = ("reset", "silent", "lost", "hang", "cut")
# paths where a 401 means that the repository is missing
_REPO_PATH = re.compile(r"/api/(models|datasets|spaces)/|/resolve/")


@dataclass
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class HubError(Exception):
    """An error response, with the message and the code that the client reads."""

    def __init__(self, status: int, message: str = "", code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.fields = (
            status,
            message or MESSAGE_BY_STATUS.get(status, "Error"),
            code,
            fields,
        )


class ConnectionDropped(Exception):
    """Close this connection without another response."""


@dataclass
class Request:
    """A received request.

    `path` is unquoted and has no query; `status` is 0 until the response.
    """

    method: str
    path: str
    query: dict[str, list[str]]
    host: str
    headers: dict[str, str]
    body: bytes = b""
    status: int = 0

    @property
    def authorization(self) -> str:
        return self.headers.get("authorization", "")

    @property
    def token(self) -> str:
        """Return the token of the request, or an empty string."""
        return self.authorization.removeprefix("Bearer ").strip()

    def first(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    def __contains__(self, text: str) -> bool:
        """Return whether `text` is anywhere in the request."""
        parts = [
            self.path,
            self.host,
            *self.headers,
            *self.headers.values(),
            *(v for values in self.query.values() for v in values),
        ]
        return any(text in part for part in parts) or text.encode() in self.body


@dataclass
class Fault:
    """A fault of the requests that match `pattern` and `method`, at most `times` times.

    As a context manager, it ends with the block.
    """

    pattern: re.Pattern[str]
    kind: int | str
    times: int | None
    method: str
    headers: dict[str, str]
    message: str
    page: bool
    seconds: float
    hits: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()

    def matches(self, method: str, path: str) -> bool:
        is_active = not self.ended.is_set() and (self.times is None or self.hits < self.times)
        return is_active and self.method in ("", method) and bool(self.pattern.search(path))


class FakeHub:
    """The Hub, with four users.

    Ada and Ben are members of the organization `attention`, where Ben has read access only. Cy is
    not a member. No test may send the token of the owner.
    """

    ADA = "hf_StandInTokenOfAdaWhoWrites"
    ADA_READS = "hf_StandInTokenOfAdaWhoReads"
    BEN = "hf_StandInTokenOfBenWhoWrites"
    CY = "hf_StandInTokenOfCyTheOutsider"
    EXPIRED = "hf_StandInTokenOfAdaLongExpired"
    # the HF_TOKEN of a Space: no request of a user may contain it
    OWNER = "hf_StandInTokenOfTheOwnerCanary"
    UNKNOWN = "hf_StandInTokenThatNobodyHas"

    # Patterns of paths for `fault`.
    WHOAMI = r"^/api/whoami-v2$"
    CREATE = r"^/api/repos/create$"
    PREUPLOAD = r"/preupload/"
    BATCH = r"/info/lfs/objects/batch$"
    UPLOAD = r"^/storage/"  # with method="PUT"
    COMMIT = r"^/api/.+/commit/"
    LIST = r"^/api/(models|datasets|spaces)$"
    INFO = r"^/api/(models|datasets|spaces)/[^/]+/[^/]+(/revision/.+)?$"
    RESOLVE = r"/resolve/"
    STORAGE = r"^/storage/"  # with method="GET"
    ANY_PATH = r""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.tokens: dict[str, Token] = {}
        self.repos: dict[tuple[str, str], Repo] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.secret = secrets.token_bytes(16)
        self.lock = threading.RLock()
        self.add_user("ada", self.ADA, attention="admin")
        self.add_token("ada", self.ADA_READS, role="read")
        self.add_token("ada", self.EXPIRED, expired=True)
        self.add_user("ben", self.BEN, attention="read")
        self.add_user("cy", self.CY)
        self.add_user("owner", self.OWNER)
        self.server = _Server(self)
        self.port: int = self.server.server_address[1]
        self.host, self.storage_host = f"127.0.0.1:{self.port}", f"localhost:{self.port}"
        self.url, self.storage_url = f"http://{self.host}", f"http://{self.storage_host}"
        self.thread = threading.Thread(
            target=self.server.serve_forever, args=(0.02,), name="fake-hub", daemon=True
        )
        self.thread.start()

    def __enter__(self) -> FakeHub:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every connection, including those that a fault blocks, and refuse new ones."""
        self.clear_faults()
        self.server.shutdown()
        self.server.server_close()
        self.server.close_connections()
        self.thread.join()

    # Setup

    def add_user(self, name: str, token: str, **orgs: str) -> User:
        """Add a user with a write token.

        `orgs` are the roles (admin, write or read) by organization.
        """
        with self.lock:
            self.users[name] = User(name, orgs)
            self.add_token(name, token)
            return self.users[name]

    def add_token(self, name: str, value: str, role: str = "write", expired: bool = False) -> Token:
        """Add another token of a user.

        `hub.tokens.pop(value)` revokes it, and `.expired` may be set at any time.
        """
        with self.lock:
            self.tokens[value] = Token(value, self.users[name], role, expired)
            return self.tokens[value]

    def put(
        self,
        id: str,
        files: dict[str, bytes | str | None],
        kind: str = "model",
        revision: str = "main",
        message: str = "Upload",
        **settings: object,
    ) -> str:
        """Commit files without a client; create the repository if missing; return the commit id.

        A content of None deletes a file. `settings` are attributes of the repository: private,
        gated ("auto" or "manual"), likes.
        """
        with self.lock:
            repo = self.repos.get((kind, id)) or Repo(kind, id, id.split("/")[0])
            self.repos[kind, id] = repo
            for name, value in settings.items():
                if not hasattr(repo, name):
                    raise AttributeError(f"a repository has no {name}")
                setattr(repo, name, value)
            tree = dict((repo.find_commit(revision) or repo.head).files)
            for path, content in files.items():
                tree.pop(path, None)
                if content is not None:
                    data = content.encode() if isinstance(content, str) else content
                    tree[path] = blob = Blob(data, self._is_lfs_file(path, len(data)))
                    repo.objects |= {blob.sha256: data} if blob.lfs else {}
            return repo.commit(revision, tree, message, "", id.split("/")[0]).oid

    def repo(self, id: str, kind: str = "model") -> Repo:
        """Return a repository, with `.head.files`, `.branches`, `.likes`, ...."""
        return self.repos[kind, id]

    def files(self, id: str, revision: str = "main", kind: str = "model") -> dict[str, bytes]:
        """Return the files of a revision, without the .gitattributes of the Hub."""
        commit = self.repos[kind, id].find_commit(revision)
        if commit is None:
            raise KeyError(f"{id} has no revision {revision}")
        return {path: blob.data for path, blob in commit.files.items() if path != ".gitattributes"}

    def clear(self) -> None:
        """Delete all repositories, requests and faults; keep the users and their tokens."""
        self.clear_faults()
        with self.lock:
            self.repos.clear()
            self.requests.clear()

    def fault(
        self,
        pattern: str,
        kind: int | str,
        times: int | None = None,
        method: str = "",
        retry_after: int | None = None,
        message: str = "",
        page: bool = False,
        seconds: float = 0,
    ) -> Fault:
        """Add a fault of the next `times` requests whose path contains `pattern` (None: of all).

        `kind` is one of:
        - an HTTP status: the error response has `message`. A 429 has
          `Retry-After: 86400` unless `retry_after` is set (0: no header). With `page`, the body is
          the HTML page of a gateway.
        - "reset": reset the connection before reading the request.
        - "silent": read the request, and send no response.
        - "lost": process the request, and reset the connection instead of a response.
        - "hang": process the request, and stop in the middle of the response.
        - "cut": process the request, and close the connection in the middle of the response.
        - "slow": respond after `seconds`.

        The newest matching fault applies. `.hits` counts its requests. It ends with its `with`
        block, or with `clear_faults()`.
        """
        if not (isinstance(kind, int) and 400 <= kind < 600) and kind not in (*DROP_KINDS, "slow"):
            raise ValueError(
                f"a fault is a status from 400 to 599 or one of {', '.join(DROP_KINDS)}, slow; not "
                f"{kind!r}"
            )
        wait = 86400 if retry_after is None and kind == 429 else retry_after
        headers = {"Retry-After": str(wait)} if wait else {}
        fault = Fault(re.compile(pattern), kind, times, method, headers, message, page, seconds)
        with self.lock:
            self.faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        """End all faults, and close the connections that they block."""
        with self.lock:
            for fault in self.faults:
                fault.ended.set()
            self.faults.clear()

    # State for assertions

    @contextlib.contextmanager
    def record_requests(self) -> Iterator[list[Request]]:
        """Yield a list, filled with the requests of the block when it ends."""
        recorded: list[Request] = []
        with self.lock:
            first = len(self.requests)
        try:
            yield recorded
        finally:
            with self.lock:
                recorded.extend(self.requests[first:])

    def requests_with(self, secret: str) -> list[Request]:
        """Return every request that contains a text in its address, headers or body."""
        with self.lock:
            return [request for request in self.requests if secret in request]

    def received_tokens(self) -> set[str]:
        """Return every token of an Authorization header, on either host."""
        with self.lock:
            return {request.token for request in self.requests if request.authorization}

    def environment(self, home: Path, token: str = "", **variables: str) -> dict[str, str]:
        """Return the variables of a process that uses this Hub.

        For example, `os.environ | hub.environment(tmp_path)`.
        """
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_TOKEN_PATH": str(home / "token"),
            "HF_TOKEN": token,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        } | variables

    # Responses

    def handle(self, request: Request) -> Response:
        """Process a request."""
        try:
            if request.host == self.storage_host:
                return self._storage(request)
            if request.host != self.host:
                raise HubError(404, f"no host {request.host} here")
            for methods, pattern, handler in self.ROUTES:
                if request.method in methods and (match := pattern.fullmatch(request.path)):
                    with self.lock:
                        return handler(self, request, *match.groups())
            raise HubError(404, "Sorry, we can't find the page you are looking for.")
        except HubError as error:
            return error_response(request, error)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            return error_response(request, HubError(400, f"Malformed request: {error!r}"))

    def next_fault(self, method: str, path: str) -> Fault | None:
        """Return the fault that applies to a request, and count it."""
        with self.lock:
            for fault in reversed(self.faults):
                if fault.matches(method, path):
                    fault.hits += 1
                    return fault
        return None

    def _is_lfs_file(self, path: str, size: int) -> bool:
        return size > 0 and (path.endswith(LFS_SUFFIXES) or size >= LFS_MIN_BYTES)

    def _token(self, request: Request) -> Token | None:
        """Return the token of a request, None without one; raise HubError for an invalid one."""
        if not request.authorization:
            return None
        token = self.tokens.get(request.token)
        if token is None:
            raise HubError(401, INVALID_TOKEN_MESSAGE)
        if token.expired:
            raise HubError(401, f'User Access Token "{token.display}" is expired')
        return token

    def _find_repo(self, request: Request, kinds: str | None, id: str) -> tuple[Repo, Token | None]:
        """Return a repository and the account of a request; others' private ones are hidden."""
        token = self._token(request)
        repo = self.repos.get(((kinds or "models").rstrip("/").removesuffix("s"), id))
        if repo is None or (repo.private and not self._member(repo, token)):
            raise HubError(
                404 if token else 401, MESSAGE_BY_STATUS[404 if token else 401], "RepoNotFound"
            )
        return repo, token

    def _member(self, repo: Repo, token: Token | None) -> bool:
        return token is not None and repo.namespace in (token.user.name, *token.user.orgs)

    def _find_commit(self, repo: Repo, revision: str) -> Commit:
        if commit := repo.find_commit(unquote(revision)):
            return commit
        raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def _ensure_can_write(self, token: Token | None, namespace: str) -> Token:
        if token is None:
            raise HubError(401)
        if token.role not in WRITERS:
            raise HubError(403)
        if namespace != token.user.name and token.user.orgs.get(namespace) not in WRITERS:
            raise HubError(
                403, f'You don\'t have the rights to write under the namespace "{namespace}"'
            )
        return token

    def _writable_repo(self, request: Request, kinds: str | None, id: str) -> tuple[Repo, Token]:
        repo, token = self._find_repo(request, kinds, id)
        return repo, self._ensure_can_write(token, repo.namespace)

    def whoami(self, request: Request) -> Response:
        token = self._token(request)
        if token is None:
            raise HubError(401)
        name = token.user.name
        orgs = [
            {
                "type": "org",
                "id": git_hash(org.encode())[:24],
                "name": org,
                "fullname": org.title(),
                "roleInOrg": role,
                "isEnterprise": False,
            }
            for org, role in token.user.orgs.items()
        ]
        access = {
            "displayName": token.display,
            "role": token.role,
            "createdAt": "2026-01-01T00:00:00.000Z",
        }
        return json_response(
            {
                "type": "user",
                "id": git_hash(name.encode())[:24],
                "name": name,
                "fullname": name.title(),
                "avatarUrl": f"{self.url}/avatars/{name}.svg",
                "isPro": False,
                "canPay": False,
                "orgs": orgs,
                "auth": {"type": "access_token", "accessToken": access},
            }
        )

    def validate_yaml(self, request: Request) -> Response:
        self._token(request)
        _, errors, warnings = card_data(json_body(request)["content"])
        messages = {
            "errors": [{"message": text} for text in errors],
            "warnings": [{"message": text} for text in warnings],
        }
        return json_response(messages, 400 if errors else 200)

    def create(self, request: Request) -> Response:
        body, token = json_body(request), self._token(request)
        kind = body.get("type") or "model"
        if token is None:
            raise HubError(401)
        namespace, name = body.get("organization") or token.user.name, body.get("name")
        if (
            kind not in KINDS
            or not isinstance(name, str)
            or not re.fullmatch(r"[\w.-]{1,96}", name, re.ASCII)
        ):
            raise HubError(400, "Invalid repo name or type")
        self._ensure_can_write(token, namespace)
        id = f"{namespace}/{name}"
        url = f"{self.url}/{'' if kind == 'model' else kind + 's/'}{id}"
        if (kind, id) in self.repos:
            raise HubError(409, f"You already created this {kind} repo: {id}", url=url)
        private = body.get("visibility") == "private" or bool(body.get("private"))
        self.repos[kind, id] = Repo(kind, id, token.user.name, private)
        return json_response({"url": url, "name": id, "id": git_hash(id.encode())[:24]})

    def listing(self, request: Request, kinds: str) -> Response:
        token, kind = self._token(request), kinds.removesuffix("s")
        repos = []
        for repo in self.repos.values():
            if repo.kind != kind or (repo.private and not self._member(repo, token)):
                continue
            labels = repo.labels()
            if all(label in labels for label in request.query.get("filter", [])):
                repos.append(repo.to_json(repo.head))
        repos.sort(key=lambda repo: (repo["likes"], repo["createdAt"]), reverse=True)
        fields = {"_id", "id", *request.query.get("expand", [])}
        entries = [{key: value for key, value in repo.items() if key in fields} for repo in repos]
        return json_response(entries[: int(request.first("limit", "0")) or None])

    def info(self, request: Request, kinds: str, id: str, revision: str | None) -> Response:
        repo, _ = self._find_repo(request, kinds, id)
        fields = repo.to_json(
            self._find_commit(repo, revision or "main"), blobs=is_true(request.first("blobs"))
        )
        if expand := request.query.get("expand"):
            return json_response(
                {key: value for key, value in fields.items() if key in {"_id", "id", *expand}}
            )
        return json_response(fields)

    def _entries(self, repo: Repo, commit: Commit, expand: bool) -> dict[str, dict]:
        """Return every file and folder of a commit, by path, in the format of a tree."""
        entries: dict[str, dict] = {}
        for path, blob in commit.files.items():
            for folder in [str(parent) for parent in Path(path).parents][:-1]:
                entries[folder] = {
                    "type": "directory",
                    "oid": git_hash(f"{commit.oid} {folder}".encode()),
                    "size": 0,
                    "path": folder,
                }
            entries[path] = {"type": "file", "oid": blob.oid, "size": len(blob.data), "path": path}
            if blob.lfs:
                entries[path]["lfs"] = blob.lfs_fields()
        if expand:
            for path, entry in entries.items():
                entry["lastCommit"] = self._last_change(repo, commit, path)
                if entry["type"] == "file":
                    entry["securityFileStatus"] = {
                        "status": "safe",
                        "avScan": {"status": "safe"},
                        "pickleImportScan": None,
                    }
        return entries

    def _last_change(self, repo: Repo, commit: Commit, path: str) -> dict[str, str]:
        def content(commit: Commit) -> list[tuple[str, str]]:
            return [
                (name, blob.oid)
                for name, blob in commit.files.items()
                if name == path or name.startswith(path + "/")
            ]

        history = repo.history(commit)
        last = next(
            (new for new, old in pairwise(history) if content(new) != content(old)), history[-1]
        )
        return {"id": last.oid, "title": last.title, "date": format_timestamp(last.date)}

    def tree(
        self, request: Request, kinds: str, id: str, revision: str, folder: str | None
    ) -> Response:
        repo, _ = self._find_repo(request, kinds, id)
        commit, folder = self._find_commit(repo, revision), unquote(folder or "").strip("/")
        entries = self._entries(repo, commit, is_true(request.first("expand")))
        if folder and entries.get(folder, {}).get("type") != "directory":
            raise HubError(404, f"{folder} does not exist on {revision!r}", "EntryNotFound")
        entries_of_folder = [
            entry
            for path, entry in sorted(entries.items())
            if path.startswith(folder + "/" if folder else "")
        ]
        if not is_true(request.first("recursive")):
            depth = folder.count("/") + 1 if folder else 0
            entries_of_folder = [
                entry for entry in entries_of_folder if entry["path"].count("/") == depth
            ]
        return json_response(entries_of_folder)

    def paths_info(self, request: Request, kinds: str, id: str, revision: str) -> Response:
        repo, _ = self._find_repo(request, kinds, id)
        form = parse_qs(request.body.decode())
        entries = self._entries(
            repo, self._find_commit(repo, revision), is_true(form.get("expand", [""])[0])
        )
        return json_response([entries[path] for path in form.get("paths", []) if path in entries])

    def refs(self, request: Request, kinds: str, id: str) -> Response:
        repo, _ = self._find_repo(request, kinds, id)
        branches = [
            {"name": name, "ref": f"refs/heads/{name}", "targetCommit": oid}
            for name, oid in repo.branches.items()
        ]
        return json_response({"branches": branches, "tags": [], "converts": [], "pullRequests": []})

    def history(self, request: Request, kinds: str, id: str, revision: str) -> Response:
        repo, _ = self._find_repo(request, kinds, id)
        commits = [
            {
                "id": c.oid,
                "title": c.title,
                "message": c.message,
                "date": format_timestamp(c.date),
                "authors": [{"user": c.author}],
            }
            for c in repo.history(self._find_commit(repo, revision))
        ]
        return json_response(commits)

    def branch(self, request: Request, kinds: str, id: str, name: str) -> Response:
        repo, _ = self._writable_repo(request, kinds, id)
        name = unquote(name)
        if name.startswith("refs/"):
            raise HubError(400, f"Invalid reference for a branch: {name}")
        if name in repo.branches:
            raise HubError(409, f"Reference already exists: refs/heads/{name}")
        start = json_body(request).get("startingPoint") if request.body else None
        repo.branches[name] = self._find_commit(repo, start or "main").oid
        return json_response({})

    def _branch(self, repo: Repo, revision: str) -> str:
        """Return the branch that receives a commit."""
        if (name := unquote(revision)) not in repo.branches:
            raise HubError(404, f"Invalid rev id: {name}", "RevisionNotFound")
        return name

    def preupload(self, request: Request, kinds: str, id: str, revision: str) -> Response:
        repo, _ = self._writable_repo(request, kinds, id)
        existing = repo.commits[repo.branches[self._branch(repo, revision)]].files
        results = []
        for file in json_body(request)["files"]:
            old = existing.get(file["path"])
            oid = None if old is None else old.sha256 if old.lfs else old.oid
            mode = "lfs" if self._is_lfs_file(file["path"], file["size"]) else "regular"
            results.append(
                {"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": oid}
            )
        return json_response({"files": results})

    def batch(self, request: Request, kinds: str | None, id: str) -> Response:
        repo, _ = self._writable_repo(request, kinds, id)
        objects = []
        for object_info in json_body(request)["objects"]:
            oid, size = object_info["oid"], object_info["size"]
            objects.append({"oid": oid, "size": size})
            if oid not in repo.objects:
                upload, verify = (
                    self._signed("PUT", repo, oid),
                    f"{self.url}/{kinds or ''}{id}.git/info/lfs/objects/verify",
                )
                objects[-1]["actions"] = {
                    "upload": {"href": upload, "header": {}},
                    "verify": {"href": verify, "header": {}},
                }
        return json_response({"transfer": "basic", "objects": objects})

    def verify(self, request: Request, kinds: str | None, id: str) -> Response:
        repo, _ = self._writable_repo(request, kinds, id)
        body = json_body(request)
        if len(repo.objects.get(body["oid"], b"")) != body["size"]:
            raise HubError(404, "Object not found, or not of this size")
        return json_response({})

    def commit(self, request: Request, kinds: str, id: str, revision: str) -> Response:
        repo, token = self._writable_repo(request, kinds, id)
        branch = self._branch(repo, revision)
        try:
            lines = [json.loads(line) for line in request.body.splitlines() if line]
            (header,) = [line["value"] for line in lines if line["key"] == "header"]
        except (KeyError, TypeError, ValueError):
            raise HubError(
                400, "Invalid commit: one header and its operations are expected, one JSON a line"
            ) from None
        if not header.get("summary"):
            raise HubError(400, "Invalid commit: the summary is missing")
        tip = repo.branches[branch]
        if header.get("parentCommit") not in (None, tip):
            raise HubError(412)
        files = dict(repo.commits[tip].files)
        for line in lines:
            key, value = line["key"], line["value"]
            path = value.get("path", "")
            if key != "header" and (
                not path
                or any(part in ("", ".", "..", ".git") for part in path.rstrip("/").split("/"))
            ):
                raise HubError(400, f"Invalid path: {path}")
            if key == "file":
                files[path] = Blob(base64.b64decode(value["content"]), lfs=False)
            elif key == "lfsFile":
                if value["oid"] not in repo.objects:
                    raise HubError(
                        400,
                        "Your push was rejected because an LFS pointer pointed to a file that does "
                        "not exist.",
                    )
                files[path] = Blob(repo.objects[value["oid"]], lfs=True)
            elif key == "deletedFile":
                if files.pop(path, None) is None:
                    raise HubError(404, "A file with this name doesn't exist", "EntryNotFound")
            elif key != "header":
                raise HubError(400, f"Invalid commit: unknown operation {key}")
        if (readme := files.get("README.md")) and (
            errors := card_data(readme.data.decode(errors="replace"))[1]
        ):
            raise HubError(400, f"Invalid metadata in README.md: {'; '.join(errors)}")
        commit = repo.commit(
            branch, files, header["summary"], header.get("description", ""), token.user.name
        )
        repo_url = f"{self.url}/{'' if repo.kind == 'model' else repo.kind + 's/'}{id}"
        return json_response(
            {
                "success": True,
                "commitOid": commit.oid,
                "commitUrl": f"{repo_url}/commit/{commit.oid}",
                "hookOutput": "",
            }
        )

    def _ensure_gate_access(self, repo: Repo, token: Token | None) -> None:
        if not repo.gated or self._member(repo, token):
            return
        message = f"Access to {repo.kind} {repo.id} is restricted"
        if token is None:
            raise HubError(
                401,
                f"{message}. You must have access to it and be authenticated to access it. Please "
                "log in.",
                "GatedRepo",
            )
        raise HubError(
            403,
            f"{message} and you are not in the authorized list. Visit {self.url}/{repo.id} to ask "
            "for access.",
            "GatedRepo",
        )

    def resolve(
        self, request: Request, kinds: str | None, id: str, revision: str, path: str
    ) -> Response:
        repo, token = self._find_repo(request, kinds, id)
        commit = self._find_commit(repo, revision)
        self._ensure_gate_access(repo, token)
        blob = commit.files.get(path)
        if blob is None:
            not_found = error_response(request, HubError(404, "Entry not found", "EntryNotFound"))
            not_found.headers["X-Repo-Commit"] = commit.oid
            return not_found
        headers = {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.oid}"'}
        if not blob.lfs:
            return range_response(
                request,
                blob.data,
                headers
                | {"Content-Disposition": f'inline; filename="{ascii(Path(path).name)[1:-1]}"'},
            )
        headers |= {"X-Linked-ETag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.data))}
        return Response(
            302,
            b"Found. Redirecting",
            headers | {"Location": self._signed("GET", repo, blob.sha256)},
        )

    # Storage: another host, with signed URLs instead of tokens

    def _signature(self, method: str, path: str) -> str:
        return hmac.new(self.secret, f"{method} {path}".encode(), hashlib.sha256).hexdigest()

    def _signed(self, method: str, repo: Repo, oid: str) -> str:
        path = f"/storage/{repo.kind}/{repo.id}/{oid}"
        return f"{self.storage_url}{path}?X-Amz-Signature={self._signature(method, path)}"

    def _storage(self, request: Request) -> Response:
        if request.authorization:
            raise HubError(
                400,
                "Only one auth mechanism allowed; a signed address was given an Authorization "
                "header too",
            )
        method = "GET" if request.method == "HEAD" else request.method
        _, _, kind, *id, oid = request.path.split("/") if request.path.count("/") >= 4 else [""] * 5
        repo = self.repos.get((kind, "/".join(id)))
        if repo is None or not hmac.compare_digest(
            request.first("X-Amz-Signature"), self._signature(method, request.path)
        ):
            raise HubError(403, "SignatureDoesNotMatch")
        if method == "PUT":
            if hashlib.sha256(request.body).hexdigest() != oid:
                raise HubError(400, "XAmzContentSHA256Mismatch")
            with self.lock:
                repo.objects[oid] = request.body
            return Response(200, headers={"ETag": f'"{hashlib.md5(request.body).hexdigest()}"'})
        if method != "GET" or oid not in repo.objects:
            raise HubError(404, "NoSuchKey")
        return range_response(request, repo.objects[oid], {"ETag": f'"{oid}"'})

    _ROUTE = Callable[..., Response]
    ROUTES: ClassVar[list[tuple[str, re.Pattern[str], _ROUTE]]] = []


def _routes() -> Iterator[tuple[str, re.Pattern[str], Callable[..., Response]]]:
    # the id of a repository has one or two parts
    api = r"/api/(models|datasets|spaces)/([^/]+(?:/[^/]+)?)"
    page = r"/(datasets/|spaces/)?([^/]+(?:/[^/]+)?)"
    for methods, pattern, handler in (
        ("GET", "/api/whoami-v2", FakeHub.whoami),
        ("POST", "/api/repos/create", FakeHub.create),
        ("POST", "/api/validate-yaml", FakeHub.validate_yaml),
        ("GET", "/api/(models|datasets|spaces)", FakeHub.listing),
        ("GET", api + "/tree/([^/]+)(/.*)?", FakeHub.tree),
        ("POST", api + "/paths-info/([^/]+)", FakeHub.paths_info),
        ("GET", api + "/refs", FakeHub.refs),
        ("GET", api + "/commits/([^/]+)", FakeHub.history),
        ("POST", api + "/branch/([^/]+)", FakeHub.branch),
        ("POST", api + "/preupload/([^/]+)", FakeHub.preupload),
        ("POST", api + "/commit/([^/]+)", FakeHub.commit),
        ("POST", page + r"\.git/info/lfs/objects/batch", FakeHub.batch),
        ("POST", page + r"\.git/info/lfs/objects/verify", FakeHub.verify),
        ("GET HEAD", page + "/resolve/([^/]+)/(.+)", FakeHub.resolve),
        ("GET", api + "(?:/revision/([^/]+))?", FakeHub.info),
    ):
        yield methods, re.compile(pattern), handler


FakeHub.ROUTES.extend(_routes())


def json_response(value: object, status: int = 200, **headers: str) -> Response:
    return Response(
        status,
        json.dumps(value, default=str).encode(),
        {"Content-Type": "application/json; charset=utf-8"} | headers,
    )


def error_response(request: Request, error: HubError) -> Response:
    """Return an error in the format of the Hub: in the body and in two headers."""
    code = error.code
    if (
        error.status == 401
        and not code
        and error.message != INVALID_TOKEN_MESSAGE
        and _REPO_PATH.search(request.path)
    ):
        code = "RepoNotFound"  # the client assumes this code over https only
    response = json_response(
        {"error": error.message} | error.fields, error.status, **{"X-Error-Message": error.message}
    )
    response.headers |= {"X-Error-Code": code} if code else {}
    return response


def range_response(request: Request, data: bytes, headers: dict[str, str]) -> Response:
    """Send a file, or the requested range of it."""
    headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
    range_match = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
    if not range_match or not (range_match[1] or range_match[2]):
        return Response(200, data, headers)
    start = int(range_match[1]) if range_match[1] else max(len(data) - int(range_match[2]), 0)
    end = (
        min(int(range_match[2]), len(data) - 1)
        if range_match[1] and range_match[2]
        else len(data) - 1
    )
    if start > end:
        return Response(416, b"", headers | {"Content-Range": f"bytes */{len(data)}"})
    return Response(
        206, data[start : end + 1], headers | {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
    )


def json_body(request: Request) -> dict:
    try:
        body = json.loads(request.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise HubError(400, "The body must be a JSON object")
    return body


def is_true(text: str) -> bool:
    return text.lower() in ("1", "true")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, hub: FakeHub) -> None:
        self.hub = hub
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer.server_bind looks up the host name, which may take seconds
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: socket.socket, client_address: tuple[str, int]) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(ConnectionDropped, ConnectionError):
            super().handle()

    def log_message(self, *_: object) -> None:
        pass

    def serve(self) -> None:
        hub, address = self.server.hub, urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        # A quoted slash belongs to the name of a revision or a folder, so it stays quoted until the
        # path is split.
        path = unquote(address.path.replace("%2F", "%252F").replace("%2f", "%252F"))
        query = parse_qs(address.query, keep_blank_values=True)
        request = Request(self.command, path, query, headers.get("host", ""), headers)
        with hub.lock:
            hub.requests.append(request)
        fault = hub.next_fault(request.method, request.path)
        kind = fault.kind if fault else None
        if kind == "reset":
            self.reset()
        request.body = self.read_body()
        if fault and kind == "silent":
            self.stall(fault)
        if fault and kind == "slow":
            fault.ended.wait(fault.seconds)
        response = (
            self.apply_fault(request, fault, kind)
            if fault and isinstance(kind, int)
            else hub.handle(request)
        )
        request.status = response.status
        if kind == "lost":
            self.reset()
        head = self.head(response)
        body = b"" if self.command == "HEAD" else response.body
        if fault and kind in ("hang", "cut"):
            self.connection.sendall(
                head + body[: len(body) // 2] if body else head[: len(head) // 2]
            )
            if kind == "hang":
                self.stall(fault)
            raise ConnectionDropped
        self.connection.sendall(head + body)

    do_GET = do_HEAD = do_POST = do_PUT = serve

    def apply_fault(self, request: Request, fault: Fault, status: int) -> Response:
        response = error_response(request, HubError(status, fault.message))
        if fault.page:
            message = (
                f"<html><head><title>{status} "
                f"{HTTPStatus(status).phrase}</title></head><body></body></html>"
            )
            response = Response(status, message.encode(), {"Content-Type": "text/html"})
        response.headers |= fault.headers
        return response

    def head(self, response: Response) -> bytes:
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        headers = {
            "Date": self.date_time_string(),
            "Content-Length": str(len(response.body)),
            "X-Request-Id": "Root=1-stand-in",
        }
        lines += [f"{name}: {value}" for name, value in (headers | response.headers).items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()
        raise ConnectionDropped

    def stall(self, fault: Fault) -> None:
        """Send nothing until the fault ends or the client disconnects."""
        while not fault.ended.is_set():
            ready, _, _ = select.select([self.connection], [], [], 0.02)
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                break
            if ready:
                time.sleep(0.02)
        raise ConnectionDropped


if __name__ == "__main__":  # manual use: python -m tests.support.fake_hub
    with FakeHub() as hub:
        print(
            f"HF_ENDPOINT={hub.url}  tokens: {', '.join(hub.tokens)}  (process {os.getpid()}; "
            "Ctrl-C ends it)",
            flush=True,
        )
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
