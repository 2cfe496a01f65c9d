"""A client of the Hugging Face Hub: inspect, list, push and download repositories.

A `Hub` belongs to one user and one job. It always passes the token explicitly, as a string or
False, because huggingface_hub would otherwise use the token of the machine. On a Space that is the
token of its owner. Errors are raised as HubError, with a message that says what to do and does not
contain the token. The client runs in its own process (work.py), because a hanging request can then
be ended and the settings below apply to the whole process.
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

from .names import MANIFEST, OURS, TAG, Phase, is_branch, is_repo, is_revision
from .space import is_own

REACHED_WITHIN = 2.5  # connection timeout, in seconds
ANSWERED_WITHIN = 12.0  # timeout of a response, in seconds
WAITED_FOR = 15.0  # longest accepted retry delay, in seconds; the Hub may request a day
PASSING = (500, 502, 503, 504)  # HTTP statuses of temporary errors
RETRY_AFTER = 1.0  # default retry delay, in seconds
SLOWEST = 100_000  # expected minimum transfer rate, in bytes per second
MOST_LISTED = 200
LARGE = (".safetensors", ".png", ".parquet")
MOST_REVISIONS = 50


class HubError(RuntimeError):
    """An error of an operation on the Hub. `again`: a later retry may succeed."""

    def __init__(self, sentence: str, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class Silent(Exception):
    """An error for a host without a response, which gets no further request."""


class Later(Exception):
    """An error for a retry delay that is too long; its argument is the delay in seconds."""


@dataclass(frozen=True)
class File:
    """A file of a repository: size in bytes, git hash, and SHA-256 of an LFS file."""

    path: str
    size: int
    git: str
    sha256: str | None


@dataclass(frozen=True)
class About:
    """The metadata of a repository at a revision. It does not include the card."""

    id: str
    sha: str
    private: bool
    likes: int
    tags: tuple[str, ...]
    files: tuple[File, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return {file.path: file.size for file in self.files}


@dataclass(frozen=True)
class Change:
    """The effect of a push on one file; `what` is new, changed, same or removed."""

    path: str
    size: int
    what: str


@dataclass(frozen=True)
class Plan:
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
    changes: tuple[Change, ...]

    @property
    def writes(self) -> bool:
        """Return whether any file differs."""
        return any(change.what != "same" for change in self.changes)


class Impatient(httpx.Client):
    """An HTTP client with short timeouts and few retries.

    A host that never responded, or timed out twice in a row, gets no further request. The default
    client of huggingface_hub sends six requests and waits a minute for each.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.silences: dict[bytes, int] = {}  # consecutive timeouts by host

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        limits, host = request.extensions.get("timeout", {}), request.url.netloc
        request.extensions["timeout"] = {
            name: min(limit or ANSWERED_WITHIN, ANSWERED_WITHIN) for name, limit in limits.items()
        }
        try:
            answer = super().send(request, **options)
            if (wait := _retry_wait(request, answer)) is not None:
                answer.close()
                time.sleep(wait)
                answer = super().send(request, **options)
        except httpx.TimeoutException as error:
            self.silences[host] = self.silences.get(host, 1) + 1
            if self.silences[host] > 1:
                raise Silent from error  # huggingface_hub does not retry this error
            raise
        self.silences[host] = 0
        return answer


def _retry_wait(request: httpx.Request, answer: httpx.Response) -> float | None:
    """Return the retry delay of a request in seconds; None if it must not be repeated.

    Status 429 means that the server did nothing, so any request may be repeated whose body is
    available. After a status 5xx only a request that changes nothing may be repeated.
    """
    asked = answer.headers.get("retry-after", "").strip()
    wait = float(asked) if asked.isdigit() else None
    if (
        answer.status_code == 429
        and wait is not None
        and isinstance(request.stream, httpx.ByteStream)
    ):
        return wait  # longer delays than WAITED_FOR were rejected before
    if answer.status_code in PASSING and request.method in ("GET", "HEAD"):
        return RETRY_AFTER if wait is None else wait
    return None


