"""A client of the Hugging Face Hub: inspect, list, push and download repositories.

A `Hub` belongs to one user and one job. It always passes the token explicitly, as a string or
False, because huggingface_hub would otherwise use the token of the machine. On a Space that is the
token of its owner. The client runs in its own process (tasks.py), because a hanging request can
then be ended.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
    http_backoff,
)

from playground.common import messages
from playground.common.env import TAG
from playground.common.format import format_bytes, format_count
from playground.errors import UserError

from .errors import HubError, NotFoundError, to_hub_error
from .plan import PushPlan, RepoInfo, plan_push
from .repo_ids import INVALID_TOKEN, Phase, check_repo, check_revision, is_token
from .transport import MIN_BYTES_PER_S

MAX_LISTED = 200
Report = Callable[..., None]


class Hub:
    """A connection to the Hub with the token of one user; empty for public repositories only.

    `endpoint` is the URL of the Hub; empty for the default. Every method raises HubError.
    """

    def __init__(self, token: str = "", endpoint: str = "") -> None:
        if token and not is_token(token):
            raise HubError(INVALID_TOKEN)
        self.token = token
        self.api = HfApi(endpoint=endpoint or None, token=token or False)
        self.endpoint = self.api.endpoint

    def account(self) -> dict[str, Any]:
        """Return the account of the token: `name`, `orgs` with write access, and `writes`."""
        if not self.token:
            raise HubError(messages.SIGN_IN_FIRST)
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

    def repo_info(self, repo: str, revision: str = "main", kind: str = "model") -> RepoInfo:
        """Return the metadata of a model or a Space at a revision, with the size of each file."""
        check_repo(repo)
        info = self.raw_repo_info(repo, revision, f"{kind}s")
        with self.translating_errors("read", repo):
            return RepoInfo(info)

    def raw_repo_info(
        self, repo: str, revision: str = "main", kind: str = "models"
    ) -> dict[str, Any]:
        """Return the complete response for a repository; `kind` is models, datasets or spaces."""
        check_revision(revision)
        with self.translating_errors("read", repo if kind == "models" else f"{kind}/{repo}"):
            info = self._get(
                f"{kind}/{repo}/revision/{quote(revision, safe='')}", {"blobs": "true"}
            )
            if not isinstance(info, dict):
                raise TypeError("the response is not a JSON object")
            return info

    def gallery(self) -> list[dict[str, Any]]:
        """Return the models with the playground's tag, most liked first, with untrusted cards."""
        with self.translating_errors("list the models"):
            fields = ["cardData", "likes", "private", "safetensors", "sha"]
            parameters = {"filter": TAG, "sort": "likes", "direction": -1, "limit": MAX_LISTED}
            models = self._get("models", parameters | {"expand": fields})
            return [
                model
                for model in models
                if isinstance(model, dict) and isinstance(model.get("id"), str)
            ][:MAX_LISTED]

    def _get(self, path: str, parameters: dict[str, Any]) -> Any:
        """Return the raw response: huggingface_hub would fail on malformed cards in it."""
        response = http_backoff(
            "GET",
            f"{self.endpoint}/api/{path}",
            max_retries=1,
            retry_on_exceptions=(),  # a host that does not respond gets one request
            params=parameters,
            headers=build_hf_headers(token=self.token or False),
        )
        hf_raise_for_status(response)
        return response.json()

    def fetch(
        self,
        repo: str,
        revision: str,
        files: dict[str, int],
        folder: Path,
        report: Report = lambda *_: None,
        kind: str = "model",
    ) -> None:
        """Download files into a folder; `files` gives their sizes."""
        for name, size in files.items():
            report(f"Downloading {name} ({format_bytes(size)})", size / MIN_BYTES_PER_S)
            with self.translating_errors(f"download {name} of", repo):
                path = Path(
                    self.api.hf_hub_download(
                        repo, name, revision=revision, local_dir=folder, repo_type=kind
                    )
                )
            if path.stat().st_size != size:
                raise HubError(
                    f"{name} of {repo} arrived with {path.stat().st_size:,} of {size:,} bytes; "
                    "try again",
                    retryable=True,
                )

    # Pushing

    def plan(
        self, folder: Path, repo: str, *, private: bool = False, kind: str = "model"
    ) -> PushPlan:
        """Compute the effect of a push of the files in a folder, without writing anything."""
        check_repo(repo)
        existing: RepoInfo | None = None
        with suppress(NotFoundError):  # the push creates the repository
            existing = self.repo_info(repo, kind=kind)
        return plan_push(folder, repo, existing, endpoint=self.endpoint, private=private, kind=kind)

    def push(
        self, folder: Path, plan: PushPlan, message: str, report: Report = lambda *_: None
    ) -> str:
        """Execute a plan in one commit, and return the commit.

        `report` gets a message, the expected seconds and the phase.
        """
        if not plan.has_writes and plan.parent:
            return plan.parent
        if plan.exists:
            return self._commit(folder, plan, message, report)
        report(f"Creating {plan.repo}", 0.0, Phase.WRITING)
        with self.translating_errors("create", plan.repo):
            self.api.create_repo(
                plan.repo,
                private=plan.private,
                repo_type=plan.kind,
                space_sdk="static" if plan.kind == "space" else None,
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

    def _commit(self, folder: Path, plan: PushPlan, message: str, report: Report) -> str:
        """Upload the changes of a plan to an existing repository, and commit them."""
        removed = [change.path for change in plan.changes if change.status == "removed"]
        written = [change for change in plan.changes if change.status in ("new", "changed")]
        added = [CommitOperationAdd(change.path, folder / change.path) for change in written]
        size = sum(change.size for change in written)
        text = f"Uploading {format_count(len(written), 'file')} ({format_bytes(size)})"
        report(text, size / MIN_BYTES_PER_S, Phase.WRITING)
        with self.translating_errors("upload to", plan.repo):
            self.api.preupload_lfs_files(plan.repo, added, repo_type=plan.kind, free_memory=False)
        report("Committing", 0.0, Phase.COMMITTING)
        with self.translating_errors("commit to", plan.repo):
            done = self.api.create_commit(
                plan.repo,
                [*map(CommitOperationDelete, removed), *added],
                commit_message=message,
                repo_type=plan.kind,
                parent_commit=plan.parent or None,
            )
        return str(done.oid)

    # Errors

    @contextmanager
    def translating_errors(self, action: str, repo: str = "") -> Iterator[None]:
        """Convert every other error to a HubError: `action` completes "could not ..."."""
        try:
            yield
        except (UserError, MemoryError):
            raise
        except Exception as error:
            raise to_hub_error(
                error, f"{action} {repo}".strip(), repo, endpoint=self.endpoint, token=self.token
            ) from None
