"""Small models whose every weight matters, and the space of their settings."""

import dataclasses

import torch
from hypothesis import strategies as st

from playground.models.config import POSITION_TYPES, TransformerConfig

SIZES = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24}


def build_small(model_class, config_class=TransformerConfig, **changes):
    """Build a small model whose biases and norms are not at their defaults either."""
    torch.manual_seed(0)
    model = model_class(config_class(**SIZES | changes))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model.eval()


def model_settings(config_class=TransformerConfig, position_types=POSITION_TYPES):
    """Draw settings that decide what a model computes, of those that its config has."""
    names = {each.name for each in dataclasses.fields(config_class)}
    flags = {"bias", "attention_bias", "share_embeddings", "tie_output_embeddings"}
    choices = {
        "norm_placement": st.sampled_from(["pre", "post"]),
        "norm_type": st.sampled_from(["layer", "rms"]),
        "activation": st.sampled_from(["relu", "gelu", "swiglu"]),
        "n_heads": st.sampled_from([2, 4]),
        "n_kv_heads": st.sampled_from([0, 1, 2]),
        "d_k": st.sampled_from([0, 6]),
        "d_v": st.sampled_from([0, 10]),
        "n_layers": st.sampled_from([1, 2]),
        "sinusoidal_scale": st.sampled_from([1.0, 0.5]),
        **dict.fromkeys(flags, st.booleans()),
    }
    return st.fixed_dictionaries(
        {"position_type": st.sampled_from(position_types)},
        optional={name: values for name, values in choices.items() if name in names},
    )
