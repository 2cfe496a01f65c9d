"""The record of a run on disk, and how a server restores runs from records."""

import json
import os

import pytest

from playground.runs.record import TERMINAL_STATUSES, RunRecord, owner_id
from playground.runs.state import Run
from playground.runs.summary import default_name, to_summary
from playground.runs.weight_history import WeightHistory
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.training.setting_changes import SettingChange
from tests.support.small_runs import tiny_config


@pytest.fixture
def run(tmp_path):
    """A finished run in the folder of a server."""
    folder = tmp_path / "runs" / "20260101-000000-reverse-abc123"
    folder.mkdir(parents=True)
    record = RunRecord.new(tiny_config(max_steps=40), owner_id("ada's secret"), "My run · 1")
    run = Run(record.replace(id="the-id", share_id="the-watch-id"), folder)
    run.update(
        status="stopped",
        message="why",
        changes=(SettingChange(3, "learning_rate", 0.5), SettingChange(9, "speed", 2)),
        step=12,
        best=0.5,
        scores={"n": 4, "exact_match": 0.5, "token_accuracy": 0.75, "by_length": []},
        seconds=1.5,
        device="cpu",
        hidden=True,
        branched_from=("20250101-000000-reverse-000000", 7),
    )
    run.write()
    return run


def edit(run, **to):
    content = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(content | to))


def lines(*steps, **more):
    return [{"step": step, "loss": 1 / step, "seconds": step / 2} | more for step in steps]


# The record


def test_a_record_survives_a_round_trip(run):
    read = Run.read(run.folder)
    assert read.record == run.record
    assert (read.config, read.changes, read.branched_from, read.folder) == (
        run.config,
        run.changes,
        run.branched_from,
        run.folder,
    )
    assert to_summary(read) == to_summary(run)


def test_the_owners_secret_is_nowhere_on_disk(run):
    for path in run.folder.rglob("*"):
        assert b"ada's secret" not in path.read_bytes()
    assert owner_id("ada's secret") == Run.read(run.folder).owner != owner_id("ada's secret ")
    assert owner_id("\ud800") == owner_id("\ud800")


@pytest.mark.parametrize("status", ["waiting", "training", "stopping", *TERMINAL_STATUSES])
def test_a_run_that_was_active_when_its_server_ended_is_paused(run, status):
    run.update(status=status)
    run.write()
    assert Run.read(run.folder).status == (status if status in TERMINAL_STATUSES else "paused")


def test_a_failed_write_is_reported_and_the_old_record_stays(run):
    before = (run.folder / "run.json").read_bytes()
    run.update(message="", name="x")
    os.rename(run.folder / "run.json", run.folder / "aside")
    # as a full disk would, it makes every write fail, for root too
    (run.folder / "run.json").mkdir()
    run.write()
    assert run.message.startswith(f"could not write {run.folder.name}{os.sep}run.json: ")
    (run.folder / "run.json").rmdir()
    os.rename(run.folder / "aside", run.folder / "run.json")
    assert (run.folder / "run.json").read_bytes() == before
    assert sorted(os.listdir(run.folder)) == ["run.json"]


# Records of others


NO_RECORDS = [b"", b"[]", b"\xff", b"[" * 100_000, b'{"id": "x"}', b'{"id": 1, "id": 2}']
ODD = {
    "id": [None, ""],
    "share_id": [7],
    "owner": [None],
    "name": [[]],
    "created": ["yesterday", True],
    "status": ["dancing", []],
    "message": [None],
    "step": ["3", -1, True],
    "seconds": ["long"],
    "best": ["good"],
    "curve": ["up", [[1, 2.0]], [[-1, 0.5]], [[1, 0.5]] * 25],
    "device": [7],
    "scores": ["x", {"n": "<b>"}],
    "hidden": ["yes"],
    "started_by": ["scheduler"],
    "deleted_at": ["yesterday"],
    "branched_from": ["ab", ["x", -1], ["../../etc", 3]],
    "config": ["x", {"task": "explode"}, {"surprise": 1}],
    "changes": ["x", [[1, "seed", 3]]],
}
CASES = [(name, value) for name, values in ODD.items() for value in values]


def test_unknown_fields_of_newer_versions_are_ignored(run):
    edit(run, surprise=1, worker=3, folder="/etc", points=[3], lock=None)
    assert Run.read(run.folder).record == run.record


def test_an_incomplete_record_is_rejected(run):
    content = json.loads((run.folder / "run.json").read_text())
    optional = {name for name, field in RunRecord.model_fields.items() if not field.is_required()}
    for name in content.keys() - optional:
        (run.folder / "run.json").write_text(
            json.dumps({key: value for key, value in content.items() if key != name})
        )
        with pytest.raises(ValueError, match=r"run\.json"):
            Run.read(run.folder)
    # records of earlier versions lack the others
    older = {key: value for key, value in content.items() if key not in optional}
    (run.folder / "run.json").write_text(json.dumps(older))
    assert Run.read(run.folder).record.viewers_may_use is None


