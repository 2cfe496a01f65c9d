"""Fine-tuning: the Trainer trains a pretrained model further on the task of a checkpoint.

The result is a folder in the format of transformers, which every part of the comparison accepts
as a model. If it lies under checkpoints/compared, its name is `tuned:` and the folder name.

The job reports rows of two kinds:

    memory   estimated bytes by purpose, and the free ones; `model` is the name of the result
    step     the metrics at a step; step 0 is the pretrained model
"""

import math
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field

from playground.checkpoints.checkpoint import metrics_record
from playground.checkpoints.manifest import read_manifest
from playground.common.format import format_bytes
from playground.common.platform import free_memory
from playground.errors import UserError
from playground.jobs.progress import JobCancelled, ProgressReporter
from playground.models.config import TransformerConfig
from playground.models.config_fields import ConfigError
from playground.tasks.vocabulary import SPECIAL_TOKENS
from playground.training.run_config import RunConfig
from playground.training.step import TrainingDivergedError
from playground.training.task_config import TaskConfig
from playground.training.train_config import TrainConfig
from playground.training.trainer import Trainer

from ..loading.model_files import CAUSAL, MASKED, ResolvedModel, kind_of, read_config
from ..loading.model_names import local_paths_allowed
from ..loading.pipelines import (
    MEMORY_SHARE,
    check_kind,
    ensure_memory,
    load_and_detect_kind,
    load_config,
    load_tokenizer,
    unload,
)
from ..loading.resolver import describe_models, resolve
from ..requests import JobRequest, Seed
from ..tokens import max_input_tokens
from .seq2seq import (
    CausalSeq2Seq,
    MaskedSeq2Seq,
    PretrainedSeq2Seq,
    PretrainedSeq2SeqConfig,
    PromptTemplate,
)
from .storage import ensure_disk_space, models_to_evict, output_location, save

WARMUP_FRACTION = 0.1
EVALUATIONS = 10  # evaluations on held-out sequences during training


class FinetuneRequest(JobRequest):
    """A fine-tuning request.

    The server or the command line, never a browser, sets the folders `checkpoint`, whose task is
    used, and `destination` (empty for one under checkpoints/compared), `owner` (a fingerprint) and
    `address` (hashed). `learning_rate` is the peak, after a warm-up over a tenth of the steps; then
    it decays along a cosine. An evaluation has `n` held-out sequences.
    """

    shared_limits: ClassVar = {"steps": 200, "batch_size": 16, "n": 40}

    checkpoint: str = Field(
        min_length=1, json_schema_extra={"accepts": "a checkpoint, whose task is used"}
    )
    destination: str = ""
    owner: str = ""
    address: str = ""
    model: str = Field(
        min_length=1, json_schema_extra={"accepts": "a model to fine-tune, such as gpt2"}
    )
    steps: int = Field(100, ge=1, le=5000)
    learning_rate: float = Field(2e-4, ge=1e-8, le=0.1)
    batch_size: int = Field(16, ge=1, le=256)
    n: int = Field(default_factory=lambda: 64 if local_paths_allowed() else 40, ge=1, le=1000)
    seed: Seed = 0

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
            TransformerConfig(
                source_vocab_size=vocabulary, target_vocab_size=vocabulary, max_positions=positions
            ),
            training,
        )


