"""What a page shows of a model, view by view, as plain numbers. A view is a function of a subject and a request; the request comes
from anybody's browser and is read with care."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playground.inspection.subject import NotInspectable, Subject
from playground.tasks import UnknownSymbol

from . import looking, proof, walked

View = Callable[[Subject, dict[str, Any]], dict[str, Any]]
VIEWS: dict[str, View] = {**looking.VIEWS, **proof.VIEWS, **walked.VIEWS}
NEEDS_HISTORY = ("heads-over-training",)  # `request["history"]` is {step: file of weights} for these


def show(subject: Subject, view: object, request: dict[str, Any]) -> dict[str, Any]:
    """One view's data; what is wrong with the request comes back as `error`."""
    if not isinstance(view, str) or view not in VIEWS:
        return {"error": f"{str(view)[:40]!r} is no view; there are {', '.join(VIEWS)}"}
    try:
        return VIEWS[view](subject, request)
    except (UnknownSymbol, NotInspectable, ValueError) as error:
        return {"error": str(error)}
