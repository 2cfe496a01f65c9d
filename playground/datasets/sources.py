"""Sources of datasets: text, files, the Hub.

`read_pairs` checks all of them. No foreign code is executed.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .pairs import MAX_FIELD_CHARS, DatasetError, PairDataset, read_pairs

MAX_BYTES = 50_000_000  # bytes of a file or a text, and characters from the Hub
CSV = (".csv",)
# Separators of source and target in a text without tabs; of equal ones the first is used.
SEPARATORS = [re.compile(pattern) for pattern in (r"\s*(?:→|=>|->)\s*", r"\s*,\s*", r" {2,}")]
MAX_SEPARATOR_LINES = 1000  # lines from which the separator is found


def from_text(text: str, split_on_spaces: bool | None = None) -> PairDataset:
    """Parse lines of source, separator, target; empty lines are ignored.

    A text with a tab has tabs as separators. In others the separator is the one of `SEPARATORS`
    that splits the most lines in two.

    Raises:
        DatasetError: for invalid data.
    """
    if len(text) > MAX_BYTES:
        raise DatasetError(f"the text has {len(text):,} characters; at most {MAX_BYTES:,} are read")

    separator = None if "\t" in text else _find_separator(text)

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        for number, line in enumerate(io.StringIO(text, newline=None), start=1):
            if line.strip():
                fields = (
                    separator.split(line.strip()) if separator else line.rstrip("\n").split("\t")
                )
                yield number, fields

    return read_pairs(lines, split_on_spaces)


def _find_separator(text: str) -> re.Pattern[str] | None:
    """Return the separator of a text without tabs, or None if no line has one."""
    lines = [line.strip() for line in io.StringIO(text, newline=None) if line.strip()]
    counts = {
        separator: sum(len(separator.split(line)) == 2 for line in lines[:MAX_SEPARATOR_LINES])
        for separator in SEPARATORS
    }
    best = max(counts, key=lambda separator: counts[separator])
    return best if counts[best] else None


def from_csv(
    text: str, columns: Sequence[str] = (), split_on_spaces: bool | None = None
) -> PairDataset:
    """Parse a table with a header: two columns, which must be named if there are more.

    Commas, semicolons or tabs separate the columns.

    Raises:
        DatasetError: for invalid data.
    """
    if len(text) > MAX_BYTES:
        raise DatasetError(
            f"the table has {len(text):,} characters; at most {MAX_BYTES:,} are read"
        )
    head = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    try:
        names = [name.strip() for name in next(csv.reader([head], delimiter=delimiter), [])]
    except csv.Error as error:
        raise DatasetError(
            f"the header of the table cannot be read ({error}); save the table again as CSV"
        ) from None
    column_indices = [names.index(name) for name in select_columns(names, columns)]

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        previous_line, has_header = 0, False
        try:
            for fields in reader:
                number, previous_line = previous_line + 1, reader.line_num
                if not has_header or not any(field.strip() for field in fields):
                    has_header = has_header or any(field.strip() for field in fields)
                    continue
                # A missing cell is empty; line breaks and tabs in a cell become spaces.
                yield (
                    number,
                    [
                        " ".join(fields[index].split("\n")).replace("\r", " ")
                        if index < len(fields)
                        else ""
                        for index in column_indices
                    ],
                )
        except csv.Error as error:
            raise DatasetError(
                f"line {previous_line + 1:,} is not a line of a CSV file ({error}); save the table "
                "again as CSV"
            ) from None

    return read_pairs(lines, split_on_spaces)


def select_columns(names: Sequence[str], columns: Sequence[str]) -> Sequence[str]:
    """Select the columns of sources and targets.

    Raises:
        DatasetError: if they are absent or ambiguous.
    """
    column_names = ", ".join(name[:40] for name in names[:20]) or "none"
    if not columns and len(names) != 2:
        raise DatasetError(
            f"there are {len(names)} columns ({column_names}); name the two with sources and "
            "targets",
            columns=names,
        )
    if columns and (len(columns) != 2 or any(name not in names for name in columns)):
        raise DatasetError(
            f"columns are {', '.join(name[:40] for name in columns)}; name two of {column_names}",
            columns=names,
        )
    selected = list(columns or names)
    if selected[0] == selected[1]:
        raise DatasetError(
            f"both columns are {selected[0][:40]}; name one for sources and another for targets"
        )
    return selected


def from_bytes(
    data: bytes, name: str, columns: Sequence[str] = (), split_on_spaces: bool | None = None
) -> PairDataset:
    """Parse the bytes of a file; it is a table if its name ends in .csv or columns are named.

    Raises:
        DatasetError: for invalid data.
    """
    if len(data) > MAX_BYTES:
        raise DatasetError(f"the file has {len(data):,} bytes; at most {MAX_BYTES:,} are read")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DatasetError("the file is UTF-16 text; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DatasetError(
            f"line {line:,} is not UTF-8 text (byte {data[error.start]:#04x}); save the file as "
            f"UTF-8"
        ) from None
    if columns or name.lower().endswith(CSV):
        return from_csv(text.replace("\r\n", "\n"), columns, split_on_spaces)
    return from_text(text, split_on_spaces)


def from_file(
    path: Path, columns: Sequence[str] = (), split_on_spaces: bool | None = None
) -> PairDataset:
    """Read a file: source, separator, target on each line, or a CSV.

    Raises:
        DatasetError: for an unreadable file or invalid data.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DatasetError(
            f"{path} cannot be read: {error.strerror or error}; name a file of pairs"
        ) from None
    return from_bytes(data, path.name, columns, split_on_spaces)


