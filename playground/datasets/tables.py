"""A table of text: the rows of a file or a text before they become pairs.

A cell is the text as written: no type is inferred. This module knows nothing of formats and tokens.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

MAX_BYTES = 50_000_000  # bytes of a file, also after decompression, and of a text
MAX_SAMPLE_ROWS = 1000  # rows from which separator, names and columns are found
# Names of columns that mark a first row as the row of names, in lower case.
COMMON_NAMES = frozenset(
    (
        *("src", "tgt", "source", "target", "sources", "targets", "input", "output"),
        *("inputs", "outputs", "question", "answer", "prompt", "completion", "response"),
        *("text", "label", "instruction", "query", "word", "words", "sentence"),
    )
)

MAX_COLUMNS = 1000
MAX_NAME_LENGTH = 200  # characters of the name of a column
MAX_ODD_SHARE = 0.05  # of rows that have a word of their own, where words mark the row of names
MAX_DISTINCT_CHARACTERS = 20  # different ones, fewer than any language has

# Control characters, line ends and unpaired surrogates: no file or terminal shows them as written.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")

# The number of a row, and its cells; None is a missing cell. Or the problem of an unusable row.
Row = tuple[int, Sequence[str | None] | str]


@dataclass(frozen=True)
class Table:
    """Rows with the same columns.

    delimiter   the name of the separator; empty for formats without one
    has_names   whether the first row gives the names; None for formats without a row of names
    """

    format: str
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[Row]]  # the cells of the columns with these names
    encoding: str = "UTF-8"
    delimiter: str = ""
    has_names: bool | None = None


def text_lines(text: str) -> Iterator[str]:
    """Yield the lines of a text without their ends, of which there are three kinds."""
    return (match[0].rstrip("\r\n") for match in _LINE.finditer(text))


def width_problem(n_cells: int, width: int) -> str:
    if n_cells < 2:
        return "has no separator between source and target"
    return f"has {n_cells} columns; the others have {width}"


def fits(cells: Sequence[str], width: int) -> bool:
    """Return whether a row has all columns; more of them must be empty."""
    return len(cells) >= width and not any(cells[width:])


def usual_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the most frequent number of columns of rows with at least two; 2 if there are none."""
    counts = Counter(len(cells) for cells in rows if len(cells) > 1)
    return max(counts, key=lambda width: (counts[width], -width)) if counts else 2


def has_row_of_names(
    first: Sequence[str],
    others: Sequence[Sequence[str]],
    columns: Sequence[str] = (),
    default: bool | None = False,
) -> bool:
    """Return whether the first row with all columns names them.

    It does if it has the columns that the user named, or two common names. It does not if a cell is
    empty, repeated or without letters. Else the words decide, then the characters: it does if each
    of its cells has some of its own, unlike the other rows. Otherwise it is the default of the
    format; None: only common names count.
    """
    if columns and set(columns) <= set(first):
        return True
    has_letters = all(any(map(str.isalpha, cell)) for cell in first)
    if not has_letters or len(set(first)) < len(first):
        return False
    if sum(cell.lower() in COMMON_NAMES for cell in first) > 1:
        return True
    if default is None or len(others) < 2:
        return False
    for split, is_sure in ((str.split, True), (list, False)):
        units = [set(split(" ".join(cells))) for cells in (first, *others)]
        counts = Counter(unit for row in units for unit in row)
        n_odd = sum(any(counts[unit] == 1 for unit in row) for row in units[1:])
        is_first_odd = all(any(counts[unit] == 1 for unit in split(cell)) for cell in first)
        is_rare = n_odd <= MAX_ODD_SHARE * len(others)
        if is_rare and (is_first_odd or is_sure or len(counts) <= MAX_DISTINCT_CHARACTERS):
            return is_first_odd
    return default


def unique_names(names: Sequence[str]) -> list[str]:
    """Return the names, shortened; an empty or a repeated one is the number of its column."""
    unique: dict[str, None] = {}
    for name, number in zip(names, numbered_names(len(names)), strict=True):
        short = clean_name(name)
        unique[short if short and short not in unique else number] = None
    return list(unique)


def clean_name(name: str) -> str:
    """Return the name of a column, shortened, with ? for each character that cannot be printed."""
    return _UNPRINTABLE.sub("?", name[:MAX_NAME_LENGTH])


def numbered_names(n: int) -> list[str]:
    return [f"column {index}" for index in range(1, n + 1)]
