"""ZeroGPU as far as it matters here, in the manner of the package `spaces`: what is decorated runs in a process forked from this one,
which is used again while it lives; arguments and results are pickled; it may be called where a visitor's request is known only; and
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

REQUEST: contextvars.ContextVar[Any] = contextvars.ContextVar("request")  # whose event it is; threads of ours do not have it


class Trouble(Exception):
    """As Gradio's error, which `spaces` raises: a title beside the message."""

    def __init__(self, message: str, title: str = "Error") -> None:
        super().__init__(message)
        self.message, self.title = message, title


class Zero:
    """Lends its GPU, which is none, for `duration` seconds at a time."""

    def __init__(self, task: Callable[..., Any], duration: float) -> None:
        self.task, self.duration = task, duration
        self.calls: list[Any] = []  # who asked
        self.pids: list[int] = []  # the process of each call
        self.refusal: Trouble | None = None  # what the next call gets instead
        self._process: Any = None
        self._pipe: Any = None
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        if (who := REQUEST.get(None)) is None:
            raise LookupError("no visitor's event called for a GPU")
        self.calls.append(who)
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        with self._lock:
            data = pickle.dumps(arguments)
            if self._process is None or not self._process.is_alive():
                start = multiprocessing.get_context("fork")
                self._pipe, theirs = start.Pipe()
                self._process = start.Process(target=self._serve, args=(theirs,), daemon=True)
                self._process.start()
                theirs.close()
            self.pids.append(self._process.pid)
            self._pipe.send_bytes(data)
            over = threading.Timer(self.duration, self.kill)
            over.start()
            try:
                kind, result = pickle.loads(self._pipe.recv_bytes())
            except EOFError:
                raise Trouble("GPU task aborted", "ZeroGPU worker error") from None
            finally:
                over.cancel()
        if kind == "error":
            raise Trouble(result, "ZeroGPU worker error")
        return result

    def kill(self) -> None:
        if self._process is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.join(10)

    def _serve(self, pipe: Connection) -> None:
        self._pipe.close()  # of the parent, whose end then ends this process as well
        while True:
            try:
                arguments = pickle.loads(pipe.recv_bytes())
            except EOFError:
                return
            answer: list[Any] = []

            def work(arguments: Any = arguments, answer: list[Any] = answer) -> None:
                try:
                    answer[:] = ["ok", self.task(*arguments)]
                except Exception as error:
                    answer[:] = ["error", type(error).__name__]

            thread = threading.Thread(target=work)  # as there: not the main thread of the process
            thread.start()
            thread.join()
            pipe.send_bytes(pickle.dumps(answer))
