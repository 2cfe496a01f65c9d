"""What a page shows of a model, view by view, as plain numbers. A view is a function of a subject and a request; the request comes
from anybody's browser and is read with care."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from playground.inspection.subject import NotInspectable, Subject
from playground.tasks import UnknownSymbol
from playground.tasks.rows import RowsError
from playground.training.manifest import CheckpointError

from . import looking, proof, walked

log = logging.getLogger(__name__)
View = Callable[[Subject, dict[str, Any]], dict[str, Any]]
VIEWS: dict[str, View] = {**looking.VIEWS, **proof.VIEWS, **walked.VIEWS}
NEEDS_HISTORY = (
    "heads-over-training",
)  # `request["history"]` is {step: file of weights} for these


def show(subject: Subject, view: object, request: dict[str, Any]) -> dict[str, Any]:
    """One view's data; what is wrong with the request comes back as `error`.

    Any other ValueError is a bug: it is logged, and the answer says that it is none of the visitor's mistakes.
    """
    if not isinstance(view, str) or view not in VIEWS:
        return {"error": f"{str(view)[:40]!r} is no view; there are {', '.join(VIEWS)}"}
    try:
        return VIEWS[view](subject, request)
    except (UnknownSymbol, NotInspectable, CheckpointError, RowsError) as error:
        return {"error": str(error)}
    except ValueError:
        log.exception("view %s failed", view)
        return {
            "error": f"the view {view!r} failed by a fault of the program, which its log describes; try another view or sequence"
        }
