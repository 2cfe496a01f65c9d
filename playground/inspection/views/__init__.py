"""The views of the Inspect tab as plain data.

A view is a function of a subject and a request. Requests are untrusted input and are validated.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from playground.errors import UserError, error_response
from playground.inspection.inspected_model import InspectedModel, NotApplicableError

from . import (
    ablation,
    attention,
    attribution,
    embeddings,
    head_scores,
    parameters,
    recurrent,
    trace,
)
from .common import predict_answer

log = logging.getLogger(__name__)
ViewFunction = Callable[[InspectedModel, dict[str, Any]], dict[str, Any]]
VIEWS: dict[str, ViewFunction] = {
    **attention.VIEWS,
    **head_scores.VIEWS,
    **ablation.VIEWS,
    **attribution.VIEWS,
    **trace.VIEWS,
    **embeddings.VIEWS,
    **parameters.VIEWS,
    **recurrent.VIEWS,
}
# Views for which `request["history"]` is {step: file of weights}.
NEEDS_HISTORY = ("heads-over-training",)


def render_view(subject: InspectedModel, view: object, request: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a view, or an `error` for an invalid request.

    Any other ValueError is a bug. It is logged, and the error states that the request is not the
    cause.
    """
    if not isinstance(view, str) or view not in VIEWS:
        return {"error": f"{str(view)[:40]!r} is not a view; choose one of {', '.join(VIEWS)}"}
    try:
        return VIEWS[view](subject, request)
    except NotApplicableError as error:
        with contextlib.suppress(UserError):  # of an invalid sequence
            error.details |= predict_answer(subject, request, of_own_layers=True)
        return error_response(error)
    except UserError as error:
        return error_response(error)
    except ValueError:
        log.exception("view %s failed", view)
        return {
            "error": f"the view {view!r} failed by a fault of the program; the log has the "
            "details; try another view or sequence"
        }
