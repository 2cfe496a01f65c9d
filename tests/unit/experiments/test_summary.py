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


def test_a_full_disk_leaves_whole_lines(tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "results.jsonl"
    append_lines(path, [line("a")])
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 30, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            append_lines(path, [line("b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