def test_a_giant_record_is_rejected_unread(run):
    with open(run.folder / "run.json", "ab") as file:
        file.truncate(3_000_000_000)  # sparse: it takes no space
    with pytest.raises(ValueError, match="at most"):
        Run.read(run.folder)


def test_server_loads_readable_runs_and_leaves_broken_records_alone(
    run, tmp_path, create_registry, workers, caplog
):
    content = json.loads(run.record.to_json())
    broken = [
        *NO_RECORDS,
        *(
            json.dumps(content | {"id": f"id-{number}"} | {name: value}).encode()
            for number, (name, value) in enumerate(CASES)
        ),
    ]
    for number, data in enumerate(broken):
        folder = tmp_path / "runs" / f"broken-{number}"
        folder.mkdir()
        (folder / "run.json").write_bytes(data)
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "a file").write_text("x")
    registry = create_registry()
    assert [each.id for each in registry.all_runs()] == ["the-id"]
    assert [each.id for each in registry.list_for_owner("ada's secret")] == ["the-id"]
    assert caplog.text.count("is not listed: ") == len(broken)
    assert registry.find_shared("the-watch-id").folder == run.folder
    workers.housekeep(registry)
    for number, data in enumerate(broken):
        assert (tmp_path / "runs" / f"broken-{number}" / "run.json").read_bytes() == data


# What it knows of its steps


def test_points_and_steps_are_read_from_disk_on_request(run):
    history = WeightHistory(run.folder)
    history.open(0)
    history.add(lines(1, 2, 3, exact_match=0.25, eval_size=64))
    history.save_weights(2, b"w")
    assert (run.live.points, run.live.weight_steps) == (None, None)
    assert run.load_points().last == 3
    assert run.load_points() is run.live.points
    assert (run.load_weight_steps(), run.live.latest_weights_step) == ((2,), 2)
    assert (run.score_at(2), run.score_at(7)) == (0.25, None)


def test_reloaded_points_have_a_new_series_id(run):
    WeightHistory(run.folder).open(0, lines(1, 2))
    epochs = set()
    for _ in range(5):
        run.load_points()
        epochs.add(run.live.series_id)
        run.update_live(points=None)
    assert len(epochs) == 5


@pytest.mark.parametrize(
    "odd", [b"{", b'{"step": 9, "loss": 1}', b'{"step": 3, "loss": 1, "seconds": [1]}']
)
def test_broken_metrics_are_returned_up_to_the_damage(run, odd):
    (run.folder / "metrics.jsonl").write_bytes(
        b'{"step": 1, "loss": 1}\n{"step": 2, "loss": 1}\n' + odd + b'\n{"step": 4, "loss": 1}\n'
    )
    run.update(message="")
    result = run.load_points().delta_since(0)
    assert result["steps"] == [1, 2]
    assert result["grad_norm"] == [0.0, 0.0]
    assert "metrics" in run.message


def test_settings_are_those_of_the_current_step(run):
    run.update(
        changes=(
            SettingChange(3, "learning_rate", 0.5),
            SettingChange(9, "speed", 2),
            SettingChange(12, "max_steps", 90),
            SettingChange(20, "learning_rate", 0.25),
        )
    )
    result = {}
    for step in (0, 3, 12, 20):
        run.update(step=step)
        result[step] = (run.learning_rate, run.steps, run.max_steps_per_second)
    assert result == {
        0: (1e-3, 40, 0.0),
        3: (0.5, 40, 0.0),
        12: (0.5, 90, 2.0),
        20: (0.25, 90, 2.0),
    }


def test_a_row_of_the_list_describes_a_run(run):
    row = to_summary(run)
    assert (
        row
        | {
            "subject": "run:the-id",
            "name": "My run · 1",
            "status": "stopped",
            "task": "reverse 1–5",
            "shape": [1, 1, 8],
            "step": 12,
            "max_steps": 40,
            "best": 0.5,
            "origin": "user",
            "deleted": False,
        }
        == row
    )
    assert "owner" not in row
    json.dumps(row)


# Default names: what differs comes first


NAMES = {
    ("fast",): "reverse 1–10",
    ("one-head",): "one head, reverse 1–10",
    ("one-head", "learning_rate", 0.5): "one head, lr 0.5, reverse 1–10",
    ("fast", "n_layers", 3): "layers 3, reverse 1–10",
    ("fast", "norm_placement", "post"): "post, reverse 1–10",
    ("fast", "seed", 7): "seed 7, reverse 1–10",
    ("fast", "weight_averaging", False): "no weight averaging, reverse 1–10",
    ("fast", "max_length", 12): "reverse 1–12",
    ("fast", "device", "cpu"): "reverse 1–10",
}


@pytest.mark.parametrize("changed", NAMES)
def test_a_run_is_named_by_what_differs_from_a_preset(changed):
    preset, *setting = changed
    config = preset_config(preset, dict([setting] if setting else []))
    assert default_name(config) == NAMES[changed]


def test_no_two_presets_have_one_name():
    names = [default_name(preset_config(name)) for name in PRESETS]
    assert len(set(names)) == len(names), names


def test_other_architectures_and_datasets_are_named():
    assert default_name(architecture_preset("recurrent"), "words.csv") == "words.csv, recurrent"
