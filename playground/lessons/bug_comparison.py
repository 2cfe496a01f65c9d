"""Train a copy with a bug and a correct copy, and compare them.

Shapes: B batch, N examples, S source, T target, Q query, M memory, H heads, V vocabulary.
"""

import traceback
from pathlib import Path
from statistics import mean
from typing import Any, cast

import torch
from torch import Tensor

from playground.architectures.seq2seq_model import eval_mode, exact_match_mask
from playground.inspection.attention_recording import record_free_running
from playground.inspection.hooks import ATTENTION_KINDS
from playground.jobs.progress import ProgressReporter
from playground.models.config import TransformerConfig
from playground.tasks import PAD
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.tasks.task import make_batch
from playground.training.run_config import RunConfig
from playground.training.trainer import Trainer

from .bug_injection import (
    BUGGY_SUFFIX,
    ROOT,
    ReferenceModel,
    buggy_model,
    load_source,
    reference_model,
)
from .bugs import BUG_SETTINGS, BUGS, Bug
from .trained_run import same_multiset

EVAL_EXAMPLES = 128  # held-out sequences
# The displayed example, truncated to the training length.
EXAMPLE_INPUT = "3 1 4 1 5"
EVAL_INTERVAL = 20  # steps
LOSS_WINDOW = 10  # steps over which the reported loss is averaged


def format_traceback(error: Exception, step: int) -> dict[str, Any]:
    """Format a traceback as Python does, from the model inwards, without local folders.

    `line` and `file` are those of the innermost frame in this project.
    """
    frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        inside = path.is_absolute() and path.is_relative_to(ROOT / "playground")
        if inside or frame.filename.endswith(BUGGY_SUFFIX):
            frames.append((path.relative_to(ROOT).as_posix() if inside else frame.filename, frame))
    in_model = [at for at, (file, _) in enumerate(frames) if file.startswith("playground/models/")]
    ours = frames[in_model[0] :] if in_model else frames
    lines = ["Traceback (most recent call last):"]
    for file, frame in ours:
        lines += [f'  File "{file}", line {frame.lineno}, in {frame.name}', f"    {frame.line}"]
    lines += "".join(traceback.format_exception_only(error)).rstrip().split("\n")
    file, last = ours[-1]
    return {"step": step, "lines": lines, "line": last.lineno or 0, "file": file}


class TrainingCopy:
    """One of the two copies during training."""

    def __init__(self, config: RunConfig, bug: Bug | None) -> None:
        self.config = config
        self.failure: dict[str, Any] | None = None
        self.losses: list[float] = []
        # step, exact match with teacher forcing, exact match free-running
        self.evaluations: list[tuple[int, float, float]] = []
        torch.manual_seed(config.training.seed)
        sizes = cast(TransformerConfig, config.model)
        self.model = buggy_model(sizes, bug) if bug else reference_model(sizes)
        self.trainer = Trainer(config, model=self.model)

    @property
    def running(self) -> bool:
        return self.failure is None and self.trainer.should_continue()

    def train_step(self, held_out: HeldOutSet | None = None) -> None:
        """Take one update and evaluate regularly; store an error in `failure`."""
        try:
            metrics = self.trainer.train_step()
            self.losses.append(metrics.loss)
            if held_out is not None and (
                metrics.step % EVAL_INTERVAL == 0 or metrics.step == self.config.training.max_steps
            ):
                self.evaluations.append((metrics.step, *exact_match(self.model, held_out)))
        except (RuntimeError, TypeError, AttributeError, ValueError, IndexError) as error:
            self.failure = format_traceback(error, self.trainer.step_count)

    @property
    def curve(self) -> dict[str, Any]:
        return {"loss": [round(loss, 4) for loss in self.losses], "evaluations": self.evaluations}

    @property
    def loss(self) -> float | None:
        """Return the mean loss of the last `LOSS_WINDOW` steps."""
        return mean(self.losses[-LOSS_WINDOW:]) if self.losses else None


