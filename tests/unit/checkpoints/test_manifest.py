import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playground.checkpoints.manifest import CheckpointError, Manifest, read_manifest
from playground.training.setting_changes import SettingChange
from playground.training.train_config import TrainConfig

TOTAL = {"n": 4, "exact_match": 0.5, "token_accuracy": 0.75}
LENGTHS = [TOTAL | {"length": 3, "available": None}]
SCORES = TOTAL | {"by_length": LENGTHS}


@pytest.fixture
def folder(small_run, tmp_path):
    manifest = Manifest(small_run, 7, 1.25, "cpu", SCORES)
    (tmp_path / "config.json").write_text(manifest.to_json())
    return tmp_path


def edit(folder, *keys, to):
    """Replace or add one value of config.json."""
    content = json.loads((folder / "config.json").read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    (folder / "config.json").write_text(json.dumps(content, separators=(",", ":")))


def refusal(folder):
    with pytest.raises(CheckpointError) as caught:
        read_manifest(folder)
    assert folder.name in str(caught.value)
    assert str(folder) not in str(caught.value)
    return str(caught.value)


CHANGES = st.lists(
    st.builds(SettingChange, st.integers(0, 99), st.just("learning_rate"), st.floats(1e-9, 100))
    | st.builds(SettingChange, st.integers(0, 99), st.just("speed"), st.integers(0, 1000)),
    max_size=4,
)


@given(
    st.integers(0, 2**31 - 1),
    st.integers(0, 10**9),
    st.sampled_from(["cpu", "cuda", "mps"]),
    st.sampled_from([None, SCORES]),
    CHANGES,
    st.dictionaries(st.text(max_size=9), st.text(max_size=64), max_size=2),
)
def test_a_manifest_survives_a_round_trip(
    small_run, tmp_path_factory, step, milliseconds, device, scores, changes, sums
):
    folder = tmp_path_factory.mktemp("manifest")
    changes = tuple(sorted(changes, key=lambda change: change.step))
    manifest = Manifest(
        small_run, step, milliseconds / 1000, device, scores, changes=changes, sha256=sums
    )
    text = manifest.to_json()
    (folder / "config.json").write_text(text)
    assert read_manifest(folder) == manifest
    assert ("changes" in json.loads(text)) == bool(changes)
    assert set(manifest.versions) == {"playground", "torch", "python"}


def test_config_json_is_for_people_too(folder):
    text = (folder / "config.json").read_text()
    content = json.loads(text)
    assert content["schema_version"] == 2
    assert content["model"]["d_model"] == 32
    assert text.count("\n") > 30


def test_a_folder_without_config_json_is_no_checkpoint(tmp_path):
    (tmp_path / "file").write_text("x")
    for name in ("nothing", "file"):
        assert "is not a checkpoint: it has no config.json" in refusal(tmp_path / name)


@pytest.mark.parametrize("actual", [1, 3, "2", True, None])
def test_another_schema_is_rejected_with_both_versions(folder, actual):
    edit(folder, "schema_version", to=actual)
    message = f"has schema_version {actual!r}; this version of the playground reads 2"
    assert message in refusal(folder)


KEYS = "task model training architecture step seconds device scores versions"


@pytest.mark.parametrize("key", KEYS.split())
def test_a_missing_part_is_named(folder, key):
    content = json.loads((folder / "config.json").read_text())
    del content[key]
    (folder / "config.json").write_text(json.dumps(content))
    assert f"{key} is missing" in refusal(folder)


NO_RUN_WRITES = [
    (("model", "d_model"), -4, "d_model is -4"),
    (("model", "d_model"), True, "d_model is True"),
    (("model", "n_heads"), 5, "does not divide d_model"),
    (("model", "norm_placement"), "__import__('os')", "norm_placement is"),
    (("model", "source_vocab_size"), 14, "vocab_size"),
    (("task", "task"), "../../etc/passwd", "run: task is"),
    (("training", "learning_rate"), 10**400, "a number has 401 digits"),
    (("training", "hurry"), 1, "hurry"),
    (("task",), None, "does not describe a run"),
    (("architecture",), "os:system", "architecture is 'os:system'"),
    (("step",), -1, "step is -1"),
    (("seconds",), "long", "seconds is 'long'"),
    (("seconds",), 10**400, "a number has 401 digits"),
    (("scores",), {"n": "<b>", "by_length": 3}, "n is '<b>'; give a whole number"),
    (("scores",), SCORES | {"exact_match": 7}, "exact_match is 7"),
    (("surprise",), 1, "'surprise' is not a field"),
    (("changes",), [3], "changes are [3]"),
    (("changes",), [[1, "seed", 3]], "'seed' cannot change"),
    (("changes",), [[1, "max_steps", -3]], "max_steps is -3"),
    (("changes",), [[1, "speed", [[]]]], "speed is [[]]"),
    (("changes",), [[-1, "speed", 1]], "run: step is -1"),
]


@pytest.mark.parametrize(
    ("keys", "to", "reason"),
    NO_RUN_WRITES,
    ids=[f"{keys[-1]}-{str(to)[:20]}" for keys, to, _ in NO_RUN_WRITES],
)
def test_an_invalid_run_file_is_rejected_with_the_reason(folder, keys, to, reason):
    edit(folder, *keys, to=to)
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        ("NaN", "is not a number"),
        ("-1e999", "is not a number"),
        ('1.25, "step": 8', "a key occurs twice"),
    ],
)
def test_json_that_is_not_strict_is_rejected(folder, seconds, reason):
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"seconds": 1.25', f'"seconds": {seconds}'))
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("where", "bracket", "depth"),
    [
        ('"changes": []', "[", 980),
        ('"d_model": 32', '{"a":', 980),
        ('"schema_version": 2', "[", 100_000),
    ],
)
def test_deeply_nested_json_is_rejected(folder, where, bracket, depth):
    text = (folder / "config.json").read_text().replace('"step": 7', '"changes": [], "step": 7')
    nested = bracket * depth + "1" + {"[": "]", '{"a":': "}"}[bracket] * depth
    assert where in text
    (folder / "config.json").write_text(text.replace(where, f"{where.split(':')[0]}: {nested}"))
    refusal(folder)


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00", b"[]", b'{"schema_version": 2}', b"9" * 5000]
)
def test_a_body_without_a_json_object_is_rejected(folder, data):
    (folder / "config.json").write_bytes(data)
    refusal(folder)


