"""The text of fractions, sizes, durations, counts, tables and hashes.

`playground/ui/static/shared/format.js` and `csv.js` follow the same rules;
tests/data/format_vectors.json tests both.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterable

from .stats import floor_to

EPSILON = 1e-9  # an error of a billionth counts as a rounding error
# A spreadsheet would evaluate such a cell, unless it is a number.
FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def format_percent(fraction: float) -> str:
    """Format a fraction in percent with one decimal, rounded down.

    Only a complete fraction is 100 %, and only an empty one is 0 %.
    """
    rounded = floor_to(fraction, 3)
    if rounded == 1:
        return "100 %"
    return f"{100 * rounded:.1f} %" if rounded else "< 0.1 %" if fraction > EPSILON else "0 %"


def format_bytes(size: float) -> str:
    """Format a size in bytes with decimal units, as in "1.5 GB"."""
    if size < 999_500:
        return f"{max(1, math.floor(size / 1e3 + 0.5))} KB"
    if size < 999_500_000:
        return f"{_round_half_up(size / 1e6, 1 if size < 99_950_000 else 0)} MB"
    if size < 999_500_000_000:
        return f"{_round_half_up(size / 1e9, 1 if size < 99_950_000_000 else 0)} GB"
    return f"{_round_half_up(size / 1e12, 1)} TB"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds with its two largest units, as in "2 min 5 s"."""
    if seconds < 59.95:
        return f"{_round_half_up(seconds, 1)} s"
    rounded = math.floor(seconds + 0.5)
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60} s"
    minutes = math.floor(seconds / 60 + 0.5)
    return f"{minutes // 60} h {minutes % 60} min"


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a number of things with the noun in singular or plural, as in "1,234 steps"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _round_half_up(value: float, digits: int) -> str:
    return f"{math.floor(value * 10**digits + 0.5 + EPSILON) / 10**digits:.{digits}f}"


def format_csv(rows: Iterable[Iterable[object]]) -> str:
    """Format rows of cells as CSV; None is an empty cell, and no cell is a formula."""
    return "".join(",".join(map(_format_cell, row)) + "\n" for row in rows)


def _format_cell(value: object) -> str:
    text = "" if value is None else str(value)
    is_formula = FORMULA.match(text) and not NUMBER.fullmatch(text)
    if not is_formula and not re.search(r'[",\r\n]', text):
        return text
    return '"' + ("'" if is_formula else "") + text.replace('"', '""') + '"'


def source_hash(text: str) -> str:
    """Return the CSP source expression that allows an inline text (CSP 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
