"""Fine-tuning: the Trainer trains a pretrained model further on the task of a checkpoint.

The result is a folder in the format of transformers, which every part of the comparison accepts
as a model. If it lies under checkpoints/compared, its name is `tuned:` and the folder name.

The job reports rows of two kinds:

    memory   estimated bytes by purpose, and the free ones; `model` is the name of the result
    step     the metrics at a step; step 0 is the pretrained model
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from playground.checkpoints.checkpoint import metrics_record
from playground.checkpoints.manifest import read_manifest
from playground.common.atomic_write import remove_dir, replacing_dir
from playground.common.format import format_bytes
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.models.config import ModelConfig
from playground.models.config_fields import ConfigError
from playground.pretrained.model_files import CAUSAL, ResolvedModel, kind_of, read_config
from playground.pretrained.model_names import (
    FINETUNED_PREFIX,
    METADATA_FILE,
    finetuned_dir,
    local_paths_allowed,
)
from playground.pretrained.pipelines import load_and_detect_kind, unload
from playground.pretrained.resolver import describe_models, resolve
from playground.runs.memory import free_memory
from playground.tasks.vocabulary import SPECIAL_TOKENS
from playground.training.config import RunConfig, TaskConfig, TrainConfig
from playground.training.trainer import Trainer, TrainingDivergedError

from .families import (
    MAX_POSITIONS,
    PretrainedCausalFamily,
    PretrainedFamily,
    PretrainedFamilyConfig,
    PretrainedMaskedFamily,
)

STEPS = 100
LEARNING_RATE = 2e-4
BATCH_SIZE = 16
WARMUP_FRACTION = 0.1
EVALUATIONS = 10  # evaluations on held-out sequences during training
DEFAULT_PROMPT_TOKENS = 16  # estimate of a prompt's tokens besides its symbols, without a tokenizer
MAX_SETTINGS = {"steps": 5000, "batch_size": 256, "n": 1000}
SHARED_MAX_SETTINGS = {"steps": 200, "batch_size": 16, "n": 40}  # on a shared instance
SHARED_MAX_MODELS = 6  # fine-tuned models stored on a shared instance
MODEL_TTL_S = 3600.0  # seconds for which another user's model cannot be evicted


@dataclass(frozen=True)
class FinetuneRequest:
    """A fine-tuning request.

    checkpoint     the folder whose task is used; set by the server or the command line, never by a
                   browser
    destination    the output folder, set likewise; empty for one under checkpoints/compared
    model          a name on the Hub, a folder if those are allowed, or a model that was fine-tuned
                   before
    steps          training steps
    learning_rate  the peak, after a warm-up over a tenth of the steps; then cosine decay
    batch_size     sequences per step
    n              held-out sequences per evaluation
    owner          the fingerprint of the user, set by the server; empty on the command line
    seed           the same seed gives the same losses on the same machine
    """

    checkpoint: str
    destination: str
    owner: str
    model: str
    steps: int
    learning_rate: float
    batch_size: int
    n: int
    seed: int

    @classmethod
    def parse(cls, request: dict[str, Any]) -> FinetuneRequest:
        """Validate a request; raises UserError if it is invalid."""
        limits = MAX_SETTINGS if local_paths_allowed() else SHARED_MAX_SETTINGS

        def number(name: str, default: float, low: float, high: float) -> Any:
            value = request.get(name, default)
            whole = isinstance(default, int)
            if (
                isinstance(value, bool)
                or not isinstance(value, int if whole else int | float)
                or not low <= value <= high
            ):
                raise UserError(
                    f"{name} is {str(value)[:40]}; give a {'whole ' if whole else ''}number "
                    f"from {low:g} to {high:,g}"
                )
            return value

        checkpoint, model = request.get("checkpoint"), request.get("model")
        if not isinstance(checkpoint, str) or not checkpoint:
            raise UserError("choose a checkpoint; the model is trained on its task")
        if not isinstance(model, str) or not model.strip():
            raise UserError("name a model to fine-tune, such as gpt2")
        return cls(
            checkpoint,
            str(request.get("into") or ""),
            str(request.get("owner") or ""),
            model,
            number("steps", STEPS, 1, limits["steps"]),
            float(number("learning_rate", LEARNING_RATE, 1e-8, 0.1)),
            number("batch_size", BATCH_SIZE, 1, limits["batch_size"]),
            number("n", min(64, limits["n"]), 1, limits["n"]),
            number("seed", 0, 0, 2**31 - 1),
        )

    def run_config(self, task: TaskConfig) -> RunConfig:
        """Return the settings of the Trainer; the model part holds only what the task needs."""
        vocabulary = task.n_task_symbols + len(SPECIAL_TOKENS)
        positions = task.max_sequence_length + 1
        training = TrainConfig(
            max_steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            lr_schedule="cosine",
            warmup_steps=round(WARMUP_FRACTION * self.steps),
            lr_decay_steps=self.steps,
            adam_beta2=0.999,
            adam_eps=1e-8,
            eval_every=math.ceil(self.steps / EVALUATIONS),
            eval_size=self.n,
            seed=self.seed,
            num_threads=torch.get_num_threads(),
        )
        return RunConfig(
            task,
            ModelConfig(
                source_vocab_size=vocabulary, target_vocab_size=vocabulary, max_positions=positions
            ),
            training,
        )


def finetune(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Train a pretrained model further, with the fields of FinetuneRequest.

    A cancellation saves the weights so far.

    Raises:
        UserError: if the model cannot be trained, does not fit into memory, or cannot be saved.
        JobCancelled: before the first step.
    """
    settings = FinetuneRequest.parse(request)
    task = read_manifest(Path(settings.checkpoint)).config.task
    resolved = resolve(settings.model, progress)
    config = read_config(resolved.folder, resolved.name)
    parts = memory_estimate(resolved, config, task, settings.batch_size)
    folder, name = output_location(settings, resolved, task)
    ensure_memory(resolved.name, parts)
    ensure_disk_space(folder, resolved)
    if not local_paths_allowed():
        models_to_evict(folder.parent, settings.owner)
    progress.row(
        {
            "kind": "memory",
            "bytes": sum(parts.values()),
            "parts": parts,
            "free": free_memory(),
            "model": name,
        }
    )
    pipe, kind = load_and_detect_kind(resolved, progress)
    unload(resolved.folder)  # training changes its weights, so no other job may share it
    rules = task.load()
    family = (PretrainedCausalFamily if kind == CAUSAL else PretrainedMaskedFamily)(
        pipe.model, pipe.tokenizer, rules, resolved.name
    )
    family.ensure_fits_context(task.max_length)
    trainer = Trainer(settings.run_config(task), model=family)
    before, after = _train(trainer, family, settings, resolved.name, progress)
    steps = trainer.step_count
    facts = {
        "from": resolved.name,
        "task": task.task,
        "steps": steps,
        "lengths": [task.min_length, task.max_length],
        "learning_rate": settings.learning_rate,
        "batch_size": settings.batch_size,
        "seed": settings.seed,
    }
    save(family.model, pipe.tokenizer, folder, facts | {"owner": settings.owner}, resolved.name)
    return {
        "model": name,
        "kind": kind,
        "asked_steps": settings.steps,
        "cancelled": steps < settings.steps,
        "before": before,
        "after": after,
        "seconds": trainer.seconds,
        "parameters": family.config.parameters,
        "bytes": resolved.bytes,
        "note": "a masked model is given the length of the answer" if kind != CAUSAL else "",
        **facts,
    }


