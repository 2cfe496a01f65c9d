"""The training loop: one step at a time, a generator of metrics.

It does not depend on processes, pages or files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from playground.evaluation import Evaluation, count_right, score
from playground.families import load_family
from playground.families.family import Family
from playground.models.config import SettingError
from playground.tasks import PAD, ROWS
from playground.tasks.held_out import HeldOut, held_out_set, training_batch
from playground.tasks.task import Batch

from .captured import RING, CapturedSteps, Told
from .config import MOST_CHANGES, Change, RunConfig, TrainConfig, settings_at, with_change
from .devices import on_zero
from .distributed import ALONE, Ranks
from .optimizers import build_optimizer, counts_steps, remembered
from .schedules import learning_rate
from .update import update

CONFIRMING_N = 2000  # held-out sequences of a final evaluation
MOST_THREADS = 256  # the maximum of the setting
TELL_EVERY = 0.1  # seconds between two reports, if several steps run without synchronization


class TrainingDiverged(RuntimeError):
    """The loss or the gradient is not finite. The weights are those before the step."""


@dataclass(frozen=True)
class Metrics:
    """The measurements of one step. Only steps with an evaluation have scores."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float  # of training and evaluation since step 0, without pauses
    steps_per_second: float
    tokens_per_second: float  # target tokens without PAD
    exact_match: float | None = None
    token_accuracy: float | None = None
    scored: int | None = None  # held-out sequences of the evaluation


def resolve_device(name: str) -> torch.device:
    """Return the device of a `device` setting on this machine; on ZeroGPU, auto is the CPU.

    Raises:
        ValueError: for cuda without a CUDA GPU.
    """
    available = torch.cuda.is_available() and not (name == "auto" and on_zero())
    if name == "cuda" and not available:
        raise ValueError("device is 'cuda', but no CUDA GPU is available here; use auto or cpu")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


