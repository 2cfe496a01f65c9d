"""The report about a dataset: how it was read, and what a score on it can show.

The page and the commands show the same.
"""

from __future__ import annotations

from array import array
from typing import Any

from playground.common.format import format_count
from playground.common.stats import wilson_interval

from .pairs import PairDataset

N_PREVIEW_PAIRS = 6
MAX_PREVIEW_TOKENS = 60  # of a source or a target
MAX_LISTED_COLUMNS, MAX_COLUMNS_OF_REPORT = 8, 100
MIN_HELD_OUT = 20  # held-out pairs; with fewer a score is uncertain
HELD_OUT_FRACTION = 16  # one pair in so many is held out
SEPARATORS = {  # by the name of the delimiter
    "tab": "tabs",
    "|": "vertical bars",
    ";": "semicolons",
    ",": "commas",
    "two blanks": "two spaces",
}


def describe(dataset: PairDataset) -> dict[str, Any]:
    """Return the report as JSON."""
    report, n_held_out = dataset.report, dataset.count_held_out()
    return {
        "recognized": recognized(dataset),
        "has_names": report.has_names,
        "columns": list(report.columns[:MAX_COLUMNS_OF_REPORT]),
        "selected": list(report.selected),
        "n_rows": dataset.n_rows,
        "n_skipped": report.n_skipped,
        "skipped": list(report.skipped),
        "n_normalized": report.normalized,
        "n_pairs": len(dataset),
        "vocab_size": len(dataset.vocabulary),
        "vocabulary": list(dataset.vocabulary[:40]),
        "split_on_spaces": any(len(symbol) > 1 for symbol in dataset.vocabulary),
        "source_lengths": [min(dataset.source_lengths), max(dataset.source_lengths)],
        "target_lengths": [min(dataset.target_lengths), max(dataset.target_lengths)],
        "n_held_out": n_held_out,
        "held_out_warning": held_out_warning(n_held_out),
        "n_duplicates": dataset.duplicates,
        "n_conflicts": dataset.conflicts,
        "conflict_lines": list(dataset.conflict_lines),
        "preview": [
            [_truncate(source), _truncate(target)]
            for source, target in dataset.preview(N_PREVIEW_PAIRS)
        ],
    }


def summarize(dataset: PairDataset) -> list[str]:
    """Return the report as sentences."""
    report, n_held_out = dataset.report, dataset.count_held_out()
    sentences = [
        recognized(dataset),
        f"{format_count(len(dataset), 'pair')} with "
        f"{format_count(len(dataset.vocabulary), 'different token')}; "
        f"length of the sources: {_format_range(dataset.source_lengths)}, "
        f"of the targets: {_format_range(dataset.target_lengths)}",
        held_out_warning(n_held_out)
        or f"{n_held_out:,} pairs are held out, selected by a hash of the source sequence",
    ]
    if report.n_skipped:
        sentences.append(dataset.describe_skipped("left out"))
    if dataset.duplicates:
        was = "was a duplicate and was" if dataset.duplicates == 1 else "were duplicates and were"
        sentences.append(f"{format_count(dataset.duplicates, 'pair')} {was} left out")
    if dataset.conflicts:
        where = ", ".join(f"{line:,}" for line in dataset.conflict_lines)
        lines = "line" if dataset.conflicts == 1 else "lines"
        more = " and more" if dataset.conflicts > len(dataset.conflict_lines) else ""
        sentences.append(
            f"{format_count(dataset.conflicts, 'pair')} had another target than an earlier pair "
            f"with the same source ({lines} {where}{more}); the first target is used"
        )
    if report.normalized:
        sentences.append(
            f"{format_count(report.normalized, 'pair')} had letters in another Unicode form; they "
            "are normalized (NFC), so that equal letters are one token"
        )
    return [sentence for sentence in sentences if sentence]


def recognized(dataset: PairDataset) -> str:
    """Return the format that was recognized; empty for a dataset that is stored here."""
    report, origin = dataset.report, dataset.origin
    if not report.format:
        return ""
    delimiter = SEPARATORS.get(report.delimiter, report.delimiter)
    parts = [report.format[0].upper() + report.format[1:], report.encoding]
    parts += [f"separated by {delimiter}"] if delimiter else []
    if origin.get("config", "default") != "default":
        parts.append(f"configuration {origin['config']}")
    if "split" in origin:
        parts.append(f"split {origin['split']}")
    if "part" in origin:
        parts.append(f"only {origin['part']}")
    listed = [f'"{name[:40]}"' if "," in name else name[:40] for name in report.columns]
    names = ", ".join(listed[:MAX_LISTED_COLUMNS] + ["…"] * (len(listed) > MAX_LISTED_COLUMNS))
    first_line = {
        True: f"; the first line gives the names: {names}",
        False: "; the first line is an example",
        None: f"; the columns: {names}",
    }
    return ", ".join(part for part in parts if part) + first_line[report.has_names]


def held_out_warning(n_held_out: int) -> str:
    """Return what a score on few held-out pairs can show; empty if there are enough."""
    if n_held_out >= MIN_HELD_OUT or not n_held_out:
        return ""
    low = int(100 * wilson_interval(n_held_out, n_held_out)[0])
    return (
        f"only {format_count(n_held_out, 'example')} {'is' if n_held_out == 1 else 'are'} held "
        f"out: even {n_held_out} of {n_held_out} right means {low} to 100 % (95 % confidence "
        f"interval); about {HELD_OUT_FRACTION * MIN_HELD_OUT} examples hold out {MIN_HELD_OUT}"
    )


def _truncate(symbols: list[str]) -> list[str]:
    return [*symbols[:MAX_PREVIEW_TOKENS], "…"] if len(symbols) > MAX_PREVIEW_TOKENS else symbols


def _format_range(lengths: array[int]) -> str:
    low, high = min(lengths), max(lengths)
    return f"{low} to {high}" if low < high else f"{low}"
