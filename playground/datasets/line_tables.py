"""Tables of lines with a separator: pasted text, TSV, CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from .tables import (
    MAX_SAMPLE_ROWS,
    Row,
    Table,
    fits,
    has_row_of_names,
    numbered_names,
    text_lines,
    unique_names,
    usual_width,
    width_problem,
)

MAX_SAMPLE_CHARS = 200_000  # characters from which the separator is found
MAX_QUOTED_LINES = 20  # lines of one quoted cell
# Separators in the order of preference, by the name that a report shows.
ARROWS = {"→": "→", "⇒": "⇒", "=>": "=>", "->": "->"}
BLANKS = {"  ": "two blanks"}
DELIMITERS = {"\t": "tab", ";": ";", ",": ",", "|": "|"}
TEXT_SEPARATORS = {"\t": "tab"} | ARROWS | BLANKS | {";": ";", ",": ",", "|": "|"}
DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")


def line_table(
    text: str, name: str, columns: Sequence[str], has_names: bool | None, encoding: str
) -> Table:
    is_csv = name.lower().endswith(".csv")
    declared = re.match(r"sep=(.)\r?\n?", text, re.IGNORECASE)  # written by Excel
    body = text[declared.end() :] if declared else text
    n_skipped_lines = 1 if declared else 0
    sample = _sample_lines(body)
    candidates = DELIMITERS if is_csv else TEXT_SEPARATORS
    separator = declared[1] if declared else _find_separator(sample, candidates, columns)
    is_quoted = separator in DELIMITERS and (is_csv or _is_quoted(sample, separator))
    first_lines = islice(_split_lines(body, separator, is_quoted), len(sample))
    sampled_cells = [cells for _, cells in first_lines if isinstance(cells, list)]
    full_width = width = usual_width(sampled_cells)
    # a table may end each line with delimiters
    while width > 2 and not any(
        any(cells[width - 1 :]) for cells in sampled_cells if len(cells) == full_width
    ):
        width -= 1
    full = [cells[:width] for cells in sampled_cells if fits(cells, width)]
    first = full[0] if full else []
    if has_names is None:
        default = is_csv if separator in DELIMITERS else None
        has_names = has_row_of_names(first, full[1:], columns, default)
    names = unique_names(first) if has_names else numbered_names(width)

    def rows(selected: Sequence[str]) -> Iterator[Row]:
        is_name_line = has_names
        indices = [names.index(each) for each in selected]
        for number, cells in _split_lines(body, separator, is_quoted):
            if isinstance(cells, str):
                yield number + n_skipped_lines, cells
                continue
            if is_name_line and fits(cells, width) and [*cells[:width]] == first:
                is_name_line = False
                continue
            if fits(cells, width):
                yield number + n_skipped_lines, [cells[index] for index in indices]
            else:
                yield number + n_skipped_lines, width_problem(len(cells), width)

    return Table(
        "CSV" if is_csv else "text",
        tuple(names),
        rows,
        encoding,
        TEXT_SEPARATORS.get(separator, separator),
        has_names,
    )


def _sample_lines(text: str) -> list[str]:
    """Return the first lines that are not blank."""
    sample, n_chars = [], 0
    for line in islice(text_lines(text), MAX_SAMPLE_ROWS):
        if line.strip():
            sample.append(line[: MAX_SAMPLE_CHARS - n_chars].strip(" "))
            n_chars += len(sample[-1])
        if n_chars >= MAX_SAMPLE_CHARS:
            break
    return sample


def _find_separator(
    sample: Sequence[str], candidates: Mapping[str, str], columns: Sequence[str]
) -> str:
    """Return the separator with which most lines have the same number of columns.

    Of equal ones, one that gives two columns counts more, then one that is no decimal comma, then
    the order of the candidates. One that yields the columns which the user named comes first.
    """

    def score(separator: str) -> tuple[bool, int, bool, bool]:
        split = _splitter(separator, separator in DELIMITERS)
        rows = [split(line) for line in sample]
        if separator in BLANKS:  # blanks after a comma belong to it
            rows = [cells for cells in rows if not any(c.endswith((",", ";")) for c in cells[:-1])]
        width = usual_width(rows)
        n_rows = sum(len(cells) == width and all(cells[:2]) for cells in rows)
        has_columns = bool(columns) and any(set(columns) <= set(cells) for cells in rows[:1])
        is_decimal = separator == "," and not any(
            "," in DECIMAL_COMMA.sub("", line) for line in sample
        )
        return has_columns, n_rows, width == 2, not is_decimal

    return max(candidates, key=score, default="")


def _is_quoted(sample: Sequence[str], delimiter: str) -> bool:
    """Return whether most quotation marks of a text enclose a cell."""
    mark = re.escape(delimiter)
    enclosed = re.compile(rf'(?:^|{mark})[ ]*"(?:[^"]|"")*"[ ]*(?:{mark}|$)')
    lines = [line for line in sample if '"' in line]
    return sum(bool(enclosed.search(line)) for line in lines) > len(lines) / 2


def _splitter(separator: str, is_quoted: bool) -> Callable[[str], list[str]]:
    """Return the function that splits a line into cells without blanks around them."""

    def split_quoted(line: str) -> list[str]:
        if '"' not in line:
            return [cell.strip() for cell in line.split(separator)]
        try:
            cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
        except csv.Error:
            return [line]
        return [cell.strip() for cell in cells]

    def split_blanks(line: str) -> list[str]:
        return [cell for part in line.split(separator) if (cell := part.strip())]

    def split_plain(line: str) -> list[str]:
        return [cell.strip() for cell in line.split(separator)]

    if separator in BLANKS:
        return split_blanks
    return split_quoted if is_quoted else split_plain


def _split_lines(
    text: str, separator: str, is_quoted: bool
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the number and the cells of each line that is not blank, or its problem.

    A line with an odd number of quotation marks continues on the next lines. If no mark closes the
    cell within `MAX_QUOTED_LINES`, only this line is unusable.
    """
    split = _splitter(separator, is_quoted)
    lines = enumerate(text_lines(text), start=1)
    waiting: list[tuple[int, str]] = []  # lines that were read ahead

    def next_line() -> tuple[int, str] | None:
        return waiting.pop(0) if waiting else next(lines, None)

    while entry := next_line():
        number, line = entry
        if not line.strip():
            continue
        if not is_quoted or line.count('"') % 2 == 0:
            yield number, split(line)
            continue
        ahead: list[tuple[int, str]] = []
        while len(ahead) < MAX_QUOTED_LINES and (following := next_line()):
            ahead.append(following)
            if following[1].count('"') % 2:
                break
        joined = "\n".join([line, *(each for _, each in ahead)])
        cells = _split_strictly(joined, separator)
        if cells is None:
            waiting[:0] = ahead
            yield number, "has a quotation mark that is not closed"
        else:
            yield number, cells


def _split_strictly(lines: str, delimiter: str) -> list[str] | None:
    """Return the cells of a row that spans several lines; None if its quotes are not in order."""
    reader = csv.reader(
        io.StringIO(lines, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    try:
        cells = next(reader)
        return (
            None if next(reader, None) else [" ".join(cell.split("\n")).strip() for cell in cells]
        )
    except (csv.Error, StopIteration):
        return None
