import dataclasses
import json
import os
import re
import subprocess
import sys

import pyarrow.parquet
import pytest
import torch
from huggingface_hub import DatasetCard

from playground.checkpoints.manifest import Manifest, read_manifest
from playground.datasets import hub_stream
from playground.datasets.hub_stream import stream_hub_columns
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import from_text
from playground.datasets.storage import store
from playground.hub.dataset_export import (
    MAX_EXPORT_ROWS,
    evaluation_examples,
    export_dataset,
    training_dataset,
)
from playground.tasks import load_task
from playground.tasks.held_out import build_held_out_set, is_held_out
from playground.training.config import RunConfig
from playground.training.trainer import Trainer
from tests.support.app_server import ROOT

REVERSE = ROOT / "checkpoints" / "reverse"
REPOS = {"repo": "ada/reverse-data", "model": "ada/reverse"}


def record_batches(monkeypatch, config, steps):
    """Return the examples in a Trainer's batches: (step, source tokens, target tokens)."""
    batches, trainer = [], Trainer(config)
    next_batch = trainer._next_batch

    def record():
        batches.append(next_batch())
        return batches[-1]

    monkeypatch.setattr(trainer, "_next_batch", record)
    for _ in range(steps):
        trainer.train_step()
    return [
        (step, source, label)
        for step, batch in enumerate(batches, start=1)
        for source, label, weight in zip(
            batch.source_BS.tolist(),
            batch.labels_BT.tolist(),
            batch.loss_weight_B.tolist(),
            strict=True,
        )
        if weight > 0
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task": "copy", "seed": 7, "min_length": 3, "eval_every": 2},
        {
            "n_symbols": 40,
            "source_vocab_size": 43,
            "target_vocab_size": 43,
            "batch_size": 5,
            "dropout": 0.3,
        },
    ],
    ids=["plain", "another seed, evaluated during training", "letters and dropout"],
)
def test_exported_rows_are_the_training_batches_in_order(
    monkeypatch, tmp_path, small_run, settings
):
    config = small_run.replace(**settings)
    vocabulary = load_task(config.task.task, config.task.n_symbols).vocabulary
    expected = [
        {
            "step": step,
            "source": " ".join(vocabulary.decode(source)),
            "target": " ".join(vocabulary.decode(label)),
        }
        for step, source, label in record_batches(monkeypatch, config, 6)
    ]
    assert training_dataset(config, 6, tmp_path).to_list() == expected
    assert 0.8 * 6 * config.training.batch_size < len(expected) <= 6 * config.training.batch_size
    assert expected[0]["source"] != expected[1]["source"]


def test_rows_of_a_fixed_training_set_are_those_of_the_trainer(tmp_path):
    config = RunConfig.from_flat(
        {
            "min_length": 3,
            "max_length": 3,
            "n_training_sources": 20,
            "predict_eos": False,
            "batch_size": 8,
            "eval_size": 8,
            "d_model": 8,
            "n_heads": 1,
        }
    )
    trainer, rows = Trainer(config), training_dataset(config, 3, tmp_path)
    encode = trainer.task.vocabulary.encode
    for step in (1, 2, 3):
        batch = trainer.batches.batch(step - 1)
        targets = [encode(row["target"]) for row in rows if row["step"] == step]
        assert targets == batch.labels_BT[:, :3].tolist()


def test_longer_training_set_extends_shorter_one_in_its_own_file(tmp_path, small_run):
    shorter, longer = (
        training_dataset(small_run, 3, tmp_path),
        training_dataset(small_run, 5, tmp_path),
    )
    assert longer.to_list()[: len(shorter)] == shorter.to_list()
    paths = {file["filename"] for dataset in (shorter, longer) for file in dataset.cache_files}
    assert paths == {str(path) for path in tmp_path.rglob("*.arrow")}
    assert len(paths) == 2


