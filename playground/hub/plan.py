"""The effect of a push on a repository, computed before anything is written."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from huggingface_hub.utils.sha import git_hash, sha_fileobj

from .errors import HubError
from .repo_ids import MANIFEST, PACKAGE_FILES


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
    files: tuple[RepoFile, ...]

    @classmethod
    def from_json(cls, info: Mapping[str, Any]) -> Self:
        """Read the response of the Hub."""
        files = tuple(
            RepoFile(
                each["rfilename"],
                int(each.get("size") or 0),
                each.get("blobId") or "",
                (each.get("lfs") or {}).get("sha256"),
            )
            for each in info.get("siblings") or []
        )
        sha, likes = str(info.get("sha") or ""), int(info.get("likes") or 0)
        return cls(str(info["id"]), sha, info.get("private") is True, likes, files)

    @property
    def sizes(self) -> dict[str, int]:
        return {file.path: file.size for file in self.files}


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
    """Compare the files of a folder with those of a repository.

    Without an `existing` one, the push creates it, `private` or not. Raises HubError if the
    repository has other content.
    """
    info = existing or RepoInfo(repo, "", private, 0, ())
    remote = {file.path: file for file in info.files}
    files = files_in(folder)
    owned = {"README.md", ".gitattributes", "LICENSE"}
    others = set(remote) - (owned if kind == "model" else owned | files.keys())
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
        FileChange(name, file.size, "removed")
        for name, file in remote.items()
        if name not in files and name in PACKAGE_FILES
    ]
    return PushPlan(
        repo,
        f"{endpoint}/{repo}" if kind == "model" else f"{endpoint}/{kind}s/{repo}",
        existing is not None,
        info.private,
        info.sha,
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


def files_in(folder: Path) -> dict[str, Path]:
    """Return the files in a folder and its subfolders by their relative path."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _file_status(path: Path, remote: RepoFile | None) -> str:
    """Compare a local file with that of the repository: new, same or changed."""
    if remote is None:
        return "new"
    if remote.sha256 is not None:
        with open(path, "rb") as file:
            return "same" if sha_fileobj(file).hex() == remote.sha256 else "changed"
    return "same" if git_hash(path.read_bytes()) == remote.git_hash else "changed"
