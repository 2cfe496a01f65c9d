"""Copy the results of a shard to a folder that outlives the disk of its job."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

COPY_INTERVAL_S = 15.0


@contextmanager
def mirrored_results(out: Path, results: Path) -> Iterator[None]:
    """Begin with the results in `results`, and copy the new ones there during a `with` block.

    Files are written as a whole, because `results` may be a mounted bucket: it has no locks, and no
    files that grow.

    Raises:
        OSError: when a folder cannot be written, or the last copy fails.
    """
    here, there = out / "experiments", results / "experiments"
    for folder in (here, there):
        folder.mkdir(parents=True, exist_ok=True)
    _copy(there, here)
    ended = threading.Event()

    def copy_often() -> None:
        while not ended.wait(COPY_INTERVAL_S):
            with suppress(OSError):  # the next copy has the same results
                _copy(here, there)

    thread = threading.Thread(target=copy_often, name="results", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _copy(here, there)


def _copy(source: Path, target: Path) -> None:
    """Copy the changed files of a folder."""
    for pattern in ("*.json", "*.jsonl"):  # in this order: each run that a .json counts has a line
        for path in source.glob(pattern):
            copy, data = target / path.name, path.read_bytes()
            if not copy.exists() or copy.read_bytes() != data:
                copy.write_bytes(data)
