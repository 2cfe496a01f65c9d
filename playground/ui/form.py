"""The form of a run: a component for every setting, named and explained by the setting itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from playground.models.config import SettingError
from playground.runs.memory import check_memory
from playground.training.config import RunConfig, field_owner, setting_of
from playground.training.presets import PRESETS, preset_config

FIRST = ("task", "min_length", "max_length", "preset", "device")
ADVANCED = {
    "Model": (
        "d_model", "n_heads", "n_layers", "d_ff", "dropout", "norm", "positions", "position_scale",
        "share_embeddings", "tie_output", "attention_bias",
    ),
    "Training": (
        "steps", "batch_size", "learning_rate", "schedule", "warmup", "decay_steps", "final_share",
        "beta1", "beta2", "epsilon", "label_smoothing", "clip",
    ),
    "Data and scoring": ("symbols", "eval_every", "eval_n", "until", "seed", "threads"),
}  # fmt: skip
FITTED = ("source_vocabulary", "target_vocabulary", "max_positions")  # follow from the task

LABELS = {
    "min_length": "Shortest", "max_length": "Longest", "d_model": "d_model", "n_heads": "Heads", "n_layers": "Layers",
    "d_ff": "d_ff", "share_embeddings": "Share embeddings", "tie_output": "Tie output layer", "attention_bias": "Attention biases",
    "eval_every": "Score every", "eval_n": "Score on", "until": "Stop at", "beta1": "Beta 1", "beta2": "Beta 2",
}  # fmt: skip
CHOICE_LABELS = {"pre": "pre-norm", "post": "post-norm", "noam": "noam (paper)"}


def label_of(name: str) -> str:
    return LABELS.get(name, name.replace("_", " ").capitalize())


def component_for(name: str, explain: bool = True) -> Any:
    """The Gradio component for one setting, with its default, range and sentence."""
    setting = setting_of(name)
    common = {"label": label_of(name), "info": setting.metadata["help"] if explain else None, "elem_id": f"field-{name}"}
    if setting.metadata["choices"]:
        choices = [(CHOICE_LABELS.get(c, c), c) for c in setting.metadata["choices"]]
        return gr.Dropdown(choices, value=setting.default, filterable=False, **common)
    if isinstance(setting.default, bool):
        return gr.Checkbox(setting.default, **common)
    return gr.Number(setting.default, precision=0 if isinstance(setting.default, int) else None, min_width=80, **common)


def build_form() -> dict[str, Any]:
    """Place the form's components where it is called; returns them by setting name, `preset` among them."""
    form: dict[str, Any] = {}
    form["task"] = component_for("task", explain=False)
    with gr.Row(elem_classes="pair"):
        form["min_length"], form["max_length"] = component_for("min_length", False), component_for("max_length", False)
    choices = [(preset.title, name) for name, preset in PRESETS.items()]
    sentence = PRESETS["fast"].sentence
    form["preset"] = gr.Dropdown(choices, value="fast", label="Recipe", info=sentence, filterable=False, elem_id="field-preset")
    form["device"] = component_for("device", explain=False)
    with gr.Accordion("Advanced", open=False, elem_id="advanced"):
        for group, names in ADVANCED.items():
            with gr.Accordion(group, open=group == "Model", elem_classes="group"):
                for name in names:
                    form[name] = component_for(name)
    return form


def run_config(values: dict[str, Any]) -> RunConfig:
    """The run that the form's values describe. Raises SettingError, naming the field."""
    return RunConfig.from_fields({name: value for name, value in values.items() if name != "preset"})


def problems(names: Sequence[str], values: Sequence[Any]) -> dict[str, str]:
    """What is wrong with the form's values, by field; empty when a run can start."""
    try:
        check_memory(run_config(dict(zip(names, values, strict=True))))
    except SettingError as error:
        return {error.field if error.field in names else "preset": sentence(error)}
    return {}


def sentence(error: SettingError) -> str:
    """The error with the field's label in place of its name in code."""
    text = str(error).replace(error.field, label_of(error.field), 1)
    return text[0].upper() + text[1:] + "."


def preset_values(name: str, task_values: dict[str, Any]) -> dict[str, Any]:
    """The form's values under a preset; what belongs to the task is kept as it stands."""
    kept = {k: v for k, v in task_values.items() if field_owner().get(k) == "task" and k not in PRESETS[name].settings}
    try:
        return preset_config(name, kept).to_fields()
    except SettingError:  # the lengths are wrong at the moment: the preset must still be shown
        return preset_config(name).to_fields()


def size_line(values: dict[str, Any]) -> str:
    """What the form's model weighs."""
    try:
        config = run_config(values)
    except SettingError as error:
        return sentence(error)
    return f"{config.model.parameter_count():,} parameters · about {config.memory_estimate() / 1e6:,.0f} MB beside torch itself"
