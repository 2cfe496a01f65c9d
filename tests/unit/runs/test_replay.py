"""The recorded training of a checkpoint."""

import json

import pytest

from playground import ASSETS_DIR
from playground.checkpoints.manifest import CheckpointError, read_manifest
from playground.common.storage import BUNDLED_CHECKPOINTS
from playground.runs.replay import MAX_REPLAY_BYTES, REPLAY_FILE, encode_replay, load_replay

FRAME = {"step": 3, "attention": {}, "samples": [], "probe": None}


def replay_with(frame):
    return json.dumps({"frames": [frame]}).encode()


def test_a_replay_survives_a_round_trip(tmp_path):
    frames = [FRAME, FRAME | {"step": 8}]
    (tmp_path / REPLAY_FILE).write_bytes(encode_replay(frames))
    assert load_replay(tmp_path) == {3: frames[0], 8: frames[1]}


def test_a_checkpoint_without_a_replay_has_no_frames(tmp_path):
    assert load_replay(tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "no list of recorded snapshots"),
        (replay_with(FRAME | {"step": "3"}), "no list of recorded snapshots"),
        (replay_with(FRAME | {"samples": {}}), "no list of recorded snapshots"),
        (b'{"frames": [NaN]}', "replay.json"),
        (b" " * (MAX_REPLAY_BYTES + 1), "larger than 3,000,000 bytes"),
    ],
    ids=["list", "step", "samples", "NaN", "large"],
)
def test_an_invalid_replay_is_an_error_with_its_path(tmp_path, content, message):
    (tmp_path / REPLAY_FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_replay(tmp_path)


@pytest.mark.parametrize("name", BUNDLED_CHECKPOINTS)
def test_bundled_checkpoints_show_their_training(name):
    folder = ASSETS_DIR / "checkpoints" / name
    replay = load_replay(folder)
    assert next(iter(replay)) == 0
    assert list(replay)[-1] == read_manifest(folder).step
    assert len(replay) > 20
    correct = [
        sum(each["target"] == each["prediction"] for each in replay[step]["samples"])
        for step in replay
    ]
    assert (correct[0], correct[-1]) == (0, 8)
