"""A client of the Hugging Face Hub: inspect, list, push and download repositories.

A `Hub` belongs to one user and one job. It always passes the token explicitly, as a string or
False, because huggingface_hub would otherwise use the token of the machine. On a Space that is the
token of its owner. Errors are raised as HubError, with a message that states what to do and does
not contain the token. The client runs in its own process (tasks.py), because a hanging request can
then be ended and the settings below apply to the whole process.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, set_client_factory
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    get_session,
    hf_raise_for_status,
    httpx,
    logging,
    parse_datetime,
)
from huggingface_hub.utils._http import hf_request_event_hook, parse_ratelimit_headers
from huggingface_hub.utils.sha import git_hash, sha_fileobj

from playground.errors import UserError

from .repo_ids import MANIFEST, PACKAGE_FILES, TAG, Phase, is_branch, is_repo, is_revision
from .space import is_deployed_path

CONNECT_TIMEOUT_S = 2.5  # connection timeout, in seconds
READ_TIMEOUT_S = 12.0  # timeout of a response, in seconds
MAX_RETRY_WAIT_S = 15.0  # longest accepted retry delay, in seconds; the Hub may request a day
TRANSIENT_STATUSES = (500, 502, 503, 504)  # HTTP statuses of temporary errors
RETRY_DELAY_S = 1.0  # default retry delay, in seconds
MIN_BYTES_PER_S = 100_000  # expected minimum transfer rate, in bytes per second
MAX_LISTED = 200
LFS_SUFFIXES = (".safetensors", ".png", ".parquet")
MAX_REVISIONS = 50


class HubError(UserError):
    """An error of an operation on the Hub."""


class HubUnreachable(Exception):
    """An error for a host without a response, which gets no further request."""


class RateLimited(Exception):
    """An error for a retry delay that is too long; its argument is the delay in seconds."""


@dataclass(frozen=True)
class RepoFile:
    """A file of a repository: size in bytes, git hash, and SHA-256 of an LFS file."""

    path: str
    size: int
    git_hash: str
    sha256: str | None


@dataclass(frozen=True)
class RepoInfo:
    """The metadata of a repository at a revision. It does not include the card."""

    id: str
    sha: str
    private: bool
    likes: int
    tags: tuple[str, ...]
    files: tuple[RepoFile, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return {file.path: file.size for file in self.files}


@dataclass(frozen=True)
class FileChange:
    """The effect of a push on one file; `what` is new, changed, same or removed."""

    path: str
    size: int
    what: str


@dataclass(frozen=True)
class PushPlan:
    """The effect of a push, computed before it writes anything.

    `parent` is the last commit of the branch, or empty for a new branch. `start` is the commit that
    the files are compared with and that a new branch starts from, or empty for a new repository.
    """

    repo: str
    kind: str  # model, dataset or space
    revision: str
    url: str
    exists: bool
    private: bool
    parent: str
    start: str
    changes: tuple[FileChange, ...]

    @property
    def has_writes(self) -> bool:
        """Return whether any file differs."""
        return any(change.what != "same" for change in self.changes)


class FailFastTransport(httpx.Client):
    """An HTTP client with short timeouts and few retries.

    A host that never responded, or timed out twice in a row, gets no further request. The default
    client of huggingface_hub sends six requests and waits a minute for each.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.failed_hosts: dict[bytes, int] = {}  # consecutive timeouts by host

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        limits, host = request.extensions.get("timeout", {}), request.url.netloc
        request.extensions["timeout"] = {
            name: min(limit or READ_TIMEOUT_S, READ_TIMEOUT_S) for name, limit in limits.items()
        }
        try:
            response = super().send(request, **options)
            if (wait := _retry_wait(request, response)) is not None:
                response.close()
                time.sleep(wait)
                response = super().send(request, **options)
        except httpx.TimeoutException as error:
            self.failed_hosts[host] = self.failed_hosts.get(host, 1) + 1
            if self.failed_hosts[host] > 1:
                raise HubUnreachable from error  # huggingface_hub does not retry this error
            raise
        self.failed_hosts[host] = 0
        return response