class Trainer:
    """Trains one model on one task.

        for metrics in Trainer(RunConfig()):
            print(metrics.step, metrics.loss, metrics.exact_match)

    It seeds torch's global generator, which initializes weights and dropout, and sets the number of
    threads, so a process should have one Trainer. Batches have their own generator. Evaluation uses
    neither, so it does not affect training.

    `changes`: settings that were changed during the run, with their steps; they are replayed when a
    run is repeated.
    `family`: an existing model, for example a pretrained one, to train instead of a new one.
    `capture`: on a GPU, whether `advance` runs many steps as CUDA graph replays.
    `ranks`: the processes that train together (distributed.py). Each has a Trainer, and all of them
    run the same steps.
    `most_threads`: the maximum number of threads, whatever the settings are.
    """

    def __init__(
        self,
        config: RunConfig,
        changes: Iterable[Change] = (),
        family: Family | None = None,
        capture: bool = True,
        ranks: Ranks = ALONE,
        most_threads: int = MOST_THREADS,
    ) -> None:
        self.config = config
        self.changes = list(changes)  # setting changes, past and scheduled
        self.ranks = ranks
        self.device = ranks.device(resolve_device(config.training.device))
        ranks.check(config, self.device)
        torch.set_float32_matmul_precision(
            "high" if config.training.precision == "tf32" else "highest"
        )
        torch.manual_seed(config.training.seed)
        self.data_generator = torch.Generator(self.device).manual_seed(config.training.seed)
        self.task = config.task.load()
        self.family = (load_family(config.family)(config.model) if family is None else family).to(
            self.device
        )
        self._loss = ranks.loss(self.family)
        ranks.draw_apart(config.training.seed)
        training = config.training
        self.optimizer = build_optimizer(training, self.family.parameters())
        self.step_count = 0
        self.seconds = 0.0
        self._confirmed_at = -1  # the step whose evaluation confirmed that `until` is reached
        self._held_out: dict[int, HeldOut] = {}
        self._pace = 0.0
        # the error of the update after the last one that `advance` returned
        self._trouble: TrainingDiverged | None = None
        self._threads_set = 0
        self._in_force: tuple[tuple[Change, ...], TrainConfig] = ((), training)
        self.most_threads = most_threads  # overrides the settings
        self._set_threads()
        # Pairs of a dataset are looked up on the CPU. A capture would fail, and a failed capture
        # cannot always be undone.
        may = capture and ranks.size == 1 and config.task.task != ROWS
        self.captured = self._capturing() if may and self.device.type == "cuda" else None

    def __iter__(self) -> Iterator[Metrics]:
        while self.should_continue():
            yield from self.advance(max(1, int(TELL_EVERY * self.pace)))

    @property
    def pace(self) -> float:
        """Return the recent number of updates per second; 0 before the first."""
        return 1 / self._pace if self._pace else 0.0

    def should_continue(self) -> bool:
        return self.step_count < self.settings.steps and not self.finished

    @property
    def finished(self) -> bool:
        """Return whether `until` is reached and confirmed, and still in effect."""

        if self._confirmed_at != self.step_count:
            return False
        now, then = (
            settings_at(self.config.training, self.changes, self.step_count - back)
            for back in (0, 1)
        )
        return (now.until, now.steps) == (then.until, then.steps)

    def reopen(self) -> None:
        """Continue training after `until` was reached, at least to the next evaluation."""
        self._confirmed_at = -1

    @property
    def settings(self) -> TrainConfig:
        """Return the settings in effect for the next update."""
        due = tuple(change for change in self.changes if change.step <= self.step_count)
        if due != self._in_force[0]:
            self._in_force = (due, settings_at(self.config.training, due, self.step_count))
        return self._in_force[1]

    @property
    def threads(self) -> int:
        """Return the number of CPU threads in effect; one without a choice (see threads.py)."""
        return min(self.settings.threads or 1, self.most_threads)

    def _set_threads(self) -> None:
        """Apply the number of threads in effect to this process."""
        if self.threads != self._threads_set:
            self._threads_set = self.threads
            torch.set_num_threads(self.threads)

    def hold_to(self, threads: int) -> None:
        """Limit the number of threads from now on, whatever the settings are."""
        self.most_threads = threads
        self._set_threads()

    def change(self, setting: str, value: float, step: int | None = None) -> None:
        """Change a setting from the next update on, or from the one after `step`.

        Later changes of the same setting are dropped.

        Raises:
            SettingError: for a setting that cannot change during a run, an invalid value, or too
                many changes.
        """
        if len(self.changes) >= MOST_CHANGES:
            raise SettingError(
                setting,
                f"the run has {MOST_CHANGES:,} changes, which is the limit; start a new run",
            )
        self.changes = with_change(
            self.changes, Change(max(self.step_count, step or 0), setting, value)
        )

    def advance(self, most: int = 1) -> list[Metrics]:
        """Run at least one and at most `most` updates without synchronization in between.

        They end at the next evaluation, or before the next setting change. On a CPU it is always
        one update, because there is no synchronization to avoid.

        Raises:
            TrainingDiverged: as `step`. If earlier updates of the call succeeded, they are returned
                first, and the next call raises.
        """
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if self.captured is None:
            return [self.step()]
        training, started = self.settings, time.perf_counter()
        self._set_threads()
        steps = range(
            self.step_count + 1, self.step_count + 1 + min(most, RING, self._uneventful())
        )
        rates = [learning_rate(training, self.config.model.d_model, step) for step in steps]
        told = self.captured.run(rates)
        took = (time.perf_counter() - started) / len(told)
        metrics: list[Metrics] = []
        for one, rate in zip(told, rates, strict=False):
            if isfinite(one.loss) and isfinite(one.norm):
                metrics.append(self._counted(one, rate, took))
            elif not metrics:
                raise self._diverged(one.loss, one.norm)
            else:
                self._trouble = self._diverged(one.loss, one.norm)
        return metrics

    def step(self) -> Metrics:
        """Run one update, and an evaluation if one is due.

        Raises:
            TrainingDiverged: if loss or gradient is not finite; weights and optimizer are those
                before the step.
        """
        training, started = self.settings, time.perf_counter()
        self._set_threads()
        rate = learning_rate(training, self.config.model.d_model, self.step_count + 1)
        batch = self._draw()
        loss, norm, finite = update(
            self.family, self.optimizer, batch, training, rate, loss_of=self._loss, ranks=self.ranks
        )
        if not finite:
            raise self._diverged(loss.item(), norm.item())
        told = Told(loss.item(), norm.item(), int((batch.labels_BT != PAD).sum()))
        return self._counted(told, rate, time.perf_counter() - started)

    def evaluate(self, n: int = CONFIRMING_N) -> Evaluation:
        """Evaluate on `n` held-out sequences, the same ones at every call."""
        if n not in self._held_out:
            self._held_out[n] = held_out_set(
                self.task, n, self.config.task.min_length, self.config.task.max_length
            ).to(self.device)
        held_out = self._held_out[n]
        return score(
            held_out,
            self.ranks.sum(count_right(self.family, held_out, self.ranks.rank, self.ranks.size)),
        )

    def state(self) -> dict[str, Tensor]:
        """Return the state of a run in addition to the weights: optimizer, generators, step."""
        state = {
            "generator.data": self.data_generator.get_state(),
            "generator.torch": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["generator.cuda"] = torch.cuda.get_rng_state(self.device)
        state["step"] = torch.tensor(self.step_count)
        if self._confirmed_at == self.step_count:
            state["finished"] = torch.tensor(1, dtype=torch.uint8)
        for name, weight in self.family.named_parameters() if self.step_count else ():
            for key, value in self.optimizer.state[weight].items():
                state[f"optimizer.{key}.{name}"] = value
        return state

    def load_state(self, state: dict[str, Tensor], same_device: bool = True) -> None:
        """Restore the state of a run. The weights are loaded separately.

        The states of GPU and CPU generators are incompatible. On another kind of device the
        generators are seeded from seed and step, and the run continues with other batches than it
        would have had.
        """
        self.step_count = int(state["step"])
        self._confirmed_at = self.step_count if int(state.get("finished", 0)) else -1
        training = self.config.training
        self.optimizer = build_optimizer(training, self.family.parameters())
        # a captured graph contains the old optimizer
        self.captured = self._capturing() if self.captured else None
        keys = (
            (*(["step"] if counts_steps(training) else []), *remembered(training))
            if self.step_count
            else ()
        )
        for name, weight in self.family.named_parameters():
            for key in keys:
                value = state[f"optimizer.{key}.{name}"].clone()
                self.optimizer.state[weight][key] = value.to(self.device)
        if not same_device:
            torch.manual_seed(self.config.training.seed + self.step_count)
            self.data_generator.manual_seed(self.config.training.seed + self.step_count)
            self.ranks.draw_apart(self.config.training.seed + self.step_count)
            return
        self.data_generator.set_state(state["generator.data"].clone())
        torch.set_rng_state(state["generator.torch"].clone())
        if self.device.type == "cuda" and "generator.cuda" in state:
            torch.cuda.set_rng_state(state["generator.cuda"].clone(), self.device)
        self.ranks.draw_apart(self.config.training.seed + self.step_count)

    def _capturing(self) -> CapturedSteps:
        return CapturedSteps(
            self.family,
            self.optimizer,
            self.config.training,
            self._draw,
            self.device,
            [self.data_generator],
        )

    def _draw(self) -> Batch:
        """Sample the next batch, on the device."""
        task = self.config.task
        return training_batch(
            self.task,
            self.config.training.batch_size,
            task.min_length,
            task.max_length,
            self.data_generator,
        )

    def _uneventful(self) -> int:
        """Return the number of updates until the next evaluation, setting change, or the end."""
        settings, at = self.settings, self.step_count
        look = (at // settings.eval_every + 1) * settings.eval_every
        return max(
            1,
            min(
                [
                    settings.steps,
                    look,
                    *(change.step for change in self.changes if change.step > at),
                ]
            )
            - at,
        )

    def _counted(self, told: Told, rate: float, took: float) -> Metrics:
        """Count a finished update, and evaluate if it is time."""
        self.step_count += 1
        self._pace = took if not self._pace else 0.9 * self._pace + 0.1 * took
        started = time.perf_counter()
        scores = self._scores_when_due()
        self.seconds += took + time.perf_counter() - started
        return Metrics(
            step=self.step_count,
            loss=told.loss,
            learning_rate=rate,
            gradient_norm=told.norm,
            seconds=self.seconds,
            steps_per_second=1 / self._pace,
            tokens_per_second=told.tokens / took,
            exact_match=scores.exact_match if scores else None,
            token_accuracy=scores.token_accuracy if scores else None,
            scored=scores.n if scores else None,
        )

    def _diverged(self, loss: float, norm: float) -> TrainingDiverged:
        training = self.settings
        return TrainingDiverged(
            f"step {self.step_count + 1}: loss {loss:g}, gradient norm {norm:g}. The weights of "
            f"step {self.step_count} are kept; lower learning_rate (now "
            f"{training.learning_rate:g}) or lengthen warmup (now {training.warmup})"
        )

    def _scores_when_due(self) -> Evaluation | None:
        training = self.settings
        if self.step_count % training.eval_every and self.step_count != training.steps:
            return None
        scores = self.evaluate(training.eval_n)
        if training.until and scores.exact_match >= training.until:
            scores = self.evaluate()
            self._confirmed_at = self.step_count if scores.exact_match >= training.until else -1
        return scores
