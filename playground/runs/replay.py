"""The recorded training of a checkpoint: its live snapshots at some steps, for the slider.

A bundled checkpoint has no weight history, which would be large. `scripts/train_checkpoints.py`
writes `replay.json` with what the live view draws at each recorded step:

    {"frames": [{"step": 0, "attention": ..., "samples": ...}, ...]}
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from playground.checkpoints.manifest import CheckpointError
from playground.common.messages import file_label
from playground.common.storage import file_version
from playground.common.strict_json import parse_strict_json

REPLAY_FILE = "replay.json"
MAX_REPLAY_BYTES = 3_000_000
FRAME_FIELDS = {"step": int, "attention": dict, "samples": list}


def encode_replay(frames: Iterable[dict[str, Any]]) -> bytes:
    """Return the content of a replay file; `frames` are live snapshots in order of their steps."""
    return json.dumps({"frames": list(frames)}, separators=(",", ":")).encode()


def load_replay(folder: Path) -> dict[int, dict[str, Any]]:
    """Return the recorded snapshots of a checkpoint by step; empty if it has none.

    Raises CheckpointError for a file that is too large or that has another structure.
    """
    path = folder / REPLAY_FILE
    version = file_version(path)
    return _load_replay(path, version) if version else {}


@lru_cache(maxsize=8)
def _load_replay(path: Path, version: tuple[int, ...]) -> dict[int, dict[str, Any]]:
    if path.stat().st_size > MAX_REPLAY_BYTES:
        raise CheckpointError(f"{file_label(path)} is larger than {MAX_REPLAY_BYTES:,} bytes")
    try:
        content = parse_strict_json(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{file_label(path)}: {error}") from None
    frames = content.get("frames") if isinstance(content, dict) else None
    if not isinstance(frames, list) or not all(map(_is_frame, frames)):
        raise CheckpointError(f"{file_label(path)} has no list of recorded snapshots")
    return {frame["step"]: frame for frame in frames}


def _is_frame(frame: object) -> bool:
    return isinstance(frame, dict) and all(
        type(frame.get(name)) is kind for name, kind in FRAME_FIELDS.items()
    )
