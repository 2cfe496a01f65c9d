"""Read datasets: the bytes of a file or a text become pairs."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .json_tables import json_table
from .line_tables import line_table
from .pair_builder import read_pairs
from .pairs import DatasetError, PairDataset, ReadReport
from .parquet_tables import parquet_table
from .tables import MAX_BYTES, Table, clean_name

GZIP_MAGIC = b"\x1f\x8b"
MAX_DAMAGED_SHARE = 0.1  # of the characters beyond ASCII in UTF-8 text
HUB_PREFIX = "hub:"


@dataclass(frozen=True)
class ReadOptions:
    """What a user may choose about a file.

    columns          names of source and target; empty if there are two columns
    split_on_spaces  whether symbols are words, else characters; None to detect it
    has_names        whether the first row names the columns; None to detect it
    config, split    of a dataset on the Hub; empty if there is one
    """

    columns: Sequence[str] = ()
    split_on_spaces: bool | None = None
    has_names: bool | None = None
    config: str = ""
    split: str = ""


def read_text(text: str, options: ReadOptions = ReadOptions()) -> PairDataset:
    """Read pasted pairs; formats are recognized as in files. Raises DatasetError."""
    return read_table(_text_table(text, "", "", options), options)


def read_bytes(data: bytes, name: str, options: ReadOptions = ReadOptions()) -> PairDataset:
    """Read the pairs of a file, whose name may contain its format. Raises DatasetError."""
    return read_table(open_table(data, name, options), options)


def read_file(path: Path, options: ReadOptions = ReadOptions()) -> PairDataset:
    """Read the pairs of a file. Raises DatasetError."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read: {error.strerror or error}; name a file of pairs"
        ) from None
    return read_bytes(data, path.name, options)


def read_table(table: Table, options: ReadOptions) -> PairDataset:
    """Read the pairs of two columns of a table. Raises DatasetError."""
    columns = select_columns(table.columns, options.columns)

    def lines() -> Iterator[tuple[int, Sequence[str] | str]]:
        for number, cells in table.rows(columns):
            yield number, cells if isinstance(cells, str) else [cell or "" for cell in cells]

    report = ReadReport(
        table.format, table.encoding, table.delimiter, table.has_names, table.columns, columns
    )
    return read_pairs(lines, options.split_on_spaces, report)


def select_columns(names: Sequence[str], columns: Sequence[str]) -> tuple[str, str]:
    """Select the columns of sources and targets. Raises DatasetError if they are absent."""
    columns = [*map(clean_name, columns)]
    column_names = ", ".join(name[:40] for name in names[:20]) or "none"
    if not columns and len(names) != 2:
        raise DatasetError(
            f"{'there is 1 column' if len(names) == 1 else f'there are {len(names)} columns'} "
            f"({column_names}); {'two are needed' if len(names) < 2 else 'name the two'} with "
            "sources and targets",
            columns=names,
        )
    if columns and (len(columns) != 2 or any(name not in names for name in columns)):
        raise DatasetError(
            f"columns are {', '.join(name[:40] for name in columns)}; name two of {column_names}",
            columns=names,
        )
    source, target = columns or names
    if source == target:
        raise DatasetError(
            f"both columns are {source[:40]}; name one for sources and another for targets",
            columns=names,
        )
    return source, target


def open_table(data: bytes, name: str, options: ReadOptions = ReadOptions()) -> Table:
    """Return the table of a file. Raises DatasetError."""
    _ensure_size(len(data), "the file")
    if data.startswith(GZIP_MAGIC):
        data = decompress(data)
    name = name.lower().removesuffix(".gz")
    if data.startswith(b"PAR1"):
        return parquet_table(io.BytesIO(data), options.columns)
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise DatasetError(
            "this is a workbook or an archive, not a table of text; in the spreadsheet program "
            "save it as CSV (UTF-8), or unpack the archive"
        )
    text, encoding = decode(data)
    return _text_table(text, name, encoding, options)


def _text_table(text: str, name: str, encoding: str, options: ReadOptions) -> Table:
    _ensure_size(len(text), "the text")
    text = text.removeprefix("\ufeff")
    return json_table(text, name, encoding) or line_table(
        text, name, options.columns, options.has_names, encoding
    )


def _ensure_size(size: int, what: str) -> None:
    if size > MAX_BYTES:
        raise DatasetError(
            f"{what} has {size / 1e6:,.1f} MB; at most {MAX_BYTES / 1e6:,.0f} MB are read"
        )


def decompress(data: bytes) -> bytes:
    """Decompress gzip data. Raises DatasetError for damaged data, or above `MAX_BYTES`."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        raise DatasetError("the gzip file is damaged; compress it again") from None
    _ensure_size(len(content), "the decompressed file")
    return content


def decode(data: bytes) -> tuple[str, str]:
    """Return the text of a file and the name of its encoding. Raises DatasetError.

    Without a byte order mark, zeros at every second byte mean UTF-16, and bytes that are no UTF-8
    mean Windows-1252, a superset of Latin-1.
    """
    if data.startswith(codecs.BOM_UTF8):
        return _decode_as(data, "UTF-8-SIG", "UTF-8")
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "UTF-32"),
        (codecs.BOM_UTF16_LE, "UTF-16"),
        (codecs.BOM_UTF16_BE, "UTF-16"),
    ):
        if data.startswith(mark):
            return _decode_as(data, encoding, encoding)
    head = data[:10_000]
    if b"\x00" in head:
        for first, encoding in ((1, "UTF-16-LE"), (0, "UTF-16-BE")):
            zeros = head[first::2].count(0)
            if zeros > 0.4 * len(head[first::2]) and zeros > 4 * head[1 - first :: 2].count(0):
                return _decode_as(data, encoding, "UTF-16")
    try:
        return data.decode(), "UTF-8"
    except UnicodeDecodeError as error:
        n_damaged = data.decode(errors="replace").count("\ufffd")
        if n_damaged < MAX_DAMAGED_SHARE * sum(byte >= 0xC0 for byte in data):
            line = data.count(b"\n", 0, error.start) + 1
            raise DatasetError(
                f"the file is UTF-8 text, but line {line:,} has a damaged character "
                f"(byte {data[error.start]:#04x}); correct it"
            ) from None
        text = data.decode("cp1252", errors="replace")
        if any(control in text for control in "\x00\x01\x02\x03\ufffd"):
            raise DatasetError(
                "this is no text that can be read; save the file as UTF-8 text or CSV"
            ) from None
        return text, "Latin-1"


def _decode_as(data: bytes, encoding: str, name: str) -> tuple[str, str]:
    try:
        return data.decode(encoding), name
    except UnicodeDecodeError:
        raise DatasetError(
            f"the file begins like {name} text, but is not; save it as UTF-8"
        ) from None


def is_dataset_argument(task: str) -> bool:
    """Return whether a task on the command line is a dataset."""
    return task.startswith(HUB_PREFIX) or "/" in task or "." in task or Path(task).is_file()
