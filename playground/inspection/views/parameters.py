"""View of the parameters: the weights of each component, with their shapes."""

import math
import re
from collections import Counter
from typing import Any

from playground.inspection.inspected_model import InspectedModel

from .common import predict_answer

# The components, by the names of their weights.
COMPONENTS = {
    "source token embedding": r"source_embedding\.token_embedding",
    "source position vectors": r"source_embedding\.position_embedding",
    "target token embedding": r"target_embedding\.token_embedding",
    "target position vectors": r"target_embedding\.position_embedding",
    "encoder self-attention": r"encoder_layers\.\d+\.self_attn\.",
    "encoder feed-forward": r"encoder_layers\.\d+\.feed_forward\.",
    "encoder norms": r"encoder_(layers\.\d+\.\w+_residual\.)?norm\.",
    "decoder self-attention": r"decoder_layers\.\d+\.self_attn\.",
    "cross-attention": r"decoder_layers\.\d+\.cross_attn\.",
    "decoder feed-forward": r"decoder_layers\.\d+\.feed_forward\.",
    "decoder norms": r"decoder_(layers\.\d+\.\w+_residual\.)?norm\.",
    "output layer": r"output_proj\.",
}


def parameters(subject: InspectedModel, request: dict[str, Any]) -> dict[str, Any]:
    """Return the weights of each component, the layers of a stack together, and their sum.

    `shapes` counts equal shapes, as in "8 × [64, 64] + 8 × [64]". A weight that two components
    share counts once, for the first of them.
    """
    weights = dict(subject.transformer.named_parameters())
    rows = []
    for component, pattern in COMPONENTS.items():
        shapes = Counter(
            tuple(weight.shape) for name, weight in weights.items() if re.match(pattern, name)
        )
        texts = [(f"{n} × " if n > 1 else "") + str(list(shape)) for shape, n in shapes.items()]
        if shapes:
            rows.append(
                {
                    "component": component,
                    "shapes": " + ".join(texts),
                    "parameters": sum(n * math.prod(shape) for shape, n in shapes.items()),
                }
            )
    return {
        "components": rows,
        "total": sum(weight.numel() for weight in weights.values()),
        **predict_answer(subject, request),
    }


VIEWS = {"parameters": parameters}
