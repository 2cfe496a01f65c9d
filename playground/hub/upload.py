"""The upload of a push: one commit, whose files become visible together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from playground.common.format import format_bytes

from .errors import HubError
from .plan import PushPlan
from .repo_ids import Phase
from .transport import MIN_BYTES_PER_S

if TYPE_CHECKING:
    from .client import Hub

LFS_SUFFIXES = (".safetensors", ".png")

# Called with a message, the expected seconds and the phase.
Report = Callable[..., None]


def push(
    hub: Hub, folder: Path, plan: PushPlan, message: str, report: Report = lambda *_: None
) -> str:
    """Execute a plan in one commit, and return the commit: the method `Hub.push`.

    Its files become visible with that commit only.

    Raises:
        HubError: if an operation fails, or another commit was pushed after the plan.
    """
    if not plan.has_writes and plan.parent:
        return plan.parent
    if plan.exists:
        return _commit(hub, folder, plan, message, report)
    report(f"Creating {plan.repo}", 0.0, Phase.WRITING)
    with hub.translating_errors("create", plan.repo):
        hub.api.create_repo(
            plan.repo,
            private=plan.private,
            repo_type=plan.kind,
            space_sdk="static" if plan.kind == "space" else None,
        )
    try:
        return _commit(hub, folder, plan, message, report)
    except HubError as error:
        visibility = "private" if plan.private else "public"
        raise HubError(
            f"{error}; the {visibility} repository {plan.repo} was created before the error "
            "and may be empty: repeat the operation to fill it, or delete it on the Hub",
            retryable=error.retryable,
        ) from None


def _commit(hub: Hub, folder: Path, plan: PushPlan, message: str, report: Report) -> str:
    """Upload the changes of a plan to an existing repository, and commit them."""
    if plan.revision != "main" and not plan.parent:
        report(f"Creating the branch {plan.revision}", 0.0, Phase.WRITING)
        with hub.translating_errors(f"create the branch {plan.revision} of", plan.repo):
            hub.api.create_branch(plan.repo, branch=plan.revision, revision=plan.start or None)
    if not plan.has_writes:
        return plan.start
    added = [
        CommitOperationAdd(change.path, folder / change.path)
        for change in plan.changes
        if change.status in ("new", "changed")
    ]
    removed = [
        CommitOperationDelete(change.path) for change in plan.changes if change.status == "removed"
    ]
    _upload_large_files(hub, folder, plan, added, report)
    report("Committing", 0.0, Phase.COMMITTING)
    with hub.translating_errors("commit to", plan.repo):
        done = hub.api.create_commit(
            plan.repo,
            [*added, *removed],
            commit_message=message,
            revision=plan.revision,
            parent_commit=plan.start or None,
            repo_type=plan.kind,
        )
    return str(done.oid)


def _upload_large_files(
    hub: Hub, folder: Path, plan: PushPlan, added: list[CommitOperationAdd], report: Report
) -> None:
    """Upload each large file separately, with its own progress; the commit has the small files."""
    for operation in added:
        name = operation.path_in_repo
        if not name.endswith(LFS_SUFFIXES):
            continue
        size = (folder / name).stat().st_size
        report(f"Uploading {name} ({format_bytes(size)})", size / MIN_BYTES_PER_S, Phase.WRITING)
        with hub.translating_errors(f"upload {name} to", plan.repo):
            hub.api.preupload_lfs_files(
                plan.repo,
                [operation],
                revision=plan.revision,
                repo_type=plan.kind,
                free_memory=False,
            )
