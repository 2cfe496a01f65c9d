"""The training loop: one step at a time, a generator of metrics. It knows nothing of processes, pages or files."""

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

CONFIRMING_N = 2000  # held-out sequences behind a final score
MOST_THREADS = 256  # as the setting allows
TELL_EVERY = 0.1  # seconds between two rows of metrics, where steps are taken in rows


class TrainingDiverged(RuntimeError):
    """Loss or gradient stopped being finite. The weights are those before the step."""


@dataclass(frozen=True)
class Metrics:
    """What is known after one step. Scores are there on the steps that looked at held-out sequences."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    seconds: float  # spent training and scoring since step 0, pauses left out
    steps_per_second: float
    tokens_per_second: float  # target tokens, PAD left out
    exact_match: float | None = None
    token_accuracy: float | None = None
    scored: int | None = None  # held-out sequences behind the two


def resolve_device(name: str) -> torch.device:
    """The device that a `device` setting means on this machine. Where GPUs are only lent (ZeroGPU), auto leaves them alone.

    Raises:
        ValueError: cuda where there is none.
    """
    available = torch.cuda.is_available() and not (name == "auto" and on_zero())
    if name == "cuda" and not available:
        raise ValueError("device is 'cuda', but no CUDA GPU is available here; use auto or cpu")
    return torch.device("cuda" if available and name != "cpu" else "cpu")


class Trainer:
    """Trains one family on one task.

        for metrics in Trainer(RunConfig()):
            print(metrics.step, metrics.loss, metrics.exact_match)

    It seeds torch's global generator, from which weights and dropout are drawn, and sets the thread count: a Trainer owns
    its process. Batches come from a generator of their own; scoring draws from neither, so looking changes nothing.
    `changes` are settings that change at given steps, which is how a run with a hand at its learning rate is repeated.
    A `family` that is there already, a pretrained one say, is trained further instead of the one that the config describes.
    It never takes more than `most_threads`, whatever the settings say.
    On a GPU, `advance` takes many steps at a time, captured as a CUDA graph unless `capture` is false.
    `ranks` are the processes that train it together (distributed.py): each has a Trainer, and all of them do the same, step by step.
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
        self.changes = list(
            changes
        )  # settings that changed on the way, and those that are still to change
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
        self._confirmed_at = -1  # the step whose look confirmed that `until` is reached
        self._held_out: dict[int, HeldOut] = {}
        self._pace = 0.0
        self._trouble: TrainingDiverged | None = (
            None  # the update behind the last one that was told of
        )
        self._threads_set = 0
        self._in_force: tuple[tuple[Change, ...], TrainConfig] = ((), training)
        self.most_threads = most_threads  # whatever the settings say
        self._set_threads()
        # Rows are looked up on the processor: recording would fail, and a recording that fails is not always undone.
        may = capture and ranks.size == 1 and config.task.task != ROWS
        self.captured = self._capturing() if may and self.device.type == "cuda" else None

    def __iter__(self) -> Iterator[Metrics]:
        while self.should_continue():
            yield from self.advance(max(1, int(TELL_EVERY * self.pace)))

    @property
    def pace(self) -> float:
        """Updates a second, of late; 0 before the first."""
        return 1 / self._pace if self._pace else 0.0

    def should_continue(self) -> bool:
        return self.step_count < self.settings.steps and not self.finished

    @property
    def finished(self) -> bool:
        """Whether `until` is reached and confirmed, and neither it nor `steps` has changed since."""
        if self._confirmed_at != self.step_count:
            return False
        now, then = (
            settings_at(self.config.training, self.changes, self.step_count - back)
            for back in (0, 1)
        )
        return (now.until, now.steps) == (then.until, then.steps)

    def reopen(self) -> None:
        """Train on after `until` was reached, at least to the next look at held-out sequences."""
        self._confirmed_at = -1

    @property
    def settings(self) -> TrainConfig:
        """The settings in force for the next update."""
        due = tuple(change for change in self.changes if change.step <= self.step_count)
        if due != self._in_force[0]:
            self._in_force = (due, settings_at(self.config.training, due, self.step_count))
        return self._in_force[1]

    @property
    def threads(self) -> int:
        """Processor threads in force. One, where nobody chose (see threads.py)."""
        return min(self.settings.threads or 1, self.most_threads)

    def _set_threads(self) -> None:
        """Let this process compute with the threads in force."""
        if self.threads != self._threads_set:
            self._threads_set = self.threads
            torch.set_num_threads(self.threads)

    def hold_to(self, threads: int) -> None:
        """Take no more threads than these from now on, whatever the settings say."""
        self.most_threads = threads
        self._set_threads()

    def change(self, setting: str, value: float, step: int | None = None) -> None:
        """Change a setting from the next update on, or from the one after `step`; what was still to come after that for the same
        setting no longer comes.

        Raises:
            SettingError: for a setting that cannot change on the way, a value that it does not take, or one change too many.
        """
        if len(self.changes) >= MOST_CHANGES:
            raise SettingError(
                setting,
                f"the run has {MOST_CHANGES:,} changes, as many as are kept; start a new run",
            )
        self.changes = with_change(
            self.changes, Change(max(self.step_count, step or 0), setting, value)
        )

    def advance(self, most: int = 1) -> list[Metrics]:
        """At least one update and up to `most`, as many as can be taken without looking up: they end with the next look at held-out
        sequences, or before the next change. On a processor it is always one, for there is nothing to wait for.

        Raises:
            TrainingDiverged: as `step`; where updates went well before, they are told of first, and the next call raises.
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
        """One update of the weights, and a look at held-out sequences when one is due.

        Raises:
            TrainingDiverged: when loss or gradient is not finite; weights and optimizer are as before the step.
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
        """Scores on `n` held-out sequences, the same ones at every call."""
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
        """What a resumed run needs beside the weights: what the optimizer remembers, the generators, the step."""
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
        """Take up where `state` was taken. The weights must be loaded beside it.

        Generators of a GPU and of a processor do not understand each other: on another kind of device than the state's, the
        generators start afresh from the seed and the step, and the run goes on with other batches than it would have had.
        """
        self.step_count = int(state["step"])
        self._confirmed_at = self.step_count if int(state.get("finished", 0)) else -1
        training = self.config.training
        self.optimizer = build_optimizer(training, self.family.parameters())
        self.captured = (
            self._capturing() if self.captured else None
        )  # what was captured is another optimizer's
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
        """The next batch, on the device."""
        task = self.config.task
        return training_batch(
            self.task,
            self.config.training.batch_size,
            task.min_length,
            task.max_length,
            self.data_generator,
        )

    def _uneventful(self) -> int:
        """Updates until a look at held-out sequences is due, a change comes, or the end."""
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
        """Count an update that is done, and look at held-out sequences when it is time."""
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
            f"step {self.step_count + 1}: loss {loss:g}, gradient norm {norm:g}. The weights of step {self.step_count} "
            f"are kept; lower learning_rate (now {training.learning_rate:g}) or lengthen warmup (now {training.warmup})"
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
