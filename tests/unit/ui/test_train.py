"""What the form shows: marks and reset of changed settings, and the available devices."""

from playground.ui.setting_groups import PRESET_SETTINGS
from playground.ui.train import (
    changed_settings,
    mark_fields,
    reset_settings,
    reset_update,
)
from playground.ui.training_form import DEFAULTS


def form_values(**changes):
    """Return the values of a new form, with some of them changed."""
    values = {name: DEFAULTS[name] for name in PRESET_SETTINGS if name in DEFAULTS}
    expected = dict(zip(RESET_NAMES, reset_settings("fast", "transformer"), strict=True))
    return expected | values | {"architecture": "transformer", "preset": "fast"} | changes


RESET_NAMES = [name for name in PRESET_SETTINGS if name != "architecture"]


def test_new_form_differs_in_nothing():
    assert changed_settings(form_values()) == []
    assert mark_fields([]) == ""
    assert reset_update([]).visible is False


def test_changed_settings_are_marked_and_reset():
    changed = changed_settings(form_values(n_heads=8, dropout=0.2))
    assert changed == ["n_heads", "dropout"]
    assert "#field-n_heads, #field-dropout" in mark_fields(changed)
    button = reset_update(changed)
    assert (button.visible, button.value) == (True, "Reset 2 changed settings")
    assert reset_update(["dropout"]).value == "Reset 1 changed setting"
    reset = dict(zip(RESET_NAMES, reset_settings("fast", "transformer"), strict=True))
    assert reset["n_heads"] == DEFAULTS["n_heads"]
    assert reset["dropout"] == DEFAULTS["dropout"]


def test_settings_of_another_preset_and_of_no_preset_have_their_own_values():
    values = form_values(preset="one-head")
    assert "n_heads" in changed_settings(values)
    assert reset_settings(None, "gpt2") != reset_settings("fast", "transformer")
    assert changed_settings(form_values(architecture="removed")) == []
