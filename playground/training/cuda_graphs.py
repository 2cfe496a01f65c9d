"""Many training steps as CUDA graph replays, without synchronization.

A step of a small model is thousands of small kernels, and a GPU runs each faster than Python can
launch the next. A CUDA graph (Gray 2019, "Getting Started with CUDA Graphs", NVIDIA's developer
blog; torch.cuda.CUDAGraph) captures a whole step once, including data and optimizer, and replays it
with one call. The captured work must not read values back from the GPU. So the learning rates of
the next steps are copied to the GPU beforehand, and the results that `Trainer.step` would read at
once are written to a ring buffer there and read afterwards.

Letter of shapes: in this file K counts steps, at most RING.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import torch

from playground.architectures.base import Seq2SeqModel
from playground.tasks import PAD
from playground.tasks.task import Batch

from .train_config import TrainConfig
from .train_step import train_step
from .weight_averaging import WeightAverage, averaging_rate

RING_SIZE = 256  # maximum number of steps before the results are read from the device
WARMUP_STEPS = 3  # eager steps before the capture, in which libraries and optimizer initialize

StepFunction = Callable[[], None]


class StepResult(NamedTuple):
    loss: float
    grad_norm: float  # norm of the gradient before clipping
    tokens: int  # target tokens without PAD


class CudaGraphSteps:
    """The steps of one run, captured after the first few. They do what calls of `update` do.

    `next_batch` samples the next batch on the device, with `generators`, which the capture must
    know. `capture` turns the work of a step into a callable that repeats it; tests on a CPU pass
    one that calls it again.
    """

    def __init__(
        self,
        model: Seq2SeqModel,
        optimizer: torch.optim.Optimizer,
        training: TrainConfig,
        next_batch: Callable[[], Batch],
        device: torch.device,
        generators: Sequence[torch.Generator] = (),
        capture: Callable[[StepFunction, Sequence[torch.Generator]], StepFunction] | None = None,
        average: WeightAverage | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.training = training
        self.next_batch = next_batch
        self.device = device
        self.generators = generators
        self.capture = capture or capture_cuda_graph
        self.average = average
        self.lrs_R = torch.zeros(RING_SIZE, device=device)
        self.averaging_rates_R = torch.zeros(RING_SIZE, device=device)
        self.results_R3 = torch.zeros(RING_SIZE, 3, dtype=torch.double, device=device)
        # index of the step in the ring
        self.index = torch.zeros(1, dtype=torch.long, device=device)
        self.lr = torch.zeros((), device=device)
        # True after a step that was not finite; the following steps of this call change nothing
        self.diverged = torch.zeros((), dtype=torch.bool, device=device)
        self.warmup_steps_left = WARMUP_STEPS
        self.replay: StepFunction | None = None
        self.capture_error = ""  # why the capture failed, if it did; the steps then run eagerly

    def run(self, lrs: Sequence[float], first_step: int = 1) -> list[StepResult]:
        """Run a step at each of these learning rates, at most RING; `first_step` is the first.

        If a step is not finite, its result is the last one, and the weights are those before it.
        """
        count = len(lrs)
        self.lrs_R[:count] = torch.tensor(lrs)
        self.averaging_rates_R[:count] = torch.tensor(
            [averaging_rate(first_step + i) for i in range(count)]
        )
        self.index.zero_()
        self.diverged.zero_()
        for _ in lrs:
            self._run_one()
        results_R3 = self.results_R3[:count].cpu()  # the only synchronization with the device
        is_finite_R = results_R3[:, :2].isfinite().all(1)
        count = count if bool(is_finite_R.all()) else int(is_finite_R.long().argmin()) + 1
        return [
            StepResult(loss, norm, int(tokens))
            for loss, norm, tokens in results_R3[:count].tolist()
        ]

    def _run_one(self) -> None:
        if self.warmup_steps_left:
            self.warmup_steps_left -= 1
            with side_stream(self.device):
                self._parse_step()
            return
        if self.replay is None:
            self.replay = self._capture()
        self.replay()

    def _parse_step(self) -> None:
        """Run one whole step, as it is captured: all its tensors stay at the same addresses."""
        self.lr.copy_(self.lrs_R.index_select(0, self.index)[0])
        batch = self.next_batch()
        loss, grad_norm, is_finite = train_step(
            self.model, self.optimizer, batch, self.training, self.lr, self.diverged
        )
        self.diverged |= ~is_finite
        if self.average is not None:
            rate = self.averaging_rates_R.index_select(0, self.index)[0]
            self.average.update(rate * ~self.diverged)
        result_3 = torch.stack(
            [loss.double(), grad_norm.double(), (batch.labels_BT != PAD).sum().double()]
        )
        self.results_R3.index_copy_(0, self.index, result_3[None])
        self.index += 1

    def _capture(self) -> StepFunction:
        """Return the step as one call.

        If the capture fails (an architecture or a task reads from the device), steps run eagerly.
        """
        generator_states = [generator.get_state() for generator in self.generators]
        groups = [group for group in self.optimizer.param_groups if "capturable" in group]
        for group in groups:
            group["capturable"] = True  # only during the capture, because PyTorch warns otherwise
        try:
            return self.capture(self._parse_step, self.generators)
        except RuntimeError as error:
            self.capture_error = str(error).splitlines()[0]
            for generator, state in zip(self.generators, generator_states, strict=True):
                generator.set_state(state)
            return self._parse_step
        finally:
            for group in groups:
                group["capturable"] = False


def capture_cuda_graph(step: StepFunction, generators: Sequence[torch.Generator]) -> StepFunction:
    """Capture `step` as a CUDA graph, without running it.

    Raises:
        RuntimeError: if the work reads a value from the device.
    """
    graph = torch.cuda.CUDAGraph()
    pool = torch.cuda.graph_pool_handle()
    original_stream = torch.cuda.current_stream()
    for generator in generators:
        graph.register_generator_state(generator)
    original_error: RuntimeError | None = None
    try:
        with torch.cuda.graph(graph, pool=pool):
            try:
                step()
            except RuntimeError as error:
                # the end of the capture raises another error, which does not contain the cause
                original_error = error
                raise
    except RuntimeError:
        # a failed capture leaves its own stream, and its memory pool, in use
        torch.cuda.set_stream(original_stream)
        with suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(original_stream.device_index, pool)
        if original_error is not None:
            raise original_error from None
        raise
    return graph.replay


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
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
