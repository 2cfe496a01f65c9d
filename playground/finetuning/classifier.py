"""A new classification head on a pretrained model, trained on the texts of a user.

Shapes: B batch, Q tokens, C labels.
"""

import hashlib
import math
import os
import random
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn.functional import cross_entropy

from playground.common.atomic_write import clean_up_stale
from playground.common.format import format_bytes, format_duration
from playground.common.stats import wilson_interval
from playground.common.storage import checkpoints_root
from playground.errors import UserError
from playground.jobs.progress import ProgressReporter
from playground.pretrained.classification import UNTRAINED_NOTE
from playground.pretrained.model_files import ResolvedModel
from playground.pretrained.model_names import local_paths_allowed
from playground.pretrained.pipelines import newly_initialized_weights, open_pipeline, unload
from playground.pretrained.requests import JobRequest, ModelName, Seed, Text
from playground.pretrained.resolver import resolve
from playground.runs.memory import free_memory

from .labeled_texts import MAX_TEXT_LENGTH, LabeledTexts, read_labeled

# tokens of a text and training steps, at most; the rest of a text is truncated
MAX_TOKENS, SHARED_MAX_TOKENS = 128, 64
MAX_STEPS, SHARED_MAX_STEPS = 2000, 200
EVALUATIONS = 12  # evaluations on the held-out texts during training
MIN_USEFUL_STEPS = 60  # a new head hardly changes in fewer steps


