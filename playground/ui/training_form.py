"""The form of a run: one component per setting, labelled and explained by the setting."""

import html
import re
from collections.abc import Sequence
from typing import Any

import gradio as gr

from playground.architectures import ARCHITECTURES
from playground.checkpoints.manifest import parse_strict_json
from playground.common.devices import ZERO_GPU, is_zero_gpu
from playground.datasets.pairs import SHA256_PATTERN, DatasetError, DatasetNotFoundError
from playground.datasets.storage import load_metadata
from playground.models.config_fields import ConfigError
from playground.runs.limits import Limits
from playground.runs.memory import ensure_memory_available
from playground.tasks import LOOKUP, TASKS
from playground.training.config import RunConfig, field_named, section_of_field
from playground.training.presets import PRESETS, architecture_preset, preset_config

from .task_info import task_description_html
from .views import dataset_panel

BASIC_SETTINGS = (
    "task",
    "dataset_sha256",
    "min_length",
    "max_length",
    "architecture",
    "preset",
    "device",
)
ADVANCED_SETTINGS = {
    "Model": (
        "cell",
        "attention",
        "d_model",
        "n_heads",
        "n_kv_heads",
        "d_k",
        "d_v",
        "n_layers",
        "d_ff",
        "activation",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "norm_placement",
        "norm_type",
        "position_type",
        "sinusoidal_scale",
        "randomized_range",
        "share_embeddings",
        "tie_output_embeddings",
        "attention_bias",
        "bias",
        "output_bias",
        "weight_init",
        "scale_embeddings",
        "embedding_std",
        "position_std",
    ),
    "Training": (
        "max_steps",
        "batch_size",
        "learning_rate",
        "lr_schedule",
        "warmup_steps",
        "lr_decay_steps",
        "min_lr_ratio",
        "optimizer",
        "weight_decay",
        "weight_decay_on",
        "momentum",
        "muon_lr_ratio",
        "adam_beta1",
        "adam_beta2",
        "adam_eps",
        "label_smoothing",
        "max_grad_norm",
        "weight_averaging",
    ),
    "Data, scoring and machine": (
        "n_symbols",
        "n_training_sources",
        "held_out_one_in",
        "predict_eos",
        "eval_every",
        "eval_size",
        "stop_at_exact_match",
        "seed",
        "num_threads",
        "precision",
    ),
}
# These settings follow from the task or its dataset.
DERIVED_SETTINGS = (
    "source_vocab_size",
    "target_vocab_size",
    "max_positions",
    "dataset_symbols",
    "max_target_length",
)

LABELS = {
    "dataset_sha256": "Dataset",
    "n_symbols": "Symbols",
    "n_training_sources": "Training set",
    "held_out_one_in": "Held out, one in",
    "predict_eos": "Predict EOS",
    "min_length": "Minimum length",
    "max_length": "Maximum length",
    "d_model": "d_model",
    "n_heads": "Heads",
    "n_layers": "Layers",
    "d_ff": "d_ff",
    "d_k": "d_k",
    "d_v": "d_v",
    "n_kv_heads": "Key and value heads",
    "norm_type": "Norm",
    "position_type": "Positions",
    "sinusoidal_scale": "Position scale",
    "randomized_range": "Position range",
    "bias": "Biases",
    "tie_output_embeddings": "Tie output layer",
    "attention_bias": "Attention biases",
    "output_bias": "Output bias",
    "weight_init": "Initial weights",
    "embedding_std": "Initial embedding scale",
    "position_std": "Initial position scale",
    "max_steps": "Steps",
    "lr_schedule": "Schedule",
    "lr_decay_steps": "Decay steps",
    "min_lr_ratio": "Final learning rate",
    "muon_lr_ratio": "Muon rate ratio",
    "adam_beta1": "Beta 1",
    "adam_beta2": "Beta 2",
    "adam_eps": "Epsilon",
    "max_grad_norm": "Gradient clipping",
    "eval_every": "Evaluate every",
    "eval_size": "Evaluate on",
    "stop_at_exact_match": "Stop at exact match",
    "num_threads": "Threads",
}
CHOICE_LABELS = {
    "pre": "pre-norm",
    "post": "post-norm",
    "noam": "noam (paper)",
    "relu": "ReLU",
    "gelu": "GELU",
    "swiglu": "SwiGLU",
    "xavier-scaled": "Xavier, smaller attention",
    "xavier": "Xavier",
    "normal": "normal (GPT-2)",
    "torch": "PyTorch",
    "all": "all weights",
    "linear": "linear layers",
    "layer": "LayerNorm",
    "rms": "RMSNorm",
    "rope": "RoPE",
    "alibi": "ALiBi",
    "t5": "T5 relative",
    "learned-from-end": "from the end",
    ZERO_GPU: "GPU (ZeroGPU slices)",
    LOOKUP: "Your own data",
    "adam": "Adam",
    "adamw": "AdamW",
    "sgd": "SGD",
    "muon": "Muon",
}
SLIDER_STEPS = {
    "dropout": 0.05,
    "attention_dropout": 0.05,
    "activation_dropout": 0.05,
    "embedding_std": 0.1,
    "position_std": 0.1,
    "sinusoidal_scale": 0.5,
    "learning_rate": 0.001,
    "min_lr_ratio": 0.01,
    "adam_beta1": 0.01,
    "adam_beta2": 0.01,
    "weight_decay": 0.01,
    "momentum": 0.05,
    "muon_lr_ratio": 0.5,
    "adam_eps": 1e-9,
    "label_smoothing": 0.05,
    "max_grad_norm": 0.5,
    "stop_at_exact_match": 0.001,
}
DEFAULTS = preset_config("fast").to_flat()  # the values of a new form
NO_LIMITS = Limits.unlimited()
MAX_SETTINGS_LENGTH = 40_000  # characters; the vocabulary of a dataset may have half of them
MAX_RADIO_CHOICES = 4  # more choices become a dropdown
# the Model field selects the architecture
FORM_PRESETS = tuple(
    name for name, preset in PRESETS.items() if "architecture" not in preset.settings
)
# The settings of a preset: all but those of the task, the machine and the evaluation.
PRESET_SETTINGS = tuple(
    n
    for n in (
        "architecture",
        *ADVANCED_SETTINGS["Model"],
        *ADVANCED_SETTINGS["Training"],
        "eval_every",
    )
)


