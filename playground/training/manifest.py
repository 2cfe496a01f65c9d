"""A checkpoint's config.json: what was trained, how far, with what, and how well. Read without torch, and without trust."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import playground
from playground.families import FAMILIES
from playground.models.config import ModelConfig, SettingError

from .config import RunConfig, TaskConfig, TrainConfig

SCHEMA_VERSION = 1
LARGEST_JSON = 1_000_000  # bytes; a real one has about 2,000


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written; the message says which file, what is wrong and what to do."""


@dataclass(frozen=True)
class Manifest:
    """config.json as a value. `scores` is what `evaluate` measured when the checkpoint was written, as a dictionary."""

    config: RunConfig
    step: int
    seconds: float
    device: str
    scores: dict[str, Any] | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: current_versions())

    def to_json(self) -> str:
        parts = dataclasses.asdict(self.config)
        content = {"schema_version": SCHEMA_VERSION, **parts, "step": self.step, "seconds": round(self.seconds, 3), "device": self.device}
        return json.dumps(content | {"scores": self.scores, "versions": self.versions}, indent=2, allow_nan=False) + "\n"


def current_versions() -> dict[str, str]:
    """Versions of what computes here."""
    return {"playground": playground.__version__, "torch": version("torch"), "python": platform.python_version()}


def read_manifest(folder: Path) -> Manifest:
    """Read and check `folder`/config.json.

    Raises:
        CheckpointError: no such checkpoint, or a file that is not what this version writes.
    """
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} is no checkpoint: it has no config.json; name a folder that `train --out` wrote")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        found = content.get("schema_version") if isinstance(content, dict) else None
        raise CheckpointError(f"{path} has schema_version {found!r}; this version of the playground reads {SCHEMA_VERSION}")
    try:
        config = RunConfig(
            task=TaskConfig(**content["task"]),
            model=ModelConfig(**content["model"]),
            training=TrainConfig(**content["training"]),
            family=content["family"],
        )
        if config.family not in FAMILIES:
            raise ValueError(f"family is {config.family!r}; choose one of {', '.join(FAMILIES)}")
        step, seconds, scores = content["step"], content["seconds"], content["scores"]
        if not (type(step) is int and step >= 0 and isinstance(seconds, int | float) and isinstance(scores, dict | None)):
            raise ValueError(f"step {step!r}, seconds {seconds!r} or scores {scores!r} are not what a run writes")
        return Manifest(config, step, float(seconds), str(content["device"]), scores, dict(content["versions"]))
    except KeyError as error:
        raise CheckpointError(f"{path} lacks {error}; the file is incomplete, take another checkpoint") from None
    except (TypeError, ValueError) as error:
        field = f" ({error.field})" if isinstance(error, SettingError) else ""
        raise CheckpointError(f"{path} does not describe a run{field}: {error}") from None


def read_json(path: Path) -> Any:
    """JSON from a file that may be hostile: bounded size, no NaN or infinity, no key twice, no bottomless nesting."""
    if path.stat().st_size > LARGEST_JSON:
        raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes; at most {LARGEST_JSON:,} are read")
    try:
        return parse_json(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path} is not the JSON that a checkpoint holds: {error}") from None


def parse_json(data: bytes) -> Any:
    """Strict JSON. Raises ValueError for anything else."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no number")

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refuse(text)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) != len(pairs):
            raise ValueError("a key stands twice")
        return keys

    try:
        return json.loads(data, parse_constant=refuse, parse_float=finite, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
