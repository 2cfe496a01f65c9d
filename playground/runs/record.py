"""The record of a run on disk: run.json in the folder of the run.

The folder of a run contains:

    run.json                   the record: owner, configuration and status (this module)
    metrics.jsonl  history/    metrics and weights by step (`weight_history.py`)
    checkpoints/               a folder per checkpoint, named by its step; see
                               `checkpoints/checkpoint.py`
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
)

from playground.checkpoints.manifest import Changes, Scores
from playground.common.messages import file_label
from playground.common.strict_json import read_json
from playground.common.validation import parse
from playground.models.config_fields import short_repr
from playground.tasks import LOOKUP
from playground.training.run_config import RunConfig
from playground.training.setting_changes import (
    RESULT_NEUTRAL_SETTINGS,
    SettingChange,
    config_at_step,
)

from .metric_series import MAX_LISTED_SCORES
from .worker_protocol import DIVERGED_MESSAGE, max_speed

MAX_NAME_LENGTH = 80
MAX_STEPS = 2**31 - 1
# values of `evicted`: evicted history or weights
HISTORY_THINNED, WEIGHTS_EVICTED = ("thinned", "emptied")
ACTIVE_STATUSES = ("starting", "training", "stopping")  # statuses with an active worker
TERMINAL_STATUSES = ("done", "stopped", "failed")


def is_valid_name(name: str) -> bool:
    return 1 <= len(name) <= MAX_NAME_LENGTH and name.isprintable()


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{short_repr(text)} is not printable; use printable characters")
    return text


def _replace_surrogates(text: object) -> object:
    """Replace what is not valid Unicode, as in file names that a message quotes."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


def _parse_config(settings: object) -> RunConfig:
    if isinstance(settings, RunConfig):
        return settings
    if not isinstance(settings, dict):
        raise ValueError(f"config is {short_repr(settings)}; give an object of settings")
    return RunConfig.from_flat(settings)


def _check_folder_name(name: str) -> str:
    if Path(name).name != name:
        raise ValueError(f"branched_from is {short_repr(name)}; it must be the name of a folder")
    return name


RunOrigin = Literal["user", "lesson", "experiment"]
Text = Annotated[str, Field(min_length=1), AfterValidator(_check_printable)]
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of an owner's key
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Step = Annotated[int, Field(ge=0, le=MAX_STEPS)]
CurvePoint = Annotated[tuple[Step, Annotated[float, Field(ge=0, le=1)]], Field(strict=False)]
FolderName = Annotated[Text, AfterValidator(_check_folder_name)]
Config = Annotated[RunConfig, PlainValidator(_parse_config), PlainSerializer(RunConfig.to_flat)]


class RunRecord(BaseModel, frozen=True, strict=True):
    """The persistent part of a run.

    `id` identifies the run for its owner, and `share_id` in share links. Neither can be guessed.
    A run is `waiting` for a slot, and `paused` at first with a worker, later without.
    """

    id: Text
    share_id: Text
    owner: Fingerprint
    name: Text
    config: Config
    created: Seconds
    status: Literal[
        "waiting", "starting", "training", "paused", "stopping", "done", "stopped", "failed"
    ] = "waiting"
    message: Annotated[str, BeforeValidator(_replace_surrogates)] = ""
    changes: Changes = ()
    scores: Scores | None = None
    step: Step = 0
    best: Annotated[float, Field(ge=0, le=1)] | None = None  # the best exact match
    seconds: Seconds = 0.0
    device: str = ""
    hidden: bool
    deleted_at: Seconds | None = None  # by the wall clock
    # folder name and step of the run from which this one branched
    branched_from: Annotated[tuple[FolderName, Step], Field(strict=False)] | None = None
    trained_seconds: Seconds = 0.0  # of training on this server, without pauses
    evicted: Literal["", "thinned", "emptied"] = ""
    imported: bool = False  # an imported checkpoint that was not trained further
    started_by: RunOrigin
    # whether viewers may see examples and use the model; None: if the data are not the owner's
    viewers_may_use: bool | None = None
    # the exact match of some steps: at least those of the first and the last evaluation
    curve: Annotated[tuple[CurvePoint, ...], Field(strict=False, max_length=MAX_LISTED_SCORES)] = ()
    address: str = ""  # of the client that started it, as `StorageFolder.address_id` hashes it

    @classmethod
    def new(
        cls, config: RunConfig, owner: str, name: str, origin: RunOrigin = "user", address: str = ""
    ) -> RunRecord:
        """Return the record of a new run; lists hide runs that the user did not start.

        `owner`: the fingerprint of the owner's key. `address`: that of the client, hashed.
        """
        return cls(
            id=secrets.token_urlsafe(16),
            share_id=secrets.token_urlsafe(16),
            owner=owner,
            name=name,
            config=config,
            created=time.time(),
            hidden=origin != "user",
            started_by=origin,
            address=address,
        )

    @classmethod
    def read(cls, folder: Path) -> RunRecord:
        """Read the record of a folder; a run that was active becomes paused.

        Raises ValueError if run.json is missing or invalid.
        """
        path = folder / "run.json"
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError(f"{file_label(path)} is not a run record")
        try:
            record = parse(cls, content)
        except ValueError as error:
            raise ValueError(f"{file_label(path)} is not a run record: {error}") from None
        return record if record.status in TERMINAL_STATUSES else record.replace(status="paused")

    def replace(self, **changes: Any) -> RunRecord:
        """Return a copy with some fields changed."""
        assert changes.keys() <= RunRecord.model_fields.keys(), changes.keys()
        return self.model_copy(update=changes)

    def to_json(self) -> bytes:
        return json.dumps(self.model_dump(), indent=1).encode() + b"\n"

    @property
    def steps(self) -> int:
        return config_at_step(self.config.training, self.changes, self.step).max_steps

    @property
    def learning_rate(self) -> float:
        """The current base learning rate of the schedule."""
        return config_at_step(self.config.training, self.changes, self.step).learning_rate

    @property
    def max_steps_per_second(self) -> float:
        return max_speed(self.changes, self.step)

    @property
    def may_viewers_use(self) -> bool:
        is_public = self.config.task.task != LOOKUP
        return is_public if self.viewers_may_use is None else self.viewers_may_use

    @property
    def diverged(self) -> bool:
        """Whether it ended because the loss or the gradient was not finite."""
        return self.status == "failed" and self.message.startswith(DIVERGED_MESSAGE)

    @property
    def changes_version(self) -> int:
        return _checksum(self.changes)

    @property
    def modified_settings(self) -> list[str]:
        """The settings that were changed from `config`, without those of the live view."""
        own = self.config.training
        return sorted(
            {
                change.setting
                for change in self.changes
                if change.setting not in RESULT_NEUTRAL_SETTINGS
                and change.value != getattr(own, change.setting)
            }
        )


def owner_id(owner_key: str) -> str:
    """Return the hash of an owner's key, which the server stores instead of the key."""
    return hashlib.sha256(owner_key.encode("utf-8", "replace")).hexdigest()


@lru_cache(maxsize=256)  # every poll needs it
def _checksum(changes: tuple[SettingChange, ...]) -> int:
    return zlib.crc32(json.dumps([change.to_list() for change in changes]).encode())
