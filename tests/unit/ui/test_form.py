import json
import math
from itertools import product

import pytest

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.datasets.sources import read_text
from playground.datasets.storage import store
from playground.tasks import TASKS
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.training.run_config import field_named, section_of_field
from playground.ui.form_schema import describe_task, form_defaults, form_schema, format_difficulty
from playground.ui.form_values import (
    check_form,
    form_values,
    parse_settings,
    run_config,
)
from playground.ui.setting_groups import (
    ADVANCED_SETTINGS,
    BASIC_SETTINGS,
    DERIVED_SETTINGS,
    PRESET_SETTINGS,
    is_used_by_architecture,
)

NAMES = [*BASIC_SETTINGS, *(name for names in ADVANCED_SETTINGS.values() for name in names)]


def values(**changed):
    return form_defaults() | changed


def test_every_setting_of_a_run_has_one_field_and_no_other_exists():
    assert len(NAMES) == len(set(NAMES))
    expected = set(section_of_field()) - set(DERIVED_SETTINGS)
    assert set(NAMES) - {"preset", "architecture"} == expected
    schema = form_schema()
    grouped = [name for names in schema["groups"].values() for name in names]
    assert list(schema["fields"]) == list(schema["defaults"]) == [*BASIC_SETTINGS, *grouped]


def test_every_field_has_a_label_help_and_a_fast_default():
    fast, schema = preset_config("fast").to_flat(), form_schema()
    for name, field in schema["fields"].items():
        assert field["label"]
        if name in ("preset", "architecture"):
            continue
        assert "hint" not in field or field["hint"].endswith(".")
        assert schema["defaults"][name] == fast.get(name, field_named(name).default)
        choices = field_named(name).metadata["choices"]
        assert [option["value"] for option in field.get("options", [])] == list(choices or [])
    assert schema["fields"]["norm_placement"]["type"] == "radio"
    assert schema["fields"]["task"]["type"] == "select"
    assert schema["fields"]["learning_rate"]["step"] == 0.001


def test_schema_fills_the_form_as_presets_and_architectures_do():
    schema = form_schema()
    for name, preset in schema["presets"].items():
        assert run_config(values(**preset["values"])) == preset_config(name)
    for name, architecture in schema["architectures"].items():
        filled = values(**architecture["values"])
        assert run_config(filled) == architecture_preset(name)
        hidden = set(schema["model_settings"]) - set(architecture["settings"])
        assert not hidden & set(run_config(filled).to_flat())
    assert schema["tasks"]["brackets"]["max_length"] == 16
    assert "dataset" not in schema["tasks"]


def test_the_initial_form_describes_the_default_run():
    assert run_config(values()) == preset_config("fast")
    count = parameter_count(preset_config("fast").model)
    assert f"{count:,} parameters" in form_schema()["size"]
    invalid = check_form(values(task="<b>"))
    assert invalid["size"] == ""
    assert invalid["errors"]["task"].startswith("Task is '<b>'")


@pytest.mark.parametrize(
    ("field", "bad", "expected_message"),
    [
        ("learning_rate", math.nan, "must be a number from"),
        ("max_length", None, "Maximum length is empty; it must be a whole number from 1 to 512"),
        ("max_length", 1, "too few sequences"),
        (
            "min_length",
            11,
            "Minimum length is 11, above Maximum length 10; lower it or raise Maxim",
        ),
        ("n_heads", 5, "use one of 1, 2, 4, 8, 16, 32, 64"),
        ("d_model", 2.5, "d_model is 2.5; it must be a whole number"),
        ("task", "<b>", "choose one of reverse, copy"),
        ("architecture", "mamba", "choose one of transformer"),
        ("max_steps", 10**9, "Steps is 1000000000; it must be a whole number from 1 to 1,000,000"),
        ("share_embeddings", "yes", "true or false"),
    ],
)
def test_a_bad_value_is_explained_at_its_own_field(field, bad, expected_message):
    wrong = check_form(values(**{field: bad}))["errors"]
    assert list(wrong) == [field]
    assert expected_message in wrong[field]
    assert wrong[field].endswith(".")


def test_a_cosine_without_a_step_to_decay_is_explained_at_its_warmup():
    steps = {"warmup_steps": 160, "lr_decay_steps": 160, "max_steps": 200}
    wrong = check_form(values(**steps))["errors"]
    assert "the cosine ends at Decay steps 160, so" in wrong["warmup_steps"]
    assert not check_form(values(**steps | {"max_steps": 160}))["errors"]


def test_a_run_too_big_for_this_machine_is_rejected_with_the_number():
    sizes = {"d_model": 4096, "n_layers": 48, "d_ff": 16384, "batch_size": 65536, "max_length": 512}
    assert "GB are free" in check_form(values(**sizes))["errors"]["batch_size"]


