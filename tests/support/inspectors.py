"""The inspection process of a registry, without a process."""

from concurrent.futures import Future

from playground.runs.inspector_process import Inspector


class InProcessInspector:
    """Run the inspection process in this process; its errors fail the test."""

    def __init__(self):
        self.inspector = Inspector()

    def request(self, kind, target, text="", **_):
        future = Future()
        future.set_result(
            self.inspector.dispatch(
                kind, target if isinstance(target, dict) else {"checkpoint": str(target)}, text
            )
        )
        return future

    close = stop = warm_up = lambda self: None
