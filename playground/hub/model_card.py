"""The model card of a published model.

`write_card` writes README.md, its figures and evaluation.json into the folder of a packaged model.
Every number on the card is measured, and the same checkpoint always gives the same bytes. The text
is in templates/model_card.md.j2; this file collects its facts.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from playground.architectures import ARCHITECTURES
from playground.architectures.parameter_groups import parameter_count
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.checkpoints.checkpoint import load_model
from playground.checkpoints.manifest import Manifest, training_command
from playground.checkpoints.metrics import read_metrics
from playground.common.env import TAG, playground_url
from playground.common.format import format_count
from playground.common.stats import exact_match_interval
from playground.datasets.pairs import DatasetError
from playground.datasets.storage import dataset_origin
from playground.evaluation import evaluate
from playground.figures.figures import training_curve
from playground.figures.style import render
from playground.runs.summary import task_label
from playground.tasks import LOOKUP
from playground.tasks.held_out import HeldOutSet, build_held_out_set
from playground.tasks.task import Task
from playground.training.run_config import field_named
from playground.training.setting_changes import RESULT_NEUTRAL_SETTINGS, config_at_step
from playground.training.task_config import TaskConfig
from playground.training.trainer import FINAL_EVAL_SIZE

from .card_measurements import Example, attention_picture, other_lengths, worked_examples
from .existing_card import ExistingCard, signed_card
from .formats import package_format
from .markdown import format_lengths, format_tokens, render_card

NO_CARD = ExistingCard()
PROBE_LENGTH = 10  # of the sequence in the attention figure


def write_card(
    package: Path,
    checkpoint: Path,
    *,
    repo: str,
    license: str = "",
    existing: ExistingCard = NO_CARD,
) -> None:
    """Write the model card of a checkpoint into the folder of its package.

    `license` is an id, by default that of the card `existing` of the repository, or else
    `default_license`. Raises CheckpointError if the checkpoint cannot be read, DatasetError if it
    has no scores and its dataset is not stored here, OSError if a file cannot be read or written.
    """
    manifest, model = load_model(checkpoint)
    config, task = manifest.config, manifest.config.task.load()
    default = default_license(config.task)
    named = {"license": license or default} if license or default else {}
    card_license = named if license else existing.license or named
    measured = _measure(package, checkpoint, manifest, model, task)
    front = _metadata(repo, card_license, default, manifest, task, measured["scores"])
    facts = {
        "repo": repo,
        "license": ExistingCard(card_license).license_text,
        "name": repo.split("/")[1],
        "manifest": manifest,
        "training": config.training,
        "task": task,
        "form": package_format(config.architecture),
        "playground_url": playground_url(),
        "lengths": format_lengths(config.task),
        "alphabet": task.vocabulary.describe(),
        "architecture": ARCHITECTURES[config.architecture].title,
        "n_parameters": parameter_count(config.model),
        "n_positions": config.model.max_positions - 1,
        **_task_facts(task, config.task),
        **measured,
        **_score_facts(measured, config.task),
        **_usage_facts(measured["examples"], task),
        **_training_facts(manifest),
    }
    text = render_card("model_card.md.j2", facts)
    (package / "README.md").write_bytes(signed_card(front, text).encode())
    scores = json.dumps(measured["scores"], indent=2)
    (package / "evaluation.json").write_bytes(scores.encode() + b"\n")


def default_license(task: TaskConfig) -> str:
    """Return the license of a model whose author names none: that of its data, if it is known."""
    return dataset_origin(task.dataset_sha256).get("license", "") if task.task == LOOKUP else "mit"


def _measure(
    package: Path, checkpoint: Path, manifest: Manifest, model: Seq2SeqModel, task: Task
) -> dict[str, Any]:
    """Measure what the card reports, and draw its figures into the package.

    Returns the `scores`, the `other_lengths` that do not occur in training, the worked `examples`,
    and the alternative texts of the figures, each empty without one.
    """
    low, high = manifest.config.task.min_length, manifest.config.task.max_length
    held_out: HeldOutSet | None = None
    try:
        held_out = build_held_out_set(task, FINAL_EVAL_SIZE, low, high)
        scores = manifest.scores or dataclasses.asdict(evaluate(model, held_out))
    except DatasetError:
        # The dataset is not stored here, so the card can only repeat the recorded scores.
        if manifest.scores is None:
            raise
        held_out, scores = None, manifest.scores
    lines = list(read_metrics(checkpoint, manifest.step))
    training_alt = ""
    if lines:
        (package / "training.png").write_bytes(render(training_curve(lines), "png"))
        losses = f"from {lines[0]['loss']:.3g} to {lines[-1]['loss']:.3g}"
        training_alt = f"Training loss over {format_count(manifest.step, 'step')}, {losses}"
    measured = {
        "scores": scores,
        "other_lengths": [],
        "examples": [],
        "training_alt": training_alt,
        "attention_alt": "",
    }
    if held_out is None:
        return measured
    length, picture = max(low, min(high, PROBE_LENGTH)), package / "cross-attention.png"
    return measured | {
        "other_lengths": other_lengths(model, task, manifest.config),
        "examples": worked_examples(model, task, held_out, low, high),
        "attention_alt": attention_picture(model, task, held_out, length, picture),
    }


def _metadata(
    repo: str,
    license: Mapping[str, Any],
    default: str,
    manifest: Manifest,
    task: Task,
    scores: Mapping[str, Any],
) -> ModelCardData:
    """Return the card's metadata, as the Hub reads it; `default` is a license that is not named."""
    config = manifest.config
    origin = _dataset_origin(config.task)
    evaluation: dict[str, Any] = {
        "task_type": "other",  # no transformers pipeline accepts such sequences
        "task_name": "Sequence to sequence",
        "dataset_type": "synthetic",
        "dataset_name": (
            f"{task.name}, held-out sequences of {format_lengths(config.task)} tokens "
            f"({task.vocabulary.describe()})"
        ),
        "dataset_split": "test",
    }
    results = [
        EvalResult(
            **evaluation,
            metric_type=kind,
            metric_name=name,
            metric_value=scores[kind],
            metric_args={"n": scores["n"]},
        )
        for kind, name in (("exact_match", "Exact match"), ("token_accuracy", "Token accuracy"))
        if scores[kind] is not None
    ]
    return ModelCardData(
        **license,
        library_name="transformers",
        tags=[TAG, task.name, config.architecture],
        datasets=[origin] if origin else None,
        metrics=["exact_match"],
        model_name=repo.split("/")[1],
        eval_results=results,
        playground={"task": task_label(config), "step": manifest.step, "license": default},
    )


