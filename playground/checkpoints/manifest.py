"""A checkpoint's config.json: settings, step, versions and scores.

It is untrusted input, and this file reads it without torch.
"""

import dataclasses
import json
import os
import platform
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import playground
from playground.architectures import ARCHITECTURES
from playground.common import messages
from playground.common.messages import file_label
from playground.common.strict_json import read_json
from playground.errors import UserError
from playground.models.config_fields import ConfigError, short_repr
from playground.training.config import RunConfig, drop_foreign_defaults
from playground.training.setting_changes import SettingChange
from playground.training.task_config import TaskConfig
from playground.training.train_config import TrainConfig

SCHEMA_VERSION = 2
MANIFEST_KEYS = {
    "schema_version",
    "task",
    "model",
    "training",
    "architecture",
    "step",
    "seconds",
    "device",
    "scores",
    "versions",
    "changes",
    "sha256",
}
MAX_LENGTHS = 512  # the maximum of the settings
MAX_ENTRIES = 16  # of versions and of sha256; a valid file has three and two
MAX_ENTRY_CHARS = 200  # characters


class CheckpointError(UserError):
    """A checkpoint cannot be read or written; the message has the file, problem and remedy."""


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
        parts = dataclasses.asdict(self.config)
        content = {
            "schema_version": SCHEMA_VERSION,
            **parts,
            "step": self.step,
            "seconds": round(self.seconds, 3),
            "device": self.device,
        }
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
    """Read and check `folder`/config.json.

    Raises:
        CheckpointError: if there is no checkpoint, or the file is invalid.
    """
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
        architecture = content["architecture"]
        if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
            raise ValueError(
                messages.choose_one_of("architecture", short_repr(architecture), ARCHITECTURES)
            )
        config_class = ARCHITECTURES[architecture].config_class
        if isinstance(content["model"], dict):
            content["model"] = drop_foreign_defaults(content["model"], config_class)
        config = RunConfig(
            task=_parse_section(TaskConfig, content, "task"),
            model=_parse_section(config_class, content, "model"),
            training=_parse_section(TrainConfig, content, "training"),
            architecture=architecture,
        )
        step, seconds, scores = content["step"], content["seconds"], content["scores"]
        odd = sorted(set(content) - MANIFEST_KEYS)
        if odd:
            raise ValueError(f"it holds the unknown key {short_repr(odd[0])}")
        _check_progress(step, seconds)
        if content["device"] not in ("cpu", "cuda"):
            raise ValueError(f"device is {short_repr(content['device'])}; it must be cpu or cuda")
        versions, sums = content["versions"], content.get("sha256", {})
        _check_texts("versions", versions)
        _check_texts("sha256", sums)
        if scores is not None:
            validate_scores(scores)
        changes = tuple(SettingChange.parse(content.get("changes", [])))
        return Manifest(
            config, step, float(seconds), content["device"], scores, versions, changes, sums
        )
    except KeyError as error:
        raise CheckpointError(
            f"{file_label(path)} lacks {error}; the file is incomplete, use another checkpoint"
        ) from None
    except (TypeError, ValueError) as error:
        field = f" ({error.field})" if isinstance(error, ConfigError) else ""
        raise CheckpointError(
            f"{file_label(path)} does not describe a run{field}: {error}"
        ) from None


def cached_manifest(folder: Path) -> Manifest:
    """Return the result of `read_manifest`, cached while config.json does not change.

    An uncached read takes milliseconds. The caller must not modify the result.

    Raises:
        CheckpointError: if config.json is missing or invalid.
    """
    try:
        stat = os.stat(folder / "config.json")
    except OSError:
        return read_manifest(folder)  # raises an error with the reason
    return _manifest_of(folder, stat.st_mtime_ns, stat.st_size, stat.st_ino)


@lru_cache(maxsize=1024)
def _manifest_of(folder: Path, *_version: int) -> Manifest:
    return read_manifest(folder)


def _parse_section(kind: Any, content: dict[str, Any], name: str) -> Any:
    """Parse one of the three groups of settings."""
    section = content[name]
    if not isinstance(section, dict):
        raise ValueError(f"{name} is {short_repr(section)}; it must be settings and their values")
    unknown = sorted(set(section) - {each.name for each in dataclasses.fields(kind)})
    if unknown:
        raise ValueError(f"{name} holds the unknown setting {short_repr(unknown[0])}")
    return kind(**section)


def _check_progress(step: Any, seconds: Any) -> None:
    is_step = type(step) is int and 0 <= step < 2**31
    if not is_step or not is_number(seconds) or not 0 <= seconds < 1e12:
        raise ValueError(
            f"step {short_repr(step)} or seconds {short_repr(seconds)} is outside the accepted "
            "range"
        )


def _check_texts(name: str, texts: object) -> None:
    """Check that a part of config.json is a small table of names and texts.

    Raises:
        ValueError: for anything else.
    """
    if isinstance(texts, dict) and len(texts) > MAX_ENTRIES:
        raise ValueError(f"{name} has {len(texts):,} entries; at most {MAX_ENTRIES} are read")
    if not isinstance(texts, dict) or not all(isinstance(v, str) for v in texts.values()):
        raise ValueError(f"{name} are {short_repr(texts)}; they must be names and texts")
    if any(len(part) > MAX_ENTRY_CHARS for pair in texts.items() for part in pair):
        raise ValueError(
            f"{name} hold a text of more than {MAX_ENTRY_CHARS} characters; shorten it"
        )


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def validate_scores(scores: object) -> None:
    """Check that scores have the format of `evaluate`, in total and by length.

    Raises:
        ValueError: for the first invalid entry.
    """

    def check(line: object, counts: set[str], shares: set[str], others: set[str]) -> None:
        if not isinstance(line, dict) or set(line) != counts | shares | others:
            raise ValueError(
                f"scores hold {short_repr(line)}, which does not have the keys of an evaluation"
            )
        for key in counts:
            if line[key] is not None and (type(line[key]) is not int or not 0 <= line[key] < 2**63):
                raise ValueError(f"scores: {key} is {short_repr(line[key])}; it must be a count")
        for key in shares:
            if line[key] is not None and (not is_number(line[key]) or not 0 <= line[key] <= 1):
                raise ValueError(
                    f"scores: {key} is {short_repr(line[key])}; it must be a fraction from 0 to 1"
                )

    check(scores, {"n"}, {"exact_match", "token_accuracy"}, {"by_length"})
    assert isinstance(scores, dict)
    if (
        not isinstance(scores["by_length"], list)
        or scores["n"] is None
        or scores["exact_match"] is None
    ):
        raise ValueError("scores lack n, exact_match or by_length")
    if len(scores["by_length"]) > MAX_LENGTHS:
        n_lengths = len(scores["by_length"])
        raise ValueError(f"scores hold {n_lengths:,} lengths; at most {MAX_LENGTHS} are read")
    for line in scores["by_length"]:
        check(line, {"length", "n", "available"}, {"exact_match", "token_accuracy"}, set())