def _retry_wait(request: httpx.Request, response: httpx.Response) -> float | None:
    """Return the retry delay of a request in seconds; None if it must not be repeated.

    Status 429 means that the server did nothing, so any request may be repeated whose body is
    available. After a status 5xx only a request that changes nothing may be repeated.
    """
    requested = response.headers.get("retry-after", "").strip()
    wait = float(requested) if requested.isdigit() else None
    if (
        response.status_code == 429
        and wait is not None
        and isinstance(request.stream, httpx.ByteStream)
    ):
        return wait  # longer delays than MAX_RETRY_WAIT_S were rejected before
    if response.status_code in TRANSIENT_STATUSES and request.method in ("GET", "HEAD"):
        return RETRY_DELAY_S if wait is None else wait
    return None


def make_http_client() -> httpx.Client:
    """Return an HTTP client like that of huggingface_hub, with a timeout for every request."""

    def on_response(response: httpx.Response) -> None:
        result = [response.headers.get("retry-after", "").strip()]
        if (
            response.status_code == 429
            and (limit := parse_ratelimit_headers(response.headers))
            and not limit.remaining
        ):
            result.append(str(limit.reset_in_seconds))
        waits = [int(wait) for wait in result if wait.isdigit()]
        if response.status_code >= 400 and waits and max(waits) > MAX_RETRY_WAIT_S:
            raise RateLimited(max(waits))

    return FailFastTransport(
        event_hooks={"request": [hf_request_event_hook], "response": [on_response]},
        follow_redirects=True,
        timeout=httpx.Timeout(READ_TIMEOUT_S, connect=5.0),
    )


def configure_process() -> None:
    """Configure huggingface_hub for this process."""
    set_client_factory(make_http_client)
    logging.set_verbosity_error()  # the job reports retries itself


