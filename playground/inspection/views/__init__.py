"""The views of the Inspect tab as plain data.

A view is a function of a subject and a request, whose type validates untrusted input.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any, get_type_hints

from playground.common.validation import parse
from playground.errors import UserError, error_response
from playground.inspection.inspected_model import InspectedModel, NotApplicableError

from . import (
    attention_maps,
    attribution,
    component_ranking,
    embedding_maps,
    gates,
    head_scores,
    parameters,
    stages,
)
from .request import SequenceRequest
from .shared_fields import answer_fields

log = logging.getLogger(__name__)
ViewFunction = Callable[[InspectedModel, Any], dict[str, Any]]
VIEWS: dict[str, ViewFunction] = {
    "attention": attention_maps.attention,
    "output": attention_maps.output,
    "heads": head_scores.head_scores,
    "ablation": component_ranking.ablation_view,
    "patch": attribution.activation_patching,
    "lens": attribution.lens,
    "contributions": attribution.logit_attribution,
    "trace": stages.trace,
    "attention-scores": stages.attention_scores,
    "embeddings": embedding_maps.embeddings,
    "parameters": parameters.parameters,
    "gates": gates.gates,
}


def render_view(subject: InspectedModel, view: object, request: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a view, or an `error` for an invalid request; other errors are logged."""
    if not isinstance(view, str) or view not in VIEWS:
        return {"error": f"{str(view)[:40]!r} is not a view; choose one of {', '.join(VIEWS)}"}
    try:
        request_type = get_type_hints(VIEWS[view])["request"]
        return VIEWS[view](subject, parse(request_type, request))
    except NotApplicableError as error:
        with contextlib.suppress(UserError):  # of an invalid sequence
            example = parse(SequenceRequest, request).example(subject)
            error.details |= answer_fields(example, of_own_layers=True)
        return error_response(error)
    except UserError as error:
        return error_response(error)
    except ValueError:
        log.exception("view %s failed", view)
        return {
            "error": f"the view {view!r} failed by a fault of the program; the log has the "
            "details; try another view or sequence"
        }
