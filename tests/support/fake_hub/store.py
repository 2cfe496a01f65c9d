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

from playground.hub.existing_card import NoAliasLoader

KINDS = ("model", "dataset", "space")
WRITERS = ("admin", "write")  # roles with write access, of members of an organization and of tokens
LFS_SUFFIXES = (".bin", ".parquet", ".pt", ".safetensors", ".zip")
LFS_MIN_BYTES = 10_000_000  # larger files are stored in LFS
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


def format_timestamp(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def git_hash(data: bytes) -> str:
    """Return the git object id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_lfs_file(path: str, size: int) -> bool:
    return size > 0 and (path.endswith(LFS_SUFFIXES) or size >= LFS_MIN_BYTES)


@dataclass(frozen=True)
class Account:
    """The owner of a token; `role` is write or read, `orgs` are the roles by organization."""

    name: str
    orgs: dict[str, str] = field(default_factory=dict)
    role: str = "write"
    is_expired: bool = False

    def can_write(self, namespace: str) -> bool:
        return namespace == self.name or self.orgs.get(namespace) in WRITERS


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
        lines = "version https://git-lfs.github.com/spec/v1", f"oid sha256:{self.sha256}"
        return "\n".join((*lines, f"size {len(self.data)}\n")).encode()

    @property
    def oid(self) -> str:
        return git_hash(self.pointer if self.lfs else self.data)

    def lfs_fields(self, oid: str = "oid") -> dict | None:
        fields = {oid: self.sha256, "size": len(self.data), "pointerSize": len(self.pointer)}
        return fields if self.lfs else None


@dataclass(frozen=True)
class Commit:
    oid: str
    parent: str | None
    files: dict[str, Blob]
    title: str
    author: str
    date: datetime


class Repo:
    """A repository: commits by id, branches by name.

    It starts with the initial commit of the Hub.
    """

    def __init__(self, kind: str, id: str, author: str, private: bool = False) -> None:
        self.kind, self.id, self.private = kind, id, private
        self.gated: str | bool = False
        self.likes = 0
        self.commits: dict[str, Commit] = {}
        self.branches: dict[str, str] = {}
        self.objects: dict[str, bytes] = {}  # LFS storage, by sha256
        self.created = now()
        blob = Blob(GITATTRIBUTES, lfs=False)
        self.commit("main", {".gitattributes": blob}, "initial commit", author)

    @property
    def namespace(self) -> str:
        return self.id.split("/")[0] if "/" in self.id else ""

    @property
    def head(self) -> Commit:
        return self.commits[self.branches["main"]]

    def is_readable_by(self, account: Account | None) -> bool:
        return not self.private or self.is_of_member(account)

    def is_of_member(self, account: Account | None) -> bool:
        return account is not None and self.namespace in (account.name, *account.orgs)

    def commit(self, branch: str, files: dict[str, Blob], title: str, author: str) -> Commit:
        """Add a commit with all its files to a branch."""
        parent, date, files = self.branches.get(branch), now(), dict(sorted(files.items()))
        tree = {path: blob.oid for path, blob in files.items()}
        content = [self.kind, self.id, parent, tree, title, author, format_timestamp(date)]
        oid = hashlib.sha1(json.dumps(content).encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent, files, title, author, date)
        self.branches[branch] = oid
        return self.commits[oid]

    def find_commit(self, revision: str) -> Commit | None:
        """Return the commit of a branch or a commit id."""
        return self.commits.get(self.branches.get(revision, revision))

    def to_json(self, commit: Commit, blobs: bool = False) -> dict:
        """Return the Hub's metadata of a repository."""
        files = commit.files
        readme, config = files.get("README.md"), files.get("config.json")
        card = read_card(readme.data)[0] if readme else {}
        siblings: list[dict] = [{"rfilename": path} for path in files]
        if blobs:
            for sibling, blob in zip(siblings, files.values(), strict=True):
                sibling |= {"blobId": blob.oid, "size": len(blob.data)}
                sibling["lfs"] = blob.lfs_fields("sha256")
        info = {
            "id": self.id,
            "author": self.namespace or None,
            "sha": commit.oid,
            "createdAt": format_timestamp(self.created),
            "lastModified": format_timestamp(self.head.date),
            "private": self.private,
            "gated": self.gated,
            "likes": self.likes,
            "tags": [tags] if isinstance(tags := card.get("tags") or [], str) else tags,
            "cardData": card,
            "siblings": siblings,
        }
        if numbers := parameters(files.get("model.safetensors")):
            info["safetensors"] = {"parameters": numbers, "total": sum(numbers.values())}
        if config and isinstance(read := read_json(config.data), dict):
            keys = {"architectures", "model_type", "auto_map"} & set(read)
            info["config"] = {key: read[key] for key in keys}
        return info


def read_json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def parameters(weights: Blob | None) -> dict[str, int]:
    """Return the number of parameters by dtype, from the header of a safetensors file."""
    try:
        (length,) = struct.unpack_from("<Q", weights.data)
        header = json.loads(weights.data[8 : 8 + length])
        count: dict[str, int] = {}
        for name, tensor in header.items():
            if name != "__metadata__":
                count[tensor["dtype"]] = count.get(tensor["dtype"], 0) + math.prod(tensor["shape"])
        return count
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, struct.error):
        return {}


def read_card(readme: bytes) -> tuple[dict, list[str], list[str]]:
    """Return a README's front matter, the errors for which the Hub rejects it, and the warnings."""
    match = _FRONT_MATTER.match(readme.decode(errors="replace"))
    try:
        card = yaml.load(match[1], Loader=NoAliasLoader) if match else None
    except (yaml.YAMLError, RecursionError) as error:
        return {}, [f"YAML: {error}"], []
    if not card:
        return {}, [], ["empty or missing yaml metadata in repo card"]
    if not isinstance(card, dict):
        return {}, ["metadata must be a mapping"], []
    errors = [
        f'"{key}" must be an array of strings'
        for key in ("tags", "datasets", "metrics")
        if not _are_strings(card.get(key, []))
    ]
    index = card.get("model-index") or []
    if not isinstance(index, list) or not all(isinstance(x, dict) and "name" in x for x in index):
        errors.append('"model-index[0].name" is required')
    return card, errors, []


def _are_strings(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(isinstance(item, str) for item in values)
