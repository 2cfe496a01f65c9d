"""Free memory, with control groups in a temporary folder."""

import psutil

from playground.runs import memory


def test_free_memory_in_a_container_includes_the_cache_of_files(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "CGROUP_DIR", tmp_path)
    available = psutil.virtual_memory().available
    assert memory.free_memory() > available / 2  # no control groups
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 100000\ninactive_file 700000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_memory() > available / 2
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory.free_memory() == 100_000 + 700_000