def impatient_client() -> httpx.Client:
    """Return an HTTP client like that of huggingface_hub, with a timeout for every request."""

    def look(response: httpx.Response) -> None:
        told = [response.headers.get("retry-after", "").strip()]
        if (
            response.status_code == 429
            and (limit := parse_ratelimit_headers(response.headers))
            and not limit.remaining
        ):
            told.append(str(limit.reset_in_seconds))
        waits = [int(wait) for wait in told if wait.isdigit()]
        if response.status_code >= 400 and waits and max(waits) > WAITED_FOR:
            raise Later(max(waits))

    return Impatient(
        event_hooks={"request": [hf_request_event_hook], "response": [look]},
        follow_redirects=True,
        timeout=httpx.Timeout(ANSWERED_WITHIN, connect=5.0),
    )


def prepare() -> None:
    """Configure huggingface_hub for this process."""
    set_client_factory(impatient_client)
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

    def reach(self) -> None:
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

        def knock() -> None:  # in a thread, because name resolution has no timeout
            try:
                socket.create_connection((address.hostname or "", port), REACHED_WITHIN).close()
                problem.clear()
            except OSError as error:
                problem[:] = [error.strerror or str(error) or "no response"]

        thread = threading.Thread(target=knock, daemon=True)
        thread.start()
        thread.join(REACHED_WITHIN)
        if problem:
            raise HubError(
                f"the Hub ({self.endpoint}) cannot be reached: {problem[0]}; "
                "check the network and try again",
                again=True,
            )

    def account(self) -> dict[str, Any]:
        """Return the account of the token: `name`, `orgs` with write access, and `writes`.

        Raises:
            HubError: if there is no token, or the Hub rejects it.
        """
        if not self.token:
            raise HubError("sign in first: publishing needs a token with write access")
        with self.plainly("read the account of this token"):
            told = self.api.whoami(token=self.token)
        access = (told.get("auth") or {}).get("accessToken") or {}
        orgs = [
            org["name"] for org in told.get("orgs") or [] if org.get("roleInOrg", "write") != "read"
        ]
        return {"name": told["name"], "orgs": orgs, "writes": access.get("role", "write") != "read"}

    # Reading

    def look(self, repo: str, revision: str = "main", kind: str = "model") -> About:
        """Return the metadata of a repository at a revision, with the size of each file.

        Raises:
            HubError: if the user has no access to such a repository.
        """
        check_repo(repo)
        told = self.described(repo, revision, kind)
        with self.plainly("read", repo):
            files = [
                File(
                    each["rfilename"],
                    int(each.get("size") or 0),
                    each.get("blobId") or "",
                    (each.get("lfs") or {}).get("sha256"),
                )
                for each in told.get("siblings") or []
            ]
            private, likes, tags = (
                told.get("private") is True,
                int(told.get("likes") or 0),
                tuple(map(str, told.get("tags") or [])),
            )
            return About(
                str(told["id"]), str(told.get("sha") or ""), private, likes, tags, tuple(files)
            )

    def described(self, repo: str, revision: str = "main", kind: str = "model") -> dict[str, Any]:
        """Return the complete response of the Hub for a repository at a revision.

        `repo` may be the name of an old model without an owner.

        Raises:
            HubError: if the user has no access to such a repository.
        """
        check_revision(revision)
        with self.plainly("read", repo):
            told = self._get(
                f"{kind}s/{repo}/revision/{quote(revision, safe='')}", {"blobs": "true"}
            )
            if not isinstance(told, dict):
                raise TypeError("the response is not a JSON object")
            return told

    def revisions(self, repo: str, revision: str = "main") -> list[dict[str, Any]]:
        """Return the latest commits of a repository, newest first."""
        check_repo(repo)
        check_revision(revision)
        with self.plainly("list the revisions of", repo):
            told = self._get(
                f"models/{repo}/commits/{quote(revision, safe='')}", {"limit": MOST_REVISIONS}
            )
            found = [
                {"commit": each["id"], "title": each["title"], "when": moment(each["date"])}
                for each in told
            ]
            return found[:MOST_REVISIONS]

    def branches(self, repo: str) -> list[str]:
        """Return the names of the branches of a repository."""
        with self.plainly("list the branches of", repo):
            return [branch.name for branch in self.api.list_repo_refs(repo).branches][
                :MOST_REVISIONS
            ]

    def gallery(self) -> list[dict[str, Any]]:
        """Return the models with the playground's tag, most liked first, with untrusted cards."""
        with self.plainly("list the models"):
            wanted = [
                "author",
                "cardData",
                "lastModified",
                "likes",
                "private",
                "safetensors",
                "sha",
                "tags",
            ]
            told = self._get(
                "models",
                {
                    "filter": TAG,
                    "sort": "likes",
                    "direction": -1,
                    "limit": MOST_LISTED,
                    "expand": wanted,
                },
            )
            return [
                model
                for model in told
                if isinstance(model, dict) and isinstance(model.get("id"), str)
            ][:MOST_LISTED]

    def _get(self, path: str, parameters: dict[str, Any]) -> Any:
        """Return the raw response of the Hub's API.

        huggingface_hub would parse the cards in it, and fail on malformed ones.
        """
        headers = build_hf_headers(token=self.token or False)
        answer = get_session().get(
            f"{self.endpoint}/api/{path}",
            params=parameters,
            headers=headers,
            timeout=ANSWERED_WITHIN,
        )
        hf_raise_for_status(answer)
        return answer.json()

    def fetch(
        self,
        repo: str,
        revision: str,
        files: dict[str, int],
        folder: Path,
        say: Callable[..., None] = lambda *_: None,
    ) -> None:
        """Download files into a folder; `files` gives their sizes.

        Raises:
            HubError: if a download fails, or a file has another size.
        """
        for name, size in files.items():
            say(f"Downloading {name} ({in_words(size)})", size / SLOWEST)
            with self.plainly(f"download {name} of", repo):
                path = Path(
                    self.api.hf_hub_download(repo, name, revision=revision, local_dir=folder)
                )
            if path.stat().st_size != size:
                raise HubError(
                    f"{name} of {repo} arrived with {path.stat().st_size:,} of {size:,} bytes; "
                    "try again",
                    again=True,
                )

    # Pushing

    def plan(
        self,
        folder: Path,
        repo: str,
        *,
        revision: str = "main",
        private: bool = False,
        kind: str = "model",
    ) -> Plan:
        """Compute the effect of a push of the files in a folder, without writing anything.

        Raises:
            HubError: if the repository has other content, or cannot be read.
        """
        check_repo(repo)
        check_branch(revision)
        url = url_of(self.endpoint, repo, kind)
        files = files_in(folder)
        try:
            about = self.look(repo, "main", kind)
        except Missing:
            return new_plan(
                folder, repo, endpoint=self.endpoint, revision=revision, private=private, kind=kind
            )
        parent = start = about.sha
        if revision != "main":
            try:
                about = self.look(repo, revision, kind)
                parent = start = about.sha
            except Missing:  # the push creates the branch from main
                parent = ""
        there = {file.path: file for file in about.files}
        ours = MANIFEST in there if kind == "model" else TAG in about.tags
        if not ours and set(there) - {"README.md", ".gitattributes", "LICENSE"}:
            held = ", ".join(sorted(there)[:3])
            raise HubError(
                f"the {kind} {repo} has other content ({held}), which stays unchanged; "
                "choose another name"
            )
        changes = tuple(
            Change(name, path.stat().st_size, _what(path, there.get(name)))
            for name, path in files.items()
        )
        if kind == "model":  # another licence file is the choice of the owner, and stays
            changes = tuple(
                change for change in changes if (change.path, change.what) != ("LICENSE", "changed")
            )
        ours_alone: Callable[[str], bool] = {"model": OURS.__contains__, "space": is_own}.get(
            kind, lambda name: False
        )
        gone = [name for name in there if name not in files and ours_alone(name)]
        changes += tuple(Change(name, there[name].size, "removed") for name in gone)
        return Plan(repo, kind, revision, url, True, about.private, parent, start, changes)

    def push(
        self, folder: Path, plan: Plan, message: str, say: Callable[..., None] = lambda *_: None
    ) -> str:
        """Execute a plan in one commit, and return the commit.

        Its files become visible with that commit only.

        Raises:
            HubError: if an operation fails, or another commit was pushed after the plan.
        """
        if not plan.writes and plan.parent:
            return plan.parent
        if plan.exists:
            return self._commit(folder, plan, message, say)
        say(f"Creating {plan.repo}", 0.0, Phase.WRITING)
        with self.plainly("create", plan.repo):
            sdk = "gradio" if plan.kind == "space" else None
            self.api.create_repo(
                plan.repo, private=plan.private, repo_type=plan.kind, space_sdk=sdk
            )
        try:
            return self._commit(folder, plan, message, say)
        except HubError as error:
            visibility = "private" if plan.private else "public"
            raise HubError(
                f"{error}; the {visibility} repository {plan.repo} was created before the error "
                "and may be empty: repeat the operation to fill it, or delete it on the Hub",
                again=error.again,
            ) from None

    def _commit(self, folder: Path, plan: Plan, message: str, say: Callable[..., None]) -> str:
        """Upload the changes of a plan to an existing repository, and commit them."""
        if plan.revision != "main" and not plan.parent:
            say(f"Creating the branch {plan.revision}", 0.0, Phase.WRITING)
            with self.plainly(f"create the branch {plan.revision} of", plan.repo):
                self.api.create_branch(
                    plan.repo,
                    branch=plan.revision,
                    revision=plan.start or None,
                    repo_type=plan.kind,
                )
        if not plan.writes:
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
        large = [operation for operation in added if operation.path_in_repo.endswith(LARGE)]
        # Each large file is its own upload with its own progress; the commit has the small files.
        for operation in large:
            size = (folder / operation.path_in_repo).stat().st_size
            say(
                f"Uploading {operation.path_in_repo} ({in_words(size)})",
                size / SLOWEST,
                Phase.WRITING,
            )
            with self.plainly(f"upload {operation.path_in_repo} to", plan.repo):
                self.api.preupload_lfs_files(
                    plan.repo,
                    [operation],
                    repo_type=plan.kind,
                    revision=plan.revision,
                    free_memory=False,
                )
        say("Committing", 0.0, Phase.COMMITTING)
        with self.plainly("commit to", plan.repo):
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
    def plainly(self, doing: str, repo: str = "") -> Iterator[None]:
        """Convert every error of the body to a HubError."""
        try:
            yield
        except HubError:
            raise
        except Exception as error:
            raise self._plain(error, f"{doing} {repo}".strip(), repo) from None

    def _plain(self, error: Exception, doing: str, repo: str) -> HubError:
        chain: list[BaseException] = []
        cause: BaseException | None = error
        # An error in a thread of the client is the cause of the error raised here.
        while cause is not None and cause not in chain:
            chain.append(cause)
            cause = cause.__cause__ or cause.__context__

        def found(*kinds: type[BaseException]) -> Any:
            return next((each for each in chain if isinstance(each, kinds)), None)

        if later := found(Later):
            return HubError(
                f"could not {doing}: the Hub requests a wait of {_minutes(later.args[0])}; "
                "try again then",
                again=True,
            )
        if found(GatedRepoError):
            return HubError(
                f"{repo} is gated: request access on its page, {self.endpoint}/{repo}, "
                "then try again"
            )
        if found(RevisionNotFoundError):
            return Missing(f"{repo} has no such revision; choose one that it lists")
        if (answer := found(RepositoryNotFoundError)) and not (
            self.token and answer.response.status_code == 401
        ):
            seen = "that this token can read" if self.token else "that is public"
            return Missing(f"there is no repository {repo} {seen}; check the spelling, user/name")
        if found(OfflineModeIsEnabled):
            return HubError(
                "HF_HUB_OFFLINE is set on this machine: unset it and restart the playground",
                again=True,
            )
        if answer := found(HfHubHTTPError):
            return self._status(answer.response.status_code, answer, doing)
        if found(httpx.TimeoutException):
            return HubError(
                f"could not {doing}: no response from the Hub within {ANSWERED_WITHIN:g} s; "
                "try again",
                again=True,
            )
        if found(httpx.HTTPError, ConnectionError):
            return HubError(
                f"could not {doing}: the connection to the Hub broke; try again", again=True
            )
        if found(OSError) and not isinstance(error, ValueError):
            problem = found(OSError)
            return HubError(
                f"could not {doing}: {problem.strerror or self._safe(str(problem))}; "
                "free disk space and try again",
                again=True,
            )
        unforeseen = f"{type(chain[-1]).__name__}: {self._safe(str(chain[-1]))}"
        return HubError(
            f"could not {doing}: the Hub sent an invalid response; try again "
            f"({unforeseen.splitlines()[0][:200]})",
            again=True,
        )

    def _status(self, status: int, error: Any, doing: str) -> HubError:
        said = self._safe((error.server_message or "").split("\n")[0])[:200]
        said = f" (message of the Hub: {said})" if said else ""
        match status:
            case 401:
                return HubError(
                    "the Hub rejected this token, which may have expired: "
                    f"create a new one and sign in again{said}"
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
                    f"{here}{said}"
                )
            case 404:
                return Missing(f"could not {doing}: the Hub has no such file{said}")
            case 409:
                return HubError(
                    f"could not {doing}: another operation is in progress; try again{said}",
                    again=True,
                )
            case 412:
                return HubError(
                    "another commit was pushed in the meantime, and nothing was overwritten; "
                    "check the repository and try again",
                    again=True,
                )
            case 429:
                return HubError(
                    f"could not {doing}: the Hub received too many requests from this address; "
                    "try again in some minutes",
                    again=True,
                )
            case _ if status >= 500:
                return HubError(
                    f"could not {doing}: the Hub has a server error (status {status}); "
                    "try again later",
                    again=True,
                )
        return HubError(f"could not {doing}: the Hub refused it (status {status}){said}")

    def _safe(self, text: str) -> str:
        return text.replace(self.token, "[token]") if self.token else text


