import json
import math
from itertools import product

import pytest

from playground.architectures import ARCHITECTURES
from playground.datasets.sources import read_text
from playground.datasets.storage import store
from playground.training.config import field_named, section_of_field
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.ui import training_form
from playground.ui.form_values import (
    architecture_values,
    estimate_and_validate,
    preset_values,
    run_config,
    suggested_max_length,
    validate_form,
)
from playground.ui.setting_groups import (
    ADVANCED_SETTINGS,
    BASIC_SETTINGS,
    DERIVED_SETTINGS,
    PRESET_SETTINGS,
    is_used_by_architecture,
)
from playground.ui.train import on_task_input, panel_state

NAMES = [*BASIC_SETTINGS, *(name for names in ADVANCED_SETTINGS.values() for name in names)]


def values(**changed):
    fields = preset_values("fast") | preset_config("fast").to_flat() | {"preset": "fast"} | changed
    return [fields[name] for name in NAMES]


def test_every_setting_of_a_run_has_one_component_and_no_other_exists():
    assert len(NAMES) == len(set(NAMES))
    assert set(NAMES) - {"preset", "architecture"} == set(section_of_field()) - set(
        DERIVED_SETTINGS
    )


def test_every_component_has_label_description_and_fast_default():
    defaults = preset_config("fast").to_flat()
    for name in set(NAMES) - {"preset", "architecture"}:
        component = training_form.component_for(name)
        assert component.label
        assert component.info.endswith(".")
        assert component.value == defaults.get(name, field_named(name).default)


def test_the_initial_form_describes_the_default_run():
    assert run_config(dict(zip(NAMES, values(), strict=True))) == preset_config("fast")
    assert validate_form(NAMES, values()) == {}
    weight, problem = estimate_and_validate(dict(zip(NAMES, values(), strict=True)))
    assert f"Next run: {preset_config('fast').model.parameter_count():,} parameters" in weight
    assert problem == ""
    assert estimate_and_validate(dict(zip(NAMES, values(task="<b>"), strict=True)))[1].startswith(
        "Task is &#x27;&lt;b&gt;"
    )


@pytest.mark.parametrize(
    ("field", "bad", "expected_message"),
    [
        ("learning_rate", math.nan, "must be a number from"),
        ("max_length", None, "Maximum length is empty; it must be a whole number from 1 to 512"),
        ("max_length", 1, "too few sequences"),
        (
            "min_length",
            11,
            "Minimum length is 11, above Maximum length 10; lower it or raise Maximum length",
        ),
        ("n_heads", 5, "use one of 1, 2, 4, 8, 16, 32, 64"),
        ("d_model", 2.5, "d_model is 2.5; it must be a whole number"),
        ("task", "<b>", "choose one of reverse, copy"),
        ("max_steps", 10**9, "Steps is 1000000000; it must be a whole number from 1 to 1,000,000"),
        ("share_embeddings", "yes", "true or false"),
    ],
)
def test_a_bad_value_is_explained_at_its_own_field(field, bad, expected_message):
    wrong = validate_form(NAMES, values(**{field: bad}))
    assert list(wrong) == [field]
    assert expected_message in wrong[field]
    assert wrong[field].endswith(".")


def test_a_cosine_without_a_step_to_decay_is_explained_at_its_warmup():
    steps = {"warmup_steps": 160, "lr_decay_steps": 160, "max_steps": 200}
    wrong = validate_form(NAMES, values(**steps))
    assert "the cosine ends at Decay steps 160, so" in wrong["warmup_steps"]
    assert not validate_form(NAMES, values(**steps | {"max_steps": 160}))


def test_a_run_too_big_for_this_machine_is_rejected_with_the_number():
    wrong = validate_form(
        NAMES, values(d_model=4096, n_layers=48, d_ff=16384, batch_size=65536, max_length=512)
    )
    assert "GB are free" in wrong["batch_size"]


