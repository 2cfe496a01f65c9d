"""The data of the fake Hub: users with tokens, and repositories with commits, without HTTP."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import yaml

KINDS = ("model", "dataset", "space")
WRITERS = ("admin", "write")  # roles with write access, of members of an organization and of tokens
LFS_SUFFIXES = (
    ".7z",
    ".arrow",
    ".bin",
    ".bz2",
    ".ckpt",
    ".gz",
    ".h5",
    ".joblib",
    ".msgpack",
    ".npy",
    ".npz",
    ".onnx",
    ".ot",
    ".parquet",
    ".pb",
    ".pickle",
    ".pkl",
    ".pt",
    ".pth",
    ".rar",
    ".safetensors",
    ".tar",
    ".tflite",
    ".tgz",
    ".wasm",
    ".xz",
    ".zip",
    ".zst",
)
GITATTRIBUTES = "".join(
    f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES
).encode()
_FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)\r?\n---(?:\r?\n|\Z)", re.DOTALL)


_clock = [datetime.now(UTC)]
_clock_lock = threading.Lock()


def now() -> datetime:
    """Return the time in milliseconds, later than any time before, so that events have an order."""
    with _clock_lock:
        _clock[0] = max(datetime.now(UTC), _clock[0] + timedelta(milliseconds=1))
        return _clock[0]


def git_hash(data: bytes) -> str:
    """Return the git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def as_list(value: object) -> list[str]:
    """Return the values of a field of a card, which may have one or several."""
    return (
        []
        if value is None
        else [str(item) for item in value]
        if isinstance(value, list | tuple)
        else [str(value)]
    )


@dataclass
class User:
    """A user; `orgs` are the roles (admin, write or read) by organization."""

    name: str
    orgs: dict[str, str] = field(default_factory=dict)


@dataclass
class Token:
    """An access token; `role` is write or read, and `display` is its name."""

    value: str
    user: User
    role: str = "write"
    expired: bool = False
    display: str = "laptop"


@dataclass(frozen=True)
class Blob:
    """The content of a file at one commit."""

    data: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def pointer(self) -> bytes:
        """Return the pointer that git stores instead of an LFS file."""
        return (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize "
            f"{len(self.data)}\n"
        ).encode()

    @property
    def oid(self) -> str:
        return git_hash(self.pointer if self.lfs else self.data)

    def lfs_fields(self, oid: str = "oid") -> dict | None:
        return (
            {oid: self.sha256, "size": len(self.data), "pointerSize": len(self.pointer)}
            if self.lfs
            else None
        )


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    files: dict[str, Blob]
    title: str
    message: str
    author: str
    date: datetime