# The facts of the template


def _task_facts(task: Task, config: TaskConfig) -> dict[str, Any]:
    source = task.example_source()
    target = task.target_for(task.vocabulary.encode(source))
    rule = (type(task).__doc__ or "").split(":")[0].strip().rstrip(".")
    is_dataset = config.task == LOOKUP
    return {
        "example": target and {"source": source, "target": format_tokens(task, target)},
        "rule": f"{rule[0].lower()}{rule[1:]}" if rule and "\n" not in rule else "",
        "is_dataset": is_dataset,
        "dataset_sha256": config.dataset_sha256,
        "origin": _dataset_origin(config),
        "noun": "pairs" if is_dataset else "sequences",
        "held_out_every": config.held_out_one_in,
        "n_training_sources": config.n_training_sources,
        "has_eos": config.predict_eos,
    }


def _score_facts(measured: Mapping[str, Any], config: TaskConfig) -> dict[str, Any]:
    scores, others = measured["scores"], measured["other_lengths"]
    lines = [
        {**line, "is_trained": is_trained, "interval": exact_match_interval(line)}
        for rows, is_trained in ((scores["by_length"], True), (others, False))
        for line in rows
    ]
    return {
        "n_correct": round(scores["exact_match"] * scores["n"]),
        "by_length": sorted(lines, key=lambda line: line["length"]),
        "empty_lengths": [line["length"] for line in scores["by_length"] if not line["n"]],
        "has_longer": any(line["length"] > config.max_length for line in others),
    }


def _usage_facts(examples: Sequence[Example], task: Task) -> dict[str, Any]:
    correct = next((example for example in examples if example.is_correct), None)
    example = correct or (examples[0] if examples else None)
    return {
        "usage_source": example.source if example else task.example_source(),
        "usage_result": correct.prediction if correct else None,
    }


def _training_facts(manifest: Manifest) -> dict[str, Any]:
    config, command = manifest.config, training_command(manifest)
    changes = [
        change
        for change in manifest.changes
        if change.step < manifest.step and change.setting not in RESULT_NEUTRAL_SETTINGS
    ]
    active = config_at_step(config.training, manifest.changes, manifest.step)
    return {
        "n_sampled": manifest.step * config.training.batch_size,
        "n_threads": active.num_threads,
        "command": command,
        "command_differs": any(
            change.setting in ("learning_rate", "stop_at_exact_match") for change in changes
        ),
        "changes": changes,
        "settings": [
            (name, value, field_named(name).metadata["help"])
            for name, value in config.to_flat().items()
            if name != "architecture"
        ],
    }


def _dataset_origin(config: TaskConfig) -> str:
    """Return the dataset of the Hub from which the task was loaded; empty for any other task."""
    if config.task != LOOKUP:
        return ""
    return str(dataset_origin(config.dataset_sha256).get("dataset") or "")
