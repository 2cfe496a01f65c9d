"""View of the parameters: the weights of each component, with their shapes."""

import math
from collections import Counter
from typing import Any

from playground.architectures.parameter_groups import parameter_count, parameter_groups
from playground.inspection.inspected_model import InspectedModel

from .request import SequenceRequest
from .shared_fields import answer_fields


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
