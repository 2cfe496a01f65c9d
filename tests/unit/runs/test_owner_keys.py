"""The key of the single owner of a local instance, which is never missing."""

import pytest

from playground.runs.owner_keys import OWNER_KEY_PATTERN, machine_owner_key


@pytest.mark.parametrize("content", [b"", b" \n", b"x" * 31, b"\xff" * 32, None])
def test_a_damaged_owner_key_is_replaced_and_never_missing(tmp_path, caplog, content):
    path = tmp_path / "runs" / ".owner"
    if content is None:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir()
        path.write_bytes(content)
    key, again = machine_owner_key(tmp_path), machine_owner_key(tmp_path)
    assert OWNER_KEY_PATTERN.fullmatch(key)
    assert ".owner" in caplog.text
    assert path.is_dir() or (again == key and path.stat().st_mode & 0o077 == 0)
    assert [each.name for each in path.parent.iterdir()] == [".owner"]


def test_a_stored_owner_key_may_end_with_a_line_break(tmp_path, caplog):
    key = machine_owner_key(tmp_path)
    (tmp_path / "runs" / ".owner").write_text(f" {key}\n")
    assert machine_owner_key(tmp_path) == key
    assert caplog.text == ""
