"""Datasets on this machine: a folder each, named by the SHA-256 of its content."""

import json
import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from playground.common.atomic_write import write_dir, write_file
from playground.common.storage import checkpoints_root
from playground.common.strict_json import read_json
from playground.errors import UserError

from .pair_builder import validate_vocabulary
from .pairs import (
    SHA256_PATTERN,
    TENSOR_DTYPES,
    DatasetError,
    DatasetNotFoundError,
    PairDataset,
    content_sha256,
)

_DATA_FILE, _METADATA_FILE = "rows.safetensors", "rows.json"
UPLOADED = "uploaded"  # the file of a dataset that users may delete: no command stored it
ADD_AGAIN = "remove the dataset and add it again"


def store(dataset: PairDataset, root: Path | None = None) -> str:
    """Store a dataset atomically, and return the SHA-256 that identifies it. Raises OSError."""
    folder = (root or datasets_dir()) / dataset.sha256
    files = to_files(dataset)
    origin = dataset_origin(dataset.sha256) if not dataset.origin and root is None else {}
    if origin:  # the same data came from the Hub before
        files = to_files(replace(dataset, origin=origin))
    if any(
        not (folder / name).is_file() or (folder / name).read_bytes() != data
        for name, data in files.items()
    ):
        write_dir(folder, files)
    (folder / UPLOADED).unlink(missing_ok=True)
    return dataset.sha256


def to_files(dataset: PairDataset) -> dict[str, bytes]:
    """Return the files that store a dataset, by name."""
    metadata = {
        "rows": len(dataset),
        "vocabulary": list(dataset.vocabulary),
        "longest_source": max(dataset.source_lengths),
        "longest_target": max(dataset.target_lengths),
        "duplicates": dataset.duplicates,
        "contradictions": dataset.conflicts,
    }
    if dataset.origin:
        metadata["origin"] = dataset.origin
    return {
        _DATA_FILE: safetensors.numpy.save(dataset.tensors()),
        _METADATA_FILE: json.dumps(metadata, indent=1).encode() + b"\n",
    }


def datasets_dir() -> Path:
    """Return the folder of datasets on this machine."""
    return checkpoints_root() / "rows"


def owned_datasets_dir(owner: str) -> Path:
    """Return the folder with a file per dataset of an owner (a fingerprint), by its SHA-256."""
    return datasets_dir() / ".owners" / owner[:32]


def mark_owned(marker: Path, address: str, name: str) -> None:
    """Write the file of a dataset in `owned_datasets_dir`: the address, hashed, and the name."""
    marker.parent.mkdir(parents=True, exist_ok=True)
    write_file(marker, f"{address}\n{name}".encode(errors="replace"))


def read_marker(marker: Path) -> tuple[str, str]:
    """Return address and name of a dataset of an owner; empty if it is missing."""
    try:
        address, _, name = marker.read_bytes().decode(errors="replace").partition("\n")
    except OSError:
        return "", ""
    return address, name


def dataset_name(owner: str, sha256: str) -> str:
    """Return the name under which this owner, and no other, sees a dataset; empty without one."""
    return read_marker(owned_datasets_dir(owner) / sha256)[1]


def dataset_path(sha256: str) -> Path:
    """Return the file of the dataset with this SHA-256, or raise DatasetNotFoundError."""
    path = datasets_dir() / sha256 / _DATA_FILE
    if not SHA256_PATTERN.fullmatch(sha256) or not path.is_file():
        raise DatasetNotFoundError(
            f"the dataset of this task ({sha256[:12]}…) is not stored here; add it with "
            "`python -m playground dataset FILE`, which recognizes the same data by its SHA-256"
        )
    return path


def load_pairs(sha256: str) -> PairDataset:
    """Load the dataset with this SHA-256. Raises DatasetError if it is not here or damaged."""
    vocabulary = tuple(load_metadata(sha256)["vocabulary"])
    tensors = load_tensors(sha256, vocabulary)
    return PairDataset(
        vocabulary,
        source=array("H", tensors["source"].tolist()),
        source_lengths=array("B", tensors["source_lengths"].tolist()),
        target=array("H", tensors["target"].tolist()),
        target_lengths=array("B", tensors["target_lengths"].tolist()),
    )


def load_tensors(sha256: str, vocabulary: Sequence[str]) -> dict[str, np.ndarray]:
    """Load the token ids and the lengths of a dataset. Raises DatasetError as `load_pairs`."""
    path = dataset_path(sha256)
    try:
        loaded = safetensors.numpy.load_file(path)
        tensors = {
            name: loaded[name].astype(dtype, casting="equiv", copy=False)
            for name, dtype in TENSOR_DTYPES.items()
        }
        if content_sha256(vocabulary, tensors) != sha256:
            raise ValueError("its SHA-256 is not the one it was stored under")
    except (
        safetensors.SafetensorError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        MemoryError,
    ) as error:
        raise DatasetError(f"{_DATA_FILE} is damaged ({error}); {ADD_AGAIN}") from None
    return tensors


def load_metadata(sha256: str) -> dict[str, Any]:
    """Load the metadata of a dataset: `rows`, `vocabulary`, `longest_source` and more."""
    path = dataset_path(sha256).with_name(_METADATA_FILE)
    try:
        metadata = read_json(path)
    except UserError as error:
        raise DatasetError(f"{error}; {ADD_AGAIN}") from None
    try:
        vocabulary = metadata.get("vocabulary") if isinstance(metadata, dict) else None
        if not isinstance(vocabulary, list) or not all(isinstance(t, str) for t in vocabulary):
            raise ValueError("it has no list of tokens")
        validate_vocabulary(" ".join(vocabulary))
        counts = [metadata.get(name) for name in ("rows", "longest_source", "longest_target")]
        if not all(type(count) is int and count > 0 for count in counts):
            raise ValueError("its counts must be whole numbers")
    except ValueError as error:
        raise DatasetError(f"{_METADATA_FILE} is damaged: {error}; {ADD_AGAIN}") from None
    return dict(metadata)


def dataset_origin(sha256: str) -> dict[str, str]:
    """Return the `dataset` on the Hub of the pairs, and its `license`; empty if unknown."""
    try:
        origin = load_metadata(sha256).get("origin")
    except DatasetError:
        return {}
    if not isinstance(origin, dict) or not re.fullmatch(
        r"\w[\w.-]*/\w[\w.-]*", str(origin.get("dataset")), re.ASCII
    ):
        return {}
    license_id = str(origin.get("license") or "")
    return {
        "dataset": str(origin["dataset"]),
        "license": license_id if re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,39}", license_id) else "",
    }
