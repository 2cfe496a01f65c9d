"""The form of a run as JSON: its fields, and the values of presets, architectures and tasks.

Labels, choices and help come from the settings themselves. With these values, the page changes a
preset, an architecture or a task without a request; form_values.py validates what it sends.
"""

import json
from functools import lru_cache
from statistics import median
from typing import Any

from playground import ASSETS_DIR
from playground.architectures import ARCHITECTURES
from playground.tasks import TASKS
from playground.training.presets import PRESETS, architecture_preset, preset_config
from playground.training.run_config import field_named, section_of_field

from .form_values import check_form, form_values
from .setting_groups import (
    ADVANCED_PRESETS,
    ADVANCED_SETTINGS,
    BASIC_SETTINGS,
    CHOICE_LABELS,
    FORM_PRESETS,
    NUMBER_STEPS,
    PRESET_SETTINGS,
    WORDS_FOR_ZERO,
    label_of,
)

FIRST_PRESET = "fast"
MAX_RADIO_CHOICES = 4  # more choices become a list
EXPLAINED_BY_LABEL = ("task", "min_length", "max_length", "device")


# Written by `python -m benchmarks tasks`
DIFFICULTY_RESULTS = ASSETS_DIR / "benchmarks" / "results" / "tasks.json"


def form_defaults() -> dict[str, Any]:
    """Return the values of a new form, by the name of its field."""
    settings = preset_config(FIRST_PRESET).to_flat()
    names = (*BASIC_SETTINGS, *(name for names in ADVANCED_SETTINGS.values() for name in names))
    return {
        name: FIRST_PRESET
        if name == "preset"
        else settings[name]
        if name in settings
        else field_named(name).default
        for name in names
    }


def describe_field(name: str) -> dict[str, Any]:
    """Return the description of a field, as `Field` of form.js expects it."""
    field: dict[str, Any] = {"name": name, "label": label_of(name)}
    if name == "preset":
        titles = {each: PRESETS[each].title for each in FORM_PRESETS}
        return field | {"type": "radio", "options": _options(titles)}
    if name == "architecture":
        titles = {each: architecture.title for each, architecture in ARCHITECTURES.items()}
        return field | {"label": "Model", "type": "select", "options": _options(titles)}
    setting = field_named(name)
    if name not in EXPLAINED_BY_LABEL:
        field["hint"] = setting.metadata["help"]
    if choices := setting.metadata["choices"]:
        options = _options({each: CHOICE_LABELS.get(each, each) for each in choices})
        is_short = len(options) <= MAX_RADIO_CHOICES
        return field | {"type": "radio" if is_short else "select", "options": options}
    if isinstance(setting.default, bool):
        return field | {"type": "checkbox"}
    if isinstance(setting.default, str):
        return field
    field |= {"type": "number", "step": NUMBER_STEPS.get(name, 1)}
    return field | ({"placeholder": word} if (word := WORDS_FOR_ZERO.get(name)) else {})


def _options(labels: dict[str, str]) -> list[dict[str, str]]:
    return [{"value": value, "label": label} for value, label in labels.items()]


@lru_cache(maxsize=1)
def form_schema() -> dict[str, Any]:
    """Return the form: fields, groups, defaults, presets, architectures and tasks."""
    defaults, section = form_defaults(), section_of_field()
    return {
        "fields": {name: describe_field(name) for name in defaults},
        "groups": {title: list(names) for title, names in ADVANCED_SETTINGS.items()},
        "defaults": defaults,
        "size": check_form(defaults)["size"],
        "preset_settings": list(PRESET_SETTINGS),
        "model_settings": [name for name in defaults if section.get(name) == "model"],
        "advanced_presets": list(ADVANCED_PRESETS),
        "presets": {
            name: {
                "description": PRESETS[name].description,
                "values": form_values(preset_config(name)),
            }
            for name in FORM_PRESETS
        },
        "architectures": {
            name: {
                "description": each.description,
                "settings": sorted(each.setting_names()),
                "values": form_values(architecture_preset(name)),
            }
            for name, each in ARCHITECTURES.items()
        },
        "tasks": {
            name: describe_task(name)
            | {
                "max_length": task.default_max_length,
                "has_symbols": task.n_symbols_range is not None,
            }
            for name, task in TASKS.items()
        },
    }


def describe_task(name: str) -> dict[str, str]:
    """Return the description of a built-in task; what does not apply to it is empty."""
    task = TASKS[name]
    difficulty, conditions = measured_difficulty().get(name, ("", ""))
    has_minimum = task.min_length > 1
    return {
        "description": task.description,
        "example": " → ".join(task.example),
        "lengths": f"Sequences have {task.min_length} tokens or more." * has_minimum,
        "difficulty": difficulty,
        "conditions": conditions,
    }


@lru_cache(maxsize=1)
def measured_difficulty() -> dict[str, tuple[str, str]]:
    """Return the measured difficulty of each task with its conditions; {} without measurements."""
    try:
        rows = json.loads(DIFFICULTY_RESULTS.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError):
        return {}
    return {row["task"]: format_difficulty(row) for row in rows}


def format_difficulty(row: dict[str, Any]) -> tuple[str, str]:
    """Return the difficulty and the conditions of its measurement as text."""
    seeds, steps = row["seeds"], row["steps"]
    runs = f"{seeds} seed{'s' * (seeds != 1)}"
    low, high = row.get("lengths", [1, 10])
    conditions = (
        f"Measured by python -m benchmarks tasks: 99 % exact match, fast preset, {row['budget']} "
        f"steps, lengths {low} to {high}, {runs}"
    )
    if len(steps) == seeds:
        return f"Solved in about {median(steps):g} steps with Fast ({runs}).", conditions
    min_score = int(1000 * min(row["scores"])) / 10
    if steps:
        return (
            f"Solved with Fast in {len(steps)} of {seeds} runs; the worst reaches {min_score:g} % "
            "exact match.",
            conditions,
        )
    return f"Not solved with Fast: {min_score:g} % exact match ({runs}).", conditions