@torch.no_grad()
def exact_match(model: ReferenceModel, held_out: HeldOutSet) -> tuple[float, float]:
    """Return the exact match on held-out sequences: teacher-forced and free-running."""
    with eval_mode(model):
        exact = exact_match_mask(model.logits(held_out.batch), held_out.batch)
        free_running = model.is_exact_match(held_out.batch)
    return float(exact.float().mean()), float(free_running.float().mean())


def compare(name: str, seed: int, steps: int, reporter: ProgressReporter) -> dict[str, Any]:
    """Train the correct and the buggy copy on the same batches and compare them, for JSON."""
    torch.set_num_threads(1)
    reporter.message("Training")
    bug = BUGS[name]
    budget = {"seed": seed, "max_steps": steps, "lr_decay_steps": steps}
    config = RunConfig.from_flat({**BUG_SETTINGS, **bug.settings, **budget})
    task = config.task.load()
    held_out = build_held_out_set(
        task, EVAL_EXAMPLES, config.task.min_length, config.task.max_length
    )
    correct, buggy = TrainingCopy(config, None), TrainingCopy(config, bug)
    while correct.running or buggy.running:
        for copy in (correct, buggy):
            if copy.running:
                copy.train_step(held_out)
        at = correct.trainer.step_count
        if at % (EVAL_INTERVAL // 2) == 0:
            reporter.progress(at, steps, "steps")
            reporter.partial({"curves": {"correct": correct.curve, "buggy": buggy.curve}})
    source = load_source(bug)
    return {
        "seed": seed,
        "steps": steps,
        "n": len(held_out.lengths_B),
        "vocab_size": config.model.target_vocab_size,
        "curves": {"correct": correct.curve, "buggy": buggy.curve},
        "correct": observations(correct, held_out),
        "buggy": observations(buggy, held_out),
        "source": {"file": source.file, "first_line": source.first_line, "lines": source.lines},
        "changed_line": source.changed_line,
        "diff": source.diff,
    }


@torch.no_grad()
def observations(copy: TrainingCopy, held_out: HeldOutSet) -> dict[str, Any]:
    """Return the metrics, the output and the attention weights of a copy, or its traceback."""
    if copy.failure is not None:
        return {"failure": copy.failure}
    model, task = copy.model.eval(), copy.trainer.task
    teacher_forced, free_running = exact_match(model, held_out)
    max_tokens = copy.config.task.max_length + 1
    tokens = task.vocabulary.encode(EXAMPLE_INPUT)[: copy.config.task.max_length]
    batch = make_batch(task, torch.tensor([tokens]), torch.tensor([len(tokens)]))
    record = model.attention_weights(batch)
    generated, confidences = generate(model, batch.source_BS, max_tokens)
    predictions = [
        (token, p)
        for token, p in zip(generated[0].tolist(), confidences[0].tolist(), strict=True)
        if p > 0
    ]
    generated_NT, confidence_NT = generate(model, held_out.batch.source_BS, max_tokens)
    source, target = (
        [task.vocabulary.token_name(token) for token in each[0].tolist()]
        for each in (batch.source_BS, batch.decoder_input_BT)
    )
    return {
        "failure": None,
        "loss": copy.loss,
        "teacher_forced": teacher_forced,
        "free_running": free_running,
        "multiset_match": float(
            same_multiset(generated_NT, held_out.batch.labels_BT).float().mean()
        ),
        "confidence": float(confidence_NT[confidence_NT > 0].mean()),
        "output": [[task.vocabulary.token_name(token), round(p, 3)] for token, p in predictions],
        "source": source,
        "target": target,
        "attention": {
            kind: [
                [[round(w, 3) for w in row] for row in weights_BHQM[0].mean(0).tolist()]
                for weights_BHQM in getattr(record, kind)
            ]
            for kind in ATTENTION_KINDS
        },
    }


def generate(model: ReferenceModel, source_BS: Tensor, max_tokens: int) -> tuple[Tensor, Tensor]:
    """Generate free-running; return the tokens and their probabilities (BT), 0 after EOS."""
    recording, generated_BT = record_free_running(model, source_BS, max_tokens)
    confidence_BT = recording.logits_BTV.softmax(-1).gather(-1, generated_BT[..., None])[..., 0]
    return generated_BT, confidence_BT * (generated_BT != PAD)
