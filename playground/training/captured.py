"""Many training steps in a row without a word to the device in between, each of them one CUDA graph.

A step of a small model is thousands of small kernels, and a GPU computes each sooner than Python can ask for the next. A CUDA graph
(Gray 2019, "Getting Started with CUDA Graphs", NVIDIA's developer blog; torch.cuda.CUDAGraph) records a whole step once, data and
optimizer too, and replays it with one call. What is recorded may not depend on an answer of the device. So the learning rates of the
steps to come lie on the device beforehand, and what `Trainer.step` asks at once is written there into a ring and read afterwards.

Shapes: K steps, of which the ring holds at most RING.
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

RING = 256  # steps that can be taken before the device is asked how they went
WARM_UP = 3  # steps taken plainly before one is recorded, in which libraries and optimizer make what they need once

Work = Callable[[], None]


class Told(NamedTuple):
    """What one step measured."""

    loss: float
    norm: float  # of the gradient, before clipping
    tokens: int  # of targets, PAD left out


class CapturedSteps:
    """The steps of one run, recorded after the first few. They do what as many calls of `update` do.

    `draw` makes the next batch on the device, from `generators` that the recording must know. `capture` turns the work of a step
    into something that repeats it; tests on a processor give one that calls it again.
    """

    def __init__(
        self, family: Family, optimizer: torch.optim.Optimizer, training: TrainConfig, draw: Callable[[], Batch], device: torch.device,
        generators: Sequence[torch.Generator] = (), capture: Callable[[Work, Sequence[torch.Generator]], Work] | None = None,
    ) -> None:  # fmt: skip
        self.family, self.optimizer, self.training, self.draw = family, optimizer, training, draw
        self.device, self.generators, self.capture = device, generators, capture or captured
        self.rates_K = torch.zeros(RING, device=device)
        self.told_K3 = torch.zeros(RING, 3, dtype=torch.double, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)  # the step's place in the ring
        self.rate = torch.zeros((), device=device)
        self.spoiled = torch.zeros(
            (), dtype=torch.bool, device=device
        )  # a step of this row was not finite: those behind it do nothing
        self.warm_up_left = WARM_UP
        self.replay: Work | None = None
        self.refusal = ""  # why the steps could not be captured, where they are taken plainly

    def run(self, rates: Sequence[float]) -> list[Told]:
        """A step at each of these learning rates, at most RING. Where one is not finite, it is the last that is told of, and the weights
        are those before it."""
        count = len(rates)
        self.rates_K[:count] = torch.tensor(rates)
        self.at.zero_()
        self.spoiled.zero_()
        for _ in rates:
            self._one()
        told_K3 = self.told_K3[:count].cpu()  # the only place where the device is waited for
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
        """The whole of a step, as it is recorded: everything it reads and writes keeps its place in memory."""
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
        """The step as one call. Where it cannot be recorded (a family or a task that asks the device), steps go on plainly."""
        kept = [generator.get_state() for generator in self.generators]
        groups = [group for group in self.optimizer.param_groups if "capturable" in group]
        for group in groups:
            group["capturable"] = True  # only now: outside of a recording it makes torch complain
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
    """`work` as a CUDA graph. Recording does not carry it out.

    Raises:
        RuntimeError: when the work asks the device for an answer on its way.
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
            except (
                RuntimeError
            ) as error:  # ending the recording raises another one, which does not say why
                cause = error
                raise
    except RuntimeError:
        torch.cuda.set_stream(
            before
        )  # a recording that fails at its end leaves its own stream, and its memory pool, in use
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(before.device_index, pool)
        if cause is not None:
            raise cause from None
        raise
    return graph.replay


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """On a stream of its own, as torch's notes on CUDA graphs ask of what warms up for a recording. On a processor, nothing."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)
