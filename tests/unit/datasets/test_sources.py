import csv
import dataclasses
import io
import json

import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from playground.checkpoints.checkpoint import load_model, resume_trainer, save_checkpoint
from playground.datasets import storage
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import (
    MAX_BYTES,
    from_bytes,
    from_cli_argument,
    from_csv,
    from_file,
    from_hub,
    from_text,
    is_dataset_argument,
)
from playground.datasets.storage import dataset_origin, store
from playground.runs.snapshot import SnapshotBuilder
from playground.training.config import RunConfig
from playground.training.trainer import Trainer

TEXT = "".join(f"{i:03d}\t{i:03d}x\n" for i in range(300))
SMALL = {
    "d_model": 16,
    "n_heads": 1,
    "n_layers": 1,
    "d_ff": 16,
    "max_steps": 3,
    "batch_size": 16,
    "eval_every": 100,
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "checkpoints"))


tokens = st.lists(st.text("ab01é漢(+;", min_size=1, max_size=3), min_size=1, max_size=4).map(
    " ".join
)


def read(read_format, *arguments):
    """Read words; too few pairs to hold one out are read, too."""
    try:
        return read_format(*arguments, split_on_spaces=True).sha256
    except DatasetError as error:
        if "held out" not in str(error):
            raise
        return error.dataset.sha256


@given(st.lists(st.tuples(tokens, tokens), min_size=1, max_size=12))
def test_pairs_are_the_same_through_every_format(pairs):
    def lines(separator, end="\n"):
        return "".join(f"{source}{separator}{target}{end}" for source, target in pairs)

    def table(delimiter):
        file = io.StringIO()
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows([("n", "from", "to"), *((n, *pair) for n, pair in enumerate(pairs))])
        return file.getvalue()

    expected = read(from_text, lines("\t"))
    for separator in (" → ", "->", " => ", ",", ", ", "  "):
        assert read(from_text, f"\n\n{lines(separator)}\n") == expected, separator
    for delimiter in ",;\t":
        assert read(from_csv, table(delimiter), ["from", "to"]) == expected, delimiter
    windows = b"\xef\xbb\xbf" + lines("\t", "\r\n").encode()
    assert read(from_bytes, windows, "rows.tsv") == expected
    named = b"\xef\xbb\xbf" + table(",").encode()
    assert read(from_bytes, named, "rows.CSV", ["from", "to"]) == expected


def test_a_file_of_the_command_line_has_the_same_rows(tmp_path):
    (tmp_path / "rows.tsv").write_text(TEXT)
    rows = from_cli_argument(str(tmp_path / "rows.tsv"))
    assert rows.sha256 == from_file(tmp_path / "rows.tsv").sha256 == from_text(TEXT).sha256
    assert rows.preview(1) == [(["0", "0", "0"], ["0", "0", "0", "x"])]
    assert from_csv("a\tb\n" + TEXT, ["b", "a"]).sha256 != rows.sha256


def test_a_line_without_the_separator_of_the_others_is_named():
    text = "".join(f"{i} -> {i}\n" for i in range(10, 200)) + "11 12\n1 -> 2 -> 3\n"
    with pytest.raises(
        DatasetError, match=r"line 191 has no tab, arrow.*line 192 has 2 separators"
    ):
        from_text(text)


@pytest.mark.parametrize(
    ("table", "columns", "expected_message"),
    [
        ("a,b,c\n1,2,3\n", [], "there are 3 columns \\(a, b, c\\); name the two"),
        ("a,b,c\n1,2,3\n", ["a", "d"], "columns are a, d; name two of a, b, c"),
        ("a,b,c\n1,2,3\n", ["a"], "columns are a; name two"),
        ("a,b\n1,2\n", ["a", "a"], "both columns are a"),
        ("", [], "there are 0 columns \\(none\\)"),
        (
            "a,b\n1,2\n3\n4,5\n\n,6\n",
            [],
            "2 of 4 lines cannot be used: line 3 has no target; line 6 has no source",
        ),
        ('a,b\n"1\n1",2\nx\x01,5\n', [], "line 4 has the control character U\\+0001"),
        ("a" * 200_000 + ",b\n1,2\n", [], "header of the table cannot be read \\(field larger"),
        (
            "a,b\n" + "1" * 200_000 + ",2\n",
            [],
            "line 2 is not a line of a CSV file \\(field larger",
        ),
    ],
)
def test_an_unusable_table_has_a_reason(table, columns, expected_message):
    with pytest.raises(DatasetError, match=expected_message):
        from_csv(table, columns)


