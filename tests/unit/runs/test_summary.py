"""The default names of runs: what differs comes first."""

import pytest

from playground.runs.summary import default_name
from playground.training.presets import PRESETS, architecture_preset, preset_config

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
