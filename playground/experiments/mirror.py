"""Copy the results of a shard to a folder that outlives the disk of its job."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .shards import finished_runs

COPY_INTERVAL_S = 15.0


@contextmanager
def mirrored_results(out: Path, results: Path, has_weights: bool = False) -> Iterator[None]:
    """Begin with the results in `results`, and copy the new ones there during a `with` block.

    With `has_weights`, they include the finished runs. Files are written as a whole, because
    `results` may be a mounted bucket: it has no locks, and no files that grow.
    """
    here, there = out / "experiments", results / "experiments"
    for folder in (here, there):
        folder.mkdir(parents=True, exist_ok=True)
    _copy(there, here)
    ended = threading.Event()

    def copy() -> None:
        for run in finished_runs(out) if has_weights else ():  # first: results count as a whole run
            _copy_run(run, results / "runs" / run.name)
        _copy(here, there)

    def copy_often() -> None:
        while not ended.wait(COPY_INTERVAL_S):
            with suppress(OSError):  # the next copy has the same results
                copy()

    thread = threading.Thread(target=copy_often, name="results", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        copy()


def _copy(source: Path, target: Path) -> None:
    """Copy the changed files of a folder."""
    for pattern in ("*.json", "*.jsonl"):  # in this order: each run that a .json counts has a line
        for path in source.glob(pattern):
            copy, data = target / path.name, path.read_bytes()
            if not copy.exists() or copy.read_bytes() != data:
                copy.write_bytes(data)


def _copy_run(source: Path, target: Path) -> None:
    """Copy the files of a run, which do not change any more."""
    for path in filter(Path.is_file, source.rglob("*")):
        copy = target / path.relative_to(source)
        if not copy.exists() or copy.stat().st_size != path.stat().st_size:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
