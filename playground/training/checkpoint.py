"""Checkpoints: a folder of four files, written whole or not at all, and trusted only after it was checked.

    config.json            what was trained, how far, with what, and how well (manifest.py)
    model.safetensors      the weights
    training.safetensors   what the optimizer remembers, the generators, the step; without it a checkpoint can be used, not resumed
    metrics.jsonl          the metrics of every step, a line each

There is no pickle in here, and nothing in a checkpoint is ever executed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import Tensor

from playground.evaluation import Evaluation
from playground.families import load_family
from playground.families.family import Family
from playground.models.config import shown

from .config import RunConfig, TrainConfig
from .distributed import ALONE, Ranks
from .files import settle_folder, write_folder
from .manifest import CheckpointError, Manifest, is_number, parse_json, read_manifest
from .optimizers import counts_steps, remembered
from .trainer import MOST_THREADS, Metrics, Trainer

MOST_ATTEMPTS = 5  # of reading a checkpoint that another process replaces meanwhile
T = TypeVar("T")
Expected = dict[
    str, tuple[torch.dtype, tuple[int, ...] | None]
]  # types and shapes of tensors by name
LARGEST_HEADER = (
    1_000_000  # bytes; safetensors' own limit is 100 MB, a model here needs some 20,000
)
MOST_DIMENSIONS = 4  # the weights here have two at most; the product of 50,000 takes seconds
LARGEST_METRICS = 300_000_000  # bytes: the metrics of a million steps and some
LONGEST_LINE = 10_000  # bytes of one step's metrics
MOST_STEPS = TrainConfig.__dataclass_fields__["steps"].metadata["high"]
METRICS = {each.name for each in dataclasses.fields(Metrics)}
DTYPES = {"F32": torch.float32, "I64": torch.int64, "U8": torch.uint8}


def save_checkpoint(
    folder: Path,
    trainer: Trainer,
    metrics: Iterable[Metrics | Mapping[str, Any]] | None,
    scores: Evaluation | None = None,
    *,
    resumable: bool = True,
    extra: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Write a checkpoint of where `trainer` stands; an earlier one in `folder` is replaced once the new one is safe on disk.
    Without `metrics` (None), it has no metrics.jsonl: somebody else keeps them.

    Raises:
        CheckpointError: when it could not be written (disk full, no permission); the earlier one is still there.
    """
    scored = dataclasses.asdict(scores) if scores else None
    tensors = {"model.safetensors": pack(own_tensors(trainer.family))}
    if resumable:
        tensors["training.safetensors"] = pack(trainer.state())
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in tensors.items()}
    manifest = Manifest(
        trainer.config,
        trainer.step_count,
        trainer.seconds,
        trainer.device.type,
        scored,
        changes=tuple(trainer.changes),
        sha256=sums,
    )
    files = {"config.json": manifest.to_json().encode(), **tensors, **(extra or {})}
    if metrics is not None:
        files["metrics.jsonl"] = "".join(json.dumps(as_line(m)) + "\n" for m in metrics).encode()
    try:
        write_folder(folder, files)
    except OSError as error:
        reason = f"could not write the checkpoint {folder}: {error.strerror or error}; what was there before is kept"
        raise CheckpointError(reason) from error
    return manifest


def as_line(metrics: Metrics | Mapping[str, Any]) -> dict[str, Any]:
    """One line of metrics.jsonl: what was measured at a step, rounded to six digits, without what was not."""
    values = metrics if isinstance(metrics, Mapping) else dataclasses.asdict(metrics)
    return {
        k: float(f"{v:.6g}") if isinstance(v, float) else v
        for k, v in values.items()
        if v is not None
    }


def load_model(folder: Path, device: str = "cpu") -> tuple[Manifest, Family]:
    """The model of a checkpoint, ready to use.

    Raises:
        CheckpointError: when anything in it is missing, does not fit the configuration, or is not a finite number.
    """
    folder = Path(folder)

    def read(manifest: Manifest) -> Family:
        family = _with_weights(manifest.config, folder).to(device).eval()
        check_sums(folder, manifest, "model.safetensors")
        return family

    return _read_unchanged(folder, read)


