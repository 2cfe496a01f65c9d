"""Datasets on the fake Hub: names, configurations, splits and addresses."""

import json

import pytest
from huggingface_hub import constants

from playground.datasets.pairs import DatasetError
from playground.datasets.sources import ReadOptions, read_text
from playground.hub.dataset_files import read_hub
from playground.hub.dataset_repository import parse_name
from tests.support.hub_datasets import (
    ANY,
    CARD,
    COLUMNS,
    CSV,
    PAIRS,
    TEXT,
    as_csv,
    as_json_lines,
    as_parquet,
    fetched,
    objects,
    put,
)


@pytest.fixture(autouse=True)
def empty_hub(hub):
    yield
    hub.clear()


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ada/pairs", ("ada/pairs", "main", "", "")),
        ("  hub: ada/pairs\n", ("ada/pairs", "main", "", "")),
        ("datasets/ada/pairs@v1.0", ("ada/pairs", "v1.0", "", "")),
        ("ada/pairs@refs/convert/parquet", ("ada/pairs", "refs/convert/parquet", "", "")),
        ("hf://datasets/ada/pairs", ("ada/pairs", "main", "", "")),
        ("huggingface.co/datasets/ada/pairs", ("ada/pairs", "main", "", "")),
        ("https://huggingface.co/datasets/ada/pairs/", ("ada/pairs", "main", "", "")),
        ("https://hf.co/datasets/ada/pairs?row=3#top", ("ada/pairs", "main", "", "")),
        ("https://huggingface.co/datasets/ada/pairs/tree/a%2Fb", ("ada/pairs", "a/b", "", "")),
        ("https://huggingface.co/datasets/ada/pairs/viewer", ("ada/pairs", "main", "", "")),
        (
            "hub:https://huggingface.co/datasets/ada/pairs/viewer/en%20us/test?p=1",
            ("ada/pairs", "main", "en us", "test"),
        ),
    ],
)
def test_names_and_addresses_of_a_dataset(name, expected):
    repo, revision, options = parse_name(name, ANY)
    assert (repo, revision, options.config, options.split) == expected


@pytest.mark.parametrize("path", ["", "/", "/hub", "/hub/"])
def test_addresses_of_another_hub(monkeypatch, path):
    monkeypatch.setattr(constants, "ENDPOINT", f"https://hub.school.example:8443{path}".rstrip("/"))
    address = f"https://hub.school.example:8443{path.rstrip('/')}/datasets/ada/pairs"
    assert parse_name(address, ANY)[:2] == ("ada/pairs", "main")


@pytest.mark.parametrize(
    "name",
    [
        *("", "hub:", "squad", "ada//pairs", "../etc", "../../etc", "a/b/c", "/etc/passwd"),
        "ada/pairs:train",
        *("https://x/y", "https://x/datasets/ada/pairs", "http://[", "file:///datasets/a/b"),
        *("ada/pairs@", "ada/pairs@../x", "ada/pairs@main/rows.csv", "spaces/ada/pairs", "a b/c"),
        "https://huggingface.co/ada/pairs",
        "https://huggingface.co/datasets/ada/pairs/blob/main/rows.csv",
        "https://huggingface.co/datasets/ada/pairs/discussions/1",
        "hf://buckets/ada/pairs",
    ],
)
def test_an_invalid_name_causes_no_request(hub, name):
    with (
        hub.record_requests() as requests,
        pytest.raises(DatasetError, match="is not a dataset; write user/name, user/name@revision"),
    ):
        read_hub(name, ANY)
    assert requests == []


# Configurations, splits and files


def test_a_choice_of_several_configurations_is_required(hub):
    card = CARD.format(
        "configs:\n"
        "- {config_name: plus, data_files: [{split: train, path: plus/*}]}\n"
        "- {config_name: times, data_dir: times}\n"
    )
    files = {"plus/a.csv": CSV, "times/train.csv": CSV.replace("x", "y"), "times/test.csv": CSV}
    put(hub, {"README.md": card, **files})
    with pytest.raises(DatasetError, match="has 2 configurations; choose one of plus, times") as no:
        read_hub("ada/pairs", ANY)
    assert (no.value.configs, no.value.splits) == (["plus", "times"], [])
    with pytest.raises(DatasetError, match="has no configuration minus; choose one of plus, times"):
        read_hub("ada/pairs", ReadOptions(config="minus"))
    times = read_hub("ada/pairs", ReadOptions(config="times"))
    assert times.sha256 == read_text(TEXT.replace("x", "y")).sha256
    assert (times.origin["config"], times.origin["split"]) == ("times", "train")
    address = f"{hub.url}/datasets/ada/pairs/viewer/times/test"
    assert read_hub(address, ANY).sha256 == read_text(TEXT).sha256


