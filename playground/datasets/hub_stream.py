"""Read two columns of a dataset on the Hub, with limited memory and without running its code."""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from datasets import config as datasets_config  # type: ignore[import-untyped]
from datasets import load_dataset
from huggingface_hub import HfApi, HfFileSystem, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]
from pyarrow import parquet  # type: ignore[import-untyped]

from playground.common import messages

from .pairs import DatasetError

log = logging.getLogger(__name__)

MAX_ROW_GROUP_BYTES = 200_000_000  # uncompressed bytes of a parquet file's row group
ROWS_PER_BATCH = 1_000  # rows of a parquet file that are decoded together
READ_BUFFER_BYTES = 1 << 20  # bytes of a parquet file's column that are fetched together
TABLE_FORMATS = {  # formats of tables, none of which can contain code
    "parquet": (".parquet",),
    "csv": (".csv",),
    "json": (".jsonl", ".json"),
}


def license_of(repo: str, token: str | bool = False) -> str:
    """Return the license of a dataset on the Hub; empty if it has none or several."""
    try:
        card = HfApi(token=token).dataset_info(repo).card_data
        named = card.get("license") if card else None
    except Exception:  # the card is untrusted and may contain anything
        log.exception("the license of a dataset could not be read")
        return ""
    return named if isinstance(named, str) else ""


def _table_files(repo: str, file_names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the format of the tables of a repository, and the files to read.

    Raises:
        DatasetError: if there is no such file.
    """
    kind = next(
        (
            kind
            for kind in TABLE_FORMATS
            if any(name.lower().endswith(TABLE_FORMATS[kind]) for name in file_names)
        ),
        None,
    )
    if kind is None:
        raise DatasetError(
            f"the dataset {repo} has no file of tables; {', '.join(TABLE_FORMATS)} files are "
            "accepted"
        )
    files = [
        name
        for name in file_names
        if name.lower().endswith(TABLE_FORMATS[kind]) and "::" not in name
    ]
    if not files:
        raise DatasetError(
            f"the file names of {repo} contain '::', which refers to other addresses; rename "
            f"the files"
        )
    return kind, [name for name in files if "train" in name.lower()] or files


def stream_hub_columns(
    repo: str,
    columns: Sequence[str],
    choose: Callable[[Sequence[str], Sequence[str]], Sequence[str]],
    token: str | bool = False,
) -> Iterator[tuple[Any, Any]]:
    """Stream two columns of a dataset on the Hub, selected by `choose`.

    Only files of tables are opened, by readers that run no code. The repository's own settings are
    ignored, and formats that may contain code (pickle) are not read. If there are files with
    "train" in their path, only these are read.

    Raises:
        DatasetError: for a repository without such a file, or one that cannot be fetched.
    """
    invalid_name = DatasetError(f"{repo[:120]!r} is not a dataset; write user/name")
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo, re.ASCII):
        raise invalid_name
    if constants.HF_HUB_OFFLINE or datasets_config.HF_HUB_OFFLINE:
        raise DatasetError(f"the dataset {repo} cannot be fetched, because {messages.HUB_OFFLINE}")
    kind = None
    try:
        info = HfApi(token=token).dataset_info(repo)
        file_names = sorted(file.rfilename for file in info.siblings or [])
        kind, files = _table_files(repo, file_names)
        if kind == "parquet":
            yield from _stream_parquet(
                [f"datasets/{repo}@{info.sha}/{name}" for name in files], columns, choose, token
            )
            return
        paths = [f"hf://datasets/{repo}@{info.sha}/{name}" for name in files]
        data = load_dataset(kind, data_files=paths, split="train", streaming=True, token=token)
        names = data.column_names or list(next(iter(data), {}))
        source, target = choose(names, columns)
        for row in data.select_columns([source, target]):
            yield row[source], row[target]
    except HFValidationError:
        raise invalid_name from None
    except RepositoryNotFoundError:
        raise DatasetError(
            f"there is no dataset {repo} on the Hub, or it is private; check its name"
        ) from None
    except (httpx.HTTPError, HfHubHTTPError, OSError) as error:
        reason = (
            f"the Hub answered with status {error.response.status_code}"
            if isinstance(error, HfHubHTTPError)
            else "there is no connection to the Hub"
        )
        raise DatasetError(
            f"the dataset {repo} cannot be fetched, because {reason}; try again, or upload it as "
            "a file"
        ) from None
    except DatasetError:
        raise
    except MemoryError:
        raise DatasetError(
            f"the dataset {repo} needs more memory than is free; upload a part of it as a file"
        ) from None
    except Exception as error:  # readers fail on damaged files with many types of errors
        log.exception("the dataset %s cannot be read", repo)
        how = f" as {kind}" if kind else ""
        raise DatasetError(
            f"the dataset {repo} cannot be read{how}: {type(error).__name__}: {str(error)[:200]}"
        ) from None


def _stream_parquet(
    paths: Sequence[str],
    columns: Sequence[str],
    choose: Callable[[Sequence[str], Sequence[str]], Sequence[str]],
    token: str | bool,
) -> Iterator[tuple[Any, Any]]:
    """Stream the columns of parquet files, with limited memory.

    A small file may decompress to any size. So the footer is checked for the size of each row group
    first, and each group is decoded in small pieces.

    Raises:
        DatasetError: for a row group that is too large.
    """
    files = HfFileSystem(token=token)
    selected: list[str] = []
    for path in paths:
        with files.open(path) as opened:
            table = parquet.ParquetFile(opened, buffer_size=READ_BUFFER_BYTES)
            selected = selected or list(choose(table.schema_arrow.names, columns))
            for number in range(table.num_row_groups):
                size = _uncompressed_size(table.metadata.row_group(number), selected)
                if size > MAX_ROW_GROUP_BYTES:
                    raise DatasetError(
                        f"{path.rpartition('/')[2][:80]} has {size / 1e6:,.0f} MB of these columns "
                        f"in row group {number + 1:,}, above {MAX_ROW_GROUP_BYTES / 1e6:,.0f} MB; "
                        "upload a part of it as a file"
                    )
                for batch in table.iter_batches(
                    ROWS_PER_BATCH, row_groups=[number], columns=selected
                ):
                    yield from zip(
                        *(batch.column(name).to_pylist() for name in selected), strict=True
                    )


def _uncompressed_size(group: Any, columns: Sequence[str]) -> int:
    """Return the uncompressed bytes of these columns of a row group, from its footer."""
    parts = (group.column(at) for at in range(group.num_columns))
    return sum(
        part.total_uncompressed_size
        for part in parts
        if any(f"{part.path_in_schema}.".startswith(f"{name}.") for name in columns)
    )