class Missing(HubError):
    """An error for a repository, a revision or a file that does not exist."""


def check_repo(repo: str) -> None:
    """Raise HubError unless this is the name of a repository."""
    if not is_repo(repo):
        raise HubError(
            f"{repo[:120]!r} is not the name of a repository; write user/name, with letters, "
            "digits, dots, dashes and underscores"
        )


def check_branch(name: str) -> None:
    """Raise HubError unless this can be the name of a branch."""
    if not is_branch(name):
        raise HubError(
            f"{name[:60]!r} is not a valid branch name; use letters, digits, dots, dashes, "
            "underscores and slashes"
        )


def check_revision(revision: str) -> None:
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
) -> Plan:
    """Return the plan for a new repository."""
    changes = tuple(
        Change(name, path.stat().st_size, "new") for name, path in files_in(folder).items()
    )
    return Plan(repo, kind, revision, url_of(endpoint, repo, kind), False, private, "", "", changes)


def moment(text: str) -> float:
    """Parse a timestamp of the Hub; returns seconds since 1970."""
    return float(parse_datetime(text).timestamp())


def in_words(size: int) -> str:
    """Format a size in bytes as MB or KB."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} KB"


def _minutes(seconds: int) -> str:
    return (
        f"{seconds / 3600:.0f} h"
        if seconds > 7200
        else f"{seconds / 60:.0f} min"
        if seconds > 120
        else f"{seconds} s"
    )


def _what(path: Path, there: File | None) -> str:
    """Compare a local file with that of the repository: new, same or changed."""
    if there is None:
        return "new"
    if there.sha256 is not None:
        with open(path, "rb") as file:
            return "same" if sha_fileobj(file).hex() == there.sha256 else "changed"
    return "same" if git_hash(path.read_bytes()) == there.git else "changed"
