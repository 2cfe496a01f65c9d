"""Labeled texts from a CSV file, divided into training and held-out texts."""

import csv
import io
import random
from dataclasses import dataclass, field
from typing import Any

from playground.errors import UserError

MAX_ROWS, MAX_LABELS, MAX_BYTES = 2000, 20, 1_000_000
MAX_TEXT_LENGTH, MAX_LABEL_LENGTH = 1000, 40  # characters
HELD_OUT_FRACTION = 0.2
MAX_REPORTED_ERRORS = 5  # maximum number of reported CSV errors


@dataclass(frozen=True)
class LabeledTexts:
    """Texts with labels: `labels` in alphabetical order; a row is a text and its label index."""

    labels: list[str]
    training: list[tuple[str, int]]
    held_out: list[tuple[str, int]]
    notes: list[str]


def read_labeled(content: str, seed: int = 0) -> LabeledTexts:
    """Parse a CSV file with the columns text and label, and hold out a fifth of each label.

    At least one text of each label is held out.

    Raises:
        UserError: with the number of invalid lines and the first few of them.
    """
    if len(content.encode("utf-8", "replace")) > MAX_BYTES:
        raise UserError(
            f"this CSV is larger than {MAX_BYTES // 1000:,} KB; give at most {MAX_ROWS:,} rows"
        )
    table = _Table()
    reader = csv.reader(io.StringIO(content.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        table.read(reader)
    except csv.Error as error:
        raise UserError(
            f"line {reader.line_num} is not valid CSV: {error}; put texts with quotes or line "
            "breaks in quotes"
        ) from None
    if errors := table.errors:
        more = (
            f", and {len(errors) - MAX_REPORTED_ERRORS:,} more lines"
            if len(errors) > MAX_REPORTED_ERRORS
            else ""
        )
        raise UserError(f"{'; '.join(errors[:MAX_REPORTED_ERRORS])}{more}")
    labels = sorted({label for label, _ in table.rows.values()})
    if not 2 <= len(labels) <= MAX_LABELS:
        raise UserError(f"the CSV has {len(labels)} labels; give 2 to {MAX_LABELS}")
    if len(table.rows) > MAX_ROWS:
        raise UserError(f"the CSV has {len(table.rows):,} rows; give at most {MAX_ROWS:,}")
    training, held_out, generator = [], [], random.Random(seed)
    for index, label in enumerate(labels):
        texts = sorted(text for text, row in table.rows.items() if row[0] == label)
        if len(texts) < 2:
            raise UserError(
                f"the label {label!r} has only one text; give at least two, one to train on and "
                "one to hold out"
            )
        generator.shuffle(texts)
        n = max(1, round(HELD_OUT_FRACTION * len(texts)))
        held_out += [(text, index) for text in texts[:n]]
        training += [(text, index) for text in texts[n:]]
    notes = [f"{table.duplicates} duplicate rows were removed"] if table.duplicates else []
    return LabeledTexts(labels, training, held_out, notes)


@dataclass
class _Table:
    """The valid rows by text, with label and line number, and the errors of the others."""

    rows: dict[str, tuple[str, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    duplicates: int = 0

    def read(self, reader: Any) -> None:
        header = [name.strip().lower() for name in next(reader, [])]
        if "text" not in header or "label" not in header:
            raise UserError(
                f"line 1 is {','.join(header)[:60]!r}; it must name two columns: text,label"
            )
        for cells in reader:
            if not cells:
                continue
            if len(cells) == len(header):
                text, label = (cells[header.index(name)].strip() for name in ("text", "label"))
                self._add(text, label, reader.line_num)
            else:
                self.errors.append(
                    f"line {reader.line_num} has {len(cells)} cells, not {len(header)} (put a text "
                    "with a comma in quotes)"
                )

    def _add(self, text: str, label: str, line: int) -> None:
        first_label, first_line = self.rows.setdefault(text, (label, line))
        if error := _row_error(text, label):
            self.errors.append(f"line {line} {error}")
        elif first_label != label:
            self.errors.append(
                f"line {line} labels a text {label!r} that line {first_line} labels {first_label!r}"
            )
        elif first_line != line:
            self.duplicates += 1


def _row_error(text: str, label: str) -> str:
    """Return what is wrong with a row, or an empty text."""
    for name, value, limit in (("text", text, MAX_TEXT_LENGTH), ("label", label, MAX_LABEL_LENGTH)):
        if not value:
            return f"has no {name}"
        if len(value) > limit:
            return f"has a {name} of {len(value):,} characters; give at most {limit:,}"
    if all(letter.isprintable() or letter in "\n\r\t" for letter in text + label):
        return ""
    return "contains control characters"
