"""Serve the damaged records of an owner: which run, checkpoint or experiment, why, and its size.

The owner of a local instance gets all; others get those in which their fingerprint is legible.
"""

from typing import Any, Literal, TypedDict

from playground.checkpoints.manifest import cached_manifest
from playground.errors import UserError
from playground.experiments.service import ExperimentService
from playground.runs.access import is_single_owner
from playground.runs.record import owner_id
from playground.runs.registry import Registry
from playground.runs.storage_folder import Damaged, describe_damage

from .routes import HandlerGroup, handler
from .schemas.base import Name, OwnerRequest
from .schemas.responses import DamagedRecord, Done


class RemoveDamaged(OwnerRequest):
    """A damaged record of the owner."""

    kind: Literal["run", "checkpoint", "experiment"]
    name: Name


class DamagedList(TypedDict):
    """The response of `damaged/list`."""

    damaged: list[DamagedRecord]


class DamagedHandlers(HandlerGroup):
    def __init__(self, registry: Registry, experiments: ExperimentService) -> None:
        self.registry = registry
        self._listed_at_start = {"run": registry.damaged, "experiment": experiments.store.damaged}

    @handler("damaged/list", OwnerRequest, DamagedList)
    def list_damaged(self, request: OwnerRequest) -> dict[str, Any]:
        """Return the damaged records of the owner."""
        return {
            "damaged": [
                {"kind": kind, "name": name, "reason": each.reason, "bytes": each.n_bytes}
                for (kind, name), each in self._find(request.owner).items()
            ]
        }

    @handler("damaged/remove", RemoveDamaged, Done)
    def remove(self, request: RemoveDamaged) -> dict[str, Any]:
        """Delete a damaged record with its folder."""
        damaged = self._find(request.owner).get((request.kind, request.name))
        if damaged is None:
            raise UserError("this record is no longer here, or not yours; reload the page")
        damaged.remove()
        self._listed_at_start.get(request.kind, {}).pop(request.name, None)
        return {}

    def _find(self, owner: str) -> dict[tuple[str, str], Damaged]:
        owns_machine, fingerprint = is_single_owner(self.registry, owner), owner_id(owner)
        kinds = dict(self._listed_at_start)
        if owns_machine:
            kinds["checkpoint"] = self._damaged_checkpoints()
        return {
            (kind, name): each
            for kind, records in kinds.items()
            for name, each in records.copy().items()
            if owns_machine or each.owner == fingerprint
        }

    def _damaged_checkpoints(self) -> dict[str, Damaged]:
        damaged = {}
        for name, folder in self.registry.storage.list_checkpoints().items():
            try:
                cached_manifest(folder)
            except (ValueError, OSError) as error:
                damaged[name] = describe_damage(folder, folder / "config.json", error)
        return damaged
