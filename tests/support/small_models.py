"""Small models whose every weight matters."""

import torch

from playground.models.config import ModelConfig


def build_small(model_class, **changes):
    """Build a small model whose biases and norms are not at their defaults either."""
    torch.manual_seed(0)
    model = model_class(
        ModelConfig(**{"d_model": 16, "n_heads": 4, "n_layers": 2, "d_ff": 24} | changes)
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model.eval()
