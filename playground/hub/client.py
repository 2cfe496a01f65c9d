"""What the playground does on the Hugging Face Hub, with somebody's token or with none: look, list, push, fetch.

One `Hub` is one visitor's for one errand. Its token is always said, a text or False: left out, huggingface_hub takes the one it
finds on the machine, which on a Space is the owner's. Errors come out as HubError, one sentence that says what to do, without
the token in it. Run in a process of its own (work.py): what hangs can be ended, and the settings below are for all of a process.
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

REACHED_WITHIN = 2.5  # seconds until the Hub counts as out of reach
ANSWERED_WITHIN = 12.0  # seconds for any one answer
WAITED_FOR = 15.0  # seconds that the Hub may ask us to wait; it may say a day
PASSING = (500, 502, 503, 504)  # statuses of trouble that may be over in a moment
RETRY_AFTER = 1.0  # seconds, where the Hub names none
SLOWEST = 100_000  # bytes a second that count as going on
MOST_LISTED = 200
LARGE = (".safetensors", ".png", ".parquet")
MOST_REVISIONS = 50


class HubError(RuntimeError):
    """What was asked of the Hub could not be done. `again`: the same may well work later."""

    def __init__(self, sentence: str, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class Silent(Exception):
    """The Hub does not answer, and is not asked again."""


class Later(Exception):
    """The Hub asks to come back after so many seconds."""


@dataclass(frozen=True)
class File:
    """A file of a repository: its size in bytes, its git hash, and the sha256 of one in LFS."""

    path: str
    size: int
    git: str
    sha256: str | None


@dataclass(frozen=True)
class About:
    """What the Hub tells of a repository at a revision, as far as it is used here. Its card is anybody's and is not read."""

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
    """What a push does with one file: new, changed, same or removed."""

    path: str
    size: int
    what: str


@dataclass(frozen=True)
class Plan:
    """What a push will do, before anything is written. `parent`: the branch's last commit, empty where it is yet to be made;
    `start`: the commit that the files were compared with, from which a new branch begins; empty where there is no repository."""

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
        """Whether anything is different."""
        return any(change.what != "same" for change in self.changes)


