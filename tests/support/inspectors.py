"""The inspection process of a registry, without a process, and its views as responses."""

from concurrent.futures import Future

from playground.errors import UserError, error_response
from playground.inspection import views
from playground.runs.inspector_process import Inspector


def respond(function, *arguments):
    """Return what a function returns, or the response of its UserError."""
    try:
        return function(*arguments)
    except UserError as error:
        return error_response(error)


def render_view(subject, view, request):
    return respond(views.render_view, subject, view, request)


class InProcessInspector:
    """Run the inspection process in this process; its errors fail the test."""

    def __init__(self):
        self.inspector = Inspector()

    def request(self, kind, target, text="", **_):
        future = Future()
        future.set_result(
            respond(
                self.inspector.dispatch,
                kind,
                target if isinstance(target, dict) else {"checkpoint": str(target)},
                text,
            )
        )
        return future

    close = stop = warm_up = lambda self: None