@pytest.mark.parametrize("name", PRESETS)
def test_preset_sets_model_and_training_but_not_task_or_device(name):
    now = preset_values(name)
    assert set(now) == set(PRESET_SETTINGS) >= set(PRESETS[name].settings)
    assert not set(now) & {
        "task",
        "n_symbols",
        "min_length",
        "max_length",
        "device",
        "num_threads",
        "seed",
        "stop_at_exact_match",
    }
    for key, value in PRESETS[name].settings.items():
        assert now[key] == value
    assert now["d_model"] == 64


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architecture_sets_its_defaults_and_ignores_unused_settings(name):
    now = architecture_values(name)
    assert set(now) == set(PRESET_SETTINGS)
    assert {key: now[key] for key in ARCHITECTURES[name].overrides} == dict(
        ARCHITECTURES[name].overrides
    )
    assert run_config(dict(zip(NAMES, values(**now), strict=True))) == architecture_preset(name)
    stray = {"n_heads": 2, "norm_placement": "post", "cell": "lstm", "tie_output_embeddings": True}
    run = run_config(dict(zip(NAMES, values(**now | stray), strict=True)))
    for setting, value in stray.items():
        assert (run.to_flat().get(setting) == value) == is_used_by_architecture(setting, name)


def test_an_unknown_family_is_explained():
    assert (
        "choose one of transformer"
        in validate_form(NAMES, values(architecture="mamba"))["architecture"]
    )


def test_whole_numbers_may_come_as_floats_from_the_page():
    assert (
        run_config(
            dict(zip(NAMES, values(max_steps=40.0, max_length=8.0), strict=True))
        ).training.max_steps
        == 40
    )


def test_a_task_brings_its_own_longest_length_unless_another_one_was_typed():
    assert (
        suggested_max_length("brackets", 1, 10) == suggested_max_length("brackets", 1.0, 10.0) == 16
    )
    assert suggested_max_length("reverse", 1, 16) == 10
    assert suggested_max_length("brackets", 1, 12) is None
    assert suggested_max_length("brackets", 10, 10) is None
    assert suggested_max_length("dataset", 1, 10) is None
    assert suggested_max_length(None, None, None) is None


def test_a_task_after_a_dataset_has_its_own_lengths_and_no_dataset():
    assert on_task_input("brackets", 2, 2, "sha") == [1, 16, ""]
    updates = on_task_input("brackets", 1, 12, "")
    assert [update.get("__type__") for update in updates] == ["update"] * 3
    assert all(len(update) == 1 for update in on_task_input("dataset", 2, 2, "sha"))


def test_own_data_without_a_dataset_is_a_hint_but_cannot_start():
    fields = dict(zip(NAMES, values(task="dataset", dataset_sha256=""), strict=True))
    size, error = estimate_and_validate(fields)
    assert "press Use these examples" in size
    assert error == ""
    assert "dataset_sha256" in validate_form(list(fields), list(fields.values()))


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Store a dataset; return its SHA-256."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    return store(
        read_text("".join(f"{a} {b} {c}\t{c} {b}\n" for a, b, c in product("abcdef", repeat=3)))
    )


def test_the_form_trains_on_a_dataset_of_its_user(stored):
    lengths = {"min_length": 3, "max_length": 3}
    fields = dict(zip(NAMES, values(task="dataset", dataset_sha256=stored, **lengths), strict=True))
    config = run_config(fields, {stored}.__contains__)
    assert config.task.dataset_symbols == "a b c d e f"
    assert (config.task.max_target_length, config.model.source_vocab_size) == (2, 9)
    assert run_config(fields | {"task": "copy", "max_length": 5}).task.dataset_sha256 == ""
    own = {"owns_dataset": {stored}.__contains__}
    assert validate_form(list(fields), list(fields.values()), **own) == {}
    assert "Next run" in estimate_and_validate(fields, **own)[0]
    wrong = fields | {"min_length": 4, "max_length": 9}
    assert (
        "longest source of this dataset has 3"
        in validate_form(list(wrong), list(wrong.values()), **own)["min_length"]
    )
    # a dataset of another user is a missing one
    missing = fields | {"dataset_sha256": "0" * 64}
    errors = [validate_form(list(each), list(each.values())) for each in (fields, missing)]
    assert str(errors[0]).replace(stored[:12], "0" * 12) == str(errors[1])


@pytest.mark.parametrize(
    ("sha256", "expected_message"),
    [
        ("", "no dataset is selected"),
        ("0" * 64, "is not on this server, or not yours; upload it under"),
    ],
)
def test_a_missing_dataset_is_explained(stored, sha256, expected_message):
    wrong = validate_form(NAMES, values(task="dataset", dataset_sha256=sha256))
    assert list(wrong) == ["dataset_sha256"]
    assert expected_message in wrong["dataset_sha256"]
    assert json.loads(panel_state("o", sha256)) == {
        "owner": "o",
        "sha256": sha256 if sha256 == "0" * 64 else "",
    }
