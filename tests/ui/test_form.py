import math

import pytest

from playground.training.config import RunConfig, field_owner
from playground.training.presets import PRESETS
from playground.ui import form
from playground.ui.form import ADVANCED, FIRST, FITTED, preset_values, problems, run_config, size_line

NAMES = [*FIRST, *(name for names in ADVANCED.values() for name in names)]


def values(**changed):
    fields = RunConfig().to_fields() | {"preset": "fast"} | changed
    return [fields[name] for name in NAMES]


def test_every_setting_of_a_run_has_one_component_and_no_other_exists():
    assert len(NAMES) == len(set(NAMES))
    assert set(NAMES) - {"preset"} == set(field_owner()) - set(FITTED)


def test_every_component_has_a_label_a_sentence_and_the_settings_default():
    for name in set(NAMES) - {"preset"}:
        component = form.component_for(name)
        assert component.label
        assert component.info.endswith(".")
        assert component.value == getattr(getattr(RunConfig(), field_owner()[name]), name)


def test_the_form_as_it_opens_describes_the_default_run():
    assert run_config(dict(zip(NAMES, values(), strict=True))) == RunConfig()
    assert problems(NAMES, values()) == {}
    assert size_line(dict(zip(NAMES, values(), strict=True))).startswith(f"{RunConfig().model.parameter_count():,} parameters")


@pytest.mark.parametrize(
    ("field", "bad", "says"),
    [
        ("learning_rate", math.nan, "must be a number from"),
        ("learning_rate", -1.0, "must be a number from"),
        ("max_length", None, "must be a whole number from 1 to 512"),
        ("max_length", 10_000, "must be a whole number from 1 to 512"),
        ("max_length", 1, "too few sequences"),
        ("min_length", 11, "above max_length 10"),
        ("n_heads", 5, "use one of 1, 2, 4, 8, 16, 32, 64"),
        ("d_model", 2.5, "must be a whole number"),
        ("task", "<b>", "choose one of reverse, copy"),
        ("steps", 10**9, "must be a whole number from 1 to 1e+06"),
        ("device", "tpu", "choose one of auto, cpu, cuda"),
        ("share_embeddings", "yes", "true or false"),
    ],
)
def test_a_bad_value_is_explained_at_its_own_field(field, bad, says):
    wrong = problems(NAMES, values(**{field: bad}))
    assert list(wrong) == [field]
    assert says in wrong[field]
    assert wrong[field].endswith(".")


def test_a_run_too_big_for_this_machine_is_refused_with_the_number():
    wrong = problems(NAMES, values(d_model=4096, n_layers=48, d_ff=16384, batch_size=65536, max_length=512))
    assert "GB are free" in wrong["batch_size"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fills_the_form_and_keeps_the_task(name):
    now = preset_values(name, {"task": "copy", "min_length": 3, "max_length": 12, "symbols": 10, "d_model": 128})
    assert (now["task"], now["min_length"], now["max_length"]) == ("copy", 3, 12)
    for key, value in PRESETS[name].settings.items():
        assert now[key] == value
    assert now["d_model"] == PRESETS[name].settings.get("d_model", 64)
    assert preset_values(name, {"min_length": 9, "max_length": 2})["max_length"] == 10
