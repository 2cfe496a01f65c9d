"""Views of the weights: token embeddings and position vectors, and all parameters.

Shapes: P positions, D d_model, N tokens.
"""

import math
from collections import Counter
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from playground.architectures.parameter_groups import parameter_count, parameter_groups
from playground.inspection.inspected_model import InspectedModel
from playground.models.embeddings import InputEmbedding

from .fields import (
    MAX_COLUMNS,
    MAX_ROWS,
    Name,
    SequenceRequest,
    answer_fields,
    json_array,
    json_number,
)


class EmbeddingsRequest(SequenceRequest):
    """One side of the model, and the token whose neighbors are listed."""

    side: Literal["source", "target"] = "source"
    token: Name = ""


@torch.no_grad()
def embeddings(subject: InspectedModel, request: EmbeddingsRequest) -> dict[str, Any]:
    """Return the token embeddings and position vectors of the model.

    `map` has the token embeddings projected onto their first two principal components, and the
    fraction of the variance that each of the two explains.
    """
    side = request.side
    names, table_ND = token_embeddings(subject, side)
    # The page may have selected the token for another model.
    token = request.token if request.token in names else subject.token_names([3])[0]
    coordinates_N2, variance_fraction_2 = project(table_ND)
    return {
        "side": side,
        "positions": _position_fields(subject, side),
        "tokens": names,
        "token": token,
        "nearest": [
            [name, json_number(similarity)]
            for name, similarity in nearest_tokens(names, table_ND, token)
        ],
        "map": {
            "names": names,
            "coordinates": json_array(coordinates_N2),
            "explained_variance": json_array(variance_fraction_2),
        },
        **answer_fields(request.example(subject)),
    }


def input_embedding(subject: InspectedModel, side: str) -> InputEmbedding:
    """Return the embedding of one side, "source" or "target"."""
    return cast(InputEmbedding, subject.transformer.get_submodule(f"{side}_embedding"))


def token_embeddings(subject: InspectedModel, side: str) -> tuple[list[str], Tensor]:
    """Return the names and the learned embeddings (ND) of one side's tokens.

    EOS and SOS are included. PAD is not, because no position attends to it.
    """
    table_ND = input_embedding(subject, side).token_embedding.weight.detach()
    return subject.token_names(list(range(1, len(table_ND)))), table_ND[1:]


def nearest_tokens(names: list[str], table_ND: Tensor, name: str) -> list[tuple[str, float]]:
    """Return the other tokens by their cosine similarity to the named one, the nearest first."""
    unit_ND = F.normalize(table_ND, dim=-1)
    similarity_N = (unit_ND @ unit_ND[names.index(name)]).tolist()
    return sorted(
        ((other, s) for other, s in zip(names, similarity_N, strict=True) if other != name),
        key=lambda pair: -pair[1],
    )


def project(table_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Project vectors onto their first two principal components.

    Returns the coordinates (N2) and the fraction of the variance that each component explains (2).
    The sign of each component is chosen so that its largest coordinate is positive.
    """
    centred_ND = (table_ND - table_ND.mean(0)).double()
    _, size_N, direction_ND = torch.linalg.svd(centred_ND, full_matrices=False)
    coordinates_N2 = centred_ND @ direction_ND[:2].T
    coordinates_N2 *= coordinates_N2.gather(0, coordinates_N2.abs().argmax(0, keepdim=True)).sign()
    variance_fraction_N = size_N**2 / (size_N**2).sum()
    if len(size_N) == 1:  # with d_model = 1 there is one component
        coordinates_N2 = F.pad(coordinates_N2, (0, 1))
        variance_fraction_N = F.pad(variance_fraction_N, (0, 1))
    return coordinates_N2, variance_fraction_N[:2]


def position_vectors(subject: InspectedModel, side: str) -> Tensor | None:
    """Return the position vectors (PD) of one side, in the order in which the model counts.

    There is one for each of `max_positions`; None if the model adds no vectors (none, rope, alibi,
    t5). For randomized positions, these are the vectors used at inference.
    """
    embedding = input_embedding(subject, side)
    if embedding.position_embedding is None or embedding.position_type != "randomized":
        return embedding.position_embedding
    return embedding.position_vectors(
        torch.ones(1, embedding.n_positions, dtype=torch.long, device=subject.device)
    )


def _position_fields(subject: InspectedModel, side: str) -> dict[str, Any]:
    """Return the position vectors of one side, and their scale beside that of the tokens."""
    config = subject.transformer.config
    _, tokens_ND = token_embeddings(subject, side)
    positions_PD = position_vectors(subject, side)
    if positions_PD is None:
        positions_PD = torch.empty(0, config.d_model)
    return {
        "kind": config.position_type,
        "weights": json_array(positions_PD[:MAX_ROWS, :MAX_COLUMNS], 3),
        "of": list(positions_PD.shape),
        "rms": _root_mean_square(positions_PD),
        "token_rms": _root_mean_square(tokens_ND * input_embedding(subject, side).scale),
        "description": _describe_positions(config.position_type, side),
    }


def _root_mean_square(values: Tensor) -> float | None:
    return json_number(float(values.pow(2).mean().sqrt()))


def _describe_positions(kind: str, side: str) -> str:
    inside = "The model adds no position vectors: "
    return {
        "learned": "learned in training",
        "sinusoidal": "sinusoidal",
        "learned-from-end": "learned in training, and counted from the end (0 is EOS)"
        if side == "source"
        else "learned in training",
        "randomized": "learned in training at randomly sampled positions; these are the evenly "
        "spaced ones used at inference",
        "rope": f"{inside}self-attention rotates queries and keys by their positions (RoPE). "
        "Activations shows this as the stage “rotated queries”.",
        "alibi": f"{inside}self-attention subtracts a multiple of the distance from the scores "
        "(ALiBi). Activations shows this as the stage “position bias”.",
        "t5": f"{inside}self-attention adds a learned bias for the distance to the scores (T5). "
        "Activations shows this as the stage “position bias”.",
        "none": f"{inside}it has no position encoding. The encoder processes a set. The decoder "
        "can still infer positions from its causal mask.",
    }.get(kind, f"{inside}self-attention uses the encoding {kind}.")


def parameters(subject: InspectedModel, request: SequenceRequest) -> dict[str, Any]:
    """Return the weights of each component, the layers of a stack together, and their sum.

    `shapes` counts equal shapes, as in "8 × [64, 64] + 8 × [64]". A weight that two components
    share counts once, for the first of them.
    """
    config, rows = subject.model.config, []
    for component, shapes in parameter_groups(config).items():
        counts = Counter(shapes).items()
        texts = [(f"{n} × " if n > 1 else "") + str(list(shape)) for shape, n in counts]
        if shapes:
            rows.append(
                {
                    "component": component,
                    "shapes": " + ".join(texts),
                    "parameters": sum(map(math.prod, shapes)),
                }
            )
    return {
        "components": rows,
        "total": parameter_count(config),
        **answer_fields(request.example(subject), of_own_layers=True),
    }
