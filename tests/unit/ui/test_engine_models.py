"""The golden models of the browser's engine are what PyTorch computes today."""

import dataclasses
import json

import pytest

from playground.models.config import DecoderOnlyConfig, EncoderOnlyConfig, TransformerConfig
from playground.tasks.specs import TASKS
from tests.support.engine_models import FOLDER, MODELS, TASK_FILE, build, compute, task_examples

CONFIGS = (TransformerConfig, DecoderOnlyConfig, EncoderOnlyConfig)
# Settings that change training or initial weights only, and sizes that every golden model has.
WITHOUT_EFFECT = {
    *("dropout", "attention_dropout", "activation_dropout"),
    *("embedding_std", "position_std", "weight_init"),
    *("source_vocab_size", "target_vocab_size", "max_positions"),
}


def leaves(value, path=""):
    """Yield the numbers of nested lists and objects with their paths."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{path}.{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, f"{path}[{index}]")
    else:
        yield path, value


@pytest.mark.parametrize("name", MODELS)
def test_stored_results_are_computed_again(name):
    stored = dict(leaves(json.loads((FOLDER / f"{name}.json").read_text())))
    computed = dict(leaves(json.loads(json.dumps(compute(name)))))
    assert stored.keys() == computed.keys()
    for path, value in stored.items():
        if isinstance(value, float):
            assert computed[path] == pytest.approx(value, rel=1e-4, abs=1e-5), path
        else:
            assert computed[path] == value, path


def test_stored_targets_are_those_of_the_tasks():
    stored = json.loads(TASK_FILE.read_text())
    assert stored == {name: task_examples(name) for name in TASKS if name != "random"}


def test_every_setting_of_a_model_has_a_golden_model():
    models = [config.model for config, _ in map(build, MODELS)]
    for config_class in CONFIGS:
        for field in dataclasses.fields(config_class):
            values = {getattr(each, field.name) for each in models if hasattr(each, field.name)}
            if field.name not in WITHOUT_EFFECT:
                assert len(values) > 1, field.name
                assert values >= set(field.metadata["choices"] or ()), field.name


def test_golden_models_stay_small():
    assert len(MODELS) >= 20
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 500_000
