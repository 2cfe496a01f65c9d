"""The settings that an experiment may vary: their help, accepted and suggested values."""

from typing import Any, TypedDict

from playground.architectures import ARCHITECTURES
from playground.experiments.variant import format_value
from playground.models.config_fields import format_number
from playground.tasks import LOOKUP
from playground.training.run_config import field_named, section_of_field
from playground.ui.setting_groups import ADVANCED_SETTINGS, DERIVED_SETTINGS, label_of

SUGGESTED_VALUES = 5  # values of a setting that the form suggests


class VariableSetting(TypedDict):
    """A setting that an experiment may vary; `accepts` describes its values."""

    name: str
    label: str
    group: str
    help: str
    accepts: str
    suggested: str
    default: str


def _setting_info(name: str, group: str) -> VariableSetting:
    if name == "architecture":
        choices, default, help = list(ARCHITECTURES), "transformer", "Which model is trained."
    else:
        setting: Any = field_named(name)
        default, help = setting.default, setting.metadata["help"]
        choices = [
            choice for choice in setting.metadata["choices"] if (name, choice) != ("task", LOOKUP)
        ]
    if choices:
        accepts, suggestion = "any of " + ", ".join(choices), ", ".join(choices[:SUGGESTED_VALUES])
    elif isinstance(default, bool):
        accepts, suggestion = "on or off", "on, off"
    else:
        kind = "whole numbers" if isinstance(default, int) else "numbers"
        low, high = (format_number(setting.metadata[key]) for key in ("low", "high"))
        accepts, suggestion = f"{kind} from {low} to {high}", ""
    return {
        "name": name,
        "label": label_of(name),
        "group": group,
        "help": help,
        "accepts": accepts,
        "suggested": suggestion,
        "default": format_value(default),
    }


def _all_setting_info() -> list[VariableSetting]:
    grouped = {
        "Model and task": ("architecture", "task", "min_length", "max_length"),
        **ADVANCED_SETTINGS,
    }
    listed = [(name, group) for group, names in grouped.items() for name in names]
    others = [
        (name, "Other architectures")
        for name in section_of_field()
        if name not in {listed_name for listed_name, _ in listed}
    ]
    excluded = (*DERIVED_SETTINGS, "dataset_sha256", "seed", "device", "num_threads")
    return [
        _setting_info(name, group) for name, group in (*listed, *others) if name not in excluded
    ]


VARIABLE_SETTINGS = _all_setting_info()
