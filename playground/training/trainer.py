"""The training loop: iterating over a `Trainer` yields the metrics of each step.

It is independent of worker processes, the web page and checkpoint files. `step.py` has the step
itself, from a batch to the weights after it.
"""

import copy
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from playground.architectures import load_architecture
from playground.architectures.packed_rows import can_pack, packed_loss
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.common.platform import usable_cores
from playground.evaluation import EvalResult, aggregate, mean_loss, score_targets
from playground.models.config_fields import ConfigError
from playground.tasks import PAD
from playground.tasks.held_out import HeldOutSet, build_held_out_set, sample_training_batch
from playground.tasks.task import Batch
from playground.tasks.training_set import TrainingSet

from .optimizers import build_optimizer, optimizer_state_keys
from .run_config import RunConfig
from .setting_changes import MAX_CHANGES, SettingChange, add_change, config_at_step
from .step import training_step, update_average
from .train_config import TrainConfig

FINAL_EVAL_SIZE = 2000  # held-out sequences of a final evaluation
MAX_THREADS = 256  # the maximum of the setting
ONE_THREAD_PARAMETERS = 1_000_000  # below as many parameters, more threads hardly help


@dataclass(frozen=True)
class Metrics:
    """The measurements of one step. Only steps with an evaluation have scores."""

    step: int
    loss: float
    learning_rate: float
    grad_norm: float
    seconds: float  # of training and evaluation since step 0, without pauses
    steps_per_second: float
    tokens_per_second: float  # target tokens without PAD
    exact_match: float | None = None
    token_accuracy: float | None = None
    held_out_loss: float | None = None  # without dropout, else like `loss`
    eval_size: int | None = None  # held-out sequences of the evaluation