def format_timestamp(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class Repo:
    """A repository: commits by id, branches by name.

    It starts with the initial commit of the Hub.
    """

    def __init__(
        self, kind: str, id: str, author: str, private: bool = False, gated: str | bool = False
    ) -> None:
        self.kind, self.id, self.private, self.gated = kind, id, private, gated
        self.namespace = id.split("/")[0] if "/" in id else ""
        self.likes = 0
        self.commits: dict[str, Commit] = {}
        self.branches: dict[str, str] = {}
        self.objects: dict[str, bytes] = {}  # LFS storage, by sha256
        self.created = now()
        self.commit(
            "main", {".gitattributes": Blob(GITATTRIBUTES, lfs=False)}, "initial commit", "", author
        )

    def commit(
        self, branch: str, files: dict[str, Blob], title: str, message: str, author: str
    ) -> Commit:
        """Add a commit with all its files to a branch."""
        parent, date = self.branches.get(branch), now()
        tree = {path: blob.oid for path, blob in sorted(files.items())}
        oid = hashlib.sha1(
            json.dumps(
                [self.kind, self.id, parent, tree, title, message, author, format_timestamp(date)]
            ).encode()
        ).hexdigest()
        self.commits[oid] = Commit(
            oid, parent, dict(sorted(files.items())), title, message, author, date
        )
        self.branches[branch] = oid
        return self.commits[oid]

    def find_commit(self, revision: str) -> Commit | None:
        """Return the commit of a branch or a commit id (at least its first seven digits)."""
        oid = self.branches.get(revision) or revision
        if oid in self.commits:
            return self.commits[oid]
        matches = (
            [commits for commits in self.commits if commits.startswith(oid)]
            if re.fullmatch("[0-9a-f]{7,39}", oid)
            else []
        )
        return self.commits[matches[0]] if len(matches) == 1 else None

    def history(self, commit: Commit) -> list[Commit]:
        """Return a commit and its ancestors, newest first."""
        line = [commit]
        while line[-1].parent:
            line.append(self.commits[line[-1].parent])
        return line

    @property
    def head(self) -> Commit:
        return self.commits[self.branches["main"]]

    def card(self, commit: Commit | None = None) -> dict:
        """Return the front matter of README.md."""
        readme = (commit or self.head).files.get("README.md")
        return card_data(readme.data.decode(errors="replace"))[0] if readme else {}

    def labels(self, commit: Commit | None = None) -> list[str]:
        """Return the tags of the Hub: those of the card, and those derived from it."""
        card, files = self.card(commit), (commit or self.head).files
        if self.kind == "model":
            labels = as_list(card.get("library_name")) + (
                ["safetensors"] if any(f.endswith(".safetensors") for f in files) else []
            )
            labels += (
                as_list(card.get("pipeline_tag"))
                + as_list(card.get("tags"))
                + as_list(card.get("language"))
            )
            labels += [f"dataset:{name}" for name in as_list(card.get("datasets"))]
        else:
            keys = (
                "task_categories",
                "task_ids",
                "language",
                "multilinguality",
                "size_categories",
                "language_creators",
            )
            labels = [
                f"{key}:{value}" for key in keys for value in as_list(card.get(key))
            ] + as_list(card.get("tags"))
        labels += [f"license:{name}" for name in as_list(card.get("license"))] + ["region:us"]
        return list(dict.fromkeys(labels))

    def to_json(self, commit: Commit, blobs: bool = False) -> dict:
        """Return the Hub's metadata of a repository."""
        card = self.card(commit)
        siblings = []
        for path, blob in commit.files.items():
            fields = (
                {"blobId": blob.oid, "size": len(blob.data), "lfs": blob.lfs_fields("sha256")}
                if blobs
                else {}
            )
            siblings.append({"rfilename": path} | fields)
        info = {
            "_id": hashlib.sha1(f"{self.kind} {self.id}".encode()).hexdigest()[:24],
            "id": self.id,
            "author": self.namespace or None,
            "sha": commit.oid,
            "createdAt": format_timestamp(self.created),
            "lastModified": format_timestamp(self.head.date),
            "private": self.private,
            "gated": self.gated,
            "disabled": False,
            "downloads": 0,
            "likes": self.likes,
            "tags": self.labels(commit),
            "cardData": card,
            "siblings": siblings,
            "usedStorage": sum(len(blob.data) for blob in commit.files.values()),
        }
        if self.kind == "model":
            info |= {"modelId": self.id} | {
                key: card[key]
                for key in ("library_name", "pipeline_tag", "model-index")
                if key in card
            }
            if numbers := parameters(commit):
                info["safetensors"] = {"parameters": numbers, "total": sum(numbers.values())}
            if (config := commit.files.get("config.json")) and isinstance(
                read := read_json(config.data), dict
            ):
                info["config"] = {
                    key: read[key]
                    for key in ("architectures", "model_type", "auto_map")
                    if key in read
                }
        return info


def read_json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def parameters(commit: Commit) -> dict[str, int]:
    """Return the number of parameters by dtype, from the header of model.safetensors."""
    blob = commit.files.get("model.safetensors")
    try:
        (length,) = struct.unpack_from("<Q", blob.data)
        header = json.loads(blob.data[8 : 8 + length])
        count: dict[str, int] = {}
        for name, tensor in header.items():
            if name != "__metadata__":
                count[tensor["dtype"]] = count.get(tensor["dtype"], 0) + math.prod(tensor["shape"])
        return count
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, struct.error):
        return {}


def card_data(readme: str) -> tuple[dict, list[str], list[str]]:
    """Return a README's front matter, the errors for which the Hub rejects it, and the warnings."""
    match = _FRONT_MATTER.match(readme)
    if not match:
        return {}, [], ["empty or missing yaml metadata in repo card"]
    try:
        card = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        return {}, [f"YAML: {error}"], []
    if not isinstance(card, dict):
        return (
            {},
            ["metadata must be a mapping"] if card else [],
            [] if card else ["empty or missing yaml metadata in repo card"],
        )
    errors = [
        f'"{key}" must be an array of strings'
        for key in ("tags", "datasets", "metrics")
        if not _strings(card.get(key, []))
    ]
    index = card.get("model-index") or []
    if not isinstance(index, list) or any(
        not isinstance(entry, dict) or "name" not in entry for entry in index
    ):
        errors.append('"model-index[0].name" is required')
    return card, errors, []


def _strings(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(item, str) for item in value)
    )
