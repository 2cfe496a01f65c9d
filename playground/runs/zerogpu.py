"""Training on ZeroGPU: Hugging Face assigns a GPU for seconds to a user's event handler.

Such a handler runs in a process forked from the server process, or in one forked for an earlier
slice. Its arguments are pickled, and the two processes share no state. A slice is therefore a
worker like any other (`training_worker.py`). It resumes a run from its folder, communicates over a
socket instead of a pipe, and saves and exits at its time limit. The next slice resumes there, bit
for bit as far as the device allows.

The server process must not use CUDA, and no thread of it may request the GPU: the quota is the
user's, whom the request of the event identifies. Hence the page requests every slice
(`Supervisor.run_slice`).
"""

import logging
import os
import queue
import re
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Listener
from types import SimpleNamespace

from playground.common.devices import is_zero_gpu
from playground.common.env import env_number
from playground.jobs.process import OUTBOX_SIZE, WorkerProcess

from .worker_protocol import WorkerSpec

log = logging.getLogger(__name__)

SLICE_SECONDS = env_number("ZERO_SECONDS")  # seconds of training in a slice
SLICE_MARGIN_S = 15.0  # extra seconds requested: to start the GPU, evaluate and save
EXIT_TIMEOUT_S = 10.0  # seconds for the last messages of a slice that has ended

SliceRunner = Callable[[str, bytes, WorkerSpec], None]

# Error titles of the package `spaces`, and our messages; its own message follows.
ERROR_TITLES = {
    "ZeroGPU quota exceeded": "the GPU time that ZeroGPU grants a user is used up",
    "ZeroGPU pending credits exceeded": "too much GPU time of yours is in use elsewhere",
    "ZeroGPU illegal duration": "ZeroGPU does not lend a GPU for so long at a time",
    "ZeroGPU queue timeout": "no GPU was free",
    "ZeroGPU client error": "no GPU was available",
    "ZeroGPU worker error": "the slice was interrupted",
}


def run_slice(address: str, key: bytes, spec: WorkerSpec) -> None:
    """Train one slice, in the process that has the GPU.

    Args:
        address: the socket on which the server process listens.
        key: the authentication key of that socket.
    """
    from .training_worker import run_job

    run_job(Client(address, authkey=key), spec)


def zerogpu_decorated() -> SliceRunner:
    """Return `run_slice` with a GPU. Only this function imports the package `spaces`.

    Call it before the app launches: the launch reports to ZeroGPU the functions that need a GPU.
    """
    import spaces

    decorated: SliceRunner = spaces.GPU(duration=SLICE_SECONDS + SLICE_MARGIN_S)(run_slice)
    return decorated


def find_slice_runner() -> tuple[SliceRunner | None, str]:
    """Return the lender of ZeroGPU slices, and a note for users if it is unavailable.

    The import of `spaces` forks a process, so this must run before the app starts threads and
    processes. If the import fails, this process and its children treat the Space as one without
    ZeroGPU, and runs train on the CPU.
    """
    if not is_zero_gpu():
        return None, ""
    try:
        return zerogpu_decorated(), ""
    except Exception as error:  # the import calls ZeroGPU's API
        log.exception("ZeroGPU is not available")
        os.environ.pop("SPACES_ZERO_GPU")
        return None, f"ZeroGPU is not available ({type(error).__name__}). Runs train on the CPU."


class ZeroGpuWorker(WorkerProcess):
    """The handle of a slice: a child whose process belongs to ZeroGPU."""

    def __init__(self, name: str, on_message: Callable[..., None]) -> None:
        self.exited = threading.Event()
        self.process = SimpleNamespace(pid=None, name=name)
        self._kill_requested = False
        self._outbox = queue.Queue(OUTBOX_SIZE)
        self._on_message = on_message

    def run(self, slice_runner: SliceRunner, spec: WorkerSpec) -> Exception | None:
        """Train the slice, and return its error or None. Blocks the thread of the event."""
        key, failure = secrets.token_bytes(32), None
        with Listener(family="AF_UNIX", authkey=key) as listener:
            address = str(listener.address)
            serving = threading.Thread(
                target=self._accept_loop, args=(listener,), name=self.process.name, daemon=True
            )
            serving.start()
            try:
                slice_runner(address, key, spec)
            except Exception as error:  # any error of `spaces`; the run survives it
                failure = error
            finally:
                with suppress(OSError), socket.socket(socket.AF_UNIX) as no_client:
                    no_client.connect(address)  # unblocks a pending `accept`
                serving.join(EXIT_TIMEOUT_S)
        return failure

    def kill(self) -> None:
        """Close the connection, so that the worker saves and exits.

        ZeroGPU ends a worker that does not respond, at the end of its time.
        """
        self._kill_requested = True
        if (pipe := getattr(self, "_connection", None)) is not None:
            with suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def _accept_loop(self, listener: Listener) -> None:
        try:
            self._connection = listener.accept()
        except (OSError, EOFError):  # the worker never connected
            return
        writing = threading.Thread(
            target=self._send_loop, name=f"{self.process.name}-write", daemon=True
        )
        writing.start()
        if self._kill_requested:
            self.kill()
        try:
            self._receive_loop()
        finally:
            with suppress(queue.Full):
                self._outbox.put_nowait(None)  # ends `_send_loop`
            self._connection.close()


def describe_error(error: Exception) -> str:
    """Return the error of a slice as a sentence.

    `spaces` raises Gradio's errors, some of which contain HTML.
    """
    title, reason = getattr(error, "title", ""), str(getattr(error, "message", "") or error)
    reason = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", reason)).strip().rstrip(".")
    meant = ERROR_TITLES.get(title, "the GPU was not available")
    return f"{meant} ({reason or type(error).__name__})"
