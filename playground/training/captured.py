"""Many training steps as CUDA graph replays, without synchronization.

A step of a small model is thousands of small kernels, and a GPU runs each faster than Python can
launch the next. A CUDA graph (Gray 2019, "Getting Started with CUDA Graphs", NVIDIA's developer
blog; torch.cuda.CUDAGraph) captures a whole step once, including data and optimizer, and replays it
with one call. The captured work must not read values back from the GPU. So the learning rates of
the next steps are copied to the GPU beforehand, and the results that `Trainer.step` would read at
once are written to a ring buffer there and read afterwards.

Letter of shapes: in this file K counts steps, at most RING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import torch

from playground.families.family import Family
from playground.tasks import PAD
from playground.tasks.task import Batch

from .config import TrainConfig
from .update import update

RING = 256  # maximum number of steps before the results are read from the device
WARM_UP = 3  # eager steps before the capture, in which libraries and optimizer initialize

Work = Callable[[], None]


class Told(NamedTuple):
    """The results of one step."""

    loss: float
    norm: float  # norm of the gradient before clipping
    tokens: int  # target tokens without PAD


class CapturedSteps:
    """The steps of one run, captured after the first few. They do what calls of `update` do.

    `draw` samples the next batch on the device, with `generators`, which the capture must know.
    `capture` turns the work of a step into a callable that repeats it; tests on a CPU pass one that
    calls it again.
    """

    def __init__(
        self,
        family: Family,
        optimizer: torch.optim.Optimizer,
        training: TrainConfig,
        draw: Callable[[], Batch],
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        capture: Callable[[Work, Sequence[torch.Generator]], Work] | None = None,
    ) -> None:
        self.family, self.optimizer, self.training, self.draw = family, optimizer, training, draw
        self.device, self.generators, self.capture = device, generators, capture or captured
        self.rates_K = torch.zeros(RING, device=device)
        self.told_K3 = torch.zeros(RING, 3, dtype=torch.double, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)  # index of the step in the ring
        self.rate = torch.zeros((), device=device)
        # True after a step that was not finite; the following steps of this call change nothing
        self.spoiled = torch.zeros((), dtype=torch.bool, device=device)
        self.warm_up_left = WARM_UP
        self.replay: Work | None = None
        self.refusal = ""  # why the capture failed, if it did; the steps then run eagerly

    def run(self, rates: Sequence[float]) -> list[Told]:
        """Run a step at each of these learning rates, at most RING.

        If a step is not finite, its result is the last one, and the weights are those before it.
        """
        count = len(rates)
        self.rates_K[:count] = torch.tensor(rates)
        self.at.zero_()
        self.spoiled.zero_()
        for _ in rates:
            self._one()
        told_K3 = self.told_K3[:count].cpu()  # the only synchronization with the device
        finite_K = told_K3[:, :2].isfinite().all(1)
        count = count if bool(finite_K.all()) else int(finite_K.long().argmin()) + 1
        return [Told(loss, norm, int(tokens)) for loss, norm, tokens in told_K3[:count].tolist()]

    def _one(self) -> None:
        if self.warm_up_left:
            self.warm_up_left -= 1
            with aside(self.device):
                self._work()
            return
        if self.replay is None:
            self.replay = self._recorded()
        self.replay()

    def _work(self) -> None:
        """Run one whole step, as it is captured: all its tensors stay at the same addresses."""
        self.rate.copy_(self.rates_K.index_select(0, self.at)[0])
        batch = self.draw()
        loss, norm, finite = update(
            self.family, self.optimizer, batch, self.training, self.rate, self.spoiled
        )
        self.spoiled |= ~finite
        told_3 = torch.stack(
            [loss.double(), norm.double(), (batch.labels_BT != PAD).sum().double()]
        )
        self.told_K3.index_copy_(0, self.at, told_3[None])
        self.at += 1

    def _recorded(self) -> Work:
        """Return the step as one call.

        If the capture fails (an architecture or a task reads from the device), steps run eagerly.
        """
        kept = [generator.get_state() for generator in self.generators]
        groups = [group for group in self.optimizer.param_groups if "capturable" in group]
        for group in groups:
            group["capturable"] = True  # only during the capture, because PyTorch warns otherwise
        try:
            return self.capture(self._work, self.generators)
        except RuntimeError as error:
            self.refusal = str(error).splitlines()[0]
            for generator, state in zip(self.generators, kept, strict=True):
                generator.set_state(state)
            return self._work
        finally:
            for group in groups:
                group["capturable"] = False


def captured(work: Work, generators: Sequence[torch.Generator]) -> Work:
    """Capture `work` as a CUDA graph, without running it.

    Raises:
        RuntimeError: if the work reads a value from the device.
    """
    graph, pool, before = (
        torch.cuda.CUDAGraph(),
        torch.cuda.graph_pool_handle(),
        torch.cuda.current_stream(),
    )
    for generator in generators:
        graph.register_generator_state(generator)
    cause: RuntimeError | None = None
    try:
        with torch.cuda.graph(graph, pool=pool):
            try:
                work()
            except RuntimeError as error:
                # the end of the capture raises another error, which does not contain the cause
                cause = error
                raise
    except RuntimeError:
        # a failed capture leaves its own stream, and its memory pool, in use
        torch.cuda.set_stream(before)
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(before.device_index, pool)
        if cause is not None:
            raise cause from None
        raise
    return graph.replay


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """Use a side stream during a `with` block.

    PyTorch's notes on CUDA graphs require it for the warm-up. On a CPU it does nothing.
    """
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
