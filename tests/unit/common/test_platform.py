"""What differs between operating systems: `common/platform.py` alone knows it."""

import os

import psutil
import pytest

from playground.common import platform
from playground.common.platform import cpu_seconds


def test_waiting_for_a_cpu_counts_as_active(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "PROC", tmp_path)
    for thread, text in (
        ("7", "1000000000 50000000000 3\n"),
        ("8", "500000000 0 1\n"),
        ("9", "odd\n"),
    ):
        folder = tmp_path / "7" / "task" / thread
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    assert cpu_seconds(7) == 51.5


def test_active_seconds_is_cpu_time_without_scheduler_statistics(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "PROC", tmp_path)
    times = psutil.Process().cpu_times()
    assert cpu_seconds(os.getpid()) >= times.user + times.system
    with pytest.raises(psutil.NoSuchProcess):
        cpu_seconds(2**22 + 1)


def test_free_memory_in_a_container_includes_the_cache_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "CGROUP", tmp_path)
    available = psutil.virtual_memory().available
    assert platform.free_memory() > available / 2  # no control groups
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 100000\ninactive_file 700000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert platform.free_memory() > available / 2
    (tmp_path / "memory.max").write_text("1000000\n")
    assert platform.free_memory() == 100_000 + 700_000
