"""The model that a request is about, and how to find it.

A reference is `run:ID` for the owner of a run, `watch:ID` for viewers with a share link, or
`checkpoint:NAME` for all users.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from playground.checkpoints.manifest import cached_manifest
from playground.errors import UserError
from playground.tasks import LOOKUP
from playground.training.config import RunConfig

from .registry import Registry
from .state import Run

RUN_PREFIX, SHARE_PREFIX, CHECKPOINT_PREFIX = "run:", "watch:", "checkpoint:"


def _owner_or_empty(value: object) -> str:
    """Return an owner key, or an empty string: any other value grants nothing."""
    return value if isinstance(value, str) else ""


OptionalOwner = Annotated[str, BeforeValidator(_owner_or_empty)]


class ModelRef(BaseModel):
    """The fields of a request that name a model."""

    model_config = ConfigDict(strict=True, frozen=True)

    subject: str = Field("", max_length=400)
    owner: OptionalOwner = ""

    @property
    def is_share_link(self) -> bool:
        return self.subject.startswith(SHARE_PREFIX)


def resolve_run(registry: Registry, ref: ModelRef) -> tuple[Run | None, bool]:
    """Return the run of a reference, and whether the caller owns it."""
    if ref.subject.startswith(RUN_PREFIX):
        return registry.find(ref.subject.removeprefix(RUN_PREFIX), ref.owner), True
    if ref.is_share_link:
        return registry.find_shared(ref.subject.removeprefix(SHARE_PREFIX)), False
    return None, False


def resolve_checkpoint(registry: Registry, ref: ModelRef) -> Path | None:
    """Return the folder of `checkpoint:NAME`, or None for an unknown name.

    It reads the disk.
    """
    if not ref.subject.startswith(CHECKPOINT_PREFIX):
        return None
    return registry.storage.list_checkpoints().get(ref.subject.removeprefix(CHECKPOINT_PREFIX))


def require_checkpoint(registry: Registry, ref: ModelRef) -> Path:
    """Return the folder of `checkpoint:NAME`.

    Raises:
        UserError: for an unknown name, and for a run of another owner.
    """
    folder = resolve_checkpoint(registry, ref)
    if folder is None:
        raise UserError("this model is not on this server, or not yours; select another one above")
    return folder


def public_fields(config: RunConfig, is_owner: bool) -> dict[str, Any]:
    """Return settings by name for display.

    Only the owner gets the name of a dataset, because the name is enough to use and publish it.
    """
    fields = config.to_flat()
    if not is_owner and config.task.task == LOOKUP:
        del fields["dataset_sha256"]
    return fields


def resolve_config(registry: Registry, ref: ModelRef) -> RunConfig:
    """Return the settings of a model, for training with them.

    Raises:
        UserError: if there is no such model, or it uses a dataset of another owner.
    """
    run, is_owner = resolve_run(registry, ref)
    if run is None:
        return cached_manifest(require_checkpoint(registry, ref)).config
    if not is_owner and run.config.task.task == LOOKUP:
        raise UserError("this run uses a private dataset; only its owner may train on it")
    return run.config
