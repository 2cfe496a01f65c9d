"""The live snapshot: attention weights and predictions on the probe, for every architecture."""

import base64
from dataclasses import replace

import numpy as np
import pytest
import torch

from playground.checkpoints.checkpoint import build_model
from playground.inspection.inspected_model import InspectedModel
from playground.inspection.views import render_view
from playground.models.transformer import Transformer
from playground.runs import snapshot as snapshot_module
from playground.runs.snapshot import SnapshotBuilder
from playground.training.run_config import RunConfig
from tests.support.handcrafted_models import reversing_model_without_eos
from tests.support.small_configs import VARIANTS, small_config


def small_model(name):
    torch.manual_seed(0)
    config = small_config(name)
    return config, build_model(config), config.task.load()


@pytest.mark.parametrize("name", VARIANTS)
def test_predictions_on_the_probe_are_those_of_the_model(name):
    config, model, task = small_model(name)
    builder = SnapshotBuilder(config)
    model.train()
    probe = builder.snapshot(model, 3)["probe"]
    assert model.training
    with torch.no_grad():
        probabilities_TV = model.eval().logits(builder.probe_batch)[0].softmax(-1)
    names = task.vocabulary.token_name
    assert probe["target"] == [names(token) for token in builder.probe_batch.labels_BT[0].tolist()]
    assert probe["predicted"] == [names(int(token)) for token in probabilities_TV.argmax(-1)]
    expected = [round(1000 * float(value)) for value in probabilities_TV.amax(-1)]
    assert probe["probability"] == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("name", VARIANTS)
def test_numbers_of_the_diagram_equal_those_of_the_inspect_tab(name):
    config, model, task = small_model(name)
    text = task.example_source()
    forward_pass = SnapshotBuilder(config).predict(model, text)["forward_pass"]
    subject = InspectedModel.from_model(config, model)
    for kind, expected in forward_pass["attention"].items():
        request = {"text": text, "kind": kind, "mode": "teacher-forced"}
        result = render_view(subject, "attention", request)
        assert [result["rows"], result["columns"]] == forward_pass["axes"][kind]
        weights = np.frombuffer(base64.b64decode(result["weights"]), "<i2")
        np.testing.assert_array_equal(weights, np.ravel(expected))
    if isinstance(model, Transformer):
        candidates = render_view(subject, "lens", {"text": text})["candidates"]
        best = [tokens[0] for tokens in candidates[-1]]
        assert [token for token, _ in best] == forward_pass["probe"]["predicted"]
        expected = forward_pass["probe"]["probability"]
        assert [round(1000 * value) for _, value in best] == pytest.approx(expected, abs=1)
        stages = render_view(subject, "trace", {"text": text})["stages"]
        sizes = [stage["contribution"] for stage in stages if stage["name"] == "residual"]
        assert sizes == pytest.approx(list(forward_pass["contributions"].values()), abs=1e-3)


def test_the_probe_is_the_default_input_if_the_model_trains_on_its_length():
    config = small_config("transformer")
    task = config.task.load()
    builder = SnapshotBuilder(config)
    assert builder.default_input == task.example_source()
    longer = replace(config, task=replace(config.task, min_length=6, max_length=7))
    builder = SnapshotBuilder(longer)
    assert 6 <= len(builder.default_input.split()) <= 7


@pytest.mark.parametrize("name", VARIANTS)
def test_forward_pass_of_a_typed_sequence_equals_that_of_the_probe(name):
    config, model, task = small_model(name)
    builder = SnapshotBuilder(config)
    snapshot, info = builder.snapshot(model, 3), builder.describe(model)
    text = " ".join(task.vocabulary.decode(builder.probe_batch.source_BS[0].tolist()))
    forward_pass = builder.predict(model, text)["forward_pass"]
    assert forward_pass["axes"] == info["axes"]
    for part in ("attention", "probe", "contributions"):
        assert forward_pass[part] == snapshot[part]


def test_a_sequence_with_too_many_weights_has_no_forward_pass(monkeypatch):
    config = small_config("transformer")
    model = build_model(config)
    builder = SnapshotBuilder(config)
    monkeypatch.setattr(snapshot_module, "MAX_WEIGHTS", 10)
    response = builder.predict(model, "1 2")
    assert response["forward_pass"] is None
    assert response["target"] == ["2", "1"]
    assert response["note"].endswith("shows an example, because this sequence is too long for it")


def test_the_snapshot_of_a_long_probe_with_many_heads_is_small():
    config = small_config(
        "transformer", min_length=200, max_length=200, max_positions=201, n_layers=4, n_heads=8
    )
    builder = SnapshotBuilder(config)
    snapshot = builder.snapshot(build_model(config), 0)
    assert sum(np.size(weights) for weights in snapshot["attention"].values()) <= 100_000
    assert len(builder.default_input.split()) > 20


def test_a_perfect_model_without_eos_is_right_in_the_live_view():
    subject = reversing_model_without_eos()
    builder = SnapshotBuilder(subject.config)
    reply = builder.predict(subject.model, "3 1 4 1 5")
    assert (reply["prediction"], reply["correct"]) == (["5", "1", "4", "1", "3"], True)
    snapshot = builder.snapshot(subject.model, 0)
    assert all(sample["prediction"] == sample["target"] for sample in snapshot["samples"])
    for probe in (snapshot["probe"], reply["forward_pass"]["probe"]):
        assert probe["predicted"] == probe["target"]
        assert len(probe["target"]) == 5


def test_outputs_without_eos_end_with_their_target():
    config = RunConfig.from_flat(
        {"task": "dedupe", "min_length": 6, "max_length": 6, "predict_eos": False}
    )
    builder = SnapshotBuilder(config)
    samples = builder.snapshot(build_model(config), 0)["samples"]
    assert len({len(sample["target"]) for sample in samples}) > 1
    for sample in samples:
        assert len(sample["prediction"]) <= len(sample["target"])
