"""What differs between operating systems: `common/platform.py` alone knows it."""

import os
import socket

import psutil
import pytest

from playground.common import platform
from playground.common.platform import cpu_seconds, link_or_copy, rename, reuse_port


def test_waiting_for_a_cpu_counts_as_active(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "PROC", tmp_path)
    times = {"7": "1000000000 50000000000 3\n", "8": "500000000 0 1\n", "9": "odd\n"}
    for thread, text in times.items():
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


@pytest.fixture
def scanner(monkeypatch):
    """Let the next `scanner(n)` renames fail, as on Windows while a program has the file open."""
    refusals, real = [], os.replace

    def replace(source, target):
        if refusals:
            raise refusals.pop()
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    return lambda n: refusals.extend(PermissionError(13, "open elsewhere") for _ in range(n))


def test_a_file_that_a_scanner_holds_for_a_moment_is_renamed(tmp_path, scanner, monkeypatch):
    monkeypatch.setattr(platform, "IS_WINDOWS", True)
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("old")
    scanner(3)
    rename(tmp_path / "a", tmp_path / "b")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize("is_windows", [True, False])
def test_a_folder_that_cannot_be_written_is_reported(tmp_path, scanner, monkeypatch, is_windows):
    monkeypatch.setattr(platform, "IS_WINDOWS", is_windows)
    monkeypatch.setattr(platform, "RENAME_TIMEOUT_S", 0.05)
    (tmp_path / "a").touch()
    scanner(1000)
    with pytest.raises(PermissionError):
        rename(tmp_path / "a", tmp_path / "b")
    assert os.listdir(tmp_path) == ["a"]


def test_a_disk_without_links_gets_a_copy(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")  # what FAT on Linux reports

    (tmp_path / "a").write_text("text")
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert os.path.samefile(tmp_path / "a", tmp_path / "b")
    monkeypatch.setattr(os, "link", refuse)
    link_or_copy(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "c").read_text() == "text"
    with pytest.raises(FileNotFoundError):
        link_or_copy(tmp_path / "none", tmp_path / "d")


@pytest.mark.parametrize("is_windows", [True, False])
def test_a_port_in_use_is_never_shared_on_windows(monkeypatch, is_windows):
    monkeypatch.setattr(platform, "IS_WINDOWS", is_windows)
    with socket.socket() as listener:
        reuse_port(listener)
        is_set = bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR))
    assert is_set is not is_windows
