"""Chooses the number of CPU threads of a run, by repeated measurements.

The best number depends on the model, on the machine, and on other processes. Two threads are nearly
twice as fast as one, or many times slower if another process uses one of the cores.
"""

import time
from collections import deque
from statistics import median

import torch

from playground.common.devices import usable_cores
from playground.common.env import env_number
from playground.tasks.held_out import sample_training_batch

from .setting_changes import MAX_CHANGES
from .trainer import Trainer

# A fixed number instead of measurements, for servers with many users; 0 measures.
FORCED_THREADS = int(env_number("THREADS"))
FIRST_TUNING_STEP = (
    10  # steps before the first measurement, to initialize everything and know the speed
)
TRIALS = 5  # measurements of each number, interleaved
GIVE_UP_RATIO = 1.5  # a number that takes this many times as long as the best is not measured again
# Another number must take less than this fraction of the time. The measurement does not include the
# effect of other processes over time.
REQUIRED_RATIO = 0.75
MIN_INTERVAL = 10.0  # seconds between two tunings
INTERVAL_FACTOR = 50  # ... and at least this many times the duration of a tuning
CONTEXT_LENGTH = 10  # steps whose median is the speed before and after a change
RESERVED_CHANGES = 100  # changes of a run that are reserved for its owner
# If steps do not take less than this fraction of the time after a change, the change is reverted,
# and the wait for the next tuning doubles.
REVERT_RATIO = 0.9


def candidate_thread_counts() -> list[int]:
    """Return the candidates: 1, 2, 4, ... and the number of cores of this process."""
    cores = usable_cores()
    return sorted({count for power in range(8) if (count := 2**power) <= cores} | {cores})


class ThreadTuner:
    """Finds and sets the number of threads of a run.

    Each change is a setting change of the run at a step. So checkpoints store it, and a resumed or
    repeated run has exactly the same results. A tuning measures the arithmetic of a step alone. The
    following steps show whether the run as a whole is faster; if not, the change is reverted.

    The number stays if the setting fixes it or the run is on a GPU. It also stays with several
    processes, because they share the cores, and a single one cannot run a step alone.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        is_fixed = (
            trainer.config.training.num_threads
            or trainer.device.type != "cpu"
            or trainer.dist.world_size > 1
        )
        self.candidates = (
            []
            if is_fixed
            else [
                number
                for number in ([FORCED_THREADS] if FORCED_THREADS else candidate_thread_counts())
                if number <= trainer.max_threads
            ]
        )
        self.next_tuning_at = 0.0
        self.backoff = 1.0  # factor on the time between two tunings
        self.last_seen = trainer.step_count, trainer.seconds
        self.recent_step_times = deque[float](maxlen=CONTEXT_LENGTH)  # seconds of the latest steps
        # the number before the latest change, and the seconds of a step then
        self.trial: tuple[int, float] | None = None

    def maybe_tune(self) -> bool:
        """Tune between two steps, if it is time to. Returns whether the number changed."""
        trainer = self.trainer
        if not self.candidates or not trainer.should_continue():
            return False
        self._record_step_time()
        if self.trial and len(self.recent_step_times) == CONTEXT_LENGTH:
            previous, previous_seconds = self.trial
            self.trial = None
            if median(self.recent_step_times) > REVERT_RATIO * previous_seconds:
                self.backoff *= 2
                self.next_tuning_at = time.monotonic() + MIN_INTERVAL * self.backoff
                return self._set_threads(previous)
            self.backoff = 1.0
        if len(trainer.changes) >= MAX_CHANGES - RESERVED_CHANGES:
            return False
        if (
            trainer.step_count < FIRST_TUNING_STEP
            or time.monotonic() < self.next_tuning_at
            or self.trial
        ):
            return False
        current, best, started = trainer.threads, self.candidates[0], time.monotonic()
        if len(self.candidates) > 1:
            seconds_by_count = benchmark_thread_counts(trainer, sorted({*self.candidates, current}))
            fastest = min(seconds_by_count, key=lambda number: seconds_by_count[number])
            best = (
                fastest
                if seconds_by_count[fastest] < REQUIRED_RATIO * seconds_by_count[current]
                else current
            )
        ended = time.monotonic()
        self.next_tuning_at = (
            ended + max(MIN_INTERVAL, INTERVAL_FACTOR * (ended - started)) * self.backoff
        )
        if best == current:
            return False
        if len(self.recent_step_times) == CONTEXT_LENGTH:
            self.trial = current, median(self.recent_step_times)
        return self._set_threads(best)

    def _record_step_time(self) -> None:
        """Record the duration of the latest step."""
        step, seconds = self.trainer.step_count, self.trainer.seconds
        if step > self.last_seen[0]:
            self.recent_step_times.append(
                (seconds - self.last_seen[1]) / (step - self.last_seen[0])
            )
        self.last_seen = step, seconds

    def _set_threads(self, count: int) -> bool:
        self.trainer.schedule_change("num_threads", count)
        self.recent_step_times.clear()
        return True


def benchmark_thread_counts(trainer: Trainer, counts: list[int]) -> dict[int, float]:
    """Measure the seconds of a step's arithmetic with each number of threads.

    Each result is the median of a few interleaved measurements. Neither the weights nor the random
    numbers of the run change.
    """
    config, seconds_by_count = trainer.config, {number: list[float]() for number in counts}
    generator = torch.Generator().manual_seed(config.training.seed)
    batch = sample_training_batch(
        trainer.task,
        config.training.batch_size,
        config.task.min_length,
        config.task.max_length,
        generator,
    )
    try:
        with torch.random.fork_rng(devices=[]):
            for _ in range(TRIALS):
                best = min(
                    (min(times) for times in seconds_by_count.values() if times), default=0.0
                )
                for count in [
                    one
                    for one in counts
                    if not seconds_by_count[one]
                    or min(seconds_by_count[one]) <= GIVE_UP_RATIO * best
                ]:
                    torch.set_num_threads(count)
                    started = time.perf_counter()
                    trainer.loss_fn(batch, config.training.label_smoothing).backward()
                    seconds_by_count[count].append(time.perf_counter() - started)
                    trainer.optimizer.zero_grad()
    finally:
        torch.set_num_threads(trainer.threads)
    return {number: median(times) for number, times in seconds_by_count.items()}
