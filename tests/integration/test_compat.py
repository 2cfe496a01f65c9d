"""Files, links, commands and API calls of version 0.1.0 (tests/data/v0.1.0 was recorded with
it).
"""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from playground.__main__ import main
from playground.checkpoints.checkpoint import load_model, resume_trainer
from playground.checkpoints.manifest import SCHEMA_VERSION, read_manifest
from playground.datasets.storage import load_pairs
from playground.experiments.service import ExperimentService
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.server.inspect_api import InspectHandlers
from playground.tasks.task import Batch
from playground.training.config import RunConfig
from playground.training.setting_changes import SettingChange
from playground.ui.form_values import parse_settings
from tests.support.app_server import wait_for
from tests.support.coroutines import run_in_thread

DATA = Path(__file__).resolve().parents[1] / "data" / "v0.1.0"
CHECKPOINTS = sorted(path for path in (DATA / "checkpoints").iterdir() if path.is_dir())
# the settings of every recorded model, by their present names
TINY = {
    "task": "reverse",
    "n_symbols": 5,
    "min_length": 1,
    "max_length": 5,
    "d_model": 16,
    "n_layers": 1,
    "max_steps": 3,
    "warmup_steps": 1,
    "lr_decay_steps": 3,
    "min_lr_ratio": 0.1,
    "batch_size": 8,
    "eval_every": 1,
    "eval_size": 8,
    "num_threads": 1,
    "device": "cpu",
    "seed": 1,
}
SIZES = {"n_heads": 2, "d_ff": 16}
PRESENT_NAMES = {
    "transformer": SIZES,
    "transformer-paper": SIZES
    | {
        "norm_placement": "post",
        "position_type": "sinusoidal",
        "sinusoidal_scale": 2.0,
        "tie_output_embeddings": True,
        "share_embeddings": True,
        "bias": False,
        "lr_schedule": "noam",
        "max_grad_norm": 0.5,
    },
    "transformer-rope": SIZES
    | {
        "position_type": "rope",
        "n_kv_heads": 1,
        "activation": "swiglu",
        "norm_type": "rms",
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "adam_beta1": 0.8,
        "adam_beta2": 0.9,
        "adam_eps": 1e-8,
    },
    "transformer-alibi": SIZES
    | {"position_type": "alibi", "d_k": 4, "d_v": 6, "activation": "gelu"},
    "transformer-t5": SIZES
    | {"position_type": "t5", "attention_bias": False, "stop_at_exact_match": 0.5},
    "transformer-from-the-end": SIZES
    | {"position_type": "learned-from-end", "optimizer": "sgd", "momentum": 0.5},
    "transformer-randomised": SIZES | {"position_type": "randomized", "randomized_range": 20},
    "prebuilt": SIZES | {"architecture": "torch-transformer"},
    "encoder-only": SIZES | {"architecture": "encoder-only"},
    "decoder-only": SIZES | {"architecture": "decoder-only"},
    "recurrent-gru": {"architecture": "recurrent", "cell": "gru", "attention": "additive"},
    "recurrent-lstm": {"architecture": "recurrent", "cell": "lstm", "attention": "dot"},
    "recurrent-rnn": {"architecture": "recurrent", "cell": "rnn", "attention": "none"},
    "bert": SIZES | {"architecture": "bert"},
    "gpt2": SIZES | {"architecture": "gpt2"},
    "bart": SIZES | {"architecture": "bart"},
}


@pytest.mark.smoke
@pytest.mark.parametrize("folder", CHECKPOINTS, ids=lambda path: path.name)
def test_recorded_checkpoint_computes_the_recorded_results(folder):
    manifest, model = load_model(folder)
    assert manifest.config == RunConfig.from_flat(TINY | PRESENT_NAMES[folder.name])
    expected = load_file(folder.parent / f"{folder.name}.expected.safetensors")
    batch = Batch(expected["source"], expected["target"], torch.ones(len(expected["source"])))
    model.eval()
    with torch.no_grad():
        assert torch.equal(model.generate(batch.source_BS, 6), expected["generated"])
        if "logits" in expected:
            forward = getattr(
                model, "logits", lambda _: model(batch.source_BS, batch.decoder_input_BT)
            )
            torch.testing.assert_close(forward(batch), expected["logits"])
        weights = model.attention_weights(batch)
    for kind in ("encoder", "decoder", "cross"):
        for layer, actual in enumerate(getattr(weights, kind)):
            torch.testing.assert_close(actual, expected[f"{kind}_attention.{layer}"])


