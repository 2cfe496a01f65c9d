import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from playground.common import atomic_write, platform
from playground.common.atomic_write import clean_up_stale, restore_previous, write_dir, write_file

ROOT = Path(__file__).resolve().parents[3]
OLD = {"a": b"old a", "b": b"old b", "only old": b"x"}
NEW = {"a": b"new a", "b": b"new b" * 100_000}
DIE = """
import os, shutil, sys
from pathlib import Path
from playground.common.atomic_write import write_dir
from tests.support.exit_at_call import ExitAtCall
mortal = ExitAtCall(int(sys.argv[2])).wrap
os.fsync, os.replace, os.mkdir = map(mortal, (os.fsync, os.replace, os.mkdir))
shutil.rmtree = mortal(shutil.rmtree)
write_dir(Path(sys.argv[1]), {"a": b"new a", "b": b"new b" * 100_000})
"""


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def fail_at(monkeypatch, name, call):
    """Let one call of os.`name` fail as on a full disk; other calls are real."""
    real, calls = getattr(os, name), iter(range(1000))

    def full(*args):
        if next(calls) == call:
            raise OSError(28, "No space left on device")
        return real(*args)

    monkeypatch.setattr(os, name, full)


def test_a_folder_is_written_with_parents_and_holds_exactly_the_files(tmp_path):
    write_dir(tmp_path / "deep" / "er" / "x", NEW)
    assert content(tmp_path / "deep" / "er" / "x") == NEW
    assert os.listdir(tmp_path / "deep" / "er") == ["x"]


def test_kill_at_any_point_leaves_old_or_new_folder_after_sweep(tmp_path):
    recorded = []
    for point in range(30):
        parent = tmp_path / str(point)
        write_dir(parent / "x", OLD)
        code = subprocess.call([sys.executable, "-c", DIE, str(parent / "x"), str(point)], cwd=ROOT)
        clean_up_stale(parent)
        assert os.listdir(parent) == ["x"]
        assert content(parent / "x") in (OLD, NEW)
        recorded.append(content(parent / "x") == NEW)
        if code == 0:
            break
        assert code == 9
    assert recorded == sorted(recorded)  # once it is the new folder, it stays the new folder
    assert 5 < len(recorded) < 30
    assert not recorded[0]
    assert recorded[-1]


