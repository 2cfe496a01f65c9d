"""Datasets on the Hub: what a name means, and the files of a configuration and a split.

The `datasets` library finds the files, as `load_dataset` does; no code of a repository runs.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from datasets import DownloadConfig  # type: ignore[import-untyped]
from datasets.config import REPOYAML_FILENAME  # type: ignore[import-untyped]
from datasets.data_files import (  # type: ignore[import-untyped]
    EmptyDatasetError,
    get_data_patterns,
    resolve_pattern,
    sanitize_patterns,
)
from datasets.utils.file_utils import is_relative_path  # type: ignore[import-untyped]
from huggingface_hub import HfFileSystem, constants
from huggingface_hub.utils import parse_hf_uri  # type: ignore[attr-defined]

from playground.datasets.pairs import DatasetError
from playground.datasets.sources import HUB_PREFIX, ReadOptions

from .client import Hub
from .repo_ids import is_repo, is_revision

MAX_LISTED = 20  # names in a message
FORMATS = ("parquet", "csv", "tsv", "jsonl", "ndjson", "json", "txt")  # each may end with .gz
# Files in these formats are read if there is no other, and then without those that describe data.
DOCUMENT_FORMATS = ("json", "txt")
DOCUMENTS = ("info", "license", "metadata", "readme", "requirements", "schema", "stats", "vocab")
_FORMAT_PATTERN = re.compile(rf"\.({'|'.join(FORMATS)})(\.gz)?$", re.IGNORECASE)
_VIEWER_PATTERN = re.compile(r"(.+://.+?)/viewer(?:/([^/?#]+))?(?:/([^/?#]+))?/?(?:[?#].*)?")


def parse_name(name: str, options: ReadOptions) -> tuple[str, str, ReadOptions]:
    """Return the repository and the revision of a name or an address, and the options.

    The address of a viewer names a configuration and a split, unless the options do. Raises
    DatasetError for any other text.
    """
    text = name.strip().removeprefix(HUB_PREFIX).strip()
    if viewer := _VIEWER_PATTERN.fullmatch(text):
        text, config, split = (unquote(part or "") for part in viewer.groups())
        options = replace(options, config=options.config or config, split=options.split or split)
    if "://" not in text and text.split("/")[0].lower() not in constants.HF_URL_HOSTS:
        text = f"hf://datasets/{text.removeprefix('datasets/')}"
    try:
        uri = parse_hf_uri(text, endpoint=constants.ENDPOINT)
        revision = uri.revision or "main"
        is_valid = uri.type == "dataset" and is_repo(uri.id) and is_revision(revision)
        if not is_valid or uri.path_in_repo or "//" in text.partition("://")[2]:
            raise ValueError("a path, or an invalid name")
    except ValueError:
        raise DatasetError(
            f"{name[:120]!r} is not a dataset; write user/name, user/name@revision or the address "
            "of its page, and choose a configuration and a split apart"
        ) from None
    return uri.id, revision, options


class Repository:
    """The files of a dataset at a commit, and its card."""

    def __init__(self, hub: Hub, info: Mapping[str, Any]) -> None:
        card = info.get("cardData")
        self.card: dict[str, Any] = card if isinstance(card, dict) else {}
        self.name, sha = str(info["id"]), str(info["sha"])  # the name differs after a renaming
        self.base = f"hf://datasets/{self.name}@{sha}/"
        self.sizes: dict[str, int] = {
            self.base + each["rfilename"]: each.get("size") or 0 for each in info["siblings"]
        }
        license_id = self.card.get("license")
        self.origin = {
            "dataset": self.name,
            "license": license_id if isinstance(license_id, str) else "",
            "revision": sha,
        }
        token = hub.token or False  # None would send the token of this machine
        self.files = HfFileSystem(endpoint=hub.endpoint, token=token)
        self.download_config = DownloadConfig(
            token=token, storage_options={"hf": {"endpoint": hub.endpoint}}
        )

    def find_split(self, options: ReadOptions) -> tuple[str, str, list[str]]:
        """Return the names of a configuration and of its split, and the split's files."""
        configs = self._configs()
        defaults = [name for name in configs if name == "default" or configs[name][2]]
        config = self._choose("configuration", configs, options.config, defaults)
        folder, patterns, _ = configs[config]
        if not all(map(_is_inside, [folder, *chain(*patterns.values())])):
            raise DatasetError(
                f"the card of {self.name} names files outside of this dataset; download it, and "
                "upload one of its files"
            )
        base = self.base + folder
        with suppress(EmptyDatasetError, ValueError):  # a name that is no split
            patterns = patterns or get_data_patterns(base.rstrip("/"), self.download_config)
        splits = {
            str(split): files
            for split, each in patterns.items()
            if (files := self._tables(chain(*(self._resolve(base, pattern) for pattern in each))))
        }
        if not splits:
            endings = {PurePosixPath(path).suffix for path in self.sizes} - {""}
            raise DatasetError(
                f"{self.name} has no table that can be read, only files in "
                f"{join_names(sorted(endings)) or 'no format'}; {join_names(FORMATS)} are accepted"
            )
        split = self._choose("split", splits, options.split, ["train"])
        return config, split, splits[split]

    def _configs(self) -> dict[str, tuple[str, dict[str, list[str]], bool]]:
        """Return for each configuration its folder, patterns by split, and if it is a default."""
        try:
            if self.base + REPOYAML_FILENAME in self.sizes:
                raise ValueError("this file may describe configurations too")
            configs = {
                str(each["config_name"]): (
                    str(each.get("data_dir") or ""),
                    sanitize_patterns(each.get("data_files") or {}),
                    bool(each.get("default")),
                )
                for each in self.card.get("configs") or [{"config_name": "default"}]
            }
            patterns = chain(*(chain(*each.values()) for _, each, _ in configs.values()))
            if not all(isinstance(pattern, str) for pattern in patterns):
                raise TypeError("a pattern must be a text")
            return configs
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DatasetError(
                f"the configurations of {self.name} are described in a form that is not read here; "
                "download the dataset, and upload one of its files"
            ) from None

    def _choose(
        self, kind: str, names: Collection[str], requested: str, defaults: Sequence[str]
    ) -> str:
        """Return the requested name, else the only default or only name. Raises DatasetError."""
        candidates = [requested] if requested else [name for name in defaults if name in names]
        chosen = candidates if len(candidates) == 1 else list(names)
        if len(chosen) == 1 and chosen[0] in names:
            return chosen[0]
        problem = f"no {kind} {requested[:60]}" if requested else f"{len(names)} {kind}s"
        raise DatasetError(
            f"{self.name} has {problem}; choose one of {join_names(names)}",
            configs=list(names) if kind == "configuration" else (),
            splits=list(names) if kind == "split" else (),
        )

    def _resolve(self, base: str, pattern: str) -> list[str]:
        try:
            paths: list[str] = resolve_pattern(pattern, base, download_config=self.download_config)
            return paths
        except FileNotFoundError:
            return []

    def _tables(self, paths: Iterable[str]) -> list[str]:
        """Return the files in one format: in the most frequent one, if possible in no document."""
        by_format: dict[str, list[str]] = {}
        for path in dict.fromkeys(paths):
            match = _FORMAT_PATTERN.search(path)
            if match and path in self.sizes and "::" not in path:
                by_format.setdefault(match[1].lower(), []).append(path)
        if not by_format:
            return []
        chosen = max(
            sorted(by_format, key=FORMATS.index),
            key=lambda name: (name not in DOCUMENT_FORMATS, len(by_format[name])),
        )
        files = by_format[chosen]
        if chosen in DOCUMENT_FORMATS:
            stems = {path: PurePosixPath(path).name.partition(".")[0].lower() for path in files}
            files = [path for path in files if stems[path] not in DOCUMENTS] or files
        return files


def _is_inside(path: str) -> bool:
    """Return whether a path or pattern of a card stays in its repository.

    Others refer to any address or file: "https://…", "zip://…::https://…", "/etc", "..".
    """
    return is_relative_path(path) and "::" not in path and ".." not in unquote(path).split("/")


def join_names(names: Iterable[str]) -> str:
    names = list(names)
    listed = ", ".join(name[:60] for name in names[:MAX_LISTED])
    return f"{listed} and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else listed
