"""ZeroGPU as far as it matters here, in the manner of the package `spaces`: what is decorated runs
in a process forked from this one, which is used again while it lives; arguments and results are
pickled; it may be called where a user's request is known only; and
it is ended when its time is over."""

from __future__ import annotations

import contextvars
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

# whose event it is; threads of ours do not have it
CURRENT_REQUEST: contextvars.ContextVar[Any] = contextvars.ContextVar("request")


class ZeroGpuError(Exception):
    """As Gradio's error, which `spaces` raises: a title beside the message."""

    def __init__(self, message: str, title: str = "Error") -> None:
        super().__init__(message)
        self.message, self.title = message, title


class FakeZeroGpu:
    """Lends its GPU, which is none, for `duration` seconds at a time."""

    def __init__(self, task: Callable[..., Any], duration: float) -> None:
        self.task, self.duration = task, duration
        self.calls: list[Any] = []  # callers
        self.pids: list[int] = []  # the process of each call
        self.next_error: ZeroGpuError | None = None  # what the next call gets instead
        self._process: Any = None
        self._connection: Any = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        if (request := CURRENT_REQUEST.get(None)) is None:
            raise LookupError("no user's event called for a GPU")
        self.calls.append(request)
        if self.next_error is not None:
            error, self.next_error = self.next_error, None
            raise error
        with self._lock:
            data = pickle.dumps(args)
            if self._process is None or not self._process.is_alive():
                context = multiprocessing.get_context("fork")
                self._connection, child_end = context.Pipe()
                self._process = context.Process(target=self._serve, args=(child_end,), daemon=True)
                self._process.start()
                child_end.close()
            self.pids.append(self._process.pid)
            self._connection.send_bytes(data)
            timer = threading.Timer(self.duration, self.kill)
            timer.start()
            try:
                kind, result = pickle.loads(self._connection.recv_bytes())
            except EOFError:
                raise ZeroGpuError("GPU task aborted", "ZeroGPU worker error") from None
            finally:
                timer.cancel()
        if kind == "error":
            raise ZeroGpuError(result, "ZeroGPU worker error")
        return result

    def kill(self) -> None:
        if self._process is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.join(10)

    def _serve(self, connection: Connection) -> None:
        self._connection.close()  # of the parent, whose end then ends this process as well
        while True:
            try:
                arguments = pickle.loads(connection.recv_bytes())
            except EOFError:
                return
            response: list[Any] = []

            def run_task(arguments: Any = arguments, answer: list[Any] = response) -> None:
                try:
                    answer[:] = ["ok", self.task(*arguments)]
                except Exception as error:
                    answer[:] = ["error", type(error).__name__]

            # as there: not the main thread of the process
            thread = threading.Thread(target=run_task)
            thread.start()
            thread.join()
            connection.send_bytes(pickle.dumps(response))