def _train(
    trainer: Trainer,
    model: PretrainedFamily,
    settings: FinetuneRequest,
    name: str,
    progress: ProgressReporter,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Train to the end or to a cancellation.

    Returns the metrics before the first step, and the last ones with their step.
    """

    def evaluate_step(*_: Any) -> None:
        progress.raise_if_cancelled()

    # a forward pass of a large model takes seconds, so a cancellation is checked in each module
    hooks = [module.register_forward_pre_hook(evaluate_step) for module in model.model.modules()]
    last: dict[str, Any] | None = None
    try:
        progress.message(
            f"Evaluating {name} before training on {settings.n} held-out sequences, zero-shot"
        )
        scores = trainer.evaluate(settings.n)
        before = {
            "step": 0,
            "exact_match": scores.exact_match,
            "token_accuracy": scores.token_accuracy,
            "eval_size": scores.n,
        }
        progress.row({"kind": "step", **before})
        progress.message(
            f"Training {name}: {settings.steps} steps of {settings.batch_size} sequences"
        )
        try:
            for metrics in trainer:
                row = metrics_record(metrics)
                last = {key: row[key] for key in before} if "eval_size" in row else last
                progress.row({"kind": "step", **row})
                progress.progress(metrics.step, settings.steps, "steps")
        except JobCancelled:
            if not trainer.step_count:
                raise
        except TrainingDivergedError as error:
            raise UserError(
                f"{name}: the loss is not finite after {trainer.step_count} steps; nothing was "
                f"saved; try again with a learning rate below {settings.learning_rate:g}"
            ) from error
        return before, last
    finally:
        for hook in hooks:
            hook.remove()


def plan(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Estimate the cost of fine-tuning without a download. `request`: see FinetuneRequest.

    "bytes" by "parts" and "free" ones; "fits". For a model that is only on the Hub, activations
    are unknown and left out.
    """
    settings = FinetuneRequest.parse(request)
    task = read_manifest(Path(settings.checkpoint)).config.task
    try:
        resolved = resolve(settings.model, progress, local_only=True)
        parts = memory_estimate(
            resolved, read_config(resolved.folder, resolved.name), task, settings.batch_size
        )
    except UserError:
        row = describe_models(
            {"models": [settings.model]}, ProgressReporter(cancelled=progress.cancelled)
        )["models"][0]
        if row["where"] != "hub":
            raise
        numbers = row["parameters"] or row["bytes"] // 4
        parts = {"weights": 4 * numbers, "gradients": 4 * numbers, "averages": 8 * numbers}
    needed, free = sum(parts.values()), free_memory()
    return {"bytes": needed, "parts": parts, "free": free, "fits": needed <= 0.9 * free}


def memory_estimate(
    resolved: ResolvedModel, config: dict[str, Any], task: TaskConfig, batch_size: int
) -> dict[str, int]:
    """Estimate the bytes that training takes, by purpose.

    Raises:
        UserError: for a model whose config does not contain its sizes.
    """
    from transformers import AutoConfig

    answer = task.load().max_target_length(task.max_length)
    try:
        result = AutoConfig.from_pretrained(resolved.folder, trust_remote_code=False)
        sizes = PretrainedFamilyConfig.of(
            result,
            MAX_POSITIONS,
            DEFAULT_PROMPT_TOKENS,
            resolved.parameters,
            kind_of(config) != CAUSAL,
        )
    except (AttributeError, ConfigError, ValueError, TypeError) as error:
        raise UserError(
            f"{resolved.name} cannot be fine-tuned here ({str(error)[:160]}); choose another model"
        ) from None
    return sizes.training_bytes(batch_size, task.max_length + 1, answer + 1)


def ensure_memory(name: str, parts: dict[str, int]) -> None:
    """Check that training fits into memory, and unload other models if necessary.

    Raises:
        UserError: with the estimate and the free memory.
    """
    needed = sum(parts.values())
    if needed > 0.9 * free_memory():
        unload()
    if needed > 0.9 * free_memory():
        raise UserError(
            f"fine-tuning {name} takes about {format_bytes(needed)} "
            f"({format_bytes(parts['activations'])} of it for activations) and "
            f"{format_bytes(free_memory())} are free; choose a smaller model or batch size, or "
            "end a run",
            retryable=True,
        )


def ensure_disk_space(folder: Path, resolved: ResolvedModel) -> None:
    """Check the free disk space before hours of training."""
    models_folder = folder.parent
    while not models_folder.exists() and models_folder != models_folder.parent:
        models_folder = models_folder.parent
    free, needed = shutil.disk_usage(models_folder).free, 4 * resolved.parameters + 20_000_000
    if needed > free:
        raise UserError(
            f"saving the fine-tuned {resolved.name} takes {format_bytes(needed)} and "
            f"{format_bytes(free)} are free on this disk; free some space, or choose a smaller "
            "model",
            retryable=True,
        )


def output_location(
    settings: FinetuneRequest, resolved: ResolvedModel, task: TaskConfig
) -> tuple[Path, str]:
    """Return the output folder, and its name as a model."""
    if settings.destination:
        return Path(settings.destination), settings.destination
    base = (
        re.sub(
            r"[^A-Za-z0-9._-]+", "-", Path(resolved.name.removeprefix(FINETUNED_PREFIX)).name
        ).strip("-._")[:60]
        or "model"
    )
    lengths = (
        f"{task.min_length}-{task.max_length}"
        if task.min_length < task.max_length
        else str(task.max_length)
    )
    name = base if base.endswith(f"-{task.task}-{lengths}") else f"{base}-{task.task}-{lengths}"
    if not local_paths_allowed():  # anyone who knows the name may use the model, so it is random
        name += f"-{secrets.token_hex(8)}"
    return finetuned_dir() / name, FINETUNED_PREFIX + name


def models_to_evict(models_folder: Path, owner: str, excluded: Path | None = None) -> list[Path]:
    """Return the models to evict for a new one of this owner.

    The owner's own models come first, then those of others older than an hour; the oldest
    first. `excluded` is the new model, if it exists already.

    Raises:
        UserError: if not enough models may be evicted.
    """
    modified_at = {
        path: path.stat().st_mtime
        for path in models_folder.glob("[!.]*")
        if path.is_dir() and path != excluded
    }
    of_owner = {path: owner_of(path) == owner for path in modified_at}
    evictable = [
        path
        for path in sorted(modified_at, key=lambda path: (not of_owner[path], modified_at[path]))
        if of_owner[path] or time.time() - modified_at[path] > MODEL_TTL_S
    ]
    too_many = max(0, len(modified_at) + 1 - SHARED_MAX_MODELS)
    if too_many > len(evictable):
        minutes = math.ceil((MODEL_TTL_S - time.time() + min(modified_at.values())) / 60)
        raise UserError(
            f"{len(modified_at)} fine-tuned models of other users are stored here, the maximum, "
            f"each for at least an hour; try again in about {minutes} minutes",
            retryable=True,
        )
    return evictable[:too_many]


def owner_of(folder: Path) -> str:
    """Return the owner's fingerprint of a fine-tuned model; empty if it has none."""
    try:
        return str(
            json.loads((folder / METADATA_FILE).read_text(encoding="utf-8")).get("owner", "")
        )
    except (OSError, ValueError, AttributeError):
        return ""


def save(model: Any, tokenizer: Any, folder: Path, facts: dict[str, Any], name: str) -> None:
    """Write a fine-tuned model atomically in the format of transformers.

    Raises:
        UserError: if it cannot be written; an earlier model in the folder stays.
    """
    try:
        with replacing_dir(folder) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            (temporary / METADATA_FILE).write_text(
                json.dumps(facts, indent=2) + "\n", encoding="utf-8"
            )
        if not local_paths_allowed():
            for each in models_to_evict(folder.parent, facts["owner"], excluded=folder):
                remove_dir(each)
    except (OSError, SafetensorError) as error:
        # SafetensorError reports a full disk during the write of tensors
        reason = getattr(error, "strerror", None) or str(error)[:160]
        raise UserError(
            f"{name} was trained but could not be saved ({reason}); no partial files remain. Free "
            "some space and train it again",
            retryable=True,
        ) from error
    finally:
        unload(str(folder))  # an earlier model of that name may be loaded
