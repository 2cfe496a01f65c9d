"""The session that a browser stored with version 0.2.0."""

import base64

import pytest

from playground.runs.encrypted_sessions import decrypt_session
from playground.server.session import owner_from_storage
from tests.support.old_session import OLD_OWNER, OLD_SESSION


def test_a_recorded_value_has_the_owner_key():
    assert decrypt_session(OLD_SESSION) == f'{{"owner": "{OLD_OWNER}"}}'
    assert owner_from_storage(OLD_SESSION) == OLD_OWNER
    assert owner_from_storage(f'{{"owner":"{OLD_OWNER}"}}') == OLD_OWNER


def with_data(data):
    return OLD_SESSION.partition(":")[0] + ":" + base64.b64encode(data).decode()


DATA = base64.b64decode(OLD_SESSION.partition(":")[2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "x",
        "[" * 9999,
        OLD_SESSION[:-1],
        OLD_SESSION + "\n",
        OLD_SESSION.partition(":")[0],
        OLD_SESSION.partition(":")[2],
        OLD_SESSION.replace("U2Fsd", "V2Fsd"),
        with_data(DATA[:16]),
        with_data(DATA[:32]),
        with_data(DATA[:-1]),
        with_data(DATA[:-1] + b"\0"),
        with_data(DATA[:8] + bytes(8) + DATA[16:]),
        with_data(DATA[:16] + bytes(64)),
        with_data(DATA[:16] + bytes(16 * 9999)),
        "é" * 22 + OLD_SESSION[22:],
    ],
)
def test_other_values_have_no_session(text):
    assert decrypt_session(text) == ""
    assert owner_from_storage(text) == ""


@pytest.mark.parametrize("index", range(16, len(DATA)))
def test_a_changed_byte_raises_no_error(index):
    changed = bytearray(DATA)
    changed[index] ^= 1
    assert owner_from_storage(with_data(changed)) != OLD_OWNER


@pytest.mark.parametrize("value", [None, 3, [], {}, {"owner": OLD_OWNER}])
def test_a_value_that_is_no_text_has_no_owner(value):
    assert owner_from_storage(value) == ""