def _read_unchanged(folder: Path, read: Callable[[Manifest], T]) -> tuple[Manifest, T]:
    """Read a checkpoint, and read it again where another process replaces it meanwhile.

    Raises:
        CheckpointError: as `read`, or when the checkpoint changes at every attempt.
    """
    settle_folder(folder)
    manifest = read_manifest(folder)
    for _ in range(MOST_ATTEMPTS):
        failure: CheckpointError | None = None
        try:
            content = read(manifest)
        except CheckpointError as error:
            failure = error
        settle_folder(folder)
        before, manifest = manifest, read_manifest(folder)
        if manifest == before:
            if failure is not None:
                raise failure
            return manifest, content
    raise CheckpointError(f"{folder} is replaced again and again while it is read; try again later")


def load_trainer(
    folder: Path, ranks: Ranks = ALONE, most_threads: int = MOST_THREADS, **settings: Any
) -> tuple[Trainer, list[dict[str, Any]]]:
    """A trainer that goes on where the checkpoint was taken, and the metrics until there. `settings` are
    new ones; for those, what had changed on the way no longer counts. Any number of `ranks` may take it up.

    Raises:
        CheckpointError: as `load_model`, and for a checkpoint without training.safetensors.
    """
    folder = Path(folder)
    if ranks.size == 1:
        return _read_unchanged(
            folder, lambda manifest: _load_trainer(folder, manifest, ranks, most_threads, settings)
        )[1]
    # Several processes take the same steps, so none of them may read again by itself.
    settle_folder(folder)
    manifest = read_manifest(folder)
    ranks.check_alike(f"checkpoint {folder}", manifest.to_json())
    return _load_trainer(folder, manifest, ranks, most_threads, settings)


def _load_trainer(
    folder: Path, manifest: Manifest, ranks: Ranks, most_threads: int, settings: dict[str, Any]
) -> tuple[Trainer, list[dict[str, Any]]]:
    path = folder / "training.safetensors"
    if not path.is_file():
        raise CheckpointError(
            f"{folder} holds weights only and cannot be resumed; train a new run instead"
        )
    check_header(
        folder / "model.safetensors", _shapes(manifest.config)
    )  # before a model is built that a hostile config describes
    kept = [change for change in manifest.changes if change.setting not in settings]
    trainer = Trainer(
        manifest.config.replace(**settings) if settings else manifest.config,
        kept,
        ranks=ranks,
        most_threads=most_threads,
    )
    if trainer.config.model != manifest.config.model:
        raise CheckpointError(
            f"{folder} holds another model than the changed settings describe; train a new run instead"
        )
    before, now = manifest.config.training, trainer.config.training
    if (remembered(before), counts_steps(before)) != (remembered(now), counts_steps(now)):
        needs = (
            f"{now.optimizer} with momentum {now.momentum:g}"
            if now.optimizer == "sgd"
            else now.optimizer
        )
        reason = f"{folder} holds what {before.optimizer} remembers of its updates, not what {needs} needs"
        raise CheckpointError(f"{reason}; keep optimizer and momentum, or train a new run instead")
    restore(trainer, folder / "model.safetensors", path, manifest.step, manifest.device)
    check_sums(
        folder, manifest, "model.safetensors", "training.safetensors"
    )  # last: what is wrong in itself has said so more plainly by now
    trainer.seconds = manifest.seconds
    if not {"until", "steps"}.isdisjoint(settings):
        trainer.reopen()
    return trainer, read_metrics(folder)


