"""The process that reads an uploaded dataset.

A separate process keeps a file of 50 MB, or a hostile one, off the event loop. A valid dataset is
then in a folder, ready to be stored.
"""

from pathlib import Path
from typing import Any

from playground.common.atomic_write import write_dir
from playground.common.platform import limit_memory_growth
from playground.datasets.pairs import DatasetError, PairDataset
from playground.datasets.report import describe
from playground.datasets.sources import read_bytes, read_text
from playground.datasets.storage import load_pairs, to_files
from playground.errors import UserError

MAX_MEMORY_BYTES = 2_000_000_000  # of the reader process
PASTED_NAME = "pasted examples"
MAX_LISTED_NAMES = 100  # columns, configurations or splits


def read_dataset(request: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a dataset: the call of the page, in a process of its own.

    `request` has `dataset` (the SHA-256 of a stored one), or `file`, its `name` (user/dataset with
    a `token` for one on the Hub, empty for pasted text), the `options` for reading and `folder`,
    the output folder, with which the result has the `name` of the dataset. Raises UserError.
    """
    limit_memory_growth(MAX_MEMORY_BYTES)  # a decompression bomb is then an error of this process
    try:
        dataset = _load_dataset(request)
        report = describe(dataset) | {"sha256": dataset.sha256}
        if "folder" in request:
            write_dir(Path(request["folder"]), to_files(dataset))
            report["name"] = dataset.origin.get("dataset") or request["name"] or PASTED_NAME
        return report
    except DatasetError as error:
        error.details = {
            "lines": error.lines,
            "n_rejected": error.count,
            "columns": error.columns[:MAX_LISTED_NAMES],
            "configs": error.configs[:MAX_LISTED_NAMES],
            "splits": error.splits[:MAX_LISTED_NAMES],
            **(describe(error.dataset) if error.dataset else {}),
        }
        raise
    except OSError as error:
        text = f"the pairs cannot be stored: {error.strerror or error}; try again later"
        raise UserError(text) from error
    except MemoryError as error:
        raise UserError("these pairs need more memory than is free; use fewer") from error


def _load_dataset(request: dict[str, Any]) -> PairDataset:
    if "dataset" in request:
        return load_pairs(request["dataset"])
    options = request["options"]
    if "token" in request:
        from playground.hub.dataset_files import read_hub

        return read_hub(request["name"], options, request["token"])
    data = Path(request["file"]).read_bytes()
    if not request["name"]:
        return read_text(data.decode(errors="replace"), options)
    return read_bytes(data, request["name"], options)
