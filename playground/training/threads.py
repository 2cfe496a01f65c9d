"""Chooses the number of CPU threads of a run, by measurements now and then.

The best number depends on the model, on the machine, and on other processes. Two threads are nearly
twice as fast as one, or many times slower if another process uses one of the cores.
"""

from __future__ import annotations

import time
from collections import deque
from statistics import median

import torch

from playground.tasks.held_out import training_batch

from .config import MOST_CHANGES
from .devices import usable_cores
from .environment import env_number
from .trainer import Trainer

# A fixed number instead of measurements, for servers with many users; 0 measures.
GIVEN = int(env_number("THREADS"))
FIRST_AT = 10  # steps before the first measurement, to initialize everything and know the speed
ROUNDS = 5  # measurements of each number, in turn
HOPELESS = 1.5  # a number that takes this many times as long as the best is not measured again
# Another number must take less than this fraction of the time. The measurement does not include the
# effect of other processes over time.
WORTH = 0.75
AGAIN = 10.0  # seconds between two tunings
SHARE = 50  # ... and at least this many times the duration of a tuning
PACE = 10  # steps whose median is the speed before and after a change
KEPT_FREE = 100  # changes of a run that are reserved for its owner
# If steps do not take less than this fraction of the time after a change, the change is reverted,
# and the wait for the next tuning doubles.
KEPT = 0.9


def numbers() -> list[int]:
    """Return the candidates: 1, 2, 4, ... and the number of cores of this process."""
    cores = usable_cores()
    return sorted({count for power in range(8) if (count := 2**power) <= cores} | {cores})


class ThreadChoice:
    """Finds and sets the number of threads of a run.

    Each change is a setting change of the run at a step. So checkpoints store it, and a resumed or
    repeated run has exactly the same results. A tuning measures the arithmetic of a step alone. The
    following steps show whether the run as a whole is faster; if not, the change is reverted.

    The number stays if the setting fixes it or the run is on a GPU. It also stays with several
    processes, because they share the cores, and a single one cannot run a step alone.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        chosen = (
            trainer.config.training.threads
            or trainer.device.type != "cpu"
            or trainer.ranks.size > 1
        )
        self.numbers = (
            []
            if chosen
            else [
                number
                for number in ([GIVEN] if GIVEN else numbers())
                if number <= trainer.most_threads
            ]
        )
        self.again_at = 0.0
        self.patience = 1.0  # factor on the time between two tunings
        self.seen = trainer.step_count, trainer.seconds
        self.pace = deque[float](maxlen=PACE)  # seconds of the latest steps
        # the number before the latest change, and the seconds of a step then
        self.on_trial: tuple[int, float] | None = None

    def look(self) -> bool:
        """Tune between two steps, if it is time to. Returns whether the number changed."""
        trainer = self.trainer
        if not self.numbers or not trainer.should_continue():
            return False
        self._time()
        if self.on_trial and len(self.pace) == PACE:
            before, took = self.on_trial
            self.on_trial = None
            if median(self.pace) > KEPT * took:
                self.patience *= 2
                self.again_at = time.monotonic() + AGAIN * self.patience
                return self._change(before)
            self.patience = 1.0
        if len(trainer.changes) >= MOST_CHANGES - KEPT_FREE:
            return False
        if trainer.step_count < FIRST_AT or time.monotonic() < self.again_at or self.on_trial:
            return False
        now, best, started = trainer.threads, self.numbers[0], time.monotonic()
        if len(self.numbers) > 1:
            taken = time_of_steps(trainer, sorted({*self.numbers, now}))
            quickest = min(taken, key=lambda number: taken[number])
            best = quickest if taken[quickest] < WORTH * taken[now] else now
        ended = time.monotonic()
        self.again_at = ended + max(AGAIN, SHARE * (ended - started)) * self.patience
        if best == now:
            return False
        if len(self.pace) == PACE:
            self.on_trial = now, median(self.pace)
        return self._change(best)

    def _time(self) -> None:
        """Record the duration of the latest step."""
        step, seconds = self.trainer.step_count, self.trainer.seconds
        if step > self.seen[0]:
            self.pace.append((seconds - self.seen[1]) / (step - self.seen[0]))
        self.seen = step, seconds

    def _change(self, number: int) -> bool:
        self.trainer.change("threads", number)
        self.pace.clear()
        return True


def time_of_steps(trainer: Trainer, numbers: list[int]) -> dict[int, float]:
    """Measure the seconds of a step's arithmetic with each number of threads.

    Each result is the median of a few measurements in turn. Neither the weights nor the random
    numbers of the run change.
    """
    config, taken = trainer.config, {number: list[float]() for number in numbers}
    generator = torch.Generator().manual_seed(config.training.seed)
    batch = training_batch(
        trainer.task,
        config.training.batch_size,
        config.task.min_length,
        config.task.max_length,
        generator,
    )
    try:
        with torch.random.fork_rng(devices=[]):
            for _ in range(ROUNDS):
                best = min((min(times) for times in taken.values() if times), default=0.0)
                for number in [
                    one for one in numbers if not taken[one] or min(taken[one]) <= HOPELESS * best
                ]:
                    torch.set_num_threads(number)
                    started = time.perf_counter()
                    trainer.family.loss(batch, config.training.label_smoothing).backward()
                    taken[number].append(time.perf_counter() - started)
                    trainer.optimizer.zero_grad()
    finally:
        torch.set_num_threads(trainer.threads)
    return {number: median(times) for number, times in taken.items()}