def resolve_device(name: str) -> torch.device:
    """Return the device of a `device` setting, or raise ValueError for an unavailable GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"  # mps only on request
    if name == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device is 'mps', but Apple's GPU is not available here; use auto or cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but no CUDA GPU is available here; use auto or cpu")
    return torch.device(name)


class Trainer:
    """Trains one model on one task.

        for metrics in Trainer(preset_config("fast")):
            print(metrics.step, metrics.loss, metrics.exact_match)

    It seeds torch's global generator, which weight initialization and dropout use, and sets the
    number of CPU threads. Both are global, so a process should have one Trainer. Batches have their
    own generator. Evaluation uses neither, so it does not affect training.

    `changes`: settings that were changed during the run, with their steps; they are replayed when a
    run is repeated.
    `model`: an existing model, for example a pretrained one, to train instead of a new one.
    `max_threads`: an upper limit for the number of threads of the settings.
    `pack`: whether sequences share rows where that works (packed_rows.py).
    """

    def __init__(
        self,
        config: RunConfig,
        changes: Iterable[SettingChange] = (),
        model: Seq2SeqModel | None = None,
        max_threads: int = MAX_THREADS,
        pack: bool = True,
    ) -> None:
        self.config = config
        self.changes = list(changes)  # setting changes, past and scheduled
        self.device = resolve_device(config.training.device)
        training = config.training
        torch.set_float32_matmul_precision("high" if training.precision == "tf32" else "highest")
        torch.manual_seed(training.seed)
        self.task = config.task.load()
        self.data_generator = torch.Generator(self.device).manual_seed(training.seed)
        self.training_set: TrainingSet | None = None
        if n := config.task.n_training_sources:
            lengths = config.task.min_length, config.task.max_length
            self.training_set = TrainingSet(self.task, n, *lengths, training.seed)
        if model is None:
            model = load_architecture(config.architecture)(config.model)
        self.model = model.to(self.device)
        self.loss_fn = (
            partial(packed_loss, self.model) if pack and can_pack(self.model) else self.model.loss
        )
        self.optimizer = build_optimizer(training, self.model)
        self.average: Seq2SeqModel | None = None
        if training.weight_averaging:
            self.average = copy.deepcopy(self.model).requires_grad_(False)
        self.step_count = 0
        self.seconds = 0.0
        # the step whose evaluation confirmed that `stop_at_exact_match` is reached
        self._confirmed_at = -1
        self._held_out: dict[int, HeldOutSet] = {}
        self._seconds_per_step = 0.0
        self._threads_set = 0
        self._active: tuple[tuple[SettingChange, ...], TrainConfig] = ((), training)
        self.max_threads = max_threads  # overrides the settings
        self.cores = usable_cores()  # of this run, if num_threads is 0
        n_parameters = sum(weight.numel() for weight in self.model.parameters())
        self._uses_one_thread = n_parameters < ONE_THREAD_PARAMETERS
        self._set_threads()

    def __iter__(self) -> Iterator[Metrics]:
        while self.should_continue():
            yield self.train_step()

    def should_continue(self) -> bool:
        return self.step_count < self.active_config.max_steps and not self.stopped_early

    def train_step(self) -> Metrics:
        """Run one update, and an evaluation if one is due; raise as `training_step`."""
        started = time.perf_counter()
        self._set_threads()
        batch = self.next_batch()
        loss, grad_norm, learning_rate = training_step(
            self.model, self.loss_fn, self.optimizer, batch, self.active_config, self.step_count + 1
        )
        self.step_count += 1
        if self.average is not None:
            update_average(self.average, self.model, self.step_count)
        n_tokens = int((batch.labels_BT != PAD).sum())
        seconds = time.perf_counter() - started
        before = self._seconds_per_step or seconds
        self._seconds_per_step = 0.9 * before + 0.1 * seconds
        scores = self._maybe_evaluate()
        self.seconds += time.perf_counter() - started
        return Metrics(
            step=self.step_count,
            loss=loss,
            learning_rate=learning_rate,
            grad_norm=grad_norm,
            seconds=self.seconds,
            steps_per_second=1 / self._seconds_per_step,
            tokens_per_second=n_tokens / seconds,
            **scores,
        )

    def next_batch(self) -> Batch:
        """Return the batch of the next update: new samples, or the next of the training set.

        Held-out sequences among new samples have loss weight 0.
        """
        batch_size, task = self.config.training.batch_size, self.config.task
        if self.training_set is not None:
            return self.training_set.batch(self.step_count, batch_size).to(self.device)
        return sample_training_batch(
            self.task, batch_size, task.min_length, task.max_length, self.data_generator
        )

    @property
    def eval_model(self) -> Seq2SeqModel:
        """Return the model that is scored and saved: with averaged weights, if they are on."""
        return self.model if self.average is None else self.average

    def _maybe_evaluate(self) -> dict[str, Any]:
        """Return the scores of `Metrics` if an evaluation is due."""
        training = self.active_config
        if self.step_count % training.eval_every and self.step_count != training.max_steps:
            return {}
        scores, loss = self.score(training.eval_size)
        if training.stop_at_exact_match and scores.exact_match >= training.stop_at_exact_match:
            scores, loss = self.score(FINAL_EVAL_SIZE)
            is_confirmed = scores.exact_match >= training.stop_at_exact_match
            self._confirmed_at = self.step_count if is_confirmed else -1
        measured = {"exact_match": scores.exact_match, "token_accuracy": scores.token_accuracy}
        return measured | {"held_out_loss": loss, "eval_size": scores.n}

    def evaluate(self, n: int = FINAL_EVAL_SIZE) -> EvalResult:
        """Evaluate on `n` held-out sequences, the same ones at every call."""
        return self.score(n)[0]

    def score(self, n: int) -> tuple[EvalResult, float | None]:
        """Return scores and loss on `n` held-out sequences, the same ones at every call."""
        if n not in self._held_out:
            self._held_out[n] = build_held_out_set(
                self.task, n, self.config.task.min_length, self.config.task.max_length
            ).to(self.device)
        held_out = self._held_out[n]
        scores_3N = score_targets(self.eval_model, held_out, self.config.training.label_smoothing)
        return aggregate(held_out, scores_3N), mean_loss(held_out, scores_3N)

    @property
    def stopped_early(self) -> bool:
        """Return whether `stop_at_exact_match` is reached and confirmed, and still in effect."""
        if self._confirmed_at != self.step_count:
            return False
        goals = set()
        for step in (self.step_count - 1, self.step_count):
            config = config_at_step(self.config.training, self.changes, step)
            goals.add((config.stop_at_exact_match, config.max_steps))
        return len(goals) == 1

    def reopen(self) -> None:
        """Continue after `stop_at_exact_match` was reached, at least to the next evaluation."""
        self._confirmed_at = -1

    @property
    def active_config(self) -> TrainConfig:
        """Return the settings in effect for the next update."""
        due = tuple(change for change in self.changes if change.step <= self.step_count)
        if due != self._active[0]:
            self._active = (due, config_at_step(self.config.training, due, self.step_count))
        return self._active[1]

    def schedule_change(self, setting: str, value: float, step: int | None = None) -> None:
        """Change a setting from the next update on, or from the one after `step` if that is later.

        Scheduled later changes of the same setting are dropped. Raises ConfigError for a setting
        that cannot change during a run, an invalid value, or too many changes.
        """
        if len(self.changes) >= MAX_CHANGES:
            message = f"the run has {MAX_CHANGES:,} changes, which is the limit; start a new run"
            raise ConfigError(setting, message)
        change = SettingChange(max(self.step_count, step or 0), setting, value)
        self.changes = add_change(self.changes, change)

    @property
    def threads(self) -> int:
        """Return the number of CPU threads in effect."""
        default = 1 if self._uses_one_thread else self.cores
        return min(self.active_config.num_threads or default, self.max_threads)

    def _set_threads(self) -> None:
        """Apply the number of threads in effect to this process."""
        if self.threads != self._threads_set:
            self._threads_set = self.threads
            torch.set_num_threads(self.threads)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of a run in addition to the weights of `eval_model`.

        It holds optimizer, generators and step, and the weights in training if they are others.
        """
        state = {
            "generator.data": self.data_generator.get_state(),
            "generator.torch": torch.get_rng_state(),
        }
        if (kind := self.device.type) != "cpu":
            state[f"generator.{kind}"] = torch.get_device_module(kind).get_rng_state()
        state["step"] = torch.tensor(self.step_count)
        if self.training_set is not None:
            state["training_set"] = self.training_set.fingerprint
        if self._confirmed_at == self.step_count:
            state["finished"] = torch.tensor(1, dtype=torch.uint8)
        for name, weight in self.model.named_parameters():
            for key, value in self.optimizer.state[weight].items() if self.step_count else ():
                state[f"optimizer.{key}.{name}"] = value
            if self.average is not None:
                state[f"weight.{name}"] = weight.detach()
        return state

    def load_state_dict(self, state: dict[str, Tensor], same_device: bool = True) -> None:
        """Restore the state of a run. The weights of `eval_model` are loaded separately.

        Another kind of device cannot use the states of the generators. There, they are seeded from
        seed and step, and the run continues with other batches.
        """
        self.step_count = int(state["step"])
        self._confirmed_at = self.step_count if int(state.get("finished", 0)) else -1
        training = self.config.training
        self.optimizer = build_optimizer(training, self.model)
        keys = optimizer_state_keys(training, self.model)
        for name, weight in self.model.named_parameters():
            for key in keys[name] if self.step_count else ():
                value = state[f"optimizer.{key}.{name}"].clone()
                self.optimizer.state[weight][key] = value.to(self.device)
            if self.average is not None:
                weight.data.copy_(state[f"weight.{name}"])
        if not same_device:
            for seed in (torch.manual_seed, self.data_generator.manual_seed):
                seed(training.seed + self.step_count)
            return
        self.data_generator.set_state(state["generator.data"].clone())
        torch.set_rng_state(state["generator.torch"].clone())
        if (key := f"generator.{self.device.type}") in state:
            torch.get_device_module(self.device).set_rng_state(state[key].clone())