class Impatient(httpx.Client):
    """Whoever is silent twice in a row, or has never answered, is not asked again: huggingface_hub would ask six times, and wait a
    minute each."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.silences: dict[bytes, int] = {}  # in a row, by host

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
                raise Silent from error  # not among what huggingface_hub tries again
            raise
        self.silences[host] = 0
        return answer


def _retry_wait(request: httpx.Request, answer: httpx.Response) -> float | None:
    """Return the seconds to wait before a request is sent once more; None where it must not be.

    A 429 means that nothing was done, so any request whose body is still at hand may be repeated. After a 5xx only a request that
    changes nothing may be.
    """
    asked = answer.headers.get("retry-after", "").strip()
    wait = float(asked) if asked.isdigit() else None
    if (
        answer.status_code == 429
        and wait is not None
        and isinstance(request.stream, httpx.ByteStream)
    ):
        return wait  # more than WAITED_FOR was refused before
    if answer.status_code in PASSING and request.method in ("GET", "HEAD"):
        return RETRY_AFTER if wait is None else wait
    return None


def impatient_client() -> httpx.Client:
    """As huggingface_hub makes its own, but nobody is waited for without end."""

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
    """Set up this process for the Hub."""
    set_client_factory(impatient_client)
    logging.set_verbosity_error()  # its retries are told by us, once


class Hub:
    """The Hub as one visitor sees it.

    Args:
        token: the visitor's, or nothing for what everybody may read.
        endpoint: the address; the usual one when it is empty.
    """

    def __init__(self, token: str = "", endpoint: str = "") -> None:
        if token and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise HubError(
                "this is no token: it holds spaces or signs that no token has; copy it once more, it begins with hf_"
            )
        self.token = token
        self.api = HfApi(endpoint=endpoint or None, token=token or False)
        self.endpoint = self.api.endpoint

    def reach(self) -> None:
        """See whether anybody is there, so that no network is told within seconds and not after every retry.

        Raises:
            HubError: when no connection can be made.
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
        problem: list[str] = ["no answer"]

        def knock() -> None:  # in a thread: looking up a name knows no limit
            try:
                socket.create_connection((address.hostname or "", port), REACHED_WITHIN).close()
                problem.clear()
            except OSError as error:
                problem[:] = [error.strerror or str(error) or "no answer"]

        thread = threading.Thread(target=knock, daemon=True)
        thread.start()
        thread.join(REACHED_WITHIN)
        if problem:
            raise HubError(
                f"the Hub ({self.endpoint}) cannot be reached: {problem[0]}; look at the network and try again",
                again=True,
            )

    def account(self) -> dict[str, Any]:
        """Who the token belongs to: `name`, `orgs` in which one may write, and whether it `writes` at all.

        Raises:
            HubError: without a token, or with one that the Hub does not know.
        """
        if not self.token:
            raise HubError("sign in first: publishing needs a token that may write")
        with self.plainly("look up whose token this is"):
            told = self.api.whoami(token=self.token)
        access = (told.get("auth") or {}).get("accessToken") or {}
        orgs = [
            org["name"] for org in told.get("orgs") or [] if org.get("roleInOrg", "write") != "read"
        ]
        return {"name": told["name"], "orgs": orgs, "writes": access.get("role", "write") != "read"}

    # Looking

    def look(self, repo: str, revision: str = "main", kind: str = "model") -> About:
        """What the Hub tells of a repository at a revision, with the size of each file.

        Raises:
            HubError: when there is none that this visitor may see.
        """
        check_repo(repo)
        told = self.described(repo, revision, kind)
        with self.plainly("look at", repo):
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
        """All that the Hub tells of a repository at a revision, as it is. Here `repo` may be one of the old models without an owner.

        Raises:
            HubError: when there is none that this visitor may see.
        """
        check_revision(revision)
        with self.plainly("look at", repo):
            told = self._get(
                f"{kind}s/{repo}/revision/{quote(revision, safe='')}", {"blobs": "true"}
            )
            if not isinstance(told, dict):
                raise TypeError("an object was expected")
            return told

    def revisions(self, repo: str, revision: str = "main") -> list[dict[str, Any]]:
        """The latest commits of a repository, newest first."""
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
        """The names of a repository's branches."""
        with self.plainly("list the branches of", repo):
            return [branch.name for branch in self.api.list_repo_refs(repo).branches][
                :MOST_REVISIONS
            ]

    def gallery(self) -> list[dict[str, Any]]:
        """The models that carry the playground's tag, most liked first, as the Hub tells of them: each card is anybody's."""
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
        """What the Hub's API answers, as it is: huggingface_hub would read the cards in it, and stumble over some."""
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
        """Get files, whose sizes the Hub has told, into a folder.

        Raises:
            HubError: when one does not come, or is not as long as it should be.
        """
        for name, size in files.items():
            say(f"Fetching {name} ({in_words(size)})", size / SLOWEST)
            with self.plainly(f"fetch {name} of", repo):
                path = Path(
                    self.api.hf_hub_download(repo, name, revision=revision, local_dir=folder)
                )
            if path.stat().st_size != size:
                raise HubError(
                    f"{name} of {repo} came with {path.stat().st_size:,} of {size:,} bytes; try again",
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
        """What pushing the files of a folder would change. Writes nothing.

        Raises:
            HubError: when the repository holds something else, or cannot be looked at.
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
            except Missing:  # the branch is yet to be made, from what main holds
                parent = ""
        there = {file.path: file for file in about.files}
        ours = MANIFEST in there if kind == "model" else TAG in about.tags
        if not ours and set(there) - {"README.md", ".gitattributes", "LICENSE"}:
            held = ", ".join(sorted(there)[:3])
            raise HubError(
                f"the {kind} {repo} holds something else ({held}), which stays as it is; choose another name"
            )
        changes = tuple(
            Change(name, path.stat().st_size, _what(path, there.get(name)))
            for name, path in files.items()
        )
        if kind == "model":  # a licence that differs is its owner's own, and stays
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
        """Carry out a plan in one commit, and return the commit. Until that commit nothing of it can be seen.

        Raises:
            HubError: also when somebody else has pushed since the plan was made.
        """
        if not plan.writes and plan.parent:
            return plan.parent
        if plan.exists:
            return self._commit(folder, plan, message, say)
        say(f"Making {plan.repo}", 0.0, Phase.WRITING)
        with self.plainly("make", plan.repo):
            sdk = "gradio" if plan.kind == "space" else None
            self.api.create_repo(
                plan.repo, private=plan.private, repo_type=plan.kind, space_sdk=sdk
            )
        try:
            return self._commit(folder, plan, message, say)
        except HubError as error:
            left = f"; the {'private' if plan.private else 'public'} repository {plan.repo} was made before that and may be empty"
            raise HubError(
                f"{error}{left}: the same command fills it, or delete it on the Hub",
                again=error.again,
            ) from None

    def _commit(self, folder: Path, plan: Plan, message: str, say: Callable[..., None]) -> str:
        """Upload what a plan adds to a repository that exists, and commit it."""
        if plan.revision != "main" and not plan.parent:
            say(f"Making the branch {plan.revision}", 0.0, Phase.WRITING)
            with self.plainly(f"make the branch {plan.revision} of", plan.repo):
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
        for operation in (
            large
        ):  # one at a time, so that there is something to tell; the small ones travel in the commit
            size = (folder / operation.path_in_repo).stat().st_size
            say(
                f"Sending {operation.path_in_repo} ({in_words(size)})",
                size / SLOWEST,
                Phase.WRITING,
            )
            with self.plainly(f"send {operation.path_in_repo} to", plan.repo):
                self.api.preupload_lfs_files(
                    plan.repo,
                    [operation],
                    repo_type=plan.kind,
                    revision=plan.revision,
                    free_memory=False,
                )
        say("Making it one commit", 0.0, Phase.COMMITTING)
        with self.plainly("write to", plan.repo):
            done = self.api.create_commit(
                plan.repo, [*added, *removed], commit_message=message, repo_type=plan.kind, revision=plan.revision,
                parent_commit=plan.start or None,
            )  # fmt: skip
        return str(done.oid)

    # Errors

    @contextmanager
    def plainly(self, doing: str, repo: str = "") -> Iterator[None]:
        """Turn whatever goes wrong into a sentence."""
        try:
            yield
        except HubError:
            raise
        except Exception as error:
            raise self._plain(error, f"{doing} {repo}".strip(), repo) from None

    def _plain(self, error: Exception, doing: str, repo: str) -> HubError:
        chain: list[BaseException] = []
        cause: BaseException | None = error
        while (
            cause is not None and cause not in chain
        ):  # what failed in a thread of the client hides behind another error
            chain.append(cause)
            cause = cause.__cause__ or cause.__context__

        def found(*kinds: type[BaseException]) -> Any:
            return next((each for each in chain if isinstance(each, kinds)), None)

        if later := found(Later):
            return HubError(
                f"the Hub asks to wait {_minutes(later.args[0])} before it lets us {doing}; try again then",
                again=True,
            )
        if found(GatedRepoError):
            return HubError(
                f"{repo} is gated: ask for access on its page, {self.endpoint}/{repo}, then try again"
            )
        if found(RevisionNotFoundError):
            return Missing(f"{repo} has no such revision; choose one of those that it lists")
        if (answer := found(RepositoryNotFoundError)) and not (
            self.token and answer.response.status_code == 401
        ):
            seen = "that this token may see" if self.token else "that everybody may see"
            return Missing(f"there is no repository {repo} {seen}; look at the spelling, user/name")
        if found(OfflineModeIsEnabled):
            return HubError(
                "HF_HUB_OFFLINE is set on this machine: unset it and start the playground again",
                again=True,
            )
        if answer := found(HfHubHTTPError):
            return self._status(answer.response.status_code, answer, doing)
        if found(httpx.TimeoutException):
            return HubError(
                f"the Hub did not answer within {ANSWERED_WITHIN:g} s when asked to {doing}; try again",
                again=True,
            )
        if found(httpx.HTTPError, ConnectionError):
            return HubError(
                f"the connection to the Hub broke when asked to {doing}; try again", again=True
            )
        if found(OSError) and not isinstance(error, ValueError):
            problem = found(OSError)
            return HubError(
                f"could not {doing}: {problem.strerror or self._safe(str(problem))}; make room on the disk and try again",
                True,
            )
        unforeseen = f"{type(chain[-1]).__name__}: {self._safe(str(chain[-1]))}".split("\n")[0][
            :200
        ]  # for whoever reports it
        return HubError(
            f"the Hub answered with something else than was asked, when asked to {doing}; try again ({unforeseen})",
            again=True,
        )

    def _status(self, status: int, error: Any, doing: str) -> HubError:
        said = self._safe((error.server_message or "").split("\n")[0])[:200]
        said = f" (it says: {said})" if said else ""
        match status:
            case 401:
                return HubError(
                    f"the Hub does not take this token, it may have expired: make a new one and sign in again{said}"
                )
            case 403:
                here = ""
                if (
                    "SPACE_ID" in os.environ
                ):  # the scope contribute-repos, with which visitors of a Space sign in
                    here = "; signing in on a Space allows writing to repositories that were made from it only: choose a new name"
                return HubError(
                    f"this token may not {doing}: it must be one that writes there{here}{said}"
                )
            case 404:
                return Missing(f"there is nothing on the Hub to {doing}{said}")
            case 409:
                return HubError(
                    f"something else is being done with it right now, so we could not {doing}; try again{said}",
                    again=True,
                )
            case 412:
                return HubError(
                    "somebody else has pushed meanwhile, and nothing was overwritten; look at what it holds now and try again",
                    True,
                )
            case 429:
                return HubError(
                    f"the Hub has had too many requests from here to {doing}; try again in some minutes",
                    again=True,
                )
            case _ if status >= 500:
                return HubError(
                    f"the Hub has trouble itself (status {status}) and could not {doing}; try again later",
                    again=True,
                )
        return HubError(f"the Hub refused to {doing} (status {status}){said}")

    def _safe(self, text: str) -> str:
        return text.replace(self.token, "[token]") if self.token else text


class Missing(HubError):
    """There is no such repository, revision or file."""


def check_repo(repo: str) -> None:
    """Raises HubError unless this is the name of a repository."""
    if not is_repo(repo):
        raise HubError(
            f"{repo[:120]!r} is no repository; name one as user/name, with letters, digits, dots, dashes and underscores"
        )


def check_branch(name: str) -> None:
    """Raises HubError unless this can be the name of a branch."""
    if not is_branch(name):
        raise HubError(
            f"{name[:60]!r} is no name for a branch; use letters, digits, dots, dashes, underscores and slashes"
        )


def check_revision(revision: str) -> None:
    """Raises HubError unless this can be a branch, a tag or a commit."""
    if not is_revision(revision):
        raise HubError(
            f"{revision[:60]!r} is no revision; name a branch, a tag or a commit as the repository lists them"
        )


def url_of(endpoint: str, repo: str, kind: str = "model") -> str:
    """Return the address of a repository's page."""
    return f"{endpoint}/{'' if kind == 'model' else f'{kind}s/'}{repo}"


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files below a folder by their path in it."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def new_plan(
    folder: Path, repo: str, *, endpoint: str, revision: str = "main", private: bool = False, kind: str = "model"
) -> Plan:  # fmt: skip
    """Return the plan for a repository that does not exist yet."""
    changes = tuple(
        Change(name, path.stat().st_size, "new") for name, path in files_in(folder).items()
    )
    return Plan(repo, kind, revision, url_of(endpoint, repo, kind), False, private, "", "", changes)


def moment(text: str) -> float:
    """A time as the Hub writes it, in seconds since 1970."""
    return float(parse_datetime(text).timestamp())


def in_words(size: int) -> str:
    """A size in bytes for people."""
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
    """How a file of ours compares with the one that is there."""
    if there is None:
        return "new"
    if there.sha256 is not None:
        with open(path, "rb") as file:
            return "same" if sha_fileobj(file).hex() == there.sha256 else "changed"
    return "same" if git_hash(path.read_bytes()) == there.git else "changed"