def test_recovery_does_not_change_an_existing_folder(tmp_path):
    write_dir(tmp_path / "x", NEW)
    write_dir(tmp_path / ".x.previous", OLD)
    restore_previous(tmp_path / "x")
    assert content(tmp_path / "x") == NEW
    restore_previous(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_writing_after_a_cut_first_recovers_and_then_replaces(tmp_path):
    write_dir(tmp_path / ".x.previous", OLD)
    write_dir(tmp_path / "x", NEW)
    assert content(tmp_path / "x") == NEW
    assert os.listdir(tmp_path) == ["x"]


def test_sweep_removes_stale_writes_and_returns_their_names(tmp_path):
    write_dir(tmp_path / "kept", NEW)
    write_dir(tmp_path / ".kept.previous", OLD)
    write_dir(tmp_path / ".kept.1234abcd.tmp", NEW)
    write_dir(tmp_path / ".lost.previous", OLD)
    write_dir(tmp_path / ".never.1234abcd.tmp", NEW)
    write_dir(tmp_path / ".git", OLD)
    (tmp_path / ".hidden.tmp").write_text("a file")
    removed = [".hidden.tmp", ".kept.1234abcd.tmp", ".kept.previous", ".never.1234abcd.tmp"]
    assert clean_up_stale(tmp_path) == removed
    assert sorted(os.listdir(tmp_path)) == [".git", "kept", "lost"]
    assert (content(tmp_path / "kept"), content(tmp_path / "lost")) == (NEW, OLD)
    assert clean_up_stale(tmp_path) == clean_up_stale(tmp_path / "nowhere") == []


def test_a_write_from_before_the_clock_was_set_back_is_stale(tmp_path):
    for name, age in ((".future.tmp", -3600), (".young.tmp", 10), (".old.tmp", 100)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert clean_up_stale(tmp_path, older_than=60) == [".future.tmp", ".old.tmp"]


def test_cleanup_continues_where_another_process_removes_files(tmp_path, monkeypatch):
    write_dir(tmp_path / ".lost.previous", OLD)
    for name in (".a.tmp", ".b.tmp", ".c.tmp"):
        (tmp_path / name).write_text("a file")
    stat = Path.stat

    def remove_and_stat(path, **named):
        if path.name == ".b.tmp":
            path.unlink(missing_ok=True)
        return stat(path, **named)

    monkeypatch.setattr(Path, "stat", remove_and_stat)
    assert clean_up_stale(tmp_path) == [".a.tmp", ".c.tmp"]
    assert os.listdir(tmp_path) == ["lost"]


def test_clean_up_removes_links_without_following_them(tmp_path):
    write_dir(tmp_path / "other", OLD)
    (tmp_path / ".dangling.tmp").symlink_to(tmp_path / "missing")
    (tmp_path / ".link.tmp").symlink_to(tmp_path / "other")
    assert clean_up_stale(tmp_path) == [".dangling.tmp", ".link.tmp"]
    assert os.listdir(tmp_path) == ["other"]
    assert content(tmp_path / "other") == OLD


# two files, the folder, its parent; Windows does not flush folders
FLUSHES = 2 if platform.IS_WINDOWS else 4


@pytest.mark.parametrize(
    ("name", "failing"), [*(("fsync", n) for n in range(FLUSHES)), ("replace", 0), ("replace", 1)]
)
def test_a_failed_write_raises_only_if_the_old_folder_remains(tmp_path, monkeypatch, name, failing):
    write_dir(tmp_path / "x", OLD)
    fail_at(monkeypatch, name, failing)
    error = None
    try:
        write_dir(tmp_path / "x", NEW)
    except OSError as full:
        error = full
    assert error is not None or failing == 3  # that fsync comes when the new folder is in place
    assert content(tmp_path / "x") == (OLD if error else NEW)
    assert os.listdir(tmp_path) == ["x"]


def test_a_first_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    fail_at(monkeypatch, "fsync", 1)
    with pytest.raises(OSError, match="No space left"):
        write_dir(tmp_path / "x", NEW)
    assert os.listdir(tmp_path) == []


def test_an_interrupt_while_writing_leaves_the_old_content(tmp_path, monkeypatch):
    write_dir(tmp_path / "x", OLD)
    write_file(tmp_path / "y", b"old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=KeyboardInterrupt))
    for write, name, new in ((write_dir, "x", NEW), (write_file, "y", b"new")):
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / name, new)
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]
    assert content(tmp_path / "x") == OLD
    assert (tmp_path / "y").read_bytes() == b"old"


# Single files

REPLACE = """
import sys
from pathlib import Path
from playground.common.atomic_write import write_file
for number in range(100_000):
    write_file(Path(sys.argv[1]), b"ab"[number % 2 :][:1] * 200_000, flush=False)
"""


def test_reader_gets_complete_old_or_new_file_if_writer_is_killed(tmp_path):
    path = tmp_path / "x"
    write_file(path, b"a" * 200_000)
    recorded = set()
    with subprocess.Popen([sys.executable, "-c", REPLACE, str(path)], cwd=ROOT) as writer:
        try:
            while len(recorded) < 2:
                data = path.read_bytes()
                assert (len(data), len(set(data))) == (200_000, 1)
                recorded.add(data[0])
        finally:
            writer.kill()
    data = path.read_bytes()
    assert (len(data), len(set(data))) == (200_000, 1)


def test_a_flushed_file_is_flushed_before_it_takes_the_name(tmp_path, monkeypatch):
    write_file(tmp_path / "x", b"old")
    recorded = []
    monkeypatch.setattr(os, "fsync", lambda _: recorded.append((tmp_path / "x").read_bytes()))
    write_file(tmp_path / "x", b"new")
    assert recorded == [b"old"]
    write_file(tmp_path / "x", b"newer", flush=False)
    assert len(recorded) == 1


def test_files_in_subfolders_are_flushed_before_the_rename(tmp_path, monkeypatch):
    flushed = []

    def fsync(file):
        is_file = stat.S_ISREG(os.fstat(file).st_mode)
        flushed.append((is_file, (tmp_path / "x").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write.replacing_dir(tmp_path / "x") as staging:
        (staging / "a").mkdir()
        (staging / "a" / "b").write_bytes(b"b")
    assert (True, False) in flushed


@pytest.mark.parametrize("before", [{}, {"x": b"old"}])
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_where_writing_a_file_fails_the_old_one_stays_alone(tmp_path, monkeypatch, name, before):
    for path, data in before.items():
        write_file(tmp_path / path, data)
    fail_at(monkeypatch, name, 0)
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "x", b"new")
    assert content(tmp_path) == before
