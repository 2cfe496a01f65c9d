"""A fake ZeroGPU that acts as the package `spaces`.

A task runs in a process forked from this one, which later calls reuse. Arguments and results are
pickled. A call needs the request of a user, and the process is killed after `duration` seconds.
"""

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

# the request of the current event; other threads have none
CURRENT_REQUEST: contextvars.ContextVar[Any] = contextvars.ContextVar("request")


class ZeroGpuError(Exception):
    """An error with a title and a message, as the Gradio error that `spaces` raises."""

    def __init__(self, message: str, title: str = "Error") -> None:
        super().__init__(message)
        self.message, self.title = message, title


class FakeZeroGpu:
    """Run a task without a GPU, for at most `duration` seconds."""

    def __init__(self, task: Callable[..., Any], duration: float) -> None:
        self.task, self.duration = task, duration
        self.calls: list[Any] = []  # callers
        self.pids: list[int] = []  # the process of each call
        self.next_error: ZeroGpuError | None = None  # raised by the next call
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
        self._connection.close()  # the end of the parent: this process exits with the parent
        while True:
            try:
                arguments = pickle.loads(connection.recv_bytes())
            except EOFError:
                return
            response: list[Any] = []

            def run_task(arguments: Any = arguments, result: list[Any] = response) -> None:
                try:
                    result[:] = ["ok", self.task(*arguments)]
                except Exception as error:
                    result[:] = ["error", type(error).__name__]

            # as `spaces` does, not in the main thread of the process
            thread = threading.Thread(target=run_task)
            thread.start()
            thread.join()
            connection.send_bytes(pickle.dumps(response))
