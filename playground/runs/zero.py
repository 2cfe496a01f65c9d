"""Training on ZeroGPU: a GPU that Hugging Face lends to a Space for seconds at a time, to what a visitor's event calls.

What such an event calls runs in a process that is forked from the page's own, or in one that was forked for an earlier slice;
arguments are pickled, and nothing that changes there changes here. So a slice is a worker like any other (worker.py), which takes a
run up where its folder says it stands, speaks over a socket instead of a pipe, and after so many seconds saves and leaves. The next
slice goes on from there, to the bit as far as the device allows.

The page's process must not touch CUDA, nor may a thread of ours ask for the GPU: the quota is the visitor's, and who that is stands in
the request of the event. Hence the page asks for every slice (`Registry.run_slice`).
"""

from __future__ import annotations

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

from playground.training.devices import on_zero
from playground.training.environment import env_number

from .processes import UNSENT, Child
from .run import Order

log = logging.getLogger(__name__)

SLICE = env_number("ZERO_SECONDS")  # seconds of training in a slice
MARGIN = 15.0  # seconds more that are asked for: to wake the GPU, to score and to save
LEAVES_WITHIN = 10.0  # seconds for the last words of a slice that is over

Lender = Callable[[str, bytes, Order], None]

# How the package `spaces` titles what went wrong, and what that means here; what it says itself comes after.
TITLES = {
    "ZeroGPU quota exceeded": "the GPU time that ZeroGPU grants a visitor is used up",
    "ZeroGPU pending credits exceeded": "too much GPU time of yours is in use elsewhere",
    "ZeroGPU illegal duration": "ZeroGPU does not lend a GPU for so long at a time",
    "ZeroGPU queue timeout": "no GPU was free",
    "ZeroGPU client error": "no GPU was to be had",
    "ZeroGPU worker error": "the slice was cut off",
}


def train_slice(address: str, key: bytes, order: Order) -> None:
    """One slice, in whatever process the GPU is lent to. `address` and `key`: where the page's process listens, and its proof."""
    from .worker import attend

    attend(Client(address, authkey=key), order)


def borrow() -> Lender:
    """`train_slice` with a GPU: the one place that knows the package `spaces`, which a Space on ZeroGPU has and nobody else needs.
    To be called before the page is launched, which tells ZeroGPU that there is something to lend a GPU to."""
    import spaces

    lent: Lender = spaces.GPU(duration=SLICE + MARGIN)(train_slice)
    return lent


def find_lender() -> tuple[Lender | None, str]:
    """The lender of ZeroGPU slices, and a note for visitors if there should be one and is not.

    `spaces` forks a process while it is imported, so this must run before the app starts threads and processes. If the import fails,
    this process and its children take the Space for one without ZeroGPU, and runs train on the CPU.
    """
    if not on_zero():
        return None, ""
    try:
        return borrow(), ""
    except Exception as error:  # the package talks to ZeroGPU's API while it is imported
        log.exception("ZeroGPU is not available")
        os.environ.pop("SPACES_ZERO_GPU")
        return None, f"ZeroGPU is not available ({type(error).__name__}). Runs train on the CPU."


class Slice(Child):
    """A slice as the registry sees it: it is spoken to like any child, but its process is ZeroGPU's."""

    def __init__(self, name: str, on_message: Callable[..., None]) -> None:
        self.ended = threading.Event()
        self.process = SimpleNamespace(pid=None, name=name)
        self._doomed = False
        self._unsent = queue.Queue(UNSENT)
        self._on_message = on_message

    def run(self, lender: Lender, order: Order) -> Exception | None:
        """Have it trained; returns when it is over, with what went wrong, if anything did. In the thread of a visitor's event."""
        key, trouble = secrets.token_bytes(32), None
        with Listener(family="AF_UNIX", authkey=key) as listener:
            address = str(listener.address)
            serving = threading.Thread(
                target=self._serve, args=(listener,), name=self.process.name, daemon=True
            )
            serving.start()
            try:
                lender(address, key, order)
            except Exception as error:  # whatever `spaces` raises; a run outlives it
                trouble = error
            finally:
                with suppress(OSError), socket.socket(socket.AF_UNIX) as nobody:
                    nobody.connect(address)  # wakes who still waits for somebody to come
                serving.join(LEAVES_WITHIN)
        return trouble

    def kill(self) -> None:
        """Hang up: the worker saves and leaves. What does not even notice that is ended by ZeroGPU, whose time it is."""
        self._doomed = True
        if (pipe := getattr(self, "_pipe", None)) is not None:
            with suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def _serve(self, listener: Listener) -> None:
        try:
            self._pipe = listener.accept()
        except (OSError, EOFError):  # it never came
            return
        writing = threading.Thread(
            target=self._write, name=f"{self.process.name}-write", daemon=True
        )
        writing.start()
        if self._doomed:
            self.kill()
        try:
            self._hear()
        finally:
            with suppress(queue.Full):
                self._unsent.put_nowait(None)  # lets _write end
            self._pipe.close()


def in_words(trouble: Exception) -> str:
    """What went wrong with a slice, as a sentence; `spaces` raises Gradio's errors, some with a little HTML in them."""
    title, said = getattr(trouble, "title", ""), str(getattr(trouble, "message", "") or trouble)
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", said)).strip().rstrip(".")
    meant = TITLES.get(title, "the GPU was not to be had")
    return f"{meant} ({said or type(trouble).__name__})"