@pytest.mark.parametrize("name", PRESETS)
def test_preset_sets_model_and_training_but_not_task_or_device(name):
    now = form_values(preset_config(name))
    assert set(now) == set(PRESET_SETTINGS) >= set(PRESETS[name].settings)
    others = "task n_symbols min_length max_length device num_threads seed stop_at_exact_match"
    assert set(now).isdisjoint(others.split())
    assert now.items() >= dict(PRESETS[name].settings).items()
    assert now["d_model"] == 64


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architecture_sets_its_defaults_and_ignores_unused_settings(name):
    now = form_values(architecture_preset(name))
    assert set(now) == set(PRESET_SETTINGS)
    assert now.items() >= dict(ARCHITECTURES[name].overrides).items()
    assert run_config(values(**now)) == architecture_preset(name)
    stray = {"n_heads": 2, "norm_placement": "post", "cell": "lstm", "tie_output_embeddings": True}
    run = run_config(values(**now | stray))
    for setting, value in stray.items():
        assert (run.to_flat().get(setting) == value) == is_used_by_architecture(setting, name)


def test_whole_numbers_may_come_as_floats_from_the_page():
    assert run_config(values(max_steps=40.0, max_length=8.0)).training.max_steps == 40


def test_own_data_without_a_dataset_is_a_hint_but_cannot_start():
    fields = values(task="dataset", dataset_sha256="")
    checked = check_form(fields)
    assert "press Use these examples" in checked["size"]
    assert checked["errors"] == {}
    with pytest.raises(ValueError, match="no dataset is selected"):
        run_config(fields)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Store a dataset; return its SHA-256."""
    monkeypatch.setenv("PLAYGROUND_CHECKPOINTS", str(tmp_path))
    triples = product("abcdef", repeat=3)
    return store(read_text("".join(f"{a} {b} {c}\t{c} {b}\n" for a, b, c in triples)))


def test_the_form_trains_on_a_dataset_of_its_user(stored):
    lengths = {"min_length": 3, "max_length": 3}
    fields = values(task="dataset", dataset_sha256=stored, **lengths)
    config = run_config(fields, {stored}.__contains__)
    assert config.task.dataset_symbols == "a b c d e f"
    assert (config.task.max_target_length, config.model.source_vocab_size) == (2, 9)
    assert run_config(fields | {"task": "copy", "max_length": 5}).task.dataset_sha256 == ""
    own = {"owns_dataset": {stored}.__contains__}
    assert "parameters" in check_form(fields, **own)["size"]
    wrong = check_form(fields | {"min_length": 4, "max_length": 9}, **own)["errors"]
    assert "longest source of this dataset has 3" in wrong["min_length"]
    # a dataset of another user is a missing one
    missing = fields | {"dataset_sha256": "0" * 64}
    errors = [check_form(each)["errors"] for each in (fields, missing)]
    assert str(errors[0]).replace(stored[:12], "0" * 12) == str(errors[1])


def test_a_missing_dataset_is_explained(stored):
    wrong = check_form(values(task="dataset", dataset_sha256="0" * 64))["errors"]
    assert list(wrong) == ["dataset_sha256"]
    assert "is not on this server, or not yours; upload it under" in wrong["dataset_sha256"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"task": "dataset"}, "the dataset of these settings is its owner's; select Your own data"),
        ({"task": "dataset", "dataset_sha256": "x"}, "Dataset is 'x'; "),
        ({"max_length": 0}, "Maximum length is 0; it must be a whole number from 1 to 512."),
    ],
    ids=str,
)
def test_errors_of_a_link_name_the_labels_of_settings(settings, expected):
    with pytest.raises(ValueError, match=f"^{expected}") as raised:
        parse_settings(json.dumps(settings))
    assert not any(name in str(raised.value) for name in section_of_field() if "_" in name)


def test_difficulty_of_a_task_is_formatted_from_measurements():
    row = {"task": "x", "seeds": 3, "budget": 600}
    row |= {"steps": [40, 60, 50], "scores": [0.991, 0.999, 0.995]}
    assert format_difficulty(row) == (
        "Solved in about 50 steps with Fast (3 seeds).",
        "Measured by python -m benchmarks tasks: 99 % exact match, fast preset, 600 steps, "
        "lengths 1 to 10, 3 seeds",
    )
    for changes, sentence in (
        ({"steps": [40, 60], "scores": [0.991, 0.999, 0.5]}, "Solved with Fast in 2 of 3 runs;"),
        ({"steps": [40], "scores": [0.991, 0.7, 0.5]}, "the worst reaches 50 % exact match."),
        (
            {"seeds": 1, "steps": [], "scores": [0.0049]},
            "Not solved with Fast: 0.4 % exact match (1 seed).",
        ),
    ):
        assert sentence in format_difficulty(row | changes)[0]


def test_a_task_has_a_description_an_example_and_its_minimum_length():
    about = describe_task("reverse")
    assert about["example"] == "3 1 4 1 5 → 5 1 4 1 3"
    assert about["description"].endswith(".")
    assert about["lengths"] == ""
    assert "Sequences have 2 tokens or more." in {describe_task(name)["lengths"] for name in TASKS}
