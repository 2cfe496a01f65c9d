"""The form of a run: one component per setting, labeled and explained by the setting."""

from typing import Any

import gradio as gr

from playground.architectures import ARCHITECTURES
from playground.training.config import field_named
from playground.training.presets import PRESETS, preset_config

from .mount import build_view
from .setting_groups import (
    ADVANCED_PRESETS,
    ADVANCED_SETTINGS,
    CHOICE_LABELS,
    FORM_PRESETS,
    SLIDER_STEPS,
    is_used_by_architecture,
    label_of,
)
from .task_info import task_description_html

DEFAULTS = preset_config("fast").to_flat()  # the values of a new form
MAX_RADIO_CHOICES = 4  # more choices become a dropdown


def component_for(name: str, explain: bool = True) -> Any:
    """Return the Gradio component of a setting, with default, range and help."""
    setting, default = field_named(name), DEFAULTS.get(name, field_named(name).default)
    common = {
        "label": label_of(name),
        "info": setting.metadata["help"] if explain else None,
        "elem_id": f"field-{name}",
    }
    common["visible"] = is_used_by_architecture(name, "transformer")
    if setting.metadata["choices"]:
        choices = [(CHOICE_LABELS.get(c, c), c) for c in setting.metadata["choices"]]
        if len(choices) > MAX_RADIO_CHOICES:
            # Without `filterable`, a list opened by the Tab key shows all choices.
            return gr.Dropdown(choices, value=default, filterable=False, **common)
        return gr.Radio(choices, value=default, **common)
    if isinstance(default, str):
        return gr.Textbox(default, **common)
    if isinstance(default, bool):
        return gr.Checkbox(default, **common)
    return gr.Number(default, step=SLIDER_STEPS.get(name, 1), min_width=80, **common)


def preset_choices(selected: str | None) -> list[tuple[str, str]]:
    """Return the presets beside the form; one of the advanced settings only while selected."""
    return [
        (PRESETS[name].title, name)
        for name in FORM_PRESETS
        if name == selected or name not in ADVANCED_PRESETS
    ]


def build_form() -> tuple[dict[str, Any], gr.HTML, gr.HTML, gr.Button, dict[str, gr.Button]]:
    """Build the components of the form in the current context.

    Returns them by setting name, with `preset`; the task description; the dataset panel; the
    button that resets the settings; and the buttons of further presets, by preset.
    """
    form: dict[str, Any] = {}
    form["task"] = component_for("task", explain=False)
    task_info = gr.HTML(
        task_description_html(form["task"].value), elem_id="about-task", padding=False
    )
    panel = build_view("dataset", "train/dataset_panel.js", hidden=True)
    form["dataset_sha256"] = component_for("dataset_sha256")
    form["dataset_sha256"].visible = "hidden"  # rendered, so that scripts notice its changes
    with gr.Row(elem_classes="pair"):
        form["min_length"], form["max_length"] = (
            component_for("min_length", False),
            component_for("max_length", False),
        )
    families = [(family.title, name) for name, family in ARCHITECTURES.items()]
    form["architecture"] = gr.Dropdown(
        families,
        value="transformer",
        label="Model",
        info=ARCHITECTURES["transformer"].description,
        elem_id="field-architecture",
    )
    form["preset"] = gr.Radio(
        preset_choices("fast"),
        value="fast",
        label="Preset",
        info=PRESETS["fast"].description,
        elem_id="field-preset",
    )
    form["device"] = component_for("device", explain=False)
    with gr.Accordion("Advanced settings", open=False, elem_id="advanced"):
        with gr.Row(elem_id="settings-bar"):
            gr.Textbox(
                label="Search settings",
                show_label=False,
                placeholder="Search settings",
                elem_id="settings-search",
                container=False,
            )
            presets = {
                name: gr.Button(f"Preset {PRESETS[name].title}", size="sm")
                for name in ADVANCED_PRESETS
            }
            reset = gr.Button("Reset", visible=False, size="sm", elem_id="settings-reset")
        for group, names in ADVANCED_SETTINGS.items():
            with gr.Accordion(group, open=True, elem_classes="group"):
                for name in names:
                    form[name] = component_for(name)
    return form, task_info, panel, reset, presets
