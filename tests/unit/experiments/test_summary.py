import errno
import os

import pytest

from playground.experiments.summary import RunMetrics, RunSummary, append_lines, read_lines


def line(run):
    metrics = RunMetrics(done=True, exact_match=1.0, n=10, steps=5)
    return RunSummary(run=run, step=5, metrics=metrics, counts=[]).line()


def test_a_write_that_a_killed_process_left_does_not_damage_the_next_one(tmp_path):
    path = tmp_path / "results.jsonl"
    append_lines(path, [line("a"), line("b")])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 20)
    append_lines(path, [line("c")])
    assert list(read_lines(path)) == ["a", "c"]


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    append_lines(path, [line("a")])
    before = path.read_bytes()

    class FullDisk:
        def __init__(self, file):
            self.file, self.is_full = file, False

        def write(self, data):
            if self.is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.is_full = True
            return self.file.write(data[:30])

        def __getattr__(self, name):
            return getattr(self.file, name)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

    monkeypatch.setattr(
        "playground.common.atomic_write.open",
        lambda *words, **options: FullDisk(open(*words, **options)),  # noqa: SIM115 (closed)
        raising=False,
    )
    with pytest.raises(OSError, match="No space left"):
        append_lines(path, [line("b")])
    assert path.read_bytes() == before
