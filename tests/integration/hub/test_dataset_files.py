"""Datasets on the fake Hub: the pairs, the errors and the limits of reading."""

import contextlib
import gzip
import random
import time

import pytest

from playground.datasets import parquet_tables, sources
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import ReadOptions, read_bytes, read_text
from playground.datasets.storage import dataset_origin, store
from playground.hub import dataset_files, transport
from playground.hub.dataset_files import read_hub
from tests.support.hub_datasets import (
    ANY,
    CARD,
    COLUMNS,
    CSV,
    FORMATS,
    NAMED,
    PAIRS,
    TEXT,
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


# The same pairs as from an uploaded file

VALUES = [
    *("0007", "+7", "-0", "7.50", "1e5", "1_000", "123456789012345678901", "true", "True", "FALSE"),
    *("NA", "null", "None", "nan", "NaN", "-inf", "2024-01-02", "0x1f", "é", "ﬁ", "Ω", "日本", "€"),
    *('say "hi"', "'", "a,b", "a;b", "a|b", "#1", "=1+1", "x\u200dy", "שלום", "[1]", '{"a": 1}'),
]
NESTED = {
    "nested.jsonl": ("pair.source", "pair.target"),
    "nested.parquet": ("pair.source", "pair.target"),
    "chat.jsonl": ("messages.user", "messages.assistant"),
}


def digest(read, *arguments):
    """Return the SHA-256 of a dataset, or the message of its error."""
    try:
        return read(*arguments).sha256
    except DatasetError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(40))
def test_the_hub_and_an_upload_of_the_same_bytes_give_one_digest(hub, seed):
    generator = random.Random(seed)
    name = list(FORMATS)[seed % len(FORMATS)]
    values = generator.sample(VALUES, generator.randint(8, len(VALUES)))

    def cell():
        return " ".join(generator.choices(values, k=generator.randint(1, 3)))

    data = FORMATS[name]([("source", "target"), *((cell(), cell()) for _ in range(120))])
    put(hub, {name: data})
    options = ReadOptions(
        columns=NESTED.get(name, ()), split_on_spaces=generator.choice([None, True])
    )
    uploaded = read_bytes(data, name, options)
    published = read_hub("ada/pairs", options)
    assert published.sha256 == uploaded.sha256
    assert published.report == uploaded.report
    assert len(published) > 50


# Tokens and errors


@pytest.mark.parametrize(
    ("settings", "account", "message"),
    [
        (
            {"private": True},
            "",
            "no repository datasets/ada/pairs that is public.*if it is private, s",
        ),
        (
            {"private": True},
            "CY",
            "no repository datasets/ada/pairs that this token can read; check",
        ),
        (
            {"gated": "auto"},
            "",
            "datasets/ada/pairs is gated: sign in, request access on its page, .*/",
        ),
        ({"gated": "auto"}, "CY", "datasets/ada/pairs is gated: request access on its page, http"),
        ({}, "EXPIRED", "the Hub rejected this token, which may have expired: create a new one"),
        ({}, "UNKNOWN", "the Hub rejected this token, which may have expired: create a new one"),
    ],
)
@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_refusal_names_its_cause(hub, settings, account, message, name):
    put(hub, {name: CSV if name == "rows.csv" else as_parquet(COLUMNS)}, **settings)
    token = getattr(hub, account) if account else ""
    with pytest.raises(DatasetError, match=message) as caught:
        read_hub("ada/pairs", ANY, token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("gated", "datasets/ada/pairs is gated: sign in, request access on its page"),
        ("cut", "the connection to the Hub broke; try again"),
    ],
)
def test_a_fault_within_a_large_parquet_file_is_named(hub, monkeypatch, kind, message):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    limit_bytes(monkeypatch, 10)
    put(hub, {"rows.parquet": as_parquet(COLUMNS)})
    fault = contextlib.nullcontext()
    if kind == "gated":
        put(hub, {}, gated="auto")
    else:
        fault = hub.fault(hub.STORAGE, kind)
    with fault, pytest.raises(DatasetError, match=message):
        read_hub("ada/pairs", ANY)


@pytest.mark.parametrize("path", ["INFO", "RESOLVE"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (429, "the Hub requests a wait of 24 h 0 min; try again then"),
        (
            403,
            "this token has no permission to read datasets/ada/pairs: it needs read access there",
        ),
        (500, "the Hub has a server error .status 500.; try again later"),
        ("reset", "the connection to the Hub broke; try again"),
        ("silent", "no response from the Hub within 0.2 s; try again"),
        ("hang", "no response from the Hub within 0.2 s; try again"),
        ("cut", "the connection to the Hub broke; try again"),
    ],
)
def test_a_fault_of_the_hub_is_named(hub, monkeypatch, path, kind, message):
    monkeypatch.setattr(transport, "READ_TIMEOUT_S", 0.2)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    put(hub, {"rows.csv": CSV})
    with hub.fault(getattr(hub, path), kind), pytest.raises(DatasetError, match=message):
        read_hub("ada/pairs", ANY)


# Limits


def limit_bytes(monkeypatch, n_bytes):
    for module in (sources, dataset_files):
        monkeypatch.setattr(module, "MAX_BYTES", n_bytes)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.json", "rows.txt"])