def test_a_giant_config_is_rejected_unread(folder):
    with open(folder / "config.json", "ab") as file:
        file.truncate(3_000_000_000)  # sparse: it takes no space
    assert "has 3,000,000,000 bytes; at most 1,000,000 are read" in refusal(folder)


def test_every_truncation_of_config_json_is_rejected(folder):
    data = (folder / "config.json").read_bytes()
    for end in range(0, len(data) - 2, 7):
        (folder / "config.json").write_bytes(data[:end])
        refusal(folder)


@pytest.mark.parametrize(
    ("keys", "to", "reason"),
    [
        (("changes",), [[1, "speed", 1]] * 65_000, "65,000 changes; at most 1,000"),
        (("changes",), [[1, "stop_at_exact_match", 0]] * 1001, "1,001 changes; at most 1,000"),
        (("scores", "by_length"), 7_000 * LENGTHS, "7,000 values; give a list of at most 512"),
        (("versions",), {f"package-{i}": "1" for i in range(20_000)}, "versions has 20,000 values"),
        (("versions",), {"torch": "2" * 1000}, "versions"),
        (("sha256",), {f"file-{i}": "0" * 64 for i in range(9_000)}, "sha256 has 9,000 values"),
        (("sha256",), {"model.safetensors": "0" * 1000}, "sha256"),
    ],
    ids=range(7),
)
def test_oversized_parts_are_rejected_before_any_of_them_is_read(
    folder, monkeypatch, keys, to, reason
):
    edit(folder, *keys, to=to)
    read = []
    monkeypatch.setattr(SettingChange, "__post_init__", lambda self: read.append(self))
    assert reason in refusal(folder)
    assert read == []


def test_reading_a_change_checks_its_own_setting_only(folder, monkeypatch):
    edit(folder, "changes", to=[[step, "learning_rate", 0.5] for step in range(1000)])
    checked = []
    check = TrainConfig.__post_init__
    monkeypatch.setattr(
        TrainConfig, "__post_init__", lambda self: (checked.append(self), check(self))[1]
    )
    assert len(read_manifest(folder).changes) == 1000
    assert len(checked) == 1  # the run's own settings
