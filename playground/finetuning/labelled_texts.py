"""Labelled texts from a CSV file, divided into training and held-out texts."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import dataclass

from playground.errors import UserError

MAX_ROWS, MAX_LABELS, MAX_BYTES = 2000, 20, 1_000_000
MAX_ROW_LENGTH, MAX_LABEL_LENGTH = 1000, 40  # characters
HELD_OUT_FRACTION = 0.2
MAX_REPORTED_ERRORS = 5  # maximum number of reported CSV errors


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with labels: `labels` in alphabetical order; a row is a text and its label index."""

    labels: list[str]
    training: list[tuple[str, int]]
    held_out: list[tuple[str, int]]
    notes: list[str]


def read_labelled(content: str, seed: int = 0) -> LabelledTexts:
    """Parse a CSV file with the columns text and label, and hold out a fifth of each label.

    At least one text of each label is held out.

    Raises:
        UserError: with the number of invalid lines and the first few of them.
    """
    if len(content.encode("utf-8", "replace")) > MAX_BYTES:
        raise UserError(
            f"this CSV is larger than {MAX_BYTES // 1000:,} KB; give at most {MAX_ROWS:,} rows"
        )
    reader = csv.reader(io.StringIO(content.removeprefix("\ufeff"), newline=""), strict=True)
    errors: list[str] = []
    rows: dict[str, tuple[str, int]] = {}  # by text: its label and its line number
    duplicates = 0
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if "text" not in header or "label" not in header:
            raise UserError(
                f"line 1 is {','.join(header)[:60]!r}; it must name two columns: text,label"
            )
        text_at, label_at, width = header.index("text"), header.index("label"), len(header)
        for cells in reader:
            line = reader.line_num
            if not cells:
                continue
            if len(cells) != width:
                errors.append(
                    f"line {line} has {len(cells)} cells, not {width} (put a text with a comma "
                    "in quotes)"
                )
                continue
            text, label = cells[text_at].strip(), cells[label_at].strip()
            if row_error := _row_error(text, label):
                errors.append(f"line {line} {row_error}")
            elif text in rows and rows[text][0] != label:
                errors.append(
                    f"line {line} labels a text {label!r} that line {rows[text][1]} labels "
                    f"{rows[text][0]!r}"
                )
            elif text in rows:
                duplicates += 1
            else:
                rows[text] = (label, line)
    except csv.Error as error:
        raise UserError(
            f"line {reader.line_num} is not valid CSV: {error}; put texts with quotes or line "
            "breaks in quotes"
        ) from None
    if errors:
        more = (
            f", and {len(errors) - MAX_REPORTED_ERRORS:,} more lines"
            if len(errors) > MAX_REPORTED_ERRORS
            else ""
        )
        raise UserError(f"{'; '.join(errors[:MAX_REPORTED_ERRORS])}{more}")
    labels = sorted({label for label, _ in rows.values()})
    if not 2 <= len(labels) <= MAX_LABELS:
        raise UserError(f"the CSV has {len(labels)} labels; give 2 to {MAX_LABELS}")
    if len(rows) > MAX_ROWS:
        raise UserError(f"the CSV has {len(rows):,} rows; give at most {MAX_ROWS:,}")
    training, held_out, draw = [], [], random.Random(seed)
    for place, label in enumerate(labels):
        texts = sorted(text for text, (its, _) in rows.items() if its == label)
        if len(texts) < 2:
            raise UserError(
                f"the label {label!r} has only one text; give at least two, one to train on and "
                "one to hold out"
            )
        draw.shuffle(texts)
        n = max(1, round(HELD_OUT_FRACTION * len(texts)))
        held_out += [(text, place) for text in texts[:n]]
        training += [(text, place) for text in texts[n:]]
    notes = [f"{duplicates} duplicate rows were removed"] if duplicates else []
    return LabelledTexts(labels, training, held_out, notes)


def _row_error(text: str, label: str) -> str:
    """Return what is wrong with a row, or an empty text."""
    if not text or not label:
        return f"has no {'text' if not text else 'label'}"
    if len(text) > MAX_ROW_LENGTH or len(label) > MAX_LABEL_LENGTH:
        problem, n, limit = (
            ("text", len(text), MAX_ROW_LENGTH)
            if len(text) > MAX_ROW_LENGTH
            else ("label", len(label), MAX_LABEL_LENGTH)
        )
        return f"has a {problem} of {n:,} characters; give at most {limit:,}"
    return (
        ""
        if all(letter.isprintable() or letter in "\n\r\t" for letter in text + label)
        else "contains control characters"
    )
