"""Initialize a model as other implementations do.

Every module initializes its own weights. The settings `weight_init`, `embedding_std`,
`scale_embeddings` and `position_std` replace or scale them; their defaults change nothing.
"""

from torch import nn, no_grad

from .config import StackConfig

NORMAL_STD = 0.02  # as in GPT-2 (Radford et al. 2019)
# The layers whose output is added to the residual stream. GPT-2 divides their standard deviation by
# the square root of the number of such layers.
RESIDUAL_LAYERS = ("out_proj", "down_proj")


@no_grad()
def reinitialize(model: nn.Module, config: StackConfig) -> None:
    """Initialize the weights again that the settings of `config` change."""
    linear_layers = {
        name: each for name, each in model.named_modules() if isinstance(each, nn.Linear)
    }
    n_residual = sum(name.endswith(RESIDUAL_LAYERS) for name in linear_layers)
    for name, layer in linear_layers.items():
        if config.weight_init == "xavier":
            nn.init.xavier_uniform_(layer.weight)
        elif config.weight_init == "torch":
            layer.reset_parameters()
        elif config.weight_init == "normal":
            is_residual = name.endswith(RESIDUAL_LAYERS)
            nn.init.normal_(layer.weight, std=NORMAL_STD / (n_residual**0.5 if is_residual else 1))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    _scale_embeddings(model, config)


def _scale_embeddings(model: nn.Module, config: StackConfig) -> None:
    """Scale token and learned position embeddings to their configured standard deviations."""
    unscaled = 1.0 if config.scale_embeddings else config.d_model**0.5
    for weight in {each.weight for each in model.modules() if isinstance(each, nn.Embedding)}:
        weight.mul_(config.embedding_std * unscaled)
    for name, weight in model.named_parameters():
        if name.endswith("position_embedding"):
            weight.mul_(config.position_std)