@pytest.mark.parametrize(
    ("data", "expected_message"),
    [
        (b"\xff\xfea\x00\t\x00b\x00", "UTF-16 text; save it as UTF-8"),
        (b"a\tb\nc\td\n\xe9\tx\n", "line 3 is not UTF-8 text \\(byte 0xe9\\)"),
        (b"a\x00\tb\n", "line 1 has the control character U\\+0000"),
        (b"PK\x03\x04\x14\x00", "line 1 has no tab"),
        (b"a\tb\n" * (MAX_BYTES // 4 + 1), "the file has 50,000,00. bytes; at most 50,000,000"),
        ("a\u202e\tb\n".encode(), "cannot be printed"),
        (b"", "the dataset is empty"),
    ],
    ids=["utf-16", "latin-1", "nul", "zip", "large", "bidi", "empty"],
)
def test_unusable_bytes_have_a_reason(data, expected_message):
    with pytest.raises(DatasetError, match=expected_message):
        from_bytes(data, "rows.tsv")


@given(st.binary(max_size=300), st.sampled_from(["x.tsv", "x.csv"]))
def test_every_upload_is_accepted_or_rejected_with_a_message(data, name):
    try:
        from_bytes(data, name)
    except DatasetError as error:
        if not str(error):
            raise


def test_a_missing_file_and_a_folder_are_rejected(tmp_path):
    for path in (tmp_path, tmp_path / "no.tsv"):
        with pytest.raises(DatasetError, match="cannot be read"):
            from_file(path)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("sort", False),
        ("swap-halves", False),
        ("rows.tsv", True),
        ("hub:a/b", True),
        ("/tmp/rows", True),
        ("sing", False),
    ],
)
def test_dataset_arguments_of_the_command_line(task, expected):
    assert is_dataset_argument(task) is expected


def test_keeping_twice_writes_once_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    rows = from_text(TEXT)
    folder = tmp_path / "checkpoints" / "rows"
    monkeypatch.setattr(
        storage,
        "write_dir",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(OSError, match="No space"):
        store(rows)
    assert not folder.exists()
    monkeypatch.undo()
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "checkpoints"))
    assert store(rows) == store(rows) == rows.sha256
    assert [path.name for path in folder.iterdir()] == [rows.sha256]
    store(rows, tmp_path / "other")
    assert (tmp_path / "other" / rows.sha256 / "rows.json").is_file()


def test_a_run_on_rows_resumes_evaluates_and_loads_without_them(tmp_path, monkeypatch):
    rows = from_text("".join(f"w{i % 7} w{i // 7}\tv{i // 7} v{i % 7} end\n" for i in range(140)))
    store(rows)
    config = RunConfig.from_flat({**rows.task_settings(), **SMALL})
    assert (config.model.source_vocab_size, config.model.max_positions) == (
        len(rows.vocabulary) + 3,
        4,
    )
    trainer = Trainer(config)
    metrics = list(trainer)
    save_checkpoint(tmp_path / "c", trainer, metrics, trainer.evaluate())
    resumed, _ = resume_trainer(tmp_path / "c", max_steps=5)
    straight = Trainer(config.replace(max_steps=5))
    assert [m.loss for m in resumed] == [m.loss for m in straight][3:]
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "elsewhere"))
    manifest, family = load_model(tmp_path / "c")
    assert manifest.config == config
    view = SnapshotBuilder(manifest.config.task.load(), manifest.config, torch.device("cpu"))
    reply = view.predict(family, "w1 w2")
    assert (reply["target"], reply["correct"]) == (None, None)
    assert "is unknown" in reply["note"]
    assert "'w99' is not a token" in view.predict(family, "w99")["error"]
    lost, _ = resume_trainer(tmp_path / "c", max_steps=5)
    with pytest.raises(DatasetError, match=f"{rows.sha256[:12]}.* is not stored here"):
        lost.train_step()
    store(rows)
    view = SnapshotBuilder(manifest.config.task.load(), manifest.config, torch.device("cpu"))
    assert view.predict(family, "w1 w2")["target"] == ["v2", "v1", "end"]
    assert len(view.snapshot(family, 3)["samples"]) == min(8, rows.count_held_out())


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"dataset_sha256": "../../etc"}, "dataset_sha256"),
        ({"dataset_sha256": "A" * 64}, "dataset_sha256"),
        ({"dataset_symbols": "a a"}, "dataset_symbols"),
        ({"dataset_symbols": ""}, "dataset_symbols"),
        ({"max_target_length": 129}, "max_target_length"),
        ({"source_vocab_size": 13}, "source_vocab_size"),
        ({"max_positions": 4}, "max_positions"),
        ({"task": "reverse"}, "dataset_sha256"),
        ({"task": "reverse", "dataset_sha256": ""}, "dataset_symbols"),
        ({"task": "reverse", "dataset_sha256": "", "dataset_symbols": ""}, "max_target_length"),
    ],
)
def test_settings_of_rows_that_do_not_fit_name_their_field(changed, field):
    settings = from_text(TEXT).task_settings()
    assert RunConfig.from_flat(RunConfig.from_flat(settings).to_flat()) == RunConfig.from_flat(
        settings
    )
    with pytest.raises(ValueError, match=field) as caught:
        RunConfig.from_flat(settings | changed)
    assert caught.value.field == field


# The Hub


def parquet(rows):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(rows), file)
    return file.getvalue()


