"""The process that reads an uploaded dataset.

A separate process keeps a file of 50 MB, or a hostile one, off the event loop. A valid dataset is
then in a folder, ready to be stored.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from playground.datasets.pairs import DatasetError, PairDataset
from playground.datasets.sources import from_bytes, from_hub
from playground.datasets.storage import load_pairs, to_files

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MAX_MEMORY_BYTES = 2_000_000_000  # of the reader process
N_PREVIEW_PAIRS = 6
MAX_PREVIEW_TOKENS = 60  # of a source or a target


def read_dataset(request: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a dataset: the call of the page, in a process of its own.

    `request` has `dataset` (the SHA-256 of a stored one), `hub` (user/dataset) or `file` with its
    `name`; and `columns`, `words` and `folder`, the output folder.
    """
    _limit_memory()
    try:
        dataset = _load_dataset(request)
        if "folder" in request:
            folder = Path(request["folder"])
            folder.mkdir()
            for name, data in to_files(dataset).items():
                (folder / name).write_bytes(data)
        return describe_dataset(dataset) | {"sha256": dataset.sha256}
    except DatasetError as error:
        response = {
            "error": str(error),
            "lines": error.lines,
            "n_rejected": error.count,
            "columns": error.columns[:100],
        }
        return response | (describe_dataset(error.dataset) if error.dataset else {})
    except OSError as error:
        return {"error": f"the pairs cannot be stored: {error.strerror or error}; try again later"}
    except MemoryError:
        return {"error": "these pairs need more memory than is free; use fewer"}


def _limit_memory() -> None:
    """Limit the growth of this process to MEMORY, where the system supports it.

    A decompression bomb is then an error here, and does not kill the server.
    """
    if resource is None:
        return
    with suppress(ValueError, OSError):  # a system that does not support the limit
        hard_limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        memory_limit = psutil.Process().memory_info().vms + MAX_MEMORY_BYTES
        resource.setrlimit(
            resource.RLIMIT_AS,
            (
                memory_limit
                if hard_limit == resource.RLIM_INFINITY
                else min(memory_limit, hard_limit),
                hard_limit,
            ),
        )


def _load_dataset(request: dict[str, Any]) -> PairDataset:
    if "dataset" in request:
        return load_pairs(request["dataset"])
    if "hub" in request:
        return from_hub(request["hub"], request["columns"], request["words"])
    return from_bytes(
        Path(request["file"]).read_bytes(), request["name"], request["columns"], request["words"]
    )


def describe_dataset(dataset: PairDataset) -> dict[str, Any]:
    """Return the report of a dataset as JSON.

    `n_held_out` is None if there are too many pairs to count here.
    """
    return {
        "n_pairs": len(dataset),
        "vocab_size": len(dataset.vocabulary),
        "vocabulary": list(dataset.vocabulary[:40]),
        "split_on_spaces": any(len(symbol) > 1 for symbol in dataset.vocabulary),
        "source_lengths": [min(dataset.source_lengths), max(dataset.source_lengths)],
        "target_lengths": [min(dataset.target_lengths), max(dataset.target_lengths)],
        "n_held_out": dataset.count_held_out(),
        "n_duplicates": dataset.duplicates,
        "n_conflicts": dataset.conflicts,
        "conflict_lines": list(dataset.conflict_lines),
        "preview": [
            [_truncate(source), _truncate(target)]
            for source, target in dataset.preview(N_PREVIEW_PAIRS)
        ],
    }


def _truncate(symbols: list[str]) -> list[str]:
    return [*symbols[:MAX_PREVIEW_TOKENS], "…"] if len(symbols) > MAX_PREVIEW_TOKENS else symbols
