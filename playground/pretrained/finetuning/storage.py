"""The folders of fine-tuned models: names, limits on a shared instance, and writing."""

import json
import re
import secrets
import time
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from playground.common.atomic_write import remove_dir, replacing_dir
from playground.common.format import format_bytes
from playground.common.strict_json import read_json
from playground.errors import UserError
from playground.jobs.admission import Client, limit
from playground.training.task_config import TaskConfig

from ..loading.cache import free_disk_bytes
from ..loading.model_files import ResolvedModel
from ..loading.model_names import (
    FINETUNED_PREFIX,
    METADATA_FILE,
    finetuned_dir,
    local_paths_allowed,
)
from ..loading.pipelines import unload

MODEL_TTL_S = 3600.0  # seconds for which another user's model cannot be evicted


def ensure_disk_space(folder: Path, resolved: ResolvedModel) -> None:
    """Check the free disk space before hours of training."""
    free, needed = free_disk_bytes(folder.parent), 4 * resolved.parameters + 20_000_000
    if needed > free:
        raise UserError(
            f"saving the fine-tuned {resolved.name} takes {format_bytes(needed)} and "
            f"{format_bytes(free)} are free on this disk; free some space, or choose a smaller "
            "model",
            retryable=True,
        )


def output_location(
    destination: str, resolved: ResolvedModel, task: TaskConfig
) -> tuple[Path, str]:
    """Return the output folder, and its name as a model."""
    if destination:
        return Path(destination), destination
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


def models_to_evict(
    models_folder: Path, owner: str, address: str = "", excluded: Path | None = None
) -> list[Path]:
    """Return the models that make way for a new one of this owner, or raise UserError.

    The owner's own are first, then those of others older than an hour; the oldest first.
    `excluded` is the new model, if it exists already.
    """
    users = {
        path: _user_of(path)
        for path in sorted(models_folder.glob("[!.]*"), key=lambda path: path.stat().st_mtime)
        if path.is_dir() and path != excluded
    }
    idle = [
        path
        for path in sorted(users, key=lambda path: users[path].owner != owner)
        if users[path].owner == owner or time.time() - path.stat().st_mtime > MODEL_TTL_S
    ]
    evicted: list[Path] = []

    def make_way(path: Path) -> int:
        evicted.append(path)
        return 1

    limit("fine-tuned-models").admit_or_evict(Client(address, owner), users, idle, make_way)
    return evicted


def _user_of(folder: Path) -> Client:
    """Return the fingerprint of the owner of a fine-tuned model, and the hashed address."""
    try:
        metadata = read_json(folder / METADATA_FILE)
        return Client(str(metadata.get("address", "")), str(metadata.get("owner", "")))
    except (ValueError, AttributeError):
        return Client()


def save(model: Any, tokenizer: Any, folder: Path, facts: dict[str, Any], name: str) -> None:
    """Write a fine-tuned model atomically; if that fails, an earlier one in the folder stays."""
    try:
        with replacing_dir(folder) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            (temporary / METADATA_FILE).write_bytes(json.dumps(facts, indent=2).encode() + b"\n")
        if not local_paths_allowed():
            for each in models_to_evict(folder.parent, facts["owner"], facts["address"], folder):
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