def restore(trainer: Trainer, weights: Path, state: Path, step: int, device: str) -> None:
    """Put a trainer where another one of the same settings stood at `step`, on that kind of device.

    Raises:
        CheckpointError: naming the file that does not fit, and the first thing in it that does not.
    """
    expected: Expected = {
        "generator.data": (torch.uint8, None),
        "generator.torch": (torch.uint8, None),
        "step": (torch.int64, ()),
        "finished": (torch.uint8, ()),
    }
    if device == "cuda":
        expected["generator.cuda"] = (torch.uint8, None)
    training = trainer.config.training
    for name, weight in trainer.family.named_parameters() if step else ():
        if counts_steps(training):
            expected[f"optimizer.step.{name}"] = (torch.float32, ())
        for key in remembered(training):
            expected[f"optimizer.{key}.{name}"] = (torch.float32, tuple(weight.shape))
    tensors = read_tensors(state, expected, optional={"finished"})
    if int(tensors["step"]) != step:
        raise CheckpointError(
            f"{state} is of step {int(tensors['step'])}, not of step {step}; take another checkpoint"
        )
    for name, tensor in tensors.items():
        counts = name.startswith("optimizer.step.")
        if (counts and int(tensor) != step) or (
            name.startswith("optimizer.exp_avg_sq.") and bool((tensor < 0).any())
        ):
            raise CheckpointError(
                f"{state}: tensor {name!r} holds what Adam never writes; take another checkpoint"
            )
    load_weights(trainer.family, weights)
    try:
        trainer.load_state(tensors, same_device=device == trainer.device.type)
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(
            f"{state} holds a generator state that torch refuses ({error}); take another checkpoint"
        ) from None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, as `iter_metrics` reads them."""
    return list(iter_metrics(folder))


def iter_metrics(folder: Path) -> Iterator[dict[str, Any]]:
    """Read metrics.jsonl line by line; it may hold one for every step of a long run.

    Raises:
        CheckpointError: for a line that is no JSON object with a step and a loss, naming its number.
    """
    path = Path(folder) / "metrics.jsonl"
    if not os.path.isfile(path):
        return
    try:
        size = path.stat().st_size
        if size > LARGEST_METRICS:
            raise CheckpointError(
                f"{path} has {size:,} bytes; at most {LARGEST_METRICS:,} are read"
            )
        with open(path, "rb") as file:
            for number, line in enumerate(
                iter(lambda: file.readline(LONGEST_LINE + 1), b""), start=1
            ):
                try:
                    if number > MOST_STEPS:
                        raise ValueError(
                            f"at most {MOST_STEPS:,} lines are read, one for each step"
                        )
                    content = _metrics_of(line)
                except ValueError as error:
                    raise CheckpointError(f"{path}, line {number}: {error}") from None
                yield content
    except OSError as error:
        raise CheckpointError(f"could not read {path}: {error.strerror or error}") from None


def _metrics_of(line: bytes) -> dict[str, Any]:
    """A line of metrics.jsonl as a dictionary. Raises ValueError for what `as_line` does not write."""
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
    content = parse_json(line)
    if not isinstance(content, dict) or not {"step", "loss"} <= set(content) <= METRICS:
        raise ValueError("these are not the metrics of a step")
    if not all(is_number(value) for value in content.values()) or type(content["step"]) is not int:
        raise ValueError("metrics must be numbers")
    return content


def own_tensors(family: Family) -> dict[str, Tensor]:
    """The weights by name; one that serves two layers appears once, under its first name.

    Raises:
        CheckpointError: for a copy with a mistake in it, which would look like a model once it is written down.
    """
    if not family.kept:
        raise CheckpointError(
            "this copy has a mistake in it on purpose: it is shown in a lesson, and never saved"
        )
    return dict(family.named_parameters())


def read_tensors(
    path: Path, expected: Expected, optional: Set[str] = frozenset()
) -> dict[str, Tensor]:
    """Tensors from a safetensors file that holds exactly what is expected: names, types, shapes (None: any), finite numbers.
    It may lack those that are `optional`.

    The header is checked against `expected` and the file's size before anything is allocated.

    Raises:
        CheckpointError: naming the file and the first thing that does not fit.
    """
    check_header(path, expected, optional)
    try:
        tensors = safetensors.torch.load_file(path)
    except (
        safetensors.SafetensorError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        OverflowError,
    ) as error:
        raise CheckpointError(f"{path} is broken: {error}") from None
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(
                f"{path}: tensor {name!r} holds NaN or infinity; take another checkpoint"
            )
    return tensors


def check_header(path: Path, expected: Expected, optional: Set[str] = frozenset()) -> None:
    """Hold what a safetensors file says of itself against what is expected, and against its size. Nothing is allocated.

    Raises:
        CheckpointError: naming the file and the first thing that does not fit.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            prefix = file.read(8)
            length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
            if not 2 <= length <= min(LARGEST_HEADER, size - 8):
                raise CheckpointError(
                    f"{path} is cut off or no safetensors file: its header claims {length:,} bytes"
                )
            header = parse_json(file.read(length))
    except OSError as error:
        raise CheckpointError(f"could not read {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise (
            error
            if isinstance(error, CheckpointError)
            else CheckpointError(f"{path} has a broken header: {error}")
        ) from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} has a broken header: it is no object")
    header.pop("__metadata__", None)
    if not set(expected) - optional <= set(header) <= set(expected):
        odd = sorted((set(header) ^ set(expected)) - optional)[0]
        verb = "lacks" if odd in expected else "holds the unexpected"
        raise CheckpointError(
            f"{path} {verb} tensor {odd[:80]!r}; it does not belong to this configuration"
        )
    places = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise CheckpointError(
                f"{path}: tensor {name!r} is not described by a type, a shape and offsets"
            )
        dtype, shape = expected[name]
        given = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if (
            given != dtype
            or not _is_shape(entry["shape"])
            or (shape is not None and entry["shape"] != list(shape))
        ):
            wanted = f"{dtype} {list(shape) if shape is not None else 'of any shape'}"
            raise CheckpointError(
                f"{path}: tensor {name!r} is {shown(entry['dtype'])} {shown(entry['shape'])}, expected {wanted}"
            )
        offsets = entry["data_offsets"]
        if (
            not isinstance(offsets, list)
            or len(offsets) != 2
            or not all(type(offset) is int and offset >= 0 for offset in offsets)
        ):
            raise CheckpointError(f"{path}: tensor {name!r} has no valid offsets")
        if offsets[1] - offsets[0] != dtype.itemsize * math.prod(entry["shape"]):
            raise CheckpointError(
                f"{path}: tensor {name!r} has offsets {shown(offsets)}, which do not fit its type and shape"
            )
        places.append((*offsets, name))
    end = 0
    for start, stop, name in sorted(places):
        if start != end:
            raise CheckpointError(
                f"{path}: tensor {name!r} begins at byte {start:,} of the data, where {end:,} is expected"
            )
        end = stop
    if end != size - 8 - length:
        raise CheckpointError(
            f"{path} has {size:,} bytes, its header describes {8 + length + end:,}; the file is cut off or has grown"
        )


