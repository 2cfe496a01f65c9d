"""A new classification head on a pretrained model, trained on the texts of a user.

Shapes: B batch, Q tokens, C labels.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

import torch
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
from playground.pretrained.request_fields import (
    choice_field,
    integer_field,
    number_field,
    text_field,
)
from playground.pretrained.resolver import resolve
from playground.runs.memory import free_memory

from .labelled_texts import MAX_ROW_LENGTH, LabelledTexts, read_labelled

MAX_TOKENS = 128  # maximum tokens of a text during training; the rest is truncated
EVALUATIONS = 12  # evaluations on the held-out texts during training
MAX_SETTINGS = {"steps": 2000, "batch_size": 64, "tokens": MAX_TOKENS}
SHARED_MAX_SETTINGS = {"steps": 200, "batch_size": 16, "tokens": 64}  # on a shared instance
MIN_USEFUL_STEPS = 60  # a new head hardly changes in fewer steps


def train_classifier(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Put a new head on a model and train it on labelled texts.

    `request`: model, csv (the content of the file), sentence (classified before and after), train
    ("all", or "head" with the rest frozen), epochs (3, and more for few rows), batch_size (16),
    learning_rate (5e-5, or 3e-3 for the head alone), seed (0).

    Each evaluation on the held-out texts reports a row: step, loss (mean since the last
    evaluation), held_out_accuracy. The result has `before` and `after` of the sentence,
    `held_out` (right, n, accuracy, and its 95 % interval), the baselines `chance` and
    `majority_fraction`, and if local folders are allowed as models, `folder`, which can be used as
    one.

    Raises:
        UserError: for an invalid CSV, or if training does not fit into memory, with the estimate.
    """
    content, sentence = (
        request.get("csv"),
        text_field(request, "sentence", MAX_ROW_LENGTH, "a good film"),
    )
    if not isinstance(content, str) or not content.strip():
        raise UserError("the CSV is missing; paste or choose one with the columns text and label")
    everything = choice_field(request, "train", ("all", "head"), "all") == "all"
    limits = MAX_SETTINGS if local_paths_allowed() else SHARED_MAX_SETTINGS
    size, seed = (
        integer_field(request, "batch_size", 16, 1, limits["batch_size"]),
        integer_field(request, "seed", 0, 0, 2**31 - 1),
    )
    rate = number_field(request, "learning_rate", 5e-5 if everything else 3e-3, 1e-7, 0.1)
    rows = read_labelled(content, seed)
    an_epoch = math.ceil(len(rows.training) / size)
    default_epochs = max(3, math.ceil(MIN_USEFUL_STEPS / an_epoch))
    epochs = integer_field(
        request, "epochs", max(1, min(default_epochs, limits["steps"] // an_epoch)), 1, 100
    )
    steps = epochs * an_epoch
    if steps > limits["steps"]:
        less = "fewer epochs" if an_epoch <= limits["steps"] else "larger batches, or fewer rows"
        raise UserError(
            f"{epochs} epochs of {len(rows.training):,} rows are {steps:,} steps; the maximum "
            f"is {limits['steps']:,}: use {less}"
        )
    resolved = resolve(request.get("model", ""), progress)
    unload()  # free memory; other models are loaded again on request
    model, tokenizer, newly_initialized = _load_with_head(resolved, rows.labels, seed, progress)
    if not everything:
        for name, weight in model.named_parameters():
            weight.requires_grad_(name in newly_initialized)
    needed = memory_estimate(model, size, limits["tokens"])
    _ensure_memory(resolved.name, needed)
    progress.message(
        f"Training takes about {format_bytes(needed)}; first running the randomly initialized head"
    )
    trainer = _ClassifierTrainer(model, tokenizer, rows, limits["tokens"])
    score_before = trainer.predict(sentence)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        seconds = _train(trainer, rate, epochs, size, seed, progress)
    n_correct, n = trainer.accuracy(progress), len(rows.held_out)
    counts = [
        sum(label == place for _, label in rows.held_out) for place in range(len(rows.labels))
    ]
    folder = _save(model, tokenizer, resolved, progress) if local_paths_allowed() else ""
    low, high = wilson_interval(n_correct, n) if n else (0.0, 1.0)
    return {
        "model": resolved.name,
        "labels": rows.labels,
        "training_rows": len(rows.training),
        "sentence": sentence,
        "before": {"labels": score_before, "note": UNTRAINED_NOTE},
        "after": {"labels": trainer.predict(sentence)},
        "held_out": {
            "right": n_correct,
            "n": n,
            "accuracy": n_correct / n,
            "low": low,
            "high": high,
        },
        "chance": 1 / len(rows.labels),
        "majority_fraction": max(counts) / n,
        "trained_parameters": sum(
            each.numel() for each in model.parameters() if each.requires_grad
        ),
        "steps": steps,
        "seconds": seconds,
        "memory_estimate": needed,
        "folder": folder,
        "notes": rows.notes
        if folder
        else [
            *rows.notes,
            "this playground stores no trained models of its users: the trained head was deleted",
        ],
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
    newly_initialized, config, tokenizer = (
        newly_initialized_weights("text-classification", resolved),
        pipe.model.config,
        pipe.tokenizer,
    )
    base = pipe.model.base_model.state_dict()
    unload(resolved.folder)
    del pipe
    config.num_labels = len(labels)
    config.id2label, config.label2id = (
        dict(enumerate(labels)),
        {label: place for place, label in enumerate(labels)},
    )
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
    """A model, its tokenizer, and labelled texts as at most `tokens` tokens each."""

    def __init__(self, model: Any, tokenizer: Any, rows: LabelledTexts, tokens: int) -> None:
        self.model, self.tokenizer, self.labels = model, tokenizer, rows.labels
        self.training, self.held_out = rows.training, rows.held_out
        positions = getattr(model.config, "max_position_embeddings", None) or tokens
        self.max_tokens = min(tokens, int(positions), int(tokenizer.model_max_length))

    def logits(self, texts: list[str]) -> Tensor:
        """Return the logits of the labels, BC."""
        coded = self.tokenizer(
            texts, return_tensors="pt", padding=True, truncation=True, max_length=self.max_tokens
        )
        logits_BC: Tensor = self.model(**coded.to(self.model.device)).logits
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
    def accuracy(self, progress: ProgressReporter) -> int:
        """Return how many held-out texts are classified correctly."""
        self.model.eval()
        count = 0
        for start in range(0, len(self.held_out), 32):
            progress.raise_if_cancelled()
            texts, places = zip(*self.held_out[start : start + 32], strict=True)
            count += int((self.logits(list(texts)).argmax(-1).cpu() == torch.tensor(places)).sum())
        return count


def _train(
    trainer: _ClassifierTrainer,
    rate: float,
    epochs: int,
    size: int,
    seed: int,
    progress: ProgressReporter,
) -> float:
    """Train with AdamW and return the seconds it took.

    The learning rate warms up over a tenth of the steps and decays to zero, as in Devlin et al.
    2018, appendix A.2 and A.3.
    """
    model, draw, n = trainer.model, random.Random(seed), len(trainer.held_out)
    weights = [each for each in model.parameters() if each.requires_grad]
    steps = epochs * math.ceil(len(trainer.training) / size)
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.01)
    warmup_steps = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            (step + 1) / warmup_steps, (steps - step) / max(1, steps - warmup_steps), 1.0
        ),
    )
    started_at, evaluation_interval, losses = (
        time.perf_counter(),
        max(1, steps // EVALUATIONS),
        list[float](),
    )
    progress.row(
        {"step": 0, "loss": None, "held_out_accuracy": trainer.accuracy(progress) / n, "n": n}
    )
    evaluations = time.perf_counter() - started_at
    batches: list[list[tuple[str, int]]] = []
    for step in range(1, steps + 1):
        progress.raise_if_cancelled()
        stepped = time.perf_counter()
        if not batches:
            rows = draw.sample(trainer.training, len(trainer.training))
            batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        texts, places = zip(*batches.pop(), strict=True)
        model.train()
        loss = cross_entropy(
            trainer.logits(list(texts)).float(), torch.tensor(places, device=model.device)
        )
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        if not bool(torch.isfinite(norm)):
            raise UserError(
                f"training diverged at step {step} (loss {float(loss.detach()):.3g}); use a "
                "lower learning_rate"
            )
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        if step == 1:
            seconds = (
                steps * (time.perf_counter() - stepped) + steps // evaluation_interval * evaluations
            )
            progress.message(
                f"Training on {len(trainer.training):,} texts: {steps:,} steps, about "
                f"{format_duration(seconds)}"
            )
        if step % evaluation_interval == 0 or step == steps:
            row = {
                "step": step,
                "loss": sum(losses) / len(losses),
                "held_out_accuracy": trainer.accuracy(progress) / n,
                "n": n,
            }
            progress.row(row)
            losses = []
        progress.progress(step, steps, "steps")
    return time.perf_counter() - started_at


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
    newly_initialized = folder_root / f".{secrets.token_hex(4)}.tmp"
    try:
        model.save_pretrained(newly_initialized)
        tokenizer.save_pretrained(newly_initialized)
        weights = (newly_initialized / "model.safetensors").read_bytes()
        folder = folder_root / f"{name}-{hashlib.sha256(weights).hexdigest()[:8]}"
        if folder.exists():
            return str(folder)  # the same weights were saved before
        with open(newly_initialized / "model.safetensors", "rb+") as file:
            os.fsync(file.fileno())
        os.rename(newly_initialized, folder)
        return str(folder)
    finally:
        shutil.rmtree(newly_initialized, ignore_errors=True)
