"""What each layer would answer, and what each part says for a symbol.

The logit lens (nostalgebraist 2020) reads the decoder's vectors after each layer as if it were the last: the final layer
norm, where there is one, and the output layer. At the last layer it is the model's output.

The contributions take one logit apart. In a pre-norm model, the vector that reaches the final norm is a plain sum: the
symbol's vector, its position's where there is one, and what every head, every feed-forward network and the biases of the
attentions added. The final norm subtracts the mean and divides by the standard deviation (RMSNorm: divides by the root mean
square); with that one number, its scale, held fixed at what it was (frozen), it is linear too, and the logit is exactly the sum
of the parts' own logits. What a part would change in the scale is not counted: contributions say how a logit is made up, not
what would happen without the part (see ablation).

In a post-norm model every sublayer is followed by a norm that rescales all that came before, so there is no such sum; the
lens works there, and so do ablation and patching, the contributions do not.

Shapes: L layers, B batch, T target, H heads, K numbers a head, D d_model, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from playground.models.attention import MultiHeadAttention
from playground.models.norms import EPSILON, RMSNorm
from playground.models.transformer import Transformer
from playground.tasks.task import Batch

from .components import ATTENTION, Component, outputs, watched
from .subject import NotInspectable


def logit_lens(model: Transformer, batch: Batch) -> Tensor:
    """Logits (LBTV, with one layer more than the decoder has) read from the decoder's embedding and after each of its layers,
    the right answer given. The last layer's are the model's."""
    with torch.no_grad(), watched(model) as calls:
        model(batch.source_BS, batch.decoder_input_BT)
        x_BTD = [calls["target_embedding"][-1].result]
        x_BTD += [
            calls[f"decoder_layers.{layer}"][-1].result[0] for layer in range(model.config.n_layers)
        ]
        return torch.stack([model.output(model.decoder_norm(each_BTD)) for each_BTD in x_BTD])


@dataclass(frozen=True)
class Contribution:
    """What one part adds to a logit. `part` is None for what is no component: the symbol's vector and biases."""

    name: str
    part: Component | None
    logit: float


@torch.no_grad()
def contributions(
    model: Transformer, batch: Batch, position: int, token: int, against: int | None = None
) -> list[Contribution]:
    """How the logit of `token` at an output position of a single sequence is made up, the right answer given; in the order in
    which the model adds them. They sum to the logit. With `against`, how the logit of `token` less that of `against` is.

    A part's own logit: its vector less the vector's mean, over the frozen scale of the final norm, times the norm's weight,
    times the token's row of the output layer. A logit alone says little, since a constant on all logits changes nothing;
    differences (`against`) do not depend on it.

    Raises:
        NotInspectable: for a post-norm model, more than one sequence, or a position or token that there is not.
    """
    if model.config.norm != "pre":
        raise NotInspectable(
            "contributions exist in pre-norm models only; in this post-norm one, each sublayer's norm rescales all that came "
            "before, so the logit is no sum of parts; use the logit lens, ablation or patching"
        )
    n_rows, n_positions = batch.decoder_input_BT.shape
    if n_rows != 1:
        raise NotInspectable(
            f"the batch has {n_rows} rows; contributions are for one sequence at a time"
        )
    if not 0 <= position < n_positions:
        raise NotInspectable(
            f"position is {position}; this answer has the positions 0 to {n_positions - 1}"
        )
    for each in (token, against):
        if each is not None and not 0 <= each < model.config.target_vocabulary:
            raise NotInspectable(
                f"token is {each}; the tokens are 0 to {model.config.target_vocabulary - 1}"
            )

    with watched(model) as calls:
        model(batch.source_BS, batch.decoder_input_BT)
    norm = cast(nn.LayerNorm | RMSNorm, model.decoder_norm)
    centres = isinstance(norm, nn.LayerNorm)  # RMSNorm takes the vector as it is
    last_D = calls["decoder_norm"][-1].given[0][0, position]
    scale = (
        (last_D.var(correction=0) + EPSILON).sqrt()
        if centres
        else (last_D.pow(2).mean() + EPSILON).sqrt()
    )
    direction_D = model.output.weight[token] - (
        0 if against is None else model.output.weight[against]
    )

    def own_logit(vector_D: Tensor) -> float:
        return float(
            (vector_D - vector_D.mean() if centres else vector_D)
            / scale
            * norm.weight
            @ direction_D
        )

    embedding = model.target_embedding
    symbol_D = embedding.tokens.weight[batch.decoder_input_BT[0, position]] * embedding.scale
    found = [Contribution("symbol vector", None, own_logit(symbol_D))]
    positions_TD = embedding.placed(batch.decoder_input_BT)
    if positions_TD is not None:
        found.append(
            Contribution(
                "position vector", Component("target positions"), own_logit(positions_TD[position])
            )
        )
    spoken = outputs(model, calls)
    for layer in range(model.config.n_layers):
        for kind in ATTENTION[1:]:
            attention = cast(MultiHeadAttention, model.get_submodule(Component(kind, layer).module))
            into_DHK = attention.output.weight.unflatten(1, (model.config.n_heads, -1))
            for head in range(model.config.n_heads):
                part = Component(kind, layer, head)
                found.append(
                    Contribution(
                        part.name, part, own_logit(into_DHK[:, head] @ spoken[part][0, position])
                    )
                )
            if attention.output.bias is not None:
                found.append(
                    Contribution(
                        f"{Component(kind, layer).name}, bias",
                        None,
                        own_logit(attention.output.bias),
                    )
                )
        part = Component("decoder feed-forward", layer)
        found.append(Contribution(part.name, part, own_logit(spoken[part][0, position])))
    if isinstance(norm, nn.LayerNorm) and model.config.bias:
        found.append(Contribution("final norm, bias", None, float(norm.bias @ direction_D)))
    if model.config.bias:
        bias_V = model.output.bias
        found.append(
            Contribution(
                "output layer, bias",
                None,
                float(bias_V[token] - (0 if against is None else bias_V[against])),
            )
        )
    return found
