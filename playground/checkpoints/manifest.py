"""A checkpoint's config.json: settings, step, versions and scores; the command that repeats it.

It is untrusted input, and this file reads it without torch.
"""

import dataclasses
import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

import playground
from playground.architectures import ARCHITECTURES, check_architecture
from playground.common.atomic_write import wait_for_replacement
from playground.common.messages import file_label
from playground.common.storage import file_version
from playground.common.strict_json import read_json
from playground.common.validation import parse
from playground.errors import UserError
from playground.models.config_fields import ConfigError, short_repr
from playground.tasks import LOOKUP
from playground.training.presets import PRESETS, preset_config
from playground.training.run_config import RunConfig, drop_foreign_defaults
from playground.training.setting_changes import SettingChange
from playground.training.task_config import TaskConfig
from playground.training.train_config import TrainConfig

SCHEMA_VERSION = 2
MAX_ATTEMPTS = 5  # at reading a checkpoint that another process replaces at the same time
T = TypeVar("T")
MAX_LENGTHS = 512  # the maximum of the settings
MAX_ENTRIES = 16  # of versions and of sha256; a valid file has three and two
MAX_ENTRY_CHARS = 200  # characters


class CheckpointError(UserError):
    """A checkpoint cannot be read or written; the message has the file, problem and remedy."""


class _Checked(BaseModel):
    """A part of config.json; an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid")


Count = Annotated[int, Field(ge=0, lt=2**63)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=MAX_ENTRY_CHARS)]
Texts = Annotated[dict[Text, Text], Field(max_length=MAX_ENTRIES)]


class _LengthScores(_Checked):
    length: Count | None
    n: Count | None
    available: Count | None
    exact_match: Fraction | None
    token_accuracy: Fraction | None


class _Scores(_Checked):
    """The scores of `evaluate`, in total and by length."""

    n: Count
    exact_match: Fraction
    token_accuracy: Fraction | None
    by_length: Annotated[list[_LengthScores], Field(max_length=MAX_LENGTHS)]


def _check_scores(scores: dict[str, Any]) -> dict[str, Any]:
    parse(_Scores, scores)
    return scores


Scores = Annotated[dict[str, Any], AfterValidator(_check_scores)]
Changes = Annotated[
    tuple[SettingChange, ...],
    PlainValidator(lambda changes: tuple(SettingChange.parse(changes))),
    PlainSerializer(lambda changes: [change.to_list() for change in changes]),
]


class _Content(_Checked):
    """The content of config.json. The settings of the run are validated by their own classes."""

    schema_version: int
    task: dict[str, Any]
    model: dict[str, Any]
    training: dict[str, Any]
    architecture: str
    step: Annotated[int, Field(ge=0, lt=2**31)]
    seconds: Annotated[float, Field(ge=0, lt=1e12)]
    device: Literal["cpu", "cuda", "mps"]
    scores: Scores | None
    versions: Texts
    changes: Changes = ()
    sha256: Texts = Field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The content of config.json. `scores` are those of `evaluate` when it was written."""

    config: RunConfig
    step: int
    seconds: float
    device: str
    scores: dict[str, Any] | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=lambda: current_versions())
    changes: tuple[SettingChange, ...] = ()  # setting changes, past and scheduled
    # hashes of the tensor files, by name
    sha256: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        content = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self.config)}
        content |= {"step": self.step, "seconds": round(self.seconds, 3), "device": self.device}
        content |= {"scores": self.scores, "versions": self.versions}
        if self.changes:
            content["changes"] = [change.to_list() for change in self.changes]
        if self.sha256:
            content["sha256"] = self.sha256
        return json.dumps(content, indent=2, allow_nan=False) + "\n"


def current_versions() -> dict[str, str]:
    """Return the versions of the installed software that affects results."""
    return {
        "playground": playground.__version__,
        "torch": version("torch"),
        "python": platform.python_version(),
    }