def label_of(name: str) -> str:
    return LABELS.get(name, name.replace("_", " ").capitalize())


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
        choices = [
            (CHOICE_LABELS.get(c, c), c)
            for c in setting.metadata["choices"]
            if c != ZERO_GPU or is_zero_gpu()
        ]
        if len(choices) > MAX_RADIO_CHOICES:
            return gr.Dropdown(choices, value=default, **common)
        return gr.Radio(choices, value=default, **common)
    if isinstance(default, str):
        return gr.Textbox(default, **common)
    if isinstance(default, bool):
        return gr.Checkbox(default, **common)
    return gr.Number(default, step=SLIDER_STEPS.get(name, 1), min_width=80, **common)


def is_used_by_architecture(name: str, family: str) -> bool:
    """Return whether an architecture uses a setting.

    Every architecture uses the settings of task and training.
    """
    return section_of_field()[name] != "model" or name in ARCHITECTURES[family].setting_names()


def build_form() -> tuple[dict[str, Any], gr.HTML, gr.HTML]:
    """Build the components of the form in the current context.

    Returns them by setting name, with `preset`, the task description and the dataset panel.
    """
    form: dict[str, Any] = {}
    form["task"] = component_for("task", explain=False)
    task_info = gr.HTML(
        task_description_html(form["task"].value), elem_id="about-task", padding=False
    )
    panel = dataset_panel()
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
    choices = [(PRESETS[name].title, name) for name in FORM_PRESETS]
    form["preset"] = gr.Radio(
        choices,
        value="fast",
        label="Preset",
        info=PRESETS["fast"].description,
        elem_id="field-preset",
    )
    form["device"] = component_for("device", explain=False)
    with gr.Accordion("Advanced", open=False, elem_id="advanced"):
        for group, names in ADVANCED_SETTINGS.items():
            with gr.Accordion(group, open=group == "Model", elem_classes="group"):
                for name in names:
                    form[name] = component_for(name)
    return form, task_info, panel


def suggested_max_length(task: Any, min_length: Any, max_length: Any) -> int | None:
    """Return the maximum length for a newly selected task.

    Returns None if the user typed a length: the form then does not have the default of a task.
    """
    default_ranges = {(1, task_info.default_max_length) for task_info in TASKS.values()}
    return (
        TASKS[task].default_max_length
        if (min_length, max_length) in default_ranges and task in TASKS
        else None
    )


