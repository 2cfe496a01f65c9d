"""Damage to a file, drawn from a seed: of its bytes, of its JSON, and of what is at its path."""

import json
import random
from pathlib import Path

VALUES = (
    *(None, True, -1, 0, 2**31, 10**299, 1e308, 5e-324, "", "x", "\x00", "\ud800", "../../x"),
    *("x" * 5000, [], {}, [[]], [None], {"a": {}}, [1] * 50, "a\nb", "<b>", "NaN"),
)
TEXTS = ("NaN", "1e999", "9" * 5000, "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900)
HOLE = "-a hole-"


def _places(content, places):
    """Collect each container of a JSON value with each of its keys."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in pairs:
        places.append((content, key))
        if isinstance(value, dict | list):
            _places(value, places)
    return places


def _damage_json(data: bytes, draw: random.Random) -> bytes:
    """Return one line or the whole of a JSON file with one odd value, key or version."""
    lines = data.splitlines(keepends=True)
    try:
        content, rest = json.loads(data), (b"", b"")
    except ValueError:
        at = draw.randrange(len(lines))
        content, rest = json.loads(lines[at]), (b"".join(lines[:at]), b"".join(lines[at + 1 :]))
    places = _places(content, [])
    container, key = draw.choice(places)
    kind = draw.choice(["value", "text", "missing", "twice", "unknown", "version"])
    if kind == "value":
        container[key] = draw.choice(VALUES)
    elif kind == "missing":
        del container[key]
    elif kind == "unknown" and isinstance(container, dict):
        container["unknown " + str(key)] = 1
    elif kind == "version" and isinstance(content, dict):
        content |= {"version": 99, "schema_version": 99}
    else:
        container[key] = HOLE
    text = json.dumps(content)
    odd = draw.choice(TEXTS) if kind == "text" else '1, "step": 1, "step": 2'
    return rest[0] + text.replace(json.dumps(HOLE), odd).encode() + b"\n" + rest[1]


def _damage_bytes(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return draw.choice(
        [
            b"",
            data[:at],
            data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :],
            data[:at] + draw.randbytes(draw.randrange(1, 9)) + data[at + 8 :],
            data[:at] + b"\x00" * 4096,
            b"\x00" * len(data),
            data[:at] + b"\xff\xfe\xc0" + data[at:],
            b"\xef\xbb\xbf" + data,
            data.decode("latin-1").encode("utf-16"),
            data + data,
            b"[" * 900 + b"]" * 900,
            b"null",
            b"7",
            b'"text"',
            b"[]",
            b"{}",
        ]
    )


def damage(path: Path, seed: int) -> None:
    """Damage a file: its JSON if it has some, its bytes, or what is at its path."""
    draw, data = random.Random(seed), path.read_bytes()
    if seed % 10 == 0:
        path.unlink()
        if seed % 30 == 0:
            path.mkdir()
            (path / "file").write_bytes(data)
        elif seed % 30 == 10:
            path.symlink_to(path.name)  # a loop
        return
    if seed % 10 == 1:
        path.chmod(0)
        return
    is_json = path.suffix in (".json", ".jsonl")
    path.write_bytes((_damage_json if is_json and seed % 2 else _damage_bytes)(data, draw))
