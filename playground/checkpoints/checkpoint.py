"""Save and load checkpoints: folders of four files, written atomically, checked before use.

    config.json            settings, step, versions and scores (manifest.py)
    model.safetensors      the weights
    training.safetensors   the step, the state of the optimizer and of the random
                           generators; without it a checkpoint can be used, but not resumed
    metrics.jsonl          the metrics of every step, a line each

A checkpoint contains no pickle, and nothing in it is ever executed.
"""

import dataclasses
import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from playground.architectures import load_architecture
from playground.architectures.seq2seq_model import Seq2SeqModel
from playground.common import messages
from playground.common.atomic_write import write_dir
from playground.common.messages import file_label
from playground.evaluation import EvalResult
from playground.training.optimizers import optimizer_state_keys
from playground.training.run_config import RunConfig
from playground.training.trainer import MAX_THREADS, Metrics, Trainer

from .manifest import CheckpointError, Manifest, read_unchanged
from .metrics import read_metrics
from .tensors import Expected, load_checked_tensors, serialize_tensors, validate_header

OPTIONAL_STATE = {"finished", "training_set"}


def save_checkpoint(
    folder: Path,
    trainer: Trainer,
    metrics: Iterable[Metrics | Mapping[str, Any]] | None,
    scores: EvalResult | None = None,
    *,
    resumable: bool = True,
    extra: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Write a checkpoint of the current step.

    An earlier checkpoint in `folder` is replaced once the new one is on disk. If `metrics` is None,
    there is no metrics.jsonl, because the caller stores the metrics elsewhere. Raises
    CheckpointError if it cannot be written (disk full, no permission); the earlier one stays.
    """
    scores_by_name = dataclasses.asdict(scores) if scores else None
    tensors = {"model.safetensors": serialize_tensors(weights_by_name(trainer.eval_model))}
    if resumable:
        tensors["training.safetensors"] = serialize_tensors(trainer.state_dict())
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in tensors.items()}
    manifest = Manifest(
        trainer.config,
        trainer.step_count,
        trainer.seconds,
        trainer.device.type,
        scores_by_name,
        changes=tuple(trainer.changes),
        sha256=checksums,
    )
    files = {"config.json": manifest.to_json().encode(), **tensors, **(extra or {})}
    if metrics is not None:
        files["metrics.jsonl"] = "".join(
            json.dumps(metrics_record(m)) + "\n" for m in metrics
        ).encode()
    try:
        write_dir(folder, files)
    except OSError as error:
        raise CheckpointError(
            f"could not write the checkpoint {file_label(folder)}: {error.strerror or error}; "
            "the previous checkpoint is unchanged"
        ) from error
    return manifest


def metrics_record(metrics: Metrics | Mapping[str, Any]) -> dict[str, Any]:
    """Convert metrics to a line of metrics.jsonl, rounded, without missing values."""
    values = metrics if isinstance(metrics, Mapping) else dataclasses.asdict(metrics)
    return {
        k: float(f"{v:.6g}") if isinstance(v, float) else v
        for k, v in values.items()
        if v is not None
    }


def load_model(folder: Path, device: str = "cpu") -> tuple[Manifest, Seq2SeqModel]:
    """Load the model of a checkpoint, ready for use. Raises CheckpointError."""
    folder = Path(folder)

    def read(manifest: Manifest) -> Seq2SeqModel:
        path, config = folder / "model.safetensors", manifest.config
        tensors = load_checked_tensors(path, expected_tensors(config))
        model = build_model(config)
        _copy_weights(model, tensors)
        verify_checksums(folder, manifest, "model.safetensors")
        return model.to(device).eval()

    return read_unchanged(folder, read)


def resume_trainer(
    folder: Path, max_threads: int = MAX_THREADS, **settings: Any
) -> tuple[Trainer, list[dict[str, Any]]]:
    """Load a trainer that continues from the checkpoint, and the metrics so far.

    `settings` are new values; they override the setting changes during the run. Raises
    CheckpointError as `load_model`, and for a checkpoint without training.safetensors.
    """
    folder = Path(folder)
    return read_unchanged(
        folder, lambda manifest: _resume_trainer(folder, manifest, max_threads, settings)
    )[1]


def _resume_trainer(
    folder: Path, manifest: Manifest, max_threads: int, settings: dict[str, Any]
) -> tuple[Trainer, list[dict[str, Any]]]:
    path = folder / "training.safetensors"
    if not path.is_file():
        raise CheckpointError(
            f"{file_label(folder)} contains only weights and cannot be resumed; train a new run "
            "instead"
        )
    # The header is checked before a model of an untrusted config is built.
    validate_header(folder / "model.safetensors", expected_tensors(manifest.config))
    changes = [change for change in manifest.changes if change.setting not in settings]
    trainer = Trainer(
        manifest.config.replace(**settings) if settings else manifest.config,
        changes,
        max_threads=max_threads,
    )
    if trainer.config.model != manifest.config.model:
        raise CheckpointError(
            f"{file_label(folder)} contains another model than the changed settings describe; "
            "train a new run instead"
        )
    saved, current = manifest.config.training, trainer.config.training
    if optimizer_state_keys(saved, trainer.model) != optimizer_state_keys(current, trainer.model):
        needs = (
            f"{current.optimizer} with momentum {current.momentum:g}"
            if current.optimizer == "sgd"
            else current.optimizer
        )
        raise CheckpointError(
            f"{file_label(folder)} contains the optimizer state of {saved.optimizer}, not that "
            f"of {needs}; keep optimizer and momentum, or train a new run instead"
        )
    if saved.weight_averaging != current.weight_averaging:
        raise CheckpointError(
            f"{file_label(folder)} was trained with weight_averaging {saved.weight_averaging}, not "
            f"{current.weight_averaging}; keep weight_averaging, or train a new run instead"
        )
    restore_trainer(trainer, folder / "model.safetensors", path, manifest.step, manifest.device)
    # The checksums come last, because the other checks give more specific errors.
    verify_checksums(folder, manifest, "model.safetensors", "training.safetensors")
    trainer.seconds = manifest.seconds
    if not {"stop_at_exact_match", "max_steps"}.isdisjoint(settings):
        trainer.reopen()
    return trainer, list(read_metrics(folder, whole=True))


def restore_trainer(trainer: Trainer, weights: Path, state: Path, step: int, device: str) -> None:
    """Restore a trainer to the state of another one with the same settings at `step`.

    `device` is the kind of device of that state. Raises CheckpointError for the first mismatch.
    """
    expected: Expected = {
        "generator.data": (torch.uint8, None),
        "generator.torch": (torch.uint8, None),
        "step": (torch.int64, ()),
        "finished": (torch.uint8, ()),
    }
    training_set = trainer.training_set
    if training_set is not None:
        expected["training_set"] = (torch.int64, ())
    if device != "cpu":
        expected[f"generator.{device}"] = (torch.uint8, None)
    keys = optimizer_state_keys(trainer.config.training, trainer.model)
    for name, weight in trainer.model.named_parameters():
        for key in keys[name] if step else ():
            shape = () if key == "step" else tuple(weight.shape)
            expected[f"optimizer.{key}.{name}"] = (torch.float32, shape)
        if trainer.average is not None:
            expected[f"weight.{name}"] = (torch.float32, tuple(weight.shape))
    tensors = load_checked_tensors(state, expected, optional=OPTIONAL_STATE)
    if int(tensors["step"]) != step:
        raise CheckpointError(
            f"{file_label(state)} belongs to step {int(tensors['step'])}, not to step {step}; "
            "use another checkpoint"
        )
    if training_set is not None and tensors.get("training_set") != training_set.fingerprint:
        raise CheckpointError(
            "the run trained on another fixed training set than these settings and this version "
            "choose, so it cannot be resumed; train a new run. This checkpoint can still be "
            "inspected and evaluated"
        )
    for name, tensor in tensors.items():
        is_step_count = name.startswith("optimizer.step.")
        if (is_step_count and int(tensor) != step) or (
            name.startswith("optimizer.exp_avg_sq.") and bool((tensor < 0).any())
        ):
            raise CheckpointError(
                f"{file_label(state)}: tensor {name!r} contains values that are impossible for "
                "Adam; use another checkpoint"
            )
    load_weights(trainer.eval_model, weights)
    try:
        trainer.load_state_dict(tensors, same_device=device == trainer.device.type)
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"{file_label(state)} contains an invalid generator state ({error}); use another "
            "checkpoint"
        ) from None


def weights_by_name(model: Seq2SeqModel) -> dict[str, Tensor]:
    """Return the weights by name; a shared one appears once, under its first name."""
    if not model.saveable:
        raise CheckpointError("this copy of the model has the bug of a lesson and cannot be saved")
    return dict(model.named_parameters())


class WeightsSerializer:
    """Serializes the weights of one model repeatedly, ten times as fast as `serialize_tensors`.

    Names and offsets do not change, and one operation copies all weights from the GPU.
    """

    def __init__(self, model: Seq2SeqModel) -> None:
        tensors = weights_by_name(model)
        packed = serialize_tensors(tensors)
        length = 8 + struct.unpack("<Q", packed[:8])[0]
        self._header = packed[:length]
        entries = json.loads(packed[8:length])
        self._weights = [
            tensors[name]
            for name in sorted(tensors, key=lambda name: entries[name]["data_offsets"][0])
        ]

    def __call__(self) -> bytes:
        flat = torch.cat([weight.detach().reshape(-1) for weight in self._weights])
        return self._header + flat.cpu().numpy().tobytes()


def verify_checksums(folder: Path, manifest: Manifest, *names: str) -> None:
    """Raise CheckpointError for a changed file of tensors; config.json may have no checksum."""
    for name in names:
        if name in manifest.sha256:
            try:
                with open(folder / name, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise CheckpointError(messages.could_not_read(folder / name, error)) from None
            if digest != manifest.sha256[name]:
                raise CheckpointError(
                    f"{file_label(folder / name)} has changed since it was written: its "
                    "checksum differs; use another checkpoint"
                )


def build_model(config: RunConfig) -> Seq2SeqModel:
    """Build the model of a run's settings, with random weights."""
    return load_architecture(config.architecture)(config.model)


def load_weights(model: Seq2SeqModel, path: Path) -> None:
    """Load the weights of a file into a model. After a CheckpointError it is unchanged."""
    _copy_weights(model, load_checked_tensors(path, _describe_weights(model)))


def expected_tensors(config: RunConfig) -> Expected:
    """Return the types and shapes of a model's weights by name, without building it."""
    with torch.device("meta"):
        return _describe_weights(build_model(config))


def _describe_weights(model: Seq2SeqModel) -> Expected:
    weights = weights_by_name(model)
    return {name: (weight.dtype, tuple(weight.shape)) for name, weight in weights.items()}


def _copy_weights(model: Seq2SeqModel, tensors: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in weights_by_name(model).items():
            weight.copy_(tensors[name])