def test_export_does_not_change_the_random_state_of_torch(tmp_path, small_run):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    training_dataset(small_run, 2, tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_too_many_rows_are_rejected_before_writing(tmp_path):
    config = RunConfig()
    with pytest.raises(
        ValueError,
        match=r"15,626 steps of 128 are 2,000,128 sequences, more than the 2,000,000 .* publish "
        r"only the model",
    ):
        training_dataset(config, 15_626, tmp_path)
    manifest = Manifest(config, 15_626, 1.0, "cpu")
    with pytest.raises(ValueError, match="more than the 2,000,000"):
        export_dataset(tmp_path / "data", manifest, **REPOS)
    assert list(tmp_path.iterdir()) == []
    assert MAX_EXPORT_ROWS == 15_625 * 128


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_random_numbers_of_a_gpu_are_not_replaced_on_a_cpu(tmp_path):
    with pytest.raises(ValueError, match="no CUDA GPU"):
        export_dataset(tmp_path, Manifest(RunConfig(), 3, 1.0, "cuda"), **REPOS)


def test_an_untrained_model_has_no_training_set(tmp_path):
    with pytest.raises(ValueError, match="step 0"):
        export_dataset(tmp_path, Manifest(RunConfig(), 0, 0.0, "cpu"), **REPOS)


@pytest.mark.parametrize("name", ["", "data", "a/b/c", "a/b\n", "a/b](http://x)", "a/<b>"])
def test_an_invalid_repository_is_not_on_a_card(tmp_path, name):
    for repos in ({"repo": name}, {"model": name}):
        with pytest.raises(ValueError, match="is not a repository"):
            export_dataset(tmp_path, Manifest(RunConfig(), 1, 0.0, "cpu"), **(REPOS | repos))


@pytest.mark.smoke
def test_test_split_is_the_evaluation_set():
    manifest = read_manifest(REVERSE)
    examples = evaluation_examples(manifest)
    by_length = manifest.scores["by_length"]
    assert torch.bincount(examples.lengths_B).tolist()[1:] == [line["n"] for line in by_length]
    assert examples.num_available == {line["length"]: line["available"] for line in by_length}
    smaller = Manifest(manifest.config, 200, 1.0, "cpu", {**manifest.scores, "n": 300})
    held_out = build_held_out_set(load_task("reverse"), 300, 1, 10)
    assert torch.equal(evaluation_examples(smaller).batch.source_BS, held_out.batch.source_BS)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "data"
    export_dataset(folder, read_manifest(REVERSE), **REPOS)
    return folder


@pytest.mark.smoke
def test_export_contains_two_tables_and_a_card(exported):
    assert sorted(
        str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()
    ) == [
        "README.md",
        "data/test.parquet",
        "data/train.parquet",
    ]
    train, test = (
        pyarrow.parquet.read_table(exported / "data" / f"{split}.parquet").to_pylist()
        for split in ("train", "test")
    )
    assert all(row["target"] == row["source"][::-1] for row in train + test)
    assert {row["step"] for row in train} == set(range(1, 201))
    assert {row["step"] for row in test} == {None}
    assert len(test) == len({row["source"] for row in test}) == 2000
    assert not {row["source"] for row in test} & {row["source"] for row in train}
    vocabulary = load_task("reverse").vocabulary
    for rows, held_out in ((train[:300], False), (test[:300], True)):
        for row in rows:
            tokens = torch.tensor([vocabulary.encode(row["source"])])
            assert bool(is_held_out(tokens, torch.tensor([tokens.shape[1]]))) is held_out


def test_second_export_is_bit_identical(exported, tmp_path):
    export_dataset(tmp_path, read_manifest(REVERSE), **REPOS)
    for path in exported.rglob("*"):
        assert (
            path.is_dir()
            or path.read_bytes() == (tmp_path / path.relative_to(exported)).read_bytes()
        )


def test_load_dataset_reads_the_export_offline(exported, tmp_path):
    code = """
import json, sys
from datasets import load_dataset
whole = load_dataset(sys.argv[1])
train = load_dataset("parquet", data_files=sys.argv[1] + "/data/train.parquet")["train"]
sizes = {split: whole[split].num_rows for split in whole}
print(json.dumps([sizes, whole["train"][0], whole["test"][0], train.num_rows]))
"""
    environment = {
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    completed = subprocess.run(
        [sys.executable, "-c", code, str(exported)],
        env=os.environ | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    rows, first, first_test_row, n_train_rows = json.loads(completed.stdout)
    assert rows == {"train": n_train_rows, "test": 2000}
    assert first["step"] == 1
    assert first["target"] == first["source"][::-1]
    assert first_test_row["step"] is None


def user_dataset_manifest(monkeypatch, tmp_path, origin=None):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "here"))
    rows = from_text(
        "".join(f"{a}{b}{c}\t{c}{b}{a}\n" for a in "abcdefg" for b in "abcdefg" for c in "abcdefg")
    )
    store(dataclasses.replace(rows, origin=origin) if origin else rows)
    sizes = {"d_model": 16, "n_heads": 1, "n_layers": 1, "d_ff": 16, "batch_size": 8}
    return Manifest(RunConfig.from_flat(rows.task_settings() | sizes), 2, 1.0, "cpu")


def test_user_dataset_has_no_license_or_machine_generated_tag(monkeypatch, tmp_path):
    export_dataset(tmp_path / "data", user_dataset_manifest(monkeypatch, tmp_path), **REPOS)
    card = DatasetCard.load(tmp_path / "data" / "README.md")
    assert card.data.license is None
    assert card.data.annotations_creators is None
    assert card.data.get("language_creators") is None
    assert "MIT" not in card.text
    export_dataset(
        tmp_path / "named",
        user_dataset_manifest(monkeypatch, tmp_path),
        **REPOS,
        license="cc-by-4.0",
    )
    assert DatasetCard.load(tmp_path / "named" / "README.md").data.license == "cc-by-4.0"


def test_rows_of_a_dataset_on_the_hub_keep_its_license(monkeypatch, tmp_path):
    manifest = user_dataset_manifest(
        monkeypatch, tmp_path, {"dataset": "cy/verses", "license": "odc-by"}
    )
    export_dataset(tmp_path / "data", manifest, **REPOS)
    card = DatasetCard.load(tmp_path / "data" / "README.md")
    assert (card.data.license, card.data.get("source_datasets")) == ("odc-by", ["cy/verses"])
    assert "(https://huggingface.co/datasets/cy/verses)" in card.text


def test_the_card_describes_the_model(exported):
    card = DatasetCard.load(exported / "README.md")
    assert (card.data.license, card.data.tags, card.data.size_categories) == (
        "mit",
        ["transformer-playground", "reverse"],
        ["10K<n<100K"],
    )
    (config,) = card.data.configs
    assert [
        (each["split"], (exported / each["path"]).is_file()) for each in config["data_files"]
    ] == [("train", True), ("test", True)]
    rows = pyarrow.parquet.read_table(exported / "data" / "train.parquet").to_pylist()
    assert f"| train | {len(rows):,} |" in card.text
    assert "(https://huggingface.co/ada/reverse)" in card.text
    assert (
        re.findall("```python\n(.*?)```", card.text, re.DOTALL)[0].count('"ada/reverse-data"') == 1
    )
    assert f"`{rows[0]['source']}` → `{rows[0]['target']}`" in card.text


@pytest.mark.parametrize("name", ["ada/x..y", "ada/name.git", "ada/a--b", "ada/name-"])
def test_an_invalid_hub_name_is_rejected(name):
    with pytest.raises(
        DatasetError, match=re.escape(f"'{name}' is not a dataset; write user/name")
    ):
        next(stream_hub_columns(name, (), lambda names, _: names))


def test_an_unexpected_error_of_the_hub_is_reported_and_logged(monkeypatch, caplog):
    def fail(self, repo):
        raise KeyError("sha")

    monkeypatch.setattr(hub_stream.HfApi, "dataset_info", fail)
    with pytest.raises(DatasetError, match="the dataset ada/x cannot be read: KeyError: 'sha'"):
        next(stream_hub_columns("ada/x", (), lambda names, _: names))
    assert "Traceback" in caplog.text
