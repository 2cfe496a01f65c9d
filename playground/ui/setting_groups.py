"""The settings of the form: their groups, labels and steps."""

from playground.architectures import ARCHITECTURES
from playground.tasks import LOOKUP
from playground.training.presets import PRESETS
from playground.training.run_config import section_of_field

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
    "n_symbols": "Alphabet size",
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
    LOOKUP: "Your own data",
    "adam": "Adam",
    "adamw": "AdamW",
    "sgd": "SGD",
    "muon": "Muon",
}
NUMBER_STEPS = {
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
# What an empty field stands for, whose value is 0.
WORDS_FOR_ZERO = {
    **dict.fromkeys(("n_kv_heads", "d_k", "d_v", "randomized_range", "num_threads"), "auto"),
    "stop_at_exact_match": "never",
}
# the Model field selects the architecture
FORM_PRESETS = tuple(
    name for name, preset in PRESETS.items() if "architecture" not in preset.settings
)
ADVANCED_PRESETS = ("adam", "tutorial")  # the form offers them under Advanced settings
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


def is_used_by_architecture(name: str, family: str) -> bool:
    """Return whether an architecture uses a setting; all use those of task and training."""
    return section_of_field()[name] != "model" or name in ARCHITECTURES[family].setting_names()
