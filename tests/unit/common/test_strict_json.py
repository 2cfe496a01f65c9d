"""The parser of every JSON file and request."""

import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.common.strict_json import MAX_DEPTH, MAX_DIGITS, parse_strict_json, read_json
from playground.errors import UserError

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10 ** (MAX_DIGITS - 2)), 10 ** (MAX_DIGITS - 2))
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON_VALUES)
def test_every_value_is_read_as_it_was_written(value):
    assert parse_strict_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize("opening", ['{"a":', "[", '[{"a":'], ids=["objects", "lists", "both"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 100_000])
def test_deep_nesting_is_rejected_at_any_depth(opening, depth):
    n = depth // len(opening.replace('"a":', ""))
    closing = "".join({"[": "]", "{": "}"}.get(c, "") for c in reversed(opening))
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_strict_json((opening * (n + 1) + "1" + closing * (n + 1)).encode())


def test_the_deepest_accepted_value_can_be_used():
    value = parse_strict_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert copy.deepcopy(value) == value
    wide = b"[" + b"[1]," * 400 + b"[1]]"
    assert len(parse_strict_json(wide)) == 401


def test_brackets_in_a_text_are_no_nesting():
    assert parse_strict_json(b'{"a": "' + b"[{" * 500 + b'"}') == {"a": "[{" * 500}


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"\x00", b"\xff{}", b'{"a": 1, "a": 2}', b"NaN", b"-Infinity", b"1e999"),
        *(b"1" * (MAX_DIGITS + 1), b"1" * 10_000),
    ],
)
def test_other_data_is_rejected(data):
    with pytest.raises(ValueError, match=r"."):
        parse_strict_json(data)


def test_infinity_in_a_config_of_transformers_is_accepted():
    assert parse_strict_json(b'{"limit": [0.0, Infinity]}', True) == {"limit": [0.0, math.inf]}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "could not read kept/run.json: No such file or directory"),
        (b'{"a": 1', "kept/run.json is damaged: Expecting"),
        (b"[" * 900 + b"]" * 900, "kept/run.json is damaged: it is nested too deeply"),
        (b" " * 1_000_001, "kept/run.json has 1,000,001 bytes; at most 1,000,000 are read"),
    ],
    ids=["missing", "half", "nested", "large"],
)
def test_an_error_names_the_file_without_its_path(tmp_path, content, reason):
    path = tmp_path / "kept" / "run.json"
    path.parent.mkdir()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_json(path)
    assert str(caught.value).startswith(reason)
    assert str(tmp_path) not in str(caught.value)
