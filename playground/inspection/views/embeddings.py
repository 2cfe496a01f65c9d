"""View of the token embeddings and the position vectors.

Shapes: P positions, D d_model, V vocabulary.
"""

from typing import Any

import torch

from playground.inspection.embeddings import (
    embedding_pca,
    input_embedding,
    nearest_tokens,
    position_vectors,
    token_embeddings,
)
from playground.inspection.inspected_model import InspectedModel

from .common import predict_answer
from .request import MAX_COLUMNS, MAX_ROWS, choice_field, json_array, json_number, text_field


@torch.no_grad()
def embeddings(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the token embeddings and position vectors of the model."""
    side = choice_field(request, "side", ("source", "target"))
    names, _ = token_embeddings(subject, side)
    requested = text_field(request, "token", 100, "")
    # The page may have selected the token for another model.
    token = requested if requested in names else subject.token_names([3])[0]
    pca = embedding_pca(subject, side)
    return {
        "side": side,
        "positions": _position_fields(subject, side),
        "tokens": names,
        "token": token,
        "nearest": [
            [name, json_number(similarity)]
            for name, similarity in nearest_tokens(subject, side, token)
        ],
        "map": {
            "names": pca.names,
            "coordinates": [[json_number(x), json_number(y)] for x, y in pca.coordinates],
            "explained_variance": list(map(json_number, pca.explained_variance)),
        },
        **predict_answer(subject, request),
    }


def _position_fields(subject: InspectedModel, side: str) -> dict[str, Any]:
    """Return the position vectors of one side, and their scale beside that of the tokens."""
    config = subject.transformer.config
    embedding = input_embedding(subject, side)
    _, tokens_VD = token_embeddings(subject, side)
    fields: dict[str, Any] = {
        "kind": config.position_type,
        "weights": [],
        "of": [0, config.d_model],
        "rms": None,
        "token_rms": _root_mean_square(tokens_VD * embedding.scale),
        "description": position_description(subject, side),
    }
    positions_PD = position_vectors(subject, side)
    if positions_PD is not None:
        fields |= {
            "weights": json_array(positions_PD[:MAX_ROWS, :MAX_COLUMNS], 3),
            "of": list(positions_PD.shape),
            "rms": _root_mean_square(positions_PD),
        }
    return fields


def _root_mean_square(values: torch.Tensor) -> float | None:
    return json_number(float(values.pow(2).mean().sqrt()))


def position_description(subject: InspectedModel, side: str) -> str:
    """Describe the position encoding of one side."""
    inside = "The model adds no position vectors: "
    kind = subject.transformer.config.position_type
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


VIEWS = {"embeddings": embeddings}