@pytest.mark.parametrize("name", ["transformer", "transformer-rope"])
def test_recorded_checkpoint_resumes_and_is_saved_with_present_names(name, tmp_path):
    folder = shutil.copytree(DATA / "checkpoints" / name, tmp_path / name)
    result = CliRunner().invoke(main, ["train", "--resume", str(folder), "--steps", "5", "--json"])
    assert result.exit_code == 0, result.output
    saved = json.loads((folder / "config.json").read_text())
    assert saved["schema_version"] == SCHEMA_VERSION
    assert (saved["training"]["max_steps"], saved["step"]) == (5, 5)
    assert saved["architecture"] == "transformer"
    assert resume_trainer(folder, max_steps=6)[0].step_count == 5


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A registry and the experiments over the files of a server of version 0.1.0."""
    root = shutil.copytree(DATA / "server", tmp_path / "server")
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(root))
    registry = Registry(root, slots=1)
    experiments = ExperimentService(registry)
    yield registry, experiments
    experiments.close()
    registry.shutdown()


def test_runs_of_a_recorded_server_continue(server):
    registry, _ = server
    runs = {run.name: run for run in registry.list_for_owner("ada")}
    run = runs["recorded"]
    assert (run.status, run.step, run.owner) == ("done", 5, owner_id("ada"))
    assert list(run.changes) == [
        SettingChange(0, "speed", 500.0),
        SettingChange(1, "learning_rate", 0.001),
        SettingChange(1, "stop_at_exact_match", 0.9),
        SettingChange(2, "max_steps", 5),
    ]
    assert run.config == RunConfig.from_flat(TINY | SIZES)
    assert registry.poll(run, 0, -1, 0)["points"]["steps"] == [1, 2, 3, 4, 5]
    registry.change_setting(run, "max_steps", 8)
    registry.control(run, "resume")
    wait_for(lambda: run.status == "done" and run.step == 8, 60, "the end of the run")
    (other,) = (each for each in runs.values() if each.config.task.task == "dataset")
    assert other.config.task.max_target_length == 3
    assert len(load_pairs(other.config.task.dataset_sha256)) == 320


def test_runs_of_a_recorded_server_have_an_origin(server):
    registry, _ = server
    assert {row["name"]: (row["origin"], row["hidden"]) for row in registry.summaries("ada")} == {
        "recorded": ("user", False),
        "rows 3, 1 × 2": ("user", False),
        "recorded: norm pre, seed 0": ("experiment", True),
        "recorded: norm post, seed 0": ("experiment", True),
    }


def test_experiment_of_a_recorded_server_shows_its_results(server):
    _, experiments = server
    (experiment,) = experiments.list_for_owner("ada")
    assert (experiment.base["max_steps"], experiment.grid) == (
        2,
        {"norm_placement": ["pre", "post"]},
    )
    assert experiments.state(experiment, "ada") == "done"
    results = experiments.results(experiment, "ada")
    assert [each["values"] for each in results["variants"]] == [
        {"norm_placement": "pre"},
        {"norm_placement": "post"},
    ]


@pytest.mark.parametrize(
    ("old", "present", "options"),
    [
        ("away", "ablation", {"set": "keep"}),
        ("away-answer", "ablated-answer", {}),
        ("walk", "trace", {}),
        ("walk-cell", "trace-cell", {"stage": "output/logits"}),
        ("symbols", "embeddings", {"side": "target"}),
    ],
)
def test_views_of_version_0_2_0_are_accepted_by_their_old_names(server, old, present, options):
    registry, _ = server
    run = next(run for run in registry.list_for_owner("ada") if run.name == "recorded")
    request = {
        "subject": f"run:{run.id}",
        "owner": "ada",
        "text": "3 1 4",
        "options": options,
    }
    load_view = InspectHandlers(registry).load_view
    result = run_in_thread(load_view(request | {"view": present}))
    assert "error" not in result
    assert run_in_thread(load_view(request | {"view": old})) == result


def test_settings_of_recorded_links_are_read():
    link = '{"task": "sort", "symbols": 6, "norm": "post", "positions": "randomised", "steps": 40}'
    assert parse_settings(link) == RunConfig.from_flat(
        {
            "task": "sort",
            "n_symbols": 6,
            "norm_placement": "post",
            "position_type": "randomized",
            "max_steps": 40,
        }
    )
    recorded = json.loads(next(DATA.glob("server/runs/*/run.json")).read_text())["config"]
    assert parse_settings(json.dumps(recorded)).to_flat().keys() >= {"max_steps", "n_symbols"}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            "--family recurrent --alignment dot --symbols 6 --clip=0.5 --until 1",
            {
                "architecture": "recurrent",
                "attention": "dot",
                "n_symbols": 6,
                "max_grad_norm": 0.5,
                "stop_at_exact_match": 1.0,
            },
        ),
        (
            "--positions randomised --position-range 30 --tie-output --norm post --beta1 0.8",
            {
                "position_type": "randomized",
                "randomized_range": 30,
                "tie_output_embeddings": True,
                "norm_placement": "post",
                "adam_beta1": 0.8,
            },
        ),
        ("--preset write-up --batch-size 8", {"position_type": "sinusoidal", "dropout": 0.1}),
        ("--family prebuilt --no-tie-output", {"architecture": "torch-transformer"}),
    ],
)
def test_options_of_recorded_commands_are_read(words, settings, tmp_path):
    common = "train --length 5 --steps 2 --eval-n 8 --threads 1 --warmup 1"
    out = ["--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*shlex.split(f"{common} {words}"), *out])
    assert done.exit_code == 0, done.output
    saved = read_manifest(tmp_path / "out").config.to_flat()
    settings = {"max_steps": 2, "eval_size": 8, "num_threads": 1, "warmup_steps": 1} | settings
    assert {name: saved[name] for name in settings} == settings


def test_command_rows_of_version_0_2_0_stores_a_dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{n:03}\t{n}\n" for n in range(200)))
    done = CliRunner().invoke(main, ["rows", str(pairs), "--json"])
    assert done.exit_code == 0, done.output
    sha256 = json.loads(done.output.splitlines()[-1])["dataset_sha256"]
    assert len(load_pairs(sha256)) == 200


def test_experiment_command_reads_the_recorded_names(tmp_path):
    words = "experiment --vary norm=pre,post --set steps=2 --set symbols=5 --set eval_n=8 --json"
    out = ["--seeds", "1", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*shlex.split(words), *out])
    assert done.exit_code == 0, done.output
    variants = json.loads(done.output.splitlines()[-1])["variants"]
    assert [each["values"]["norm_placement"] for each in variants] == ["pre", "post"]