def from_hub(
    repo: str,
    columns: Sequence[str] = (),
    split_on_spaces: bool | None = None,
    max_rows: int = 100_000,
    token: str | bool = False,
) -> PairDataset:
    """Stream the first `max_rows` pairs of two columns of a dataset on the Hub.

    Only the used part is fetched, and no code of the repository is run.

    Raises:
        DatasetError: if it cannot be fetched, or for invalid data.
    """
    from .hub_stream import license_of, stream_hub_columns

    buffer = io.StringIO()
    numbers: list[int] = []
    for number, cells in enumerate(
        stream_hub_columns(repo, columns, select_columns, token), start=1
    ):
        invalid = [cell for cell in cells if not isinstance(cell, str | int)]
        if invalid:
            raise DatasetError(
                f"row {number:,} contains {type(invalid[0]).__name__} instead of text; choose "
                "columns of text"
            )
        line = "\t".join(" ".join(str(cell)[: MAX_FIELD_CHARS + 1].split()) for cell in cells)
        if len(line) + buffer.tell() > MAX_BYTES or number > max_rows:
            break
        numbers.append(number)
        buffer.write(line + "\n")
    text = buffer.getvalue()

    def lines() -> Iterator[tuple[int, Sequence[str]]]:
        for number, line in zip(numbers, io.StringIO(text), strict=True):
            yield number, line[:-1].split("\t")

    return replace(
        read_pairs(lines, split_on_spaces),
        origin={"dataset": repo, "license": license_of(repo, token)},
    )


def from_cli_argument(
    task: str, columns: Sequence[str] = (), split_on_spaces: bool | None = None
) -> PairDataset:
    """Load the dataset of an argument: a file, or hub:user/dataset.

    Raises:
        DatasetError: for unreadable or invalid data.
    """
    if task.startswith("hub:"):
        return from_hub(task.removeprefix("hub:"), columns, split_on_spaces)
    return from_file(Path(task), columns, split_on_spaces)


def is_dataset_argument(task: str) -> bool:
    """Return whether a task on the command line is a dataset."""
    return task.startswith("hub:") or "/" in task or "." in task or Path(task).is_file()