@pytest.mark.parametrize("mark", ["config_name: default", "config_name: plus, default: true"])
def test_the_default_configuration_needs_no_choice(hub, mark):
    card = CARD.format(
        f"configs:\n- {{config_name: a, data_files: b.csv}}\n- {{{mark}, data_files: a.csv}}\n"
    )
    put(hub, {"README.md": card, "a.csv": CSV, "b.csv": "x,y\n1,2\n"})
    dataset = read_hub("ada/pairs", ANY)
    assert dataset.sha256 == read_text(TEXT).sha256
    assert dataset.origin["config"] in mark


def test_a_choice_of_split_is_required_without_one_for_training(hub):
    put(hub, {"data/test-00000-of-00001.csv": CSV, "data/extra-00000-of-00001.csv": CSV})
    with pytest.raises(DatasetError, match="has 2 splits; choose one of test, extra") as caught:
        read_hub("ada/pairs", ANY)
    assert caught.value.splits == ["test", "extra"]
    assert read_hub("ada/pairs", ReadOptions(split="extra")).origin["split"] == "extra"
    put(hub, {"data/train-00000-of-00001.csv": "source,target\n" + CSV})
    assert read_hub("ada/pairs", ANY).origin["split"] == "train"


def test_a_revision_is_read_and_reported(hub):
    first = put(hub, {"rows.csv": CSV})
    put(hub, {"rows.csv": CSV.replace("x", "y")})
    put(hub, {"rows.csv": CSV.replace("x", "z")}, revision="v2")
    for revision, letter in ((first, "x"), ("main", "y"), ("v2", "z")):
        dataset = read_hub(f"ada/pairs@{revision}", ANY)
        assert dataset.sha256 == read_text(TEXT.replace("x", letter)).sha256
        assert len(dataset.origin["revision"]) == 40
    with pytest.raises(DatasetError, match="datasets/ada/pairs has no such revision; name"):
        read_hub("ada/pairs@v3", ANY)


@pytest.mark.parametrize(
    "others",
    [
        {"strains.csv": "x,y\n1,2\n", "pretrain/rows.csv": "x,y\n1,2\n"},
        {"test.csv": "x,y\n1,2\n", "data/validation.csv": "x,y\n1,2\n"},
    ],
)
def test_the_training_file_is_recognized_by_whole_words(hub, others):
    put(hub, {"train.csv": CSV, **others})
    with hub.record_requests() as requests:
        assert read_hub("ada/pairs", ANY).sha256 == read_text(TEXT).sha256
    assert fetched(requests) == ["train.csv"]


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.jsonl", "rows.json", "rows.parquet", "rows.txt"]
)
def test_files_that_describe_a_dataset_are_no_data(hub, name):
    rows = [{"source": a, "target": b} for a, b in PAIRS]
    data = {
        "rows.csv": CSV,
        "rows.jsonl": as_json_lines(rows),
        "rows.json": json.dumps(rows),
        "rows.parquet": as_parquet(COLUMNS),
        "rows.txt": TEXT,
    }[name]
    described = {
        "README.md": CARD.format("license: mit\n"),
        "dataset_infos.json": "{}",
        "vocab.json": '{"a": 1}',
        "stats.json": '{"mean": [1, 2]}',
        "LICENSE.txt": "MIT",
        "requirements.txt": "torch\nnumpy",
        "script.py": "raise SystemExit",
        "x.pkl": b"cos\nsystem\n",
    }
    if name == "rows.txt":
        described = {name: each for name, each in described.items() if ".json" not in name}
    put(hub, {name: data, **described})
    with hub.record_requests() as requests:
        assert read_hub("ada/pairs", ANY).sha256 == read_text(TEXT).sha256
    assert fetched(requests) == [name]


