"""The effect of a push on a repository, computed before anything is written."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelInfo
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils.sha import git_hash

from .errors import HubError
from .repo_ids import MANIFEST, PACKAGE_FILES

PAGE = "index.html"  # of a Space


class RepoInfo(ModelInfo):
    """The metadata of a repository at a revision, without the card, which may be malformed."""

    def __init__(self, info: Mapping[str, Any]) -> None:
        names = ("id", "sha", "private", "likes", "siblings")
        super().__init__(**{name: info[name] for name in names if name in info})

    @property
    def files(self) -> dict[str, RepoSibling]:
        return {file.rfilename: file for file in self.siblings or ()}

    @property
    def sizes(self) -> dict[str, int]:
        return {name: file.size or 0 for name, file in self.files.items()}


@dataclass(frozen=True)
class FileChange:
    """The effect of a push on one file; `status` is new, changed, same or removed."""

    path: str
    size: int
    status: str


@dataclass(frozen=True)
class PushPlan:
    """The effect of a push on a model or a Space, computed before it writes anything.

    `parent` is the last commit, with which the files are compared, or empty for a new repository.
    """

    repo: str
    url: str
    exists: bool
    private: bool
    parent: str
    changes: tuple[FileChange, ...]
    kind: str = "model"

    @property
    def has_writes(self) -> bool:
        """Return whether any file differs."""
        return any(change.status != "same" for change in self.changes)


def plan_push(
    folder: Path,
    repo: str,
    existing: RepoInfo | None,
    *,
    endpoint: str,
    private: bool = False,
    kind: str = "model",
) -> PushPlan:
    """Compare a folder with a repository. Raises HubError if it has other content."""
    info = existing or RepoInfo({"id": repo, "sha": "", "private": private})
    remote = info.files
    files = {path.name: path for path in sorted(folder.iterdir())}
    others = set(remote) - {"README.md", ".gitattributes", "LICENSE"}
    if kind == "space":
        others.discard(PAGE)
    if others and (kind == "space" or MANIFEST not in remote):
        raise other_content(kind, repo, others)
    changes = [
        FileChange(name, path.stat().st_size, _file_status(path, remote.get(name)))
        for name, path in files.items()
    ]
    changes = [  # another license file is the choice of the owner, and stays
        change for change in changes if (change.path, change.status) != ("LICENSE", "changed")
    ]
    changes += [
        FileChange(name, size, "removed")
        for name, size in info.sizes.items()
        if name not in files and name in PACKAGE_FILES
    ]
    return PushPlan(
        repo,
        f"{endpoint}/{repo}" if kind == "model" else f"{endpoint}/{kind}s/{repo}",
        existing is not None,
        bool(info.private),
        info.sha or "",
        tuple(changes),
        kind,
    )


def other_content(kind: str, repo: str, files: Iterable[str]) -> HubError:
    """Return the error for a repository that has files of its owner where a push would write."""
    what, remedy = (
        ("model", "choose another name")
        if kind == "model"
        else ("Space", "choose another name, or publish without the interactive page")
    )
    return HubError(
        f"the {what} {repo} has other content ({', '.join(sorted(files)[:3])}), which stays "
        f"unchanged; {remedy}"
    )


def _file_status(path: Path, remote: RepoSibling | None) -> str:
    """Compare a local file with that of the repository: new, same or changed."""
    if remote is None:
        return "new"
    data = path.read_bytes()
    is_same = (
        hashlib.sha256(data).hexdigest() == remote.lfs.sha256
        if remote.lfs
        else git_hash(data) == remote.blob_id
    )
    return "same" if is_same else "changed"
