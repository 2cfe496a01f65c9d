"""The process that reads rows which a visitor brings: a file of 50 MB, or a hostile one, takes time from nobody else's clicks.

It is told what to read and answers once, with a report; rows that can be taken lie in a folder then, ready to be kept.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from playground.origins import from_bytes, from_hub
from playground.tasks.rows import COUNTED, Rows, RowsError, kept_rows

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MEMORY = 2_000_000_000  # bytes that reading may take
PREVIEW = 6  # rows
LONGEST_SHOWN = 60  # symbols of a source or a target in the preview


def read(pipe: Connection, order: dict[str, Any]) -> None:
    """The entry of the process. `order` has `kept` (the content of rows that are kept here), `hub` (user/dataset) or `file` with
    its `name`; and `columns`, `words` and `folder`, which is made for rows that can be taken."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory()
    try:
        rows = _rows(order)
        if "folder" in order:
            folder = Path(order["folder"])
            folder.mkdir()
            for name, data in rows.files().items():
                (folder / name).write_bytes(data)
        answer = report(rows) | {"content": rows.content}
    except RowsError as error:
        answer = {
            "error": str(error),
            "lines": error.lines,
            "bad": error.count,
            "columns": error.columns[:100],
        }
        answer |= report(error.rows) if error.rows else {}
    except OSError as error:
        answer = {"error": f"the rows cannot be kept: {error.strerror or error}; try again later"}
    except MemoryError:
        answer = {"error": "these rows need more memory than is free; bring fewer"}
    pipe.send((answer,))


def _limit_memory() -> None:
    """Let this process grow by MEMORY and no further, where the system can hold it to that: what a few bytes of a compressed file
    unpack to is then an error here, and not the end of the server."""
    if resource is None:
        return
    with suppress(ValueError, OSError):  # a system that knows the limit and does not set it
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        wanted = psutil.Process().memory_info().vms + MEMORY
        resource.setrlimit(
            resource.RLIMIT_AS,
            (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most),
        )


def _rows(order: dict[str, Any]) -> Rows:
    if "kept" in order:
        return kept_rows(order["kept"])
    if "hub" in order:
        return from_hub(order["hub"], order["columns"], order["words"])
    return from_bytes(
        Path(order["file"]).read_bytes(), order["name"], order["columns"], order["words"]
    )


def report(rows: Rows) -> dict[str, Any]:
    """What there is to say about rows, as JSON. `held_out` is None where there are too many to count here."""
    return {
        "rows": len(rows), "symbols": len(rows.vocabulary), "vocabulary": list(rows.vocabulary[:40]),
        "words": any(len(symbol) > 1 for symbol in rows.vocabulary),
        "source": [min(rows.source_lengths), max(rows.source_lengths)], "target": [min(rows.target_lengths), max(rows.target_lengths)],
        "held_out": rows.held_out(), "counted": COUNTED, "duplicates": rows.duplicates,
        "contradictions": rows.contradictions, "contradicted": list(rows.contradicted),
        "preview": [[_cut(source), _cut(target)] for source, target in rows.preview(PREVIEW)],
    }  # fmt: skip


def _cut(symbols: list[str]) -> list[str]:
    return [*symbols[:LONGEST_SHOWN], "…"] if len(symbols) > LONGEST_SHOWN else symbols
