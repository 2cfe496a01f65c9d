"""Who may do what: the right of a requester on a model, and the owners of datasets.

A reference is `run:ID` for the owner of a run, `watch:ID` for viewers with a share link, or
`checkpoint:NAME` for all users. A request that names a model declares the right that it needs, and
`require` is the only way from its reference to the model.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from playground.checkpoints.manifest import CheckpointError, cached_manifest
from playground.common import messages
from playground.datasets.storage import owned_datasets_dir
from playground.errors import UserError
from playground.models.config_fields import ConfigError
from playground.tasks import LOOKUP
from playground.training.run_config import RunConfig
from playground.training.task_config import DATASET_SETTINGS

from .owner_keys import valid_owner_key
from .record import owner_id
from .summary import default_name

if TYPE_CHECKING:
    from .registry import Registry
    from .state import Run

RUN_PREFIX, SHARE_PREFIX, CHECKPOINT_PREFIX = "run:", "watch:", "checkpoint:"
# codes of errors: no such model for the requester; viewers without the owner's consent
NOT_FOUND, PRIVATE = "not-found", "private"
PRIVATE_EXAMPLES = "the owner of this run keeps its examples private"


class Right(IntEnum):
    """What a requester may do with a model. Each right includes those before it."""

    WATCH = 1  # curves, scores, roles of heads, attention without tokens
    USE = 2  # held-out samples, predictions and views, but no other row of a private dataset
    REUSE = 3  # what reads or repeats its training data: jobs, the report, training on its task
    OWN = 4  # changes, downloads, publishing


DENIALS = {
    Right.USE: f"{PRIVATE_EXAMPLES}; ask for permission, or open another model",
    Right.REUSE: "this model was trained on a private dataset; only its owner may train on it, "
    "compare it or write a report; choose another model",
    Right.OWN: "this run is not yours; only its owner may change, download or publish it",
}


OptionalOwner = Annotated[str, BeforeValidator(valid_owner_key)]


class ModelRef(BaseModel):
    """The fields of a request that name a model."""

    model_config = ConfigDict(strict=True, frozen=True)

    subject: str = Field("", max_length=400)
    owner: OptionalOwner = ""

    @property
    def is_share_link(self) -> bool:
        return self.subject.startswith(SHARE_PREFIX)

    @property
    def reads_disk(self) -> bool:
        """Whether `require` reads the disk for this reference."""
        return self.subject.startswith(CHECKPOINT_PREFIX)

    def require(self, registry: Registry, right: Right) -> Any:
        """Return the model; requests that name several models override it."""
        return require(registry, self, right)


@dataclass(frozen=True)
class Access:
    """A model, which is a run or the folder of a checkpoint, and the right of the requester."""

    right: Right
    run: Run | None = None
    folder: Path = Path()

    @property
    def source(self) -> Run | Path:
        return self.run or self.folder

    @property
    def name(self) -> str:
        """The name for the requester.

        Viewers of a run on own data get its default name: the other may be that of a private file.
        """
        if self.run is None:
            return self.folder.name
        is_private = self.run.config.task.task == LOOKUP and self.right < Right.OWN
        return default_name(self.run.config) if is_private else self.run.name

    @property
    def config(self) -> RunConfig:
        """The settings of the model. Raises CheckpointError for an unreadable checkpoint."""
        return self.run.config if self.run else cached_manifest(self.folder).config

    def settings(self) -> dict[str, Any]:
        """Return the settings by name; those of a private dataset only to who may reuse it."""
        fields = self.config.to_flat()
        if self.right < Right.REUSE:
            fields = {name: fields[name] for name in fields if name not in DATASET_SETTINGS}
        return fields

    def newest_checkpoint(self) -> Path:
        """Return the folder of the newest checkpoint; raises UserError (retryable) without one."""
        if self.run is None:
            return self.folder
        if checkpoints := self.run.checkpoints():
            return checkpoints[0][0]
        raise UserError(
            f"{self.name} has no checkpoint yet; pause it, or wait for the first one",
            retryable=True,
        )


def find_access(registry: Registry, ref: ModelRef) -> Access | None:
    """Return the model of a reference with the right that its requester holds; None if none."""
    kind, _, name = ref.subject.partition(":")
    if kind + ":" == RUN_PREFIX:
        run = registry.find(name, ref.owner)
        return Access(Right.OWN, run) if run else None
    if kind + ":" == SHARE_PREFIX:
        run = registry.find_shared(name)
        return Access(_viewer_right(run), run) if run else None
    is_checkpoint = kind + ":" == CHECKPOINT_PREFIX
    if is_checkpoint and (folder := registry.storage.list_checkpoints().get(name)):
        return Access(_checkpoint_right(registry, folder, ref.owner), folder=folder)
    return None


def _viewer_right(run: Run) -> Right:
    if not run.record.may_viewers_use:
        return Right.WATCH
    return Right.USE if run.config.task.task == LOOKUP else Right.REUSE


def _checkpoint_right(registry: Registry, folder: Path, owner: str) -> Right:
    """Return the right on a checkpoint of the storage folder, which all users may use.

    All may also publish one of a built-in task; one of a dataset only who owns the dataset.
    """
    try:
        task = cached_manifest(folder).config.task
    except (CheckpointError, OSError):  # the request reports it when it reads the checkpoint
        return Right.USE
    is_private = task.task == LOOKUP and not owns_dataset(registry, owner, task.dataset_sha256)
    return Right.USE if is_private else Right.OWN


def require(registry: Registry, ref: ModelRef, right: Right) -> Access:
    """Return the model of a reference to a requester who holds a right on it.

    It reads the disk for a checkpoint. Raises UserError if there is no such model, or the requester
    may do less.
    """
    access = find_access(registry, ref)
    if access is None:
        raise UserError(
            "this model is not on this server, or not yours; select another one above",
            code=NOT_FOUND,
        )
    if access.right < right:
        needed = Right.USE if access.right == Right.WATCH and right != Right.OWN else right
        raise UserError(DENIALS[needed], code=PRIVATE if needed == Right.USE else "")
    return access


def is_single_owner(registry: Registry, owner: str) -> bool:
    """Return whether this is the key of the only owner of a local instance."""
    return bool(registry.single_owner) and secrets.compare_digest(
        owner_id(owner), owner_id(registry.single_owner)
    )


def owned_datasets(registry: Registry, owner: str) -> frozenset[str] | None:
    """Return the SHA-256 of each dataset that an owner added or trains on; None for all."""
    if is_single_owner(registry, owner):
        return None
    if not owner:
        return frozenset()
    added = (path.name for path in owned_datasets_dir(owner_id(owner)).glob("*"))
    trained = (run.config.task.dataset_sha256 for run in registry.list_for_owner(owner))
    return frozenset((*added, *trained))


def owns_dataset(registry: Registry, owner: str, sha256: str) -> bool:
    """Return whether an owner may use the dataset with this SHA-256. It reads the disk."""
    owned = owned_datasets(registry, owner)
    return owned is None or sha256 in owned


def require_dataset(registry: Registry, config: RunConfig, owner: str) -> None:
    """Raise ConfigError unless an owner may train on the data of a run, which is stored here."""
    task = config.task
    if task.task == LOOKUP and not owns_dataset(registry, owner, task.dataset_sha256):
        raise ConfigError("dataset_sha256", messages.missing_dataset(task.dataset_sha256))