@pytest.fixture
def streamed(hub, tmp_path, monkeypatch):
    """The stand-in Hub, also for the file system of huggingface_hub."""
    import datasets
    from huggingface_hub import HfFileSystem

    # read once, at the first import in this process
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hub.url)
    HfFileSystem.clear_instance_cache()
    return hub


def test_two_columns_of_a_dataset_are_streamed(streamed):
    table = {
        "question": [f"{i:03d}" for i in range(300)],
        "extra": [0.5] * 300,
        "answer": [f"{i:03d}x" for i in range(300)],
    }
    kinds = {
        "ada/parquet": {
            "data/train-0.parquet": parquet(table),
            "data/test-0.parquet": parquet({"other": ["z"]}),
            "x.pkl": b"cpickle",
        },
        "ada/lines": {
            "rows.jsonl": "".join(
                json.dumps({k: v[i] for k, v in table.items()}) + "\n" for i in range(300)
            ).encode()
        },
        "ada/script": {"script.py": b"raise SystemExit", "x.pkl": b"cos\nsystem\n"},
    }
    for name, files in kinds.items():
        streamed.put(
            name,
            {
                "README.md": b"---\nconfigs:\n- config_name: default\n  data_files: x.pkl\n---\n",
                **files,
            },
            kind="dataset",
        )
    for name in ("ada/parquet", "ada/lines"):
        assert from_hub(name, ["question", "answer"]).sha256 == from_text(TEXT).sha256
        assert len(from_cli_argument(f"hub:{name}", ["question", "answer"])) == 300
        assert len(from_hub(name, ["question", "answer"], max_rows=150)) == 150
    with pytest.raises(DatasetError, match=r"there are 3 columns \(question, extra, answer\)"):
        from_hub("ada/parquet")
    with pytest.raises(DatasetError, match="row 1 contains float instead of text"):
        from_hub("ada/parquet", ["question", "extra"])
    with pytest.raises(DatasetError, match="has no file of tables; parquet, csv, json files"):
        from_hub("ada/script", ["a", "b"])
    with pytest.raises(DatasetError, match="there is no dataset ada/nowhere"):
        from_hub("ada/nowhere")


def test_parquet_with_oversized_row_group_is_rejected_before_reading(streamed, monkeypatch):
    monkeypatch.setattr("playground.datasets.hub_stream.MAX_ROW_GROUP_BYTES", 200_000)
    table = {
        "source": [f"{i:03d}" for i in range(300)],
        "target": [f"{i:03d}x" for i in range(300)],
        "extra": ["x" * 9000] * 300,
    }
    plain = io.BytesIO()
    pyarrow.parquet.write_table(
        pyarrow.table(table), plain, use_dictionary=False, compression="zstd"
    )
    streamed.put("ada/bomb", {"data/train.parquet": plain.getvalue()}, kind="dataset")
    assert len(plain.getvalue()) < 20_000
    with pytest.raises(
        DatasetError, match=r"train.parquet has 3 MB of these columns in row group 1, above 0 MB"
    ):
        from_hub("ada/bomb", ["source", "extra"])
    # what is not read does not count
    assert from_hub("ada/bomb", ["source", "target"]).sha256 == from_text(TEXT).sha256


def test_a_hub_dataset_keeps_its_name_and_license(streamed, tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    card = b"---\nlicense: cc-by-4.0\n---\n"
    streamed.put(
        "ada/licensed",
        {"README.md": card, "rows.csv": ("a,b\n" + TEXT.replace("\t", ",")).encode()},
        kind="dataset",
    )
    rows = from_cli_argument("hub:ada/licensed", ["a", "b"])
    content = store(rows)
    assert dataset_origin(content) == {"dataset": "ada/licensed", "license": "cc-by-4.0"}
    store(dataclasses.replace(rows, origin={}))  # the same rows out of a file
    assert dataset_origin(content) == {"dataset": "ada/licensed", "license": "cc-by-4.0"}
    assert dataset_origin(store(from_text(TEXT + "x\ty\n"))) == {}


def test_a_file_whose_name_is_an_address_is_not_opened(streamed):
    """fsspec interprets the part before `::` as a protocol."""
    chained = {"x::http/rows.csv": b"a,b\n1,2\n"}
    streamed.put("ada/chained", chained, kind="dataset")
    with (
        streamed.record_requests() as requests,
        pytest.raises(DatasetError, match=r"contain '::', which refers to other addresses"),
    ):
        from_hub("ada/chained", ["a", "b"])
    assert not [request for request in requests if "resolve" in request.path]


@pytest.mark.parametrize(
    "name", ["", "squad", "../etc", "../../etc", "a/b/c", "https://x/y", "/etc/passwd"]
)
def test_an_invalid_dataset_name_causes_no_request(name):
    with pytest.raises(DatasetError, match="is not a dataset; write user/name"):
        from_hub(name)


def test_without_a_network_a_dataset_is_rejected(monkeypatch):
    from huggingface_hub import hf_api

    monkeypatch.setattr(hf_api.api, "endpoint", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DatasetError, match="cannot be fetched"):
        from_hub("ada/any")
