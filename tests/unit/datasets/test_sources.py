import pytest

from playground.checkpoints.checkpoint import load_model, resume_trainer, save_checkpoint
from playground.datasets import storage
from playground.datasets.pairs import DatasetError
from playground.datasets.sources import is_dataset_argument, read_file, read_text
from playground.datasets.storage import store
from playground.errors import UserError
from playground.runs.snapshot import SnapshotBuilder
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

TEXT = "".join(f"{i:03d}\t{i:03d}x\n" for i in range(300))
SIZES = {"d_model": 16, "n_heads": 1, "n_layers": 1, "d_ff": 16}
SMALL = SIZES | {"max_steps": 3, "batch_size": 16, "eval_every": 100}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path / "checkpoints"))


def test_a_file_of_the_command_line_has_the_same_rows(tmp_path):
    (tmp_path / "rows.tsv").write_text(TEXT)
    rows = read_file(tmp_path / "rows.tsv")
    assert rows.sha256 == read_text(TEXT).sha256
    assert rows.preview(1) == [(["0", "0", "0"], ["0", "0", "0", "x"])]


def test_a_missing_file_and_a_folder_are_rejected(tmp_path):
    for path in (tmp_path, tmp_path / "no.tsv"):
        with pytest.raises(DatasetError, match="cannot be read"):
            read_file(path)


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        *((name, False) for name in ("sort", "swap-halves", "sing")),
        *((name, True) for name in ("rows.tsv", "hub:a/b", "/tmp/rows")),
    ],
)
def test_dataset_arguments_of_the_command_line(task, expected):
    assert is_dataset_argument(task) is expected


def test_keeping_twice_writes_once_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    rows = read_text(TEXT)
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
    rows = read_text("".join(f"w{i % 7} w{i // 7}\tv{i // 7} v{i % 7} end\n" for i in range(140)))
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
    view = SnapshotBuilder(manifest.config)
    reply = view.predict(family, "w1 w2")
    assert (reply["target"], reply["correct"]) == (None, None)
    assert "is unknown" in reply["note"]
    with pytest.raises(UserError, match="'w99' is not a token"):
        view.predict(family, "w99")
    lost, _ = resume_trainer(tmp_path / "c", max_steps=5)
    with pytest.raises(DatasetError, match=f"{rows.sha256[:12]}.* is not stored here"):
        lost.train_step()
    store(rows)
    view = SnapshotBuilder(manifest.config)
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
    settings = read_text(TEXT).task_settings()
    assert RunConfig.from_flat(RunConfig.from_flat(settings).to_flat()) == RunConfig.from_flat(
        settings
    )
    with pytest.raises(ValueError, match=field) as caught:
        RunConfig.from_flat(settings | changed)
    assert caught.value.field == field