def test_a_dataset_without_tables_names_its_formats(hub):
    put(hub, {"script.py": "raise SystemExit", "data.zip": b"PK", "x.pkl": b"cos\nsystem\n"})
    with pytest.raises(DatasetError, match=r"only files in .*\.pkl, \.py, \.zip; parquet, csv"):
        read_hub("ada/pairs", ANY)


def test_files_of_a_split_are_read_one_after_the_other(hub):
    halves = PAIRS[:150], PAIRS[150:]
    shards = [
        as_csv([("source", "target"), *halves[0]]),
        as_csv([("target", "source"), *((b, a) for a, b in halves[1])]),
    ]
    put(hub, {f"data/train-{i:05d}-of-00003.csv": each for i, each in enumerate([*shards, ""])})
    assert read_hub("ada/pairs", ANY).sha256 == read_text(TEXT).sha256
    put(hub, {"data/train-00002-of-00003.csv": "question,answer\n1,2\n"})
    with pytest.raises(
        DatasetError, match=r"train-00002-of-00003\.csv has the columns question, ans"
    ):
        read_hub("ada/pairs", ANY)


def test_rows_of_several_files_are_numbered_through(hub):
    put(
        hub,
        {
            "a/train.jsonl": as_json_lines(objects([("source", "target"), *PAIRS])),
            "b/train.jsonl": '{"source": "1", "target": "2"}\n{"source": "3"}\n',
        },
    )
    assert read_hub("ada/pairs", ANY).report.skipped == ["row 302 has no target"]


# Addresses in a repository

ADDRESSES = [
    *("https://evil.example/x.csv", "http://127.0.0.1/x.csv", "data:,x", "s3:x", "x::http", ".."),
    *("zip://x.csv::https://evil.example/x", "hf://datasets/ada/private/rows.csv"),
    *("hf://datasets/ada/private@main/rows.csv", "../private/rows.csv", "memory://x.csv"),
    *("data/../../private/rows.csv", "%2e%2e/private/rows.csv", "/etc/passwd"),
    *("file:///etc/passwd", "//evil.example/x.csv"),
]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "settings",
    [
        "data_files: {}",
        "data_files: [rows.csv, {}]",
        "data_dir: {}",
        "data_files: [{{split: train, path: [{}]}}]",
    ],
)
def test_an_address_in_a_card_is_not_followed(hub, address, settings):
    put(hub, {"rows.csv": CSV}, "ada/private", private=True)
    entry = settings.format(json.dumps(address))
    card = CARD.format(f"configs:\n- config_name: default\n  {entry}\n")
    put(hub, {"README.md": card, "rows.csv": CSV})
    with (
        hub.record_requests() as requests,
        pytest.raises(DatasetError, match="the card of ada/pairs names files outside of this data"),
    ):
        read_hub("ada/pairs", ANY, hub.ADA)
    assert [request.path for request in requests] == ["/api/datasets/ada/pairs/revision/main"]


def test_a_file_whose_name_is_an_address_is_not_opened(hub):
    """fsspec interprets the part before `::` as a protocol."""
    put(hub, {"x::http/rows.csv": CSV})
    with (
        hub.record_requests() as requests,
        pytest.raises(DatasetError, match="ada/pairs has no table that can be read"),
    ):
        read_hub("ada/pairs", ANY)
    assert fetched(requests) == []


@pytest.mark.parametrize(
    "card",
    [
        *("configs: 1\n", "configs: [rows.csv]\n", "configs: {a: b}\n"),
        "configs: [{config_name: default, data_files: {train: {a: b}}}]\n",
        "configs: [{config_name: default, data_files: 7}]\n",
        "configs: [{config_name: default, data_files: [1]}]\n",
        "configs: [{config_name: default, data_files: [{split: train}]}]\n",
        "configs: [{data_files: rows.csv}]\n",
        "self: 1\nignore_metadata_errors: 2\nconfigs: [{config_name: [1], data_files: [[1]]}]\n",
        "",
    ],
)
def test_invalid_configurations_are_named(hub, card):
    described = {"README.md": CARD.format(card)} if card else {".huggingface.yaml": "configs: []\n"}
    put(hub, described | {"rows.csv": CSV})
    with pytest.raises(
        DatasetError, match="the configurations of ada/pairs are described in a for"
    ):
        read_hub("ada/pairs", ANY)