class Hub:
    """A connection to the Hub with the token of one user.

    Args:
        token: the token of the user, or empty for public repositories only.
        endpoint: the URL of the Hub; empty for the default.
    """

    def __init__(self, token: str = "", endpoint: str = "") -> None:
        if token and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise HubError(
                "the token is not valid: it contains spaces or other characters that no token has; "
                "copy it again, it begins with hf_"
            )
        self.token = token
        self.api = HfApi(endpoint=endpoint or None, token=token or False)
        self.endpoint = self.api.endpoint

    def connect(self) -> None:
        """Test the connection, so that a missing network is reported within seconds.

        Raises:
            HubError: if no connection is possible.
        """
        address = urlsplit(self.endpoint)
        proxy = (
            ""
            if urllib.request.proxy_bypass(address.hostname or "")
            else urllib.request.getproxies().get(address.scheme, "")
        )
        if proxy:
            address = urlsplit(proxy if "//" in proxy else f"//{proxy}")
        port = address.port or (443 if address.scheme == "https" else 80)
        problem: list[str] = ["no response"]

        def try_connect() -> None:  # in a thread, because name resolution has no timeout
            try:
                socket.create_connection((address.hostname or "", port), CONNECT_TIMEOUT_S).close()
                problem.clear()
            except OSError as error:
                problem[:] = [error.strerror or str(error) or "no response"]

        thread = threading.Thread(target=try_connect, daemon=True)
        thread.start()
        thread.join(CONNECT_TIMEOUT_S)
        if problem:
            raise HubError(
                f"the Hub ({self.endpoint}) cannot be reached: {problem[0]}; "
                "check the network and try again",
                retryable=True,
            )

    def account(self) -> dict[str, Any]:
        """Return the account of the token: `name`, `orgs` with write access, and `writes`.

        Raises:
            HubError: if there is no token, or the Hub rejects it.
        """
        if not self.token:
            raise HubError("sign in first: publishing needs a token with write access")
        with self.translating_errors("read the account of this token"):
            profile = self.api.whoami(token=self.token)
        access = (profile.get("auth") or {}).get("accessToken") or {}
        orgs = [
            org["name"]
            for org in profile.get("orgs") or []
            if org.get("roleInOrg", "write") != "read"
        ]
        return {
            "name": profile["name"],
            "orgs": orgs,
            "writes": access.get("role", "write") != "read",
        }

    # Reading

    def repo_info(self, repo: str, revision: str = "main", repo_type: str = "model") -> RepoInfo:
        """Return the metadata of a repository at a revision, with the size of each file.

        Raises:
            HubError: if the user has no access to such a repository.
        """
        ensure_repo(repo)
        info = self.raw_repo_info(repo, revision, repo_type)
        with self.translating_errors("read", repo):
            files = [
                RepoFile(
                    each["rfilename"],
                    int(each.get("size") or 0),
                    each.get("blobId") or "",
                    (each.get("lfs") or {}).get("sha256"),
                )
                for each in info.get("siblings") or []
            ]
            private, likes, tags = (
                info.get("private") is True,
                int(info.get("likes") or 0),
                tuple(map(str, info.get("tags") or [])),
            )
            return RepoInfo(
                str(info["id"]), str(info.get("sha") or ""), private, likes, tags, tuple(files)
            )

    def raw_repo_info(
        self, repo: str, revision: str = "main", repo_type: str = "model"
    ) -> dict[str, Any]:
        """Return the complete response of the Hub for a repository at a revision.

        `repo` may be the name of an old model without an owner.

        Raises:
            HubError: if the user has no access to such a repository.
        """
        ensure_revision(revision)
        with self.translating_errors("read", repo):
            info = self._get(
                f"{repo_type}s/{repo}/revision/{quote(revision, safe='')}", {"blobs": "true"}
            )
            if not isinstance(info, dict):
                raise TypeError("the response is not a JSON object")
            return info

    def revisions(self, repo: str, revision: str = "main") -> list[dict[str, Any]]:
        """Return the latest commits of a repository, newest first."""
        ensure_repo(repo)
        ensure_revision(revision)
        with self.translating_errors("list the revisions of", repo):
            commits = self._get(
                f"models/{repo}/commits/{quote(revision, safe='')}", {"limit": MAX_REVISIONS}
            )
            revisions = [
                {
                    "commit": each["id"],
                    "title": each["title"],
                    "when": parse_timestamp(each["date"]),
                }
                for each in commits
            ]
            return revisions[:MAX_REVISIONS]

    def branches(self, repo: str) -> list[str]:
        """Return the names of the branches of a repository."""
        with self.translating_errors("list the branches of", repo):
            return [branch.name for branch in self.api.list_repo_refs(repo).branches][
                :MAX_REVISIONS
            ]

    def gallery(self) -> list[dict[str, Any]]:
        """Return the models with the playground's tag, most liked first, with untrusted cards."""
        with self.translating_errors("list the models"):
            fields = [
                "author",
                "cardData",
                "lastModified",
                "likes",
                "private",
                "safetensors",
                "sha",
                "tags",
            ]
            models = self._get(
                "models",
                {
                    "filter": TAG,
                    "sort": "likes",
                    "direction": -1,
                    "limit": MAX_LISTED,
                    "expand": fields,
                },
            )
            return [
                model
                for model in models
                if isinstance(model, dict) and isinstance(model.get("id"), str)
            ][:MAX_LISTED]

    def _get(self, path: str, parameters: dict[str, Any]) -> Any:
        """Return the raw response of the Hub's API.

        huggingface_hub would parse the cards in it, and fail on malformed ones.
        """
        headers = build_hf_headers(token=self.token or False)
        response = get_session().get(
            f"{self.endpoint}/api/{path}",
            params=parameters,
            headers=headers,
            timeout=READ_TIMEOUT_S,
        )
        hf_raise_for_status(response)
        return response.json()

    def fetch(
        self,
        repo: str,
        revision: str,
        files: dict[str, int],
        folder: Path,
        report: Callable[..., None] = lambda *_: None,
    ) -> None:
        """Download files into a folder; `files` gives their sizes.

        Raises:
            HubError: if a download fails, or a file has another size.
        """
        for name, size in files.items():
            report(f"Downloading {name} ({format_bytes(size)})", size / MIN_BYTES_PER_S)
            with self.translating_errors(f"download {name} of", repo):
                path = Path(
                    self.api.hf_hub_download(repo, name, revision=revision, local_dir=folder)
                )
            if path.stat().st_size != size:
                raise HubError(
                    f"{name} of {repo} arrived with {path.stat().st_size:,} of {size:,} bytes; "
                    "try again",
                    retryable=True,
                )

    # Pushing

    def plan(
        self,
        folder: Path,
        repo: str,
        *,
        revision: str = "main",
        private: bool = False,
        repo_type: str = "model",
    ) -> PushPlan:
        """Compute the effect of a push of the files in a folder, without writing anything.

        Raises:
            HubError: if the repository has other content, or cannot be read.
        """
        ensure_repo(repo)
        ensure_branch(revision)
        url = url_of(self.endpoint, repo, repo_type)
        files = files_in(folder)
        try:
            info = self.repo_info(repo, "main", repo_type)
        except NotFoundError:
            return new_plan(
                folder,
                repo,
                endpoint=self.endpoint,
                revision=revision,
                private=private,
                kind=repo_type,
            )
        parent = start = info.sha
        if revision != "main":
            try:
                info = self.repo_info(repo, revision, repo_type)
                parent = start = info.sha
            except NotFoundError:  # the push creates the branch from main
                parent = ""
        remote = {file.path: file for file in info.files}
        own_files = MANIFEST in remote if repo_type == "model" else TAG in info.tags
        if not own_files and set(remote) - {"README.md", ".gitattributes", "LICENSE"}:
            remote_files = ", ".join(sorted(remote)[:3])
            raise HubError(
                f"the {repo_type} {repo} has other content ({remote_files}), which stays "
                "unchanged; choose another name"
            )
        changes = tuple(
            FileChange(name, path.stat().st_size, _file_status(path, remote.get(name)))
            for name, path in files.items()
        )
        if repo_type == "model":  # another licence file is the choice of the owner, and stays
            changes = tuple(
                change for change in changes if (change.path, change.what) != ("LICENSE", "changed")
            )
        is_own_repo: Callable[[str], bool] = {
            "model": PACKAGE_FILES.__contains__,
            "space": is_deployed_path,
        }.get(repo_type, lambda name: False)
        deleted = [name for name in remote if name not in files and is_own_repo(name)]
        changes += tuple(FileChange(name, remote[name].size, "removed") for name in deleted)
        return PushPlan(repo, repo_type, revision, url, True, info.private, parent, start, changes)

    def push(
        self,
        folder: Path,
        plan: PushPlan,
        message: str,
        report: Callable[..., None] = lambda *_: None,
    ) -> str:
        """Execute a plan in one commit, and return the commit.

        Its files become visible with that commit only.

        Raises:
            HubError: if an operation fails, or another commit was pushed after the plan.
        """
        if not plan.has_writes and plan.parent:
            return plan.parent
        if plan.exists:
            return self._commit(folder, plan, message, report)
        report(f"Creating {plan.repo}", 0.0, Phase.WRITING)
        with self.translating_errors("create", plan.repo):
            sdk = "gradio" if plan.kind == "space" else None
            self.api.create_repo(
                plan.repo, private=plan.private, repo_type=plan.kind, space_sdk=sdk
            )
        try:
            return self._commit(folder, plan, message, report)
        except HubError as error:
            visibility = "private" if plan.private else "public"
            raise HubError(
                f"{error}; the {visibility} repository {plan.repo} was created before the error "
                "and may be empty: repeat the operation to fill it, or delete it on the Hub",
                retryable=error.retryable,
            ) from None

    def _commit(
        self, folder: Path, plan: PushPlan, message: str, report: Callable[..., None]
    ) -> str:
        """Upload the changes of a plan to an existing repository, and commit them."""
        if plan.revision != "main" and not plan.parent:
            report(f"Creating the branch {plan.revision}", 0.0, Phase.WRITING)
            with self.translating_errors(f"create the branch {plan.revision} of", plan.repo):
                self.api.create_branch(
                    plan.repo,
                    branch=plan.revision,
                    revision=plan.start or None,
                    repo_type=plan.kind,
                )
        if not plan.has_writes:
            return plan.start
        added = [
            CommitOperationAdd(change.path, folder / change.path)
            for change in plan.changes
            if change.what in ("new", "changed")
        ]
        removed = [
            CommitOperationDelete(change.path)
            for change in plan.changes
            if change.what == "removed"
        ]
        large = [operation for operation in added if operation.path_in_repo.endswith(LFS_SUFFIXES)]
        # Each large file is its own upload with its own progress; the commit has the small files.
        for operation in large:
            size = (folder / operation.path_in_repo).stat().st_size
            report(
                f"Uploading {operation.path_in_repo} ({format_bytes(size)})",
                size / MIN_BYTES_PER_S,
                Phase.WRITING,
            )
            with self.translating_errors(f"upload {operation.path_in_repo} to", plan.repo):
                self.api.preupload_lfs_files(
                    plan.repo,
                    [operation],
                    repo_type=plan.kind,
                    revision=plan.revision,
                    free_memory=False,
                )
        report("Committing", 0.0, Phase.COMMITTING)
        with self.translating_errors("commit to", plan.repo):
            done = self.api.create_commit(
                plan.repo,
                [*added, *removed],
                commit_message=message,
                repo_type=plan.kind,
                revision=plan.revision,
                parent_commit=plan.start or None,
            )
        return str(done.oid)

    # Errors

    @contextmanager
    def translating_errors(self, doing: str, repo: str = "") -> Iterator[None]:
        """Convert every error of the body to a HubError."""
        try:
            yield
        except HubError:
            raise
        except Exception as error:
            raise self._to_hub_error(error, f"{doing} {repo}".strip(), repo) from None

    def _to_hub_error(self, error: Exception, doing: str, repo: str) -> HubError:
        chain: list[BaseException] = []
        cause: BaseException | None = error
        # An error in a thread of the client is the cause of the error raised here.
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = cause.__cause__ or cause.__context__

        def find_cause(*kinds: type[BaseException]) -> Any:
            return next((each for each in chain if isinstance(each, kinds)), None)

        if rate_limited := find_cause(RateLimited):
            return HubError(
                f"could not {doing}: the Hub requests a wait of "
                f"{format_minutes(rate_limited.args[0])}; try again then",
                retryable=True,
            )
        if find_cause(GatedRepoError):
            return HubError(
                f"{repo} is gated: request access on its page, {self.endpoint}/{repo}, "
                "then try again"
            )
        if find_cause(RevisionNotFoundError):
            return NotFoundError(f"{repo} has no such revision; choose one that it lists")
        if (response := find_cause(RepositoryNotFoundError)) and not (
            self.token and response.response.status_code == 401
        ):
            scope = "that this token can read" if self.token else "that is public"
            return NotFoundError(
                f"there is no repository {repo} {scope}; check the spelling, user/name"
            )
        if find_cause(OfflineModeIsEnabled):
            return HubError(
                "HF_HUB_OFFLINE is set on this machine: unset it and restart the playground",
                retryable=True,
            )
        if response := find_cause(HfHubHTTPError):
            return self._http_status_message(response.response.status_code, response, doing)
        if find_cause(httpx.TimeoutException):
            return HubError(
                f"could not {doing}: no response from the Hub within {READ_TIMEOUT_S:g} s; "
                "try again",
                retryable=True,
            )
        if find_cause(httpx.HTTPError, ConnectionError):
            return HubError(
                f"could not {doing}: the connection to the Hub broke; try again", retryable=True
            )
        if find_cause(OSError) and not isinstance(error, ValueError):
            problem = find_cause(OSError)
            return HubError(
                f"could not {doing}: {problem.strerror or self._redact(str(problem))}; "
                "free disk space and try again",
                retryable=True,
            )
        unforeseen = f"{type(chain[-1]).__name__}: {self._redact(str(chain[-1]))}"
        return HubError(
            f"could not {doing}: the Hub sent an invalid response; try again "
            f"({unforeseen.splitlines()[0][:200]})",
            retryable=True,
        )

    def _http_status_message(self, status: int, error: Any, doing: str) -> HubError:
        message = self._redact((error.server_message or "").split("\n")[0])[:200]
        message = f" (message of the Hub: {message})" if message else ""
        match status:
            case 401:
                return HubError(
                    "the Hub rejected this token, which may have expired: "
                    f"create a new one and sign in again{message}"
                )
            case 403:
                here = ""
                # Users of a Space sign in with the scope contribute-repos.
                if "SPACE_ID" in os.environ:
                    here = (
                        "; a sign-in on a Space has write access to repositories created from it "
                        "only: choose a new name"
                    )
                return HubError(
                    f"this token has no permission to {doing}: it needs write access there"
                    f"{here}{message}"
                )
            case 404:
                return NotFoundError(f"could not {doing}: the Hub has no such file{message}")
            case 409:
                return HubError(
                    f"could not {doing}: another operation is in progress; try again{message}",
                    retryable=True,
                )
            case 412:
                return HubError(
                    "another commit was pushed in the meantime, and nothing was overwritten; "
                    "check the repository and try again",
                    retryable=True,
                )
            case 429:
                return HubError(
                    f"could not {doing}: the Hub received too many requests from this address; "
                    "try again in some minutes",
                    retryable=True,
                )
            case _ if status >= 500:
                return HubError(
                    f"could not {doing}: the Hub has a server error (status {status}); "
                    "try again later",
                    retryable=True,
                )
        return HubError(f"could not {doing}: the Hub refused it (status {status}){message}")

    def _redact(self, text: str) -> str:
        return text.replace(self.token, "[token]") if self.token else text