def finetune(request: dict[str, Any], progress: ProgressReporter) -> dict[str, Any]:
    """Train a pretrained model further, with the fields of FinetuneRequest.

    A cancellation saves the weights so far.
    """
    parsed = FinetuneRequest.parse(request)
    task = read_manifest(Path(parsed.checkpoint)).config.task
    task.load().check_lengths(task.min_length, task.max_length)  # before a download
    resolved = resolve(parsed.model, progress, partial(read_sizes, task))
    folder, name = output_location(parsed.destination, resolved, task)
    parts = memory_estimate(resolved, task, parsed.batch_size)
    needed, activations = sum(parts.values()), parts["activations"]
    ensure_memory(
        needed,
        f"fine-tuning {resolved.name} takes about {format_bytes(needed)} "
        f"({format_bytes(activations)} of it for activations)",
        "choose a smaller model or batch size",
    )
    ensure_disk_space(folder, resolved)
    if not local_paths_allowed():
        models_to_evict(folder.parent, parsed.owner, parsed.address)
    memory = {"bytes": needed, "parts": parts, "free_bytes": free_memory()}
    progress.row({"kind": "memory", **memory, "model": name})
    pipe, kind = load_and_detect_kind(resolved, progress)
    unload(resolved.folder)  # training changes its weights, so no other job may share it
    model = (CausalSeq2Seq if kind == CAUSAL else MaskedSeq2Seq)(
        pipe.model, pipe.tokenizer, task.load(), resolved.name
    )
    trainer = Trainer(parsed.run_config(task), model=model)
    before, after = _train(trainer, model, parsed, resolved.name, progress)
    metadata = {
        "from": resolved.name,
        "task": task.task,
        "steps": trainer.step_count,
        "lengths": [task.min_length, task.max_length],
        "learning_rate": parsed.learning_rate,
        "batch_size": parsed.batch_size,
        "seed": parsed.seed,
    }
    user = {"owner": parsed.owner, "address": parsed.address}
    save(model.model, pipe.tokenizer, folder, metadata | user, resolved.name)
    return {
        "model": name,
        "kind": kind,
        "cancelled": trainer.step_count < parsed.steps,
        "before": before,
        "after": after,
        "seconds": trainer.seconds,
        "parameters": model.config.parameters,
        "bytes": resolved.bytes,
        "note": "a masked model is given the length of the target" if kind != CAUSAL else "",
        **metadata,
    }


def _train(
    trainer: Trainer,
    model: PretrainedSeq2Seq,
    settings: FinetuneRequest,
    name: str,
    progress: ProgressReporter,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Train; return the metrics before the first step, and the last ones with their step."""

    def raise_if_cancelled(*_: Any) -> None:
        progress.raise_if_cancelled()

    # a forward pass of a large model takes seconds, so a cancellation is checked in each module
    hooks = [
        module.register_forward_pre_hook(raise_if_cancelled) for module in model.model.modules()
    ]
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

    "bytes" by "parts", "free_bytes" and "fits". For a model that is only on the Hub, activations
    are unknown.
    """
    settings = FinetuneRequest.parse(request)
    task = read_manifest(Path(settings.checkpoint)).config.task
    try:
        resolved = resolve(settings.model, progress, local_only=True)
    except UserError:
        row = describe_models(
            {"models": [settings.model]}, ProgressReporter(cancelled=progress.cancelled)
        )["models"][0]
        if row["location"] != "hub":
            raise
        numbers = row["parameters"] or row["bytes"] // 4
        parts = {"weights": 4 * numbers, "gradients": 4 * numbers, "optimizer_state": 8 * numbers}
    else:
        parts = memory_estimate(resolved, task, settings.batch_size)
    needed, free = sum(parts.values()), free_memory()
    fits = needed <= MEMORY_SHARE * free
    return {"bytes": needed, "parts": parts, "free_bytes": free, "fits": fits}


def read_sizes(
    task: TaskConfig, name: str, folder: Path, parameters: int = 1
) -> PretrainedSeq2SeqConfig:
    """Read the sizes of a model without its weights; check that it can train on a task."""
    check_kind("fine-tuning", name, folder)
    kind, loaded = kind_of(read_config(folder, name)), task.load()
    config, tokenizer = load_config("fine-tuning", name, folder), load_tokenizer(name, folder)
    template = PromptTemplate.of(tokenizer, loaded.vocabulary.symbols, name, kind)
    positions = max_input_tokens(config, tokenizer)
    try:
        sizes = PretrainedSeq2SeqConfig.of(config, positions, template, parameters, kind == MASKED)
    except (AttributeError, ConfigError, ValueError, TypeError) as error:
        raise UserError(
            f"{name} cannot be fine-tuned here ({str(error)[:160]}); choose another model"
        ) from None
    sizes.ensure_fits_context(task.max_length, loaded.max_target_length(task.max_length))
    return sizes


def memory_estimate(resolved: ResolvedModel, task: TaskConfig, batch_size: int) -> dict[str, int]:
    """Estimate the bytes that training takes, by purpose, from the config and the tokenizer."""
    sizes = read_sizes(task, resolved.name, Path(resolved.folder), resolved.parameters)
    target = task.load().max_target_length(task.max_length) + 1
    return sizes.training_bytes(batch_size, task.max_length + 1, target)
