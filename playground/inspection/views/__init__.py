"""The views of the Inspect tab as plain data.

A view is a function of a subject and a request, whose type validates untrusted input.
"""

import contextlib
from collections.abc import Callable
from typing import Any, get_type_hints

from playground.common.validation import parse
from playground.errors import UserError
from playground.inspection.inspected_model import InspectedModel, NotApplicableError

from . import attention_maps, attribution, gates, head_analysis, stages, weights
from .fields import SequenceRequest, answer_fields

ViewFunction = Callable[[InspectedModel, Any], dict[str, Any]]
VIEWS: dict[str, ViewFunction] = {
    "attention": attention_maps.attention,
    "output": attention_maps.output,
    "heads": head_analysis.head_scores,
    "ablation": head_analysis.ablation_view,
    "patch": attribution.activation_patching,
    "lens": attribution.lens,
    "contributions": attribution.logit_attribution,
    "trace": stages.trace,
    "attention-scores": stages.attention_scores,
    "embeddings": weights.embeddings,
    "parameters": weights.parameters,
    "gates": gates.gates,
}


def render_view(subject: InspectedModel, view: object, request: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a view. Raises UserError for an invalid request."""
    if not isinstance(view, str) or view not in VIEWS:
        raise UserError(f"{str(view)[:40]!r} is not a view; choose one of {', '.join(VIEWS)}")
    try:
        request_type = get_type_hints(VIEWS[view])["request"]
        return VIEWS[view](subject, parse(request_type, request))
    except NotApplicableError as error:
        with contextlib.suppress(UserError):  # of an invalid sequence
            example = parse(SequenceRequest, request).example(subject)
            error.details |= answer_fields(example, of_own_layers=True)
        raise