class NotFoundError(HubError):
    """An error for a repository, a revision or a file that does not exist."""


def ensure_repo(repo: str) -> None:
    """Raise HubError unless this is the name of a repository."""
    if not is_repo(repo):
        raise HubError(
            f"{repo[:120]!r} is not the name of a repository; write user/name, with letters, "
            "digits, dots, dashes and underscores"
        )


def ensure_branch(name: str) -> None:
    """Raise HubError unless this can be the name of a branch."""
    if not is_branch(name):
        raise HubError(
            f"{name[:60]!r} is not a valid branch name; use letters, digits, dots, dashes, "
            "underscores and slashes"
        )


def ensure_revision(revision: str) -> None:
    """Raise HubError unless this can be a branch, a tag or a commit."""
    if not is_revision(revision):
        raise HubError(
            f"{revision[:60]!r} is not a valid revision; name a branch, a tag or a commit of the "
            "repository"
        )


def url_of(endpoint: str, repo: str, kind: str = "model") -> str:
    """Return the URL of a repository."""
    return f"{endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo}"


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files in a folder and its subfolders by their relative path."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def new_plan(
    folder: Path,
    repo: str,
    *,
    endpoint: str,
    revision: str = "main",
    private: bool = False,
    kind: str = "model",
) -> PushPlan:
    """Return the plan for a new repository."""
    changes = tuple(
        FileChange(name, path.stat().st_size, "new") for name, path in files_in(folder).items()
    )
    return PushPlan(
        repo, kind, revision, url_of(endpoint, repo, kind), False, private, "", "", changes
    )


def parse_timestamp(text: str) -> float:
    """Parse a timestamp of the Hub; returns seconds since 1970."""
    return float(parse_datetime(text).timestamp())


def format_bytes(size: int) -> str:
    """Format a size in bytes as MB or KB."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} KB"


def format_minutes(seconds: int) -> str:
    return (
        f"{seconds / 3600:.0f} h"
        if seconds > 7200
        else f"{seconds / 60:.0f} min"
        if seconds > 120
        else f"{seconds} s"
    )


def _file_status(path: Path, remote: RepoFile | None) -> str:
    """Compare a local file with that of the repository: new, same or changed."""
    if remote is None:
        return "new"
    if remote.sha256 is not None:
        with open(path, "rb") as file:
            return "same" if sha_fileobj(file).hex() == remote.sha256 else "changed"
    return "same" if git_hash(path.read_bytes()) == remote.git_hash else "changed"