class ClassifierRequest(JobRequest):
    """A request to train a new head on labeled texts.

    Attributes:
        csv: the content of a CSV file.
        sentence: a text that is classified before and after training.
        train: all weights, or the head alone with the rest frozen.
        epochs: by default 3, and more for few rows.
        learning_rate: by default 5e-5, or 3e-3 for the head alone.
    """

    shared_limits: ClassVar = {"batch_size": 16}

    model: ModelName = ""
    csv: str = Field("", validate_default=True)
    sentence: Annotated[Text, Field(max_length=MAX_TEXT_LENGTH)] = "a good film"
    train: Literal["all", "head"] = "all"
    epochs: int | None = Field(None, ge=1, le=100)
    batch_size: int = Field(16, ge=1, le=64)
    learning_rate: float | None = Field(None, ge=1e-7, le=0.1)
    seed: Seed = 0

    @field_validator("csv")
    @classmethod
    def _require_content(cls, content: str) -> str:
        if not content.strip():
            raise ValueError(
                "the CSV is missing; paste or choose one with the columns text and label"
            )
        return content

    def peak_learning_rate(self) -> float:
        return self.learning_rate or (5e-5 if self.train == "all" else 3e-3)

    def n_epochs(self, n_rows: int) -> int:
        """Return the number of epochs.

        Raises:
            UserError: if they have more steps than the maximum.
        """
        max_steps = MAX_STEPS if local_paths_allowed() else SHARED_MAX_STEPS
        steps_per_epoch = math.ceil(n_rows / self.batch_size)
        default = max(3, math.ceil(MIN_USEFUL_STEPS / steps_per_epoch))
        epochs = self.epochs or max(1, min(default, max_steps // steps_per_epoch))
        if epochs * steps_per_epoch > max_steps:
            remedy = (
                "fewer epochs" if steps_per_epoch <= max_steps else "larger batches, or fewer rows"
            )
            raise UserError(
                f"{epochs} epochs of {n_rows:,} rows are {epochs * steps_per_epoch:,} steps; the "
                f"maximum is {max_steps:,}: use {remedy}"
            )
        return epochs


def train_classifier(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Put a new head on a model and train it on labeled texts. `request`: see ClassifierRequest.

    Each evaluation on the held-out texts reports a row: step, loss (mean since the last
    evaluation), held_out_accuracy. The result has `before` and `after` of the sentence,
    `held_out` (n_correct, n, accuracy, and its 95 % interval), the baselines `chance` and
    `majority_fraction`, and if local folders are allowed as models, `folder`, which can be used as
    one.

    Raises:
        UserError: for an invalid CSV, or if training does not fit into memory, with the estimate.
    """
    parsed = ClassifierRequest.parse(request)
    rows = read_labeled(parsed.csv, parsed.seed)
    epochs = parsed.n_epochs(len(rows.training))
    resolved = resolve(parsed.model, progress)
    unload()  # free memory; other models are loaded again on request
    model, tokenizer, newly_initialized = _load_with_head(
        resolved, rows.labels, parsed.seed, progress
    )
    if parsed.train == "head":
        for name, weight in model.named_parameters():
            weight.requires_grad_(name in newly_initialized)
    max_tokens = MAX_TOKENS if local_paths_allowed() else SHARED_MAX_TOKENS
    needed = memory_estimate(model, parsed.batch_size, max_tokens)
    _ensure_memory(resolved.name, needed)
    progress.message(
        f"Training takes about {format_bytes(needed)}; first running the randomly initialized head"
    )
    trainer = _ClassifierTrainer(model, tokenizer, rows, max_tokens, progress)
    before = trainer.predict(parsed.sentence)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(parsed.seed)
        seconds = trainer.train(parsed.peak_learning_rate(), epochs, parsed.batch_size, parsed.seed)
    counts = Counter(label for _, label in rows.held_out)
    folder = _save(model, tokenizer, resolved, progress) if local_paths_allowed() else ""
    notes = list(rows.notes)
    if not folder:
        notes.append(
            "this playground stores no trained models of its users: the trained head was deleted"
        )
    return {
        "model": resolved.name,
        "labels": rows.labels,
        "training_rows": len(rows.training),
        "sentence": parsed.sentence,
        "before": {"labels": before, "note": UNTRAINED_NOTE},
        "after": {"labels": trainer.predict(parsed.sentence)},
        "held_out": trainer.held_out_accuracy(),
        "chance": 1 / len(rows.labels),
        "majority_fraction": max(counts.values()) / len(rows.held_out),
        "trained_parameters": sum(weight.numel() for weight in trainer.weights),
        "steps": trainer.steps,
        "seconds": seconds,
        "memory_estimate": needed,
        "folder": folder,
        "notes": notes,
    }


def memory_estimate(model: Any, batch_size: int, tokens: int) -> int:
    """Estimate the memory for training in bytes.

    Each weight takes 4 bytes, and each trained one 12 more (its gradient and Adam's two
    moments). The activations follow Korthikanti et al. 2022, section 4.1: s b h (34 + 5 a s /
    h) bytes per layer at 16 bits, twice that at 32. Only layers after the first trained one
    store theirs.
    """
    config = model.config
    layers, heads, hidden = (
        int(getattr(config, name, 12))
        for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    stored = layers if trained > 0.5 * sum(each.numel() for each in model.parameters()) else 1
    activations = 2 * stored * tokens * batch_size * (34 * hidden + 5 * heads * tokens)
    return 4 * sum(each.numel() for each in model.parameters()) + 12 * trained + activations


def _ensure_memory(name: str, needed: int) -> None:
    free = free_memory()
    if needed > 0.9 * free:
        raise UserError(
            f"training {name} takes about {format_bytes(needed)} and {format_bytes(free)} are "
            "free; train the head alone, reduce batch_size, or choose a smaller model",
            retryable=True,
        )


def _load_with_head(
    resolved: ResolvedModel, labels: list[str], seed: int, progress: ProgressReporter
) -> tuple[Any, Any, set[str]]:
    """Load a private copy of a model with a new head for these labels.

    Returns the model, its tokenizer and the names of the newly initialized weights. The model
    goes through the same checks as every other; the head is then built for the labels.
    """
    from transformers import AutoModelForSequenceClassification

    pipe = open_pipeline("text-classification", resolved, progress)
    newly_initialized = newly_initialized_weights("text-classification", resolved)
    config = pipe.model.config
    tokenizer = pipe.tokenizer
    base = pipe.model.base_model.state_dict()
    unload(resolved.folder)
    del pipe
    config.num_labels = len(labels)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: index for index, label in enumerate(labels)}
    config.problem_type = "single_label_classification"
    if tokenizer.pad_token_id is None:  # GPT-2 has none; padding is masked in any case
        tokenizer.pad_token = tokenizer.eos_token
    config.pad_token_id = tokenizer.pad_token_id
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    drawn = {
        name.split(".", 1)[1]
        for name in newly_initialized
        if name.startswith(f"{model.base_model_prefix}.")
    }
    model.base_model.load_state_dict(
        {name: each for name, each in base.items() if name not in drawn}, strict=False
    )
    of_base = {f"{model.base_model_prefix}.{name}" for name in base} - set(newly_initialized)
    return model, tokenizer, {name for name, _ in model.named_parameters()} - of_base


class _ClassifierTrainer:
    """Trains a model on labeled texts of at most `max_tokens` tokens each."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        rows: LabeledTexts,
        max_tokens: int,
        progress: ProgressReporter,
    ) -> None:
        self.model, self.tokenizer, self.labels = model, tokenizer, rows.labels
        self.training, self.held_out, self.progress = rows.training, rows.held_out, progress
        positions = getattr(model.config, "max_position_embeddings", None) or max_tokens
        self.max_tokens = min(max_tokens, int(positions), int(tokenizer.model_max_length))
        self.weights = [each for each in model.parameters() if each.requires_grad]
        self.steps = 0

    def logits(self, texts: Sequence[str]) -> Tensor:
        """Return the logits of the labels, BC."""
        encoded = self.tokenizer(
            list(texts),
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
        )
        logits_BC: Tensor = self.model(**encoded.to(self.model.device)).logits
        return logits_BC

    @torch.no_grad()
    def predict(self, sentence: str) -> list[dict[str, Any]]:
        """Return the labels of a sentence with their probabilities, the most probable first."""
        self.model.eval()
        probabilities = self.logits([sentence])[0].float().softmax(-1).tolist()
        rows = [
            {"label": label, "probability": each}
            for label, each in zip(self.labels, probabilities, strict=True)
        ]
        return sorted(rows, key=lambda row: -row["probability"])

    @torch.no_grad()
    def count_correct(self) -> int:
        """Return how many held-out texts are classified correctly."""
        self.model.eval()
        count = 0
        for start in range(0, len(self.held_out), 32):
            self.progress.raise_if_cancelled()
            texts, labels = zip(*self.held_out[start : start + 32], strict=True)
            count += int((self.logits(texts).argmax(-1).cpu() == torch.tensor(labels)).sum())
        return count

    def held_out_accuracy(self) -> dict[str, float]:
        """Return the accuracy on the held-out texts with its 95 % interval."""
        n_correct, n = self.count_correct(), len(self.held_out)
        low, high = wilson_interval(n_correct, n)
        accuracy = n_correct / n
        return {"n_correct": n_correct, "n": n, "accuracy": accuracy, "low": low, "high": high}

    def evaluate(self, step: int, losses: list[float]) -> None:
        """Report the accuracy on the held-out texts, and the mean loss since the last report."""
        n = len(self.held_out)
        loss = sum(losses) / len(losses) if losses else None
        self.progress.row(
            {"step": step, "loss": loss, "held_out_accuracy": self.count_correct() / n, "n": n}
        )

    def train(self, learning_rate: float, epochs: int, batch_size: int, seed: int) -> float:
        """Train with AdamW and return the seconds it took.

        The learning rate warms up over a tenth of the steps and decays to zero, as in BERT's
        run_classifier.py; 5e-5 is one of the rates of Devlin et al. 2018, appendix A.3.
        """
        generator = random.Random(seed)
        steps = epochs * math.ceil(len(self.training) / batch_size)
        optimizer = torch.optim.AdamW(self.weights, lr=learning_rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, partial(_learning_rate_factor, steps=steps)
        )
        started_at, eval_every, losses = time.perf_counter(), max(1, steps // EVALUATIONS), []
        self.evaluate(0, [])
        eval_seconds = time.perf_counter() - started_at
        batches: list[list[tuple[str, int]]] = []
        for self.steps in range(1, steps + 1):
            self.progress.raise_if_cancelled()
            step_started_at = time.perf_counter()
            if not batches:
                rows = generator.sample(self.training, len(self.training))
                batches = [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
            losses.append(self._train_step(optimizer, batches.pop()))
            schedule.step()
            if self.steps == 1:
                step_seconds = time.perf_counter() - step_started_at
                seconds = steps * step_seconds + steps // eval_every * eval_seconds
                self.progress.message(
                    f"Training on {len(self.training):,} texts: {steps:,} steps, about "
                    f"{format_duration(seconds)}"
                )
            if self.steps % eval_every == 0 or self.steps == steps:
                self.evaluate(self.steps, losses)
                losses = []
            self.progress.progress(self.steps, steps, "steps")
        return time.perf_counter() - started_at

    def _train_step(self, optimizer: torch.optim.Optimizer, batch: list[tuple[str, int]]) -> float:
        """Train on a batch and return its loss."""
        texts, labels = zip(*batch, strict=True)
        self.model.train()
        loss = cross_entropy(
            self.logits(texts).float(), torch.tensor(labels, device=self.model.device)
        )
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.weights, 1.0)
        if not bool(torch.isfinite(norm)):
            raise UserError(
                f"training diverged at step {self.steps} (loss {float(loss.detach()):.3g}); use a "
                "lower learning_rate"
            )
        optimizer.step()
        return float(loss.detach())


def _learning_rate_factor(step: int, steps: int) -> float:
    """Return the factor of the learning rate after `step` steps: warm-up, then linear decay."""
    warmup_steps = max(1, steps // 10)
    return min((step + 1) / warmup_steps, (steps - step) / max(1, steps - warmup_steps), 1.0)


def trained_models() -> Path:
    """Return the folder of trained classifiers, which lies among the runs, outside of git."""
    return checkpoints_root() / "runs" / "classifiers"


def _save(model: Any, tokenizer: Any, resolved: ResolvedModel, progress: ProgressReporter) -> str:
    """Write a model atomically as a folder that can be used as a model."""
    progress.message("Writing the trained model")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(resolved.name).name)[:40] or "model"
    folder_root = trained_models()
    folder_root.mkdir(parents=True, exist_ok=True)
    clean_up_stale(folder_root, older_than=3600)
    temporary = folder_root / f".{secrets.token_hex(4)}.tmp"
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        weights = (temporary / "model.safetensors").read_bytes()
        folder = folder_root / f"{name}-{hashlib.sha256(weights).hexdigest()[:8]}"
        if folder.exists():
            return str(folder)  # the same weights were saved before
        with open(temporary / "model.safetensors", "rb+") as file:
            os.fsync(file.fileno())
        os.rename(temporary, folder)
        return str(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