def _is_shape(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(type(n) is int and 0 <= n < 2**63 for n in shape)
    )


class WeightsPacker:
    """Packs a model's weights again and again, as `pack` does, in a tenth of the time: names and places do not change, and
    all weights are copied, and fetched from a GPU, at once."""

    def __init__(self, family: Family) -> None:
        tensors = own_tensors(family)
        packed = pack(tensors)
        length = 8 + struct.unpack("<Q", packed[:8])[0]
        self._header = packed[:length]
        places = json.loads(packed[8:length])
        self._weights = [
            tensors[name]
            for name in sorted(tensors, key=lambda name: places[name]["data_offsets"][0])
        ]

    def __call__(self) -> bytes:
        flat = torch.cat([weight.detach().reshape(-1) for weight in self._weights])
        return self._header + flat.cpu().numpy().tobytes()


def check_sums(folder: Path, manifest: Manifest, *names: str) -> None:
    """Hold files of tensors against what was written of them. Where config.json names no sums, there is nothing to hold.

    Raises:
        CheckpointError: naming the file that is not what was written.
    """
    for name in names:
        if name in manifest.sha256:
            try:
                with open(folder / name, "rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise CheckpointError(
                    f"could not read {folder / name}: {error.strerror or error}"
                ) from None
            if found != manifest.sha256[name]:
                raise CheckpointError(
                    f"{folder / name} is not what was written: its checksum differs; take another checkpoint"
                )


def build_family(config: RunConfig) -> Family:
    """The model that a run's settings describe, with random weights."""
    return load_family(config.family)(config.model)


def shapes_of(config: RunConfig) -> dict[str, tuple[torch.dtype, tuple[int, ...] | None]]:
    """Return the types and shapes of a model's weights by name, without building it."""
    return _shapes(config)


def load_weights(family: Family, path: Path) -> None:
    """Put the weights of a file into a model.

    Raises:
        CheckpointError: when the file does not hold exactly this model's weights; the model is as before.
    """
    _set_tensors(
        family,
        read_tensors(
            path,
            {
                name: (weight.dtype, tuple(weight.shape))
                for name, weight in own_tensors(family).items()
            },
        ),
    )


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    return safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )


def _with_weights(config: RunConfig, folder: Path) -> Family:
    tensors = read_tensors(folder / "model.safetensors", _shapes(config))
    family = build_family(config)
    _set_tensors(family, tensors)
    return family


def _shapes(config: RunConfig) -> Expected:
    """Types and shapes of the weights of a model that is not built."""
    with torch.device("meta"):
        return {
            name: (weight.dtype, tuple(weight.shape))
            for name, weight in own_tensors(build_family(config)).items()
        }


def _set_tensors(family: Family, tensors: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, weight in own_tensors(family).items():
            weight.copy_(tensors[name])
