"""How many processor threads a run takes its steps with: tried out now and then, since it depends on the model, on the machine, and on
who else is at work there. Two threads are nearly twice as quick as one, or many times slower where a neighbour keeps a core busy."""

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

# What is taken instead of trying, for servers with many visitors; 0 tries.
GIVEN = int(env_number("THREADS"))
FIRST_AT = 10  # updates before the first try, so that what is made once has been made, and the pace so far is known
ROUNDS = 5  # tries of each number, in turn
HOPELESS = (
    1.5  # a number that takes so many times as long as the best one is not tried again in this turn
)
WORTH = 0.75  # another number must take less than this share of the time, as what is measured leaves out what others do meanwhile
AGAIN = 10.0  # seconds after which it is tried again,
SHARE = 50  # or so many times as long as trying took, if that is more
PACE = 10  # steps whose median is the pace before and after a change:
KEPT_FREE = 100  # changes of a run that are left to its owner
KEPT = 0.9  # where the steps then do not take less than this share of the time, the change is taken back, and trying waits twice as long


def numbers() -> list[int]:
    """What is tried: 1, 2, 4, ... and as many as there are cores for this process."""
    cores = usable_cores()
    return sorted({count for power in range(8) if (count := 2**power) <= cores} | {cores})


class ThreadChoice:
    """Finds a run's number of threads and changes it. The change is one of the run's own, at a step, so that it is kept in checkpoints
    and a resumed or repeated run takes the same steps to the bit. Trying takes the arithmetic of a step by itself; whether the run, with
    all else that it does, is really quicker shows in its steps, and where it is not, the number goes back to what it was.

    Where the setting says a number, or the run is on a GPU, it stays; and so it does on several processes, for they share the cores, and
    a step of one alone is none.
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
        self.patience = 1.0  # how many times as long as usual trying waits
        self.seen = trainer.step_count, trainer.seconds
        self.pace = deque[float](maxlen=PACE)  # seconds of the latest steps
        self.on_trial: tuple[int, float] | None = (
            None  # the number before the latest change, and the seconds of a step then
        )

    def look(self) -> bool:
        """Between two steps: try, if it is time to. Returns whether the number changed."""
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
        """Note what the latest step took."""
        step, seconds = self.trainer.step_count, self.trainer.seconds
        if step > self.seen[0]:
            self.pace.append((seconds - self.seen[1]) / (step - self.seen[0]))
        self.seen = step, seconds

    def _change(self, number: int) -> bool:
        self.trainer.change("threads", number)
        self.pace.clear()
        return True


def time_of_steps(trainer: Trainer, numbers: list[int]) -> dict[int, float]:
    """Seconds that the arithmetic of a step takes with each number of threads, the median of a few tries in turn. Nothing of
    the run is changed by it: neither weights nor what will be drawn."""
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