def run_config(values: dict[str, Any]) -> RunConfig:
    """Return the run of the form values.

    Settings that its architecture ignores are left out. Raises ConfigError, naming the field.
    """
    family = values["architecture"]
    if isinstance(family, str) and family in ARCHITECTURES:  # validation rejects others below
        values = {
            name: value
            for name, value in values.items()
            if name in ("architecture", "preset") or is_used_by_architecture(name, family)
        }
    typed_values = {
        n: int(v)
        if isinstance(v, float)
        and v.is_integer()
        and n != "architecture"
        and isinstance(field_named(n).default, int)
        else v
        for n, v in values.items()
        if n != "preset"
    }
    return RunConfig.from_flat(typed_values | dataset_settings(typed_values))


def dataset_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that follow from a dataset; {} for other tasks.

    Raises:
        ConfigError: if no dataset is selected, if it is not stored here, or if it has no
            sequences of these lengths.
    """
    if values.get("task") != LOOKUP:
        return {"dataset_sha256": ""}
    content = values.get("dataset_sha256")
    if not content:
        raise ConfigError(
            "dataset_sha256", "no dataset is selected; add one below and press Use this dataset"
        )
    try:
        metadata = load_metadata(
            content if isinstance(content, str) and SHA256_PATTERN.fullmatch(content) else ""
        )
    except DatasetNotFoundError:
        raise ConfigError("dataset_sha256", missing_dataset_message(content)) from None
    except DatasetError as error:
        raise ConfigError("dataset_sha256", str(error)) from None
    max_source_length, min_length = metadata["longest_source"], values.get("min_length")
    if isinstance(min_length, int | float) and min_length > max_source_length:
        raise ConfigError(
            "min_length",
            f"min_length is {min_length}, but the longest source of this dataset has "
            f"{max_source_length} symbols; lower it",
        )
    return {
        "dataset_symbols": " ".join(metadata["vocabulary"]),
        "max_target_length": metadata["longest_target"],
    }


def missing_dataset_message(content: object) -> str:
    """Return the message for a dataset that a link or a run names and that is missing."""
    return (
        f"This dataset ({str(content)[:12]}…) is not on this server; upload it below. Its "
        "content hash identifies it"
    )


def parse_settings(text: str) -> RunConfig:
    """Return the run that a link or a JSON text describes.

    Raises:
        ValueError: for any other text.
    """
    try:
        content = (
            parse_strict_json(text.encode("utf-8", "replace"))
            if len(text) < MAX_SETTINGS_LENGTH
            else None
        )
    except ValueError as error:
        raise ValueError("they are no JSON; copy the whole of them") from error
    if not isinstance(content, dict):
        raise ValueError("these are no settings: a JSON object of names and values is expected")
    try:
        return RunConfig.from_flat(content)
    except TypeError:  # a list in place of a name
        raise ValueError(
            "these are no settings: values must be numbers, texts, true or false"
        ) from None


def validate_form(
    names: Sequence[str], values: Sequence[Any], limits: Limits = NO_LIMITS
) -> dict[str, str]:
    """Return the errors of the form by field; empty if a run can start."""
    try:
        config = run_config(dict(zip(names, values, strict=True)))
        limits.validate(config)
        ensure_memory_available(config)
    except ConfigError as error:
        return {error.field if error.field in names else "preset": with_labels(error)}
    return {}


def with_labels(error: ConfigError) -> str:
    """Return the error with labels in place of setting names."""
    text = str(error).replace(" is None", " is empty")
    for name in sorted(section_of_field(), key=len, reverse=True):
        text = (
            re.sub(rf"\b{name}\b", label_of(name), text)
            if "_" in name or name == error.field
            else text
        )
    return text + "."


def preset_values(name: str) -> dict[str, Any]:
    return form_values(preset_config(name))


def architecture_values(name: str) -> dict[str, Any]:
    """Return the default settings of an architecture, as form values."""
    return form_values(architecture_preset(name))


def form_values(config: RunConfig) -> dict[str, Any]:
    """Return the form values of a run, for the settings that a preset covers.

    Settings that the architecture ignores have their default.
    """
    fields = config.to_flat()
    return {
        name: fields[name] if name in fields else field_named(name).default
        for name in PRESET_SETTINGS
    }


def estimate_and_validate(values: dict[str, Any], limits: Limits = NO_LIMITS) -> tuple[str, str]:
    """Return the size of the model and the error of the form; one of them is empty."""
    errors = validate_form(list(values), list(values.values()), limits)
    if errors:
        return "", html.escape(next(iter(errors.values())))
    config = run_config(values)
    count, memory = config.model.parameter_count(), config.estimate_memory() / 1e6
    return (
        f"Next run: {count:,} parameters, about {memory:,.0f} MB of memory besides PyTorch.",
        "",
    )
