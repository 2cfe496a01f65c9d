"""The logit lens and direct logit attribution.

The logit lens (nostalgebraist 2020) decodes the vectors after each decoder layer as if it were the
last one, with the final norm, if there is one, and the output layer. At the last layer the result
is the model's output. Both read the activations of a teacher-forced pass.

Direct logit attribution (Elhage et al. 2021) decomposes one logit. In a pre-norm model, the input
of the final norm is a sum: the token embedding, the position vector if there is one, and the
outputs of every head, every feed-forward network and the biases of the attention. The final norm
subtracts the mean and divides by the standard deviation (RMSNorm: by the root mean square). With
that scale held fixed (frozen) the norm is linear, and the logit is exactly the sum of the
components' contributions. The effect of a component on the scale is not included. Contributions
describe how a logit is composed, not what happens without the component (see `ablation`).

In a post-norm model, a norm after every sublayer rescales the sum so far, so this decomposition
does not exist. The logit lens, ablation and activation patching work there as well.

Shapes: L layers, B batch, T target, H heads, K head size, D d_model, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from playground.models.attention import MultiHeadAttention
from playground.models.layers import NORM_EPS
from playground.models.transformer import Transformer

from .hooks import ATTENTION_KINDS, Activations, Component, component_outputs
from .inspected_model import NotApplicableError


@torch.no_grad()
def logit_lens(model: Transformer, calls: Activations) -> Tensor:
    """Return the logits decoded from the embedding and after each layer of the decoder (LBTV).

    L is one more than the number of decoder layers. The logits of the last layer are the model's.
    """
    layers = [f"decoder_layers.{layer}" for layer in range(model.config.n_layers)]
    x_BTD = [calls[name][-1].output for name in ("target_embedding", *layers)]
    return torch.stack([model.output_proj(model.decoder_norm(each_BTD)) for each_BTD in x_BTD])


@dataclass(frozen=True)
class LogitContribution:
    """The contribution of one component to a logit.

    `component` is None for terms that are not a `Component`: the token embedding and the biases.
    """

    name: str
    component: Component | None
    logit: float


@torch.no_grad()
def direct_logit_attribution(
    model: Transformer,
    calls: Activations,
    position: int,
    token: int,
    baseline_token: int | None = None,
) -> list[LogitContribution]:
    """Decompose the logit of `token` at an output position of a single sequence.

    The contributions are in the order in which the model adds them, and their sum is the logit.
    With `baseline_token`, they decompose the logit of `token` minus that of `baseline_token`.

    The contribution of a component is its vector minus the vector's mean, divided by the frozen
    scale of the final norm, times the weight of the norm, times the token's row of the output
    layer. Logit differences are more informative than logits, because a constant added to all
    logits changes no probability. Raises NotApplicableError for a post-norm model.
    """
    decoder_input_BT = calls["target_embedding"][-1].inputs[0]
    if model.config.norm_placement != "pre":
        raise NotApplicableError(
            "logit attribution needs a pre-norm model; in this post-norm model each norm rescales "
            "the sum before it, so the logit is not a sum of components; use the logit lens, "
            "ablation or activation patching"
        )
    direction_D = _token_difference(model.output_proj.weight, token, baseline_token)
    attribute = _frozen_norm_product(
        model, calls["decoder_norm"][-1].inputs[0][0, position], direction_D
    )
    embedding = model.target_embedding
    token_embedding_D = (
        embedding.token_embedding.weight[decoder_input_BT[0, position]] * embedding.scale
    )
    contributions = [LogitContribution("token embedding", None, attribute(token_embedding_D))]
    positions_TD = embedding.position_vectors(decoder_input_BT)
    if positions_TD is not None:
        part = Component("target positions")
        contribution = attribute(positions_TD[position])
        contributions.append(LogitContribution("position vector", part, contribution))
    contributions += _layer_contributions(
        model, component_outputs(model, calls), position, attribute
    )
    norm = model.decoder_norm
    if isinstance(norm, nn.LayerNorm) and model.config.bias:
        bias = float(norm.bias @ direction_D)
        contributions.append(LogitContribution("final norm, bias", None, bias))
    if model.output_proj.bias is not None:
        bias = float(_token_difference(model.output_proj.bias, token, baseline_token))
        contributions.append(LogitContribution("output layer, bias", None, bias))
    return contributions


def _token_difference(of_token: Tensor, token: int, baseline_token: int | None) -> Tensor:
    """Return the row of a token, minus that of the baseline token if there is one."""
    return of_token[token] - (0 if baseline_token is None else of_token[baseline_token])


def _frozen_norm_product(
    model: Transformer, last_D: Tensor, direction_D: Tensor
) -> Callable[[Tensor], float]:
    """Return the function that applies the final norm at the scale of `last_D`, without its bias,
    and returns the dot product of the result with `direction_D`.
    """
    norm = cast(nn.LayerNorm | nn.RMSNorm, model.decoder_norm)
    subtracts_mean = isinstance(norm, nn.LayerNorm)  # RMSNorm does not subtract the mean

    def center(vector_D: Tensor) -> Tensor:
        return vector_D - vector_D.mean() if subtracts_mean else vector_D

    scale = (center(last_D).pow(2).mean() + NORM_EPS).sqrt()
    return lambda vector_D: float(center(vector_D) / scale * norm.weight @ direction_D)


def _layer_contributions(
    model: Transformer,
    outputs: Mapping[Component, Tensor],
    position: int,
    attribute: Callable[[Tensor], float],
) -> Iterator[LogitContribution]:
    """Yield the contributions of heads, attention biases and feed-forward networks."""
    for layer in range(model.config.n_layers):
        for kind in ATTENTION_KINDS[1:]:
            block = Component(kind, layer)
            out_proj = cast(MultiHeadAttention, model.get_submodule(block.module_name)).out_proj
            weight_DHK = out_proj.weight.unflatten(1, (model.config.n_heads, -1))
            for head in range(model.config.n_heads):
                part = Component(kind, layer, head)
                vector_D = weight_DHK[:, head] @ outputs[part][0, position]
                yield LogitContribution(part.name, part, attribute(vector_D))
            if out_proj.bias is not None:
                yield LogitContribution(f"{block.name}, bias", None, attribute(out_proj.bias))
        part = Component("decoder feed-forward", layer)
        yield LogitContribution(part.name, part, attribute(outputs[part][0, position]))