def read_manifest(folder: Path) -> Manifest:
    """Read and check `folder`/config.json. Raises CheckpointError."""
    path = Path(folder) / "config.json"
    if not os.path.isfile(path):
        raise CheckpointError(
            f"{file_label(folder)} is not a checkpoint: it has no config.json; use a folder "
            "written by `train --out`"
        )
    try:
        content = read_json(path)
    except UserError as error:
        raise CheckpointError(str(error)) from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if type(version) is not int or version != SCHEMA_VERSION:
        raise CheckpointError(
            f"{file_label(path)} has schema_version {short_repr(version)}; this version of the "
            f"playground reads {SCHEMA_VERSION}"
        )
    try:
        return _parse_content(parse(_Content, content))
    except ValueError as error:
        raise CheckpointError(f"{file_label(path)} does not describe a run: {error}") from None


def read_unchanged(folder: Path, read: Callable[[Manifest], T]) -> tuple[Manifest, T]:
    """Read a checkpoint; read it again if another process replaces it at the same time.

    Raises CheckpointError, or what `read` raises if the checkpoint is still there.
    """
    wait_for_replacement(folder)
    manifest = read_manifest(folder)
    for _ in range(MAX_ATTEMPTS):
        failure: CheckpointError | OSError | None = None
        try:
            content = read(manifest)
        except (CheckpointError, OSError) as error:
            failure = error
        wait_for_replacement(folder)
        before, manifest = manifest, read_manifest(folder)
        if manifest == before:
            if failure is not None:
                raise failure
            return manifest, content
    raise CheckpointError(
        f"{file_label(folder)} is being replaced while it is read; try again later"
    )


def _parse_content(content: _Content) -> Manifest:
    check_architecture(content.architecture)
    config_class = ARCHITECTURES[content.architecture].config_class
    model = drop_foreign_defaults(content.model, config_class)
    config = RunConfig(
        task=_parse_section(TaskConfig, content.task, "task"),
        model=_parse_section(config_class, model, "model"),
        training=_parse_section(TrainConfig, content.training, "training"),
        architecture=content.architecture,
    )
    names = [each.name for each in dataclasses.fields(Manifest) if each.name != "config"]
    return Manifest(config, **{name: getattr(content, name) for name in names})


def cached_manifest(folder: Path) -> Manifest:
    """Return the result of `read_manifest`, cached while config.json does not change.

    An uncached read takes milliseconds. The caller must not modify the result.
    """
    return _manifest_of(folder, file_version(folder / "config.json"))


@lru_cache(maxsize=1024)
def _manifest_of(folder: Path, version: tuple[int, ...]) -> Manifest:
    return read_manifest(folder)


def _parse_section(kind: Any, section: dict[str, Any], name: str) -> Any:
    """Parse one of the three groups of settings."""
    unknown = sorted(set(section) - {each.name for each in dataclasses.fields(kind)})
    if unknown:
        raise ValueError(f"{name} holds the unknown setting {short_repr(unknown[0])}")
    return kind(**section)


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def training_command(manifest: Manifest) -> str | None:
    """Return the command that trains this model again on the same type of device, or None.

    None is for an untrained model, for a dataset, which the checkpoint does not contain, and for an
    architecture that is not the default. Changes of the learning rate are not included.
    """
    try:
        config = manifest.config.replace(max_steps=manifest.step, device=manifest.device)
    except ConfigError:
        return None
    if config.architecture != RunConfig().architecture or config.task.task == LOOKUP:
        return None
    task = config.task
    names = ("task", "n_symbols", "min_length", "max_length")
    fixed = {name: getattr(task, name) for name in names}
    changes = {}
    for name in PRESETS:
        base = preset_config(name, fixed).to_flat()
        if base["architecture"] == config.architecture:
            changes[name] = {k: v for k, v in config.to_flat().items() if v != base[k]}
    preset = min(changes, key=lambda name: len(changes[name]))
    words = ["python -m playground train", f"--task {task.task}"]
    words += [f"--n-symbols {task.n_symbols}"] if task.n_symbols != TaskConfig().n_symbols else []
    words += [f"--min-length {task.min_length}"] if task.min_length != task.max_length else []
    words += [f"--length {task.max_length}"]
    words += [f"--preset {preset}"] if preset != "fast" else []
    for key, value in changes[preset].items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(f"--{flag} {value}")
    return " ".join(words)