def test_of_a_large_file_the_first_lines_are_read(hub, monkeypatch, name):
    rows = as_json_lines(objects([("source", "target"), *PAIRS]))
    text = {"rows.csv": CSV, "rows.txt": TEXT}.get(name, rows)
    limit_bytes(monkeypatch, len(text) // 2 - 5)
    put(hub, {name: text})
    dataset = read_hub("ada/pairs", ANY)
    assert (dataset.origin["part"], dataset.report.n_skipped) == ("the first 0 MB", 0)
    assert 140 < len(dataset) < 150


@pytest.mark.parametrize("name", ["rows.json", "rows.csv.gz", "utf16.csv", "one.txt"])
def test_a_large_file_without_lines_is_refused(hub, monkeypatch, name):
    limit_bytes(monkeypatch, 700)
    make = FORMATS.get(name, lambda _: b"a,b" * 1000)
    put(hub, {name: make([("source", "target"), *PAIRS])})
    with pytest.raises(DatasetError, match=f"{name} has 0 MB; of a file in this format at most 0"):
        read_hub("ada/pairs", ANY)


def test_files_beyond_the_limit_are_not_fetched(hub, monkeypatch):
    limit_bytes(monkeypatch, len(CSV) + 10)
    put(hub, {f"data/train-{i:05d}-of-00100.csv": CSV for i in range(100)})
    with hub.record_requests() as requests:
        dataset = read_hub("ada/pairs", ANY)
    assert len(fetched(requests)) == 2
    assert (len(dataset), dataset.origin["part"]) == (300, "the first 0 MB")


def test_at_most_the_first_rows_are_read(hub, monkeypatch):
    monkeypatch.setattr(dataset_files, "MAX_ROWS", 150)
    put(hub, {"a/train.csv": CSV, "b/train.csv": CSV, "c/train.csv": CSV})
    with hub.record_requests() as requests:
        dataset = read_hub("ada/pairs", ANY)
    assert fetched(requests) == ["a/train.csv"]
    assert (len(dataset), dataset.origin["part"]) == (150, "the first 150 rows")
    monkeypatch.setattr(dataset_files, "MAX_ROWS", 300)
    put(hub, {"b/train.csv": None, "c/train.csv": None})
    assert "part" not in read_hub("ada/pairs", ANY).origin


def test_of_a_large_parquet_file_only_the_columns_are_fetched(hub, monkeypatch):
    limit_bytes(monkeypatch, 100_000)
    noise = [random.Random(i).randbytes(3000) for i in range(300)]
    put(hub, {"rows.parquet": as_parquet({"noise": noise} | COLUMNS)})
    monkeypatch.setattr(dataset_files, "BLOCK_BYTES", 10_000)
    with hub.record_requests() as requests:
        assert read_hub("ada/pairs", NAMED).sha256 == read_text(TEXT).sha256
    ranges = {request.headers["range"] for request in requests if "range" in request.headers}
    assert 1 < len(ranges) < 10


def test_a_row_group_that_is_too_large_is_not_read(hub, monkeypatch):
    monkeypatch.setattr(parquet_tables, "MAX_ROW_GROUP_BYTES", 200_000)
    columns = COLUMNS | {"extra": ["x" * 9000] * 300}
    data = as_parquet(columns, use_dictionary=False, compression="zstd")
    assert len(data) < 20_000
    put(hub, {"train.parquet": data})
    with pytest.raises(
        DatasetError, match="more than 0 MB of these columns in row group 1; name ot"
    ):
        read_hub("ada/pairs", ReadOptions(columns=("source", "extra")))
    # what is not read does not count
    assert read_hub("ada/pairs", NAMED).sha256 == read_text(TEXT).sha256


def test_gzip_that_expands_beyond_the_limit_is_refused(hub):
    put(hub, {"rows.csv.gz": gzip.compress(b"a,b\n" * 20_000_000)})
    with pytest.raises(
        DatasetError, match=r"the decompressed file has .* MB; at most 50 MB are read"
    ):
        read_hub("ada/pairs", ANY)


def test_a_repository_of_many_files_needs_few_requests(hub):
    put(hub, {f"data/{i:05d}.txt": "" for i in range(3000)} | {"train.csv": CSV})
    with hub.record_requests() as requests:
        assert read_hub("ada/pairs", ANY).sha256 == read_text(TEXT).sha256
    assert len(requests) < 10


# The origin


def test_a_dataset_keeps_its_name_and_license(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    put(hub, {"README.md": CARD.format("license: cc-by-4.0\n"), "rows.csv": CSV})
    put(hub, {"rows.csv": None, "test.csv": CSV})
    content = store(read_hub("ada/pairs", ANY))
    assert dataset_origin(content) == {"dataset": "ada/pairs", "license": "cc-by-4.0"}
    store(read_bytes(CSV.encode(), "rows.csv"))  # the same pairs out of a file
    assert dataset_origin(content) == {"dataset": "ada/pairs", "license": "cc-by-4.0"}
    assert dataset_origin(store(read_text(TEXT + "x\ty\n"))) == {}
